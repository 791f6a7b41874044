"""Answers elicitation and sampling requests of a server in the terminal, or declines them.

One request at a time, since there is one user. Without a terminal a request is declined, with a notice on stderr; a
command that must not decide anything unseen ends with an error instead. Whether anything was declined decides the exit
code.
"""

from __future__ import annotations

import asyncio

import trunkline.types as t
from trunkline.cli.ui.elicitation import FormDismissed, ask_form, ask_page
from trunkline.cli.ui.output import block_text, clip, one_line, quote_lines
from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, is_interactive
from trunkline.errors import PolicyDenied, RequestFailed

__all__ = ["SAMPLING_REJECTED", "TerminalRequestHandler"]

#: The error code of a declined sampling request, as in the examples of the specification.
SAMPLING_REJECTED = -1


class TerminalRequestHandler:
    """Handler of the server's elicitation and sampling requests."""

    def __init__(self, screen: Screen, *, no_input: bool) -> None:
        """Ask in the terminal, if there is one and ``no_input`` is not set."""
        self._screen = screen
        self._terminal = Terminal(screen) if not no_input and is_interactive() else None
        self._no_input = no_input
        self._why = "--no-input was given" if no_input else "there is no terminal to ask in"
        #: Held while a question is being asked: there is one user.
        self.terminal_lock = asyncio.Lock()
        #: True if a request was declined or cancelled.
        self.denied = False
        #: When a request may not be declined only because there is no terminal, for the error; None if it may.
        self.left_open: str | None = None

    # --- elicitation -------------------------------------------------------------------------------------------------

    async def elicit(self, question: t.ElicitRequestParams) -> t.ElicitResult:
        """Answer an elicitation; forms for credentials and deceptive URLs are declined without being shown.

        Raises:
            PolicyDenied: there is no terminal, and the request is left open.
        """
        refusal = _refusal(question)
        if refusal is not None:
            self._decline("asks", question.message, refusal)
            return t.ElicitResult(action="decline")
        if self._terminal is None:
            self._decline("asks", question.message)
            return t.ElicitResult(action="decline")
        async with self.terminal_lock:
            self._terminal.discard_typeahead()
            try:
                answer = await self._elicited(self._terminal, question)
            except EndOfInput:
                answer = t.ElicitResult(action="cancel")
        self.denied = self.denied or answer.action != "accept"
        return answer

    async def _elicited(self, terminal: Terminal, question: t.ElicitRequestParams) -> t.ElicitResult:
        terminal.show(f"The server asks:\n{quote_lines(question.message)}")
        if question.mode == "url":
            from trunkline.host.server_requests.elicitation import parse_page_url

            return await ask_page(terminal, parse_page_url(question.url or ""))
        return await ask_form(terminal, question.requested_schema or {})

    # --- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, question: t.CreateMessageRequestParams) -> str:
        """Answer a sampling request with what the user types in place of a model.

        Raises:
            RequestFailed: the request is declined; the message is that of the specification.
            PolicyDenied: there is no terminal, and the request is left open.
        """
        if self._terminal is None:
            self._decline("asks for a model's answer to", _messages(question))
        else:
            async with self.terminal_lock:
                self._terminal.discard_typeahead()
                try:
                    return await _typed(self._terminal, question)
                except (EndOfInput, FormDismissed):
                    self.denied = True
        raise RequestFailed("User rejected sampling request", code=SAMPLING_REJECTED)

    def _decline(self, verb: str, what: str, why: str | None = None) -> None:
        asked = f'the server {verb} "{clip(one_line(what), 200)}"'
        if why is None and self.left_open is not None and not self._no_input:
            raise PolicyDenied(
                f"{asked} {self.left_open}, and {self._why}; nothing was answered: "
                "run the same command in a terminal to answer, or with --no-input to decline"
            )
        self.denied = True
        self._screen.line(f"trunkline: {asked}: declined, {why or self._why}")


def _refusal(question: t.ElicitRequestParams) -> str | None:
    """Return why a request is declined without asking; None if it may be asked."""
    from trunkline.host.server_requests.elicitation import InvalidPageUrl, credentials_in, parse_page_url

    if question.mode == "url":
        try:
            parse_page_url(question.url or "")
        except InvalidPageUrl as problem:
            return str(problem)
        return None
    asked = credentials_in(question.message, question.requested_schema or {})
    named = one_line(", ".join(asked))
    return f"credentials are never entered in a form ({named})" if asked else None


async def _typed(terminal: Terminal, question: t.CreateMessageRequestParams) -> str:
    """Show the request for the model, and read the user's answer."""
    terminal.show(f"The server asks for a model's answer ({_preferences(question)}):")
    if question.system_prompt:
        terminal.show(quote_lines(f"system: {question.system_prompt}"))
    terminal.show(quote_lines(_messages(question)))
    terminal.show("(You answer in place of the model. End a line with \\ to continue on the next; :decline declines.)")
    lines: list[str] = []
    while True:
        line = await terminal.ask("more: " if lines else "answer: ")
        if line in (":decline", ":cancel"):
            raise FormDismissed("decline")
        if line.endswith("\\"):
            lines.append(line[:-1])
        elif line or lines:
            return "\n".join([*lines, line])


def _preferences(question: t.CreateMessageRequestParams) -> str:
    hints = (question.model_preferences and question.model_preferences.hints) or []
    names = ", ".join(one_line(hint.name) for hint in hints if hint.name)
    return f"at most {question.max_tokens} tokens" + (f", from {names}" if names else "")


def _messages(question: t.CreateMessageRequestParams) -> str:
    lines = []
    for message in question.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        lines += [f"{message.role}: {block_text(block)}" for block in blocks]
    return "\n".join(lines)
