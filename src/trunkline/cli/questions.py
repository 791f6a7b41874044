"""Answers elicitation and sampling requests of a server in the terminal, or declines them.

One request at a time, since there is one user. Without a terminal a request is declined, with a notice on stderr.
Whether anything was declined decides the exit code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import trunkline.types as t
from trunkline.cli.blocks import block_text
from trunkline.cli.form import Left, fill_in, summary
from trunkline.cli.output import clip, one_line
from trunkline.cli.screen import Screen
from trunkline.cli.terminal import InputEnded, Terminal, is_there
from trunkline.errors import RequestFailed

__all__ = ["REJECTED", "Questions", "host_shown"]

#: The error code of a declined sampling request, as in the examples of the specification.
REJECTED = -1

_CONSENT: Mapping[str, str] = MappingProxyType(
    {"yes": "accept", "no": "decline", "decline": "decline", "cancel": "cancel"}
)
_REVIEW: Mapping[str, str] = MappingProxyType({**_CONSENT, "edit": "edit"})


class Questions:
    """Handler of the server's elicitation and sampling requests."""

    def __init__(self, screen: Screen, *, no_input: bool) -> None:
        """Ask in the terminal, if there is one and ``no_input`` is not set."""
        self._screen = screen
        self._terminal = Terminal(screen) if not no_input and is_there() else None
        self._why = "--no-input was given" if no_input else "there is no terminal to ask in"
        #: Held while a question is being asked: there is one user.
        self.turn = asyncio.Lock()
        #: True if a request was declined or cancelled.
        self.denied = False

    # --- elicitation -------------------------------------------------------------------------------------------------

    async def elicit(self, question: t.ElicitRequestParams) -> t.ElicitResult:
        """Answer an elicitation; forms for credentials and deceptive URLs are declined without being shown."""
        refusal = _refusal(question)
        if refusal is not None:
            self._decline("asks", question.message, refusal)
            return t.ElicitResult(action="decline")
        if self._terminal is None:
            self._decline("asks", question.message)
            return t.ElicitResult(action="decline")
        async with self.turn:
            self._terminal.forget_typed()
            try:
                answer = await self._elicited(self._terminal, question)
            except InputEnded:
                answer = t.ElicitResult(action="cancel")
            except Left as way_out:
                answer = t.ElicitResult(action="decline" if way_out.action == "decline" else "cancel")
        self.denied = self.denied or answer.action != "accept"
        return answer

    async def _elicited(self, terminal: Terminal, question: t.ElicitRequestParams) -> t.ElicitResult:
        terminal.show(f"The server asks:\n{_quoted(question.message)}")
        if question.mode == "url":
            return await _page(terminal, question.url or "")
        return await _form(terminal, question.requested_schema or {})

    # --- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, question: t.CreateMessageRequestParams) -> str:
        """Answer a sampling request with what the user types in place of a model.

        Raises:
            RequestFailed: the request is declined; the message is that of the specification.
        """
        if self._terminal is None:
            self._decline("asks for a model's answer to", _messages(question))
        else:
            async with self.turn:
                self._terminal.forget_typed()
                try:
                    return await _typed(self._terminal, question)
                except (InputEnded, Left):
                    self.denied = True
        raise RequestFailed("User rejected sampling request", code=REJECTED)

    def _decline(self, verb: str, what: str, why: str | None = None) -> None:
        self.denied = True
        self._screen.line(f'trunkline: the server {verb} "{clip(one_line(what), 200)}": declined, {why or self._why}')


def _refusal(question: t.ElicitRequestParams) -> str | None:
    """Return why a request is declined without asking; None if it may be asked."""
    from trunkline.host.elicitation.forms import credentials_in
    from trunkline.host.elicitation.pages import AddressRefused, read_address

    if question.mode == "url":
        try:
            read_address(question.url or "")
        except AddressRefused as problem:
            return str(problem)
        return None
    asked = credentials_in(question.message, question.requested_schema or {})
    named = one_line(", ".join(asked))
    return f"credentials are never entered in a form ({named})" if asked else None


def _quoted(text: str) -> str:
    """Quote a server's text line by line, so that it cannot pass for output of this program."""
    return "\n".join(f"  | {line}" for line in text.splitlines())


async def _form(terminal: Terminal, schema: Mapping[str, Any]) -> t.ElicitResult:
    """Ask for the fields of a form; with several fields, confirm the answers before they are sent."""
    fields = schema.get("properties") or {}
    if not fields:
        action = await terminal.choose("Accept? yes, no (decline) or cancel: ", _CONSENT)
        return _result(action, {})
    terminal.show("(Enter accepts the value in brackets or skips; :decline declines, :cancel cancels.)")
    content: dict[str, Any] = {}
    while True:
        content = await fill_in(terminal, schema, content)
        if len(fields) == 1:
            return _result("accept", content)
        terminal.show(f"To be sent:\n{summary(content)}")
        action = await terminal.choose("Send? [yes], no (decline), edit or cancel: ", _REVIEW, default="yes")
        if action != "edit":
            return _result(action, content)


def _result(action: str, content: dict[str, Any]) -> t.ElicitResult:
    if action == "accept":
        return t.ElicitResult(action="accept", content=content)
    return t.ElicitResult(action="decline" if action == "decline" else "cancel")


async def _page(terminal: Terminal, url: str) -> t.ElicitResult:
    """Show the page that the server wants opened; only the user opens it."""
    terminal.show(f"It wants you to open this page in a browser:\n  {one_line(url)}\n  at {host_shown(url)}")
    from trunkline.host.elicitation.pages import read_address

    for warning in read_address(url).warnings:
        terminal.show(f"Careful: {one_line(warning)}.")
    terminal.show("Open it yourself if you trust that name. The server may see what you enter there.")
    return _result(await terminal.choose("Did you open it? yes, no (decline) or cancel: ", _CONSENT), {})


def host_shown(url: str) -> str:
    """Return the host of a URL; a name that could look like another one is shown in its ASCII form too."""
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        return "no valid host: do not trust it"
    if host.isascii() and "xn--" not in host:
        return host
    try:
        bare = host.encode("idna").decode()
    except UnicodeError:
        bare = ascii(host)
    return f"{bare} (its letters may look like another name's: {one_line(host)})"


async def _typed(terminal: Terminal, question: t.CreateMessageRequestParams) -> str:
    """Show the request for the model, and read the user's answer."""
    terminal.show(f"The server asks for a model's answer ({_wishes(question)}):")
    if question.system_prompt:
        terminal.show(_quoted(f"system: {question.system_prompt}"))
    terminal.show(_quoted(_messages(question)))
    terminal.show("(You answer in place of the model. End a line with \\ to continue on the next; :decline declines.)")
    lines: list[str] = []
    while True:
        line = await terminal.ask("more: " if lines else "answer: ")
        if line in (":decline", ":cancel"):
            raise Left("decline")
        if line.endswith("\\"):
            lines.append(line[:-1])
        elif line or lines:
            return "\n".join([*lines, line])


def _wishes(question: t.CreateMessageRequestParams) -> str:
    hints = (question.model_preferences and question.model_preferences.hints) or []
    names = ", ".join(one_line(hint.name) for hint in hints if hint.name)
    return f"at most {question.max_tokens} tokens" + (f", from {names}" if names else "")


def _messages(question: t.CreateMessageRequestParams) -> str:
    lines = []
    for message in question.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        lines += [f"{message.role}: {block_text(block)}" for block in blocks]
    return "\n".join(lines)
