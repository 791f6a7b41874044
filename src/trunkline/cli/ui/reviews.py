"""Reviews of sampling in the terminal: the requests of servers to a model, and the model's responses to them.

The requesting server is always shown first and the choice last, below whatever the server wrote. Text from servers
and models is quoted line by line and cannot control the terminal. Input typed before the question was shown does not
answer it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

import trunkline.types as t
from trunkline.cli.ui.elicitation import QuestionQueue
from trunkline.cli.ui.output import block_text, one_line, quote_lines, wire_json
from trunkline.cli.ui.terminal import (
    Screen,
    Terminal,
    edit_text,
    has_editor,
    is_interactive,
)
from trunkline.host.server_requests.sampling.handler import SamplingDecision, SamplingPrompter, SamplingReview
from trunkline.host.server_requests.sampling.model_request import preferences_text

__all__ = ["review_sampling", "terminal_sampling_review"]

_DENY = SamplingDecision(allow=False)
# The members of a request that the user may edit.
_EDITABLE = ("systemPrompt", "messages", "maxTokens", "temperature", "stopSequences")
_LONGER: Mapping[str, str] = MappingProxyType(
    {
        "request": "requests of this server go to a model without review, within its limits and without context",
        "response": "responses go to this server without review",
    }
)


async def review_sampling(terminal: Terminal, review: SamplingReview) -> SamplingDecision:
    """Ask until the user has decided."""
    return await _SamplingReviewPrompt(terminal, review).decision()


class _SamplingReviewPrompt:
    """One review while it is being asked."""

    def __init__(self, terminal: Terminal, review: SamplingReview) -> None:
        self._terminal = terminal
        self._review = review
        self._request: t.CreateMessageRequestParams | None = None
        self._response: t.CreateMessageResult | None = None
        self._model: str | None = None
        self._context = False

    async def decision(self) -> SamplingDecision:
        """Show the request or response, and ask until the user has decided."""
        is_request = self._review.stage == "request"
        self._show_request() if is_request else self._show_response()
        where = one_line(self._model or self._review.model) if is_request else one_line(self._review.server)
        while True:
            choice = await self._terminal.choose(f"Send it to {where}? {self._offer()}: ", self._words())
            if choice == "no":
                return _DENY
            if choice == "yes":
                return self._yes()
            if choice == "session":
                self._terminal.show(f"Until this session ends, {_LONGER[self._review.stage]}.")
                if await self._terminal.choose("Sure? yes or no: ", {"yes": "yes", "no": "no"}) == "yes":
                    return replace(self._yes(), remember="session")
            elif choice == "edit":
                await (self._edit_request() if is_request else self._edit_response())
            elif choice == "model":
                where = await self._choose_model()
            elif choice == "context":
                self._toggle_context()
            else:
                self._show_tools()

    def _yes(self) -> SamplingDecision:
        return SamplingDecision(
            allow=True,
            request=self._request,
            model=self._model,
            context=self._context,
            response=self._response,
        )

    def _words(self) -> dict[str, str]:
        review, extra = self._review, ["edit"]
        if review.stage == "request":
            extra += ["model"] if len(review.models) > 1 else []
            extra += ["context"] if review.context else []
            extra += ["tools"] if review.request.tools else []
        return {word: word for word in ("yes", "session", *extra, "no")}

    def _offer(self) -> str:
        names = {
            "yes": "yes (once)",
            "session": "session (until it ends)",
            "model": "model (another one)",
            "context": "context (leave it out)" if self._context else "context (include it)",
            "tools": "tools (show in full)",
        }
        return ", ".join(names.get(word, word) for word in self._words())

    # --- showing -----------------------------------------------------------------------------------------------------

    def _show_request(self) -> None:
        review = self._review
        request = review.request
        cost = "not known" if review.most_cost is None else f"{_dollars(review.most_cost)} at most"
        rows = [
            ("server", review.server),
            ("runs as", review.command),
            ("model", f"{review.model} ({'; '.join(review.why)})"),
            ("prefers", preferences_text(request.model_preferences)),
            ("size", f"about {review.input_tokens} tokens, and at most {review.max_tokens} in the response"),
            ("cost", cost),
            ("left", f"{review.requests_left} requests in this minute, {review.tokens_left} tokens in this hour"),
            ("context", "" if request.include_context in (None, "none") else f"it asks for {request.include_context}"),
            ("rule", f"{review.decision.rule}: {review.decision.reason}"),
        ]
        lines = [f"  {name:<9} {one_line(value)}" for name, value in rows if value]
        self._terminal.show("\n".join(["A server requests a response of a model, at your expense:", *lines]))
        for note in review.notes:
            self._terminal.show(f"  Note: {one_line(note)}.")
        self._show_messages(request)
        if review.context:
            self._terminal.show(f"Its results in this session, which are not sent:\n{quote_lines(review.context)}")

    def _show_messages(self, request: t.CreateMessageRequestParams) -> None:
        if request.system_prompt:
            self._terminal.show(f"System prompt:\n{quote_lines(request.system_prompt)}")
        self._terminal.show(f"Messages:\n{quote_lines(_conversation(request.messages))}")
        if request.tools:
            listed = quote_lines(_tools(request.tools))
            self._terminal.show(f"Tools that the model may call; they are the server's own, none of yours:\n{listed}")

    def _show_response(self) -> None:
        review, response = self._review, self._review.response
        assert response is not None
        used = review.usage
        tokens = "" if used is None else f"{used.input_tokens} tokens in, {used.output_tokens} out"
        cost = "" if review.cost is None else f", {_dollars(review.cost)}"
        stopped = one_line(response.stop_reason or "")
        self._terminal.show(
            f"{one_line(response.model)} responded ({tokens}{cost}; stop reason: {stopped}). "
            f"This would go to the server {one_line(review.server)}:"
        )
        self._terminal.show(quote_lines(_conversation([response])))

    def _show_tools(self) -> None:
        definitions = wire_json(self._review.request.tools, indent=2).decode()
        self._terminal.show(f"Its own tools, none of yours:\n{quote_lines(definitions)}")

    # --- changing ----------------------------------------------------------------------------------------------------

    async def _edit_request(self) -> None:
        """Let the user edit the request: as JSON in an editor, or its last message on a line."""
        before = self._request or self._review.request
        try:
            changed = await (_in_editor(self._terminal, before) if has_editor() else _on_a_line(self._terminal, before))
        except (msgspec.DecodeError, OSError, ValueError) as problem:
            self._terminal.show(f"Nothing was changed: {one_line(str(problem))}")
            return
        self._request = changed
        self._terminal.show("The edited request:")
        self._show_messages(changed)

    async def _edit_response(self) -> None:
        """Let the user edit the text of the response; tool calls cannot be edited."""
        before = self._response or self._review.response
        assert before is not None
        if not isinstance(before.content, t.TextContent):
            self._terminal.show("Nothing was changed: the response is not plain text.")
            return
        try:
            text = await edit_text(self._terminal, before.content.text, suffix=".txt", prompt="new response: ")
        except (OSError, ValueError) as problem:
            self._terminal.show(f"Nothing was changed: {one_line(str(problem))}")
            return
        self._response = replace(before, content=t.TextContent(text=text))
        self._terminal.show(f"The edited response:\n{quote_lines(text)}")

    async def _choose_model(self) -> str:
        models = self._review.models
        lines = [f"  {number}. {one_line(name)}" for number, name in enumerate(models, 1)]
        self._terminal.show("\n".join(["Which model?", *lines]))
        while (typed := await self._terminal.ask("number: ")) not in map(str, range(1, len(models) + 1)):
            self._terminal.show(f"Type a number from 1 to {len(models)}.")
        self._model = models[int(typed) - 1]
        return one_line(self._model)

    def _toggle_context(self) -> None:
        self._context = not self._context
        will = "are included" if self._context else "are left out"
        self._terminal.show(f"The server's results in this session {will}.")


async def _in_editor(terminal: Terminal, before: t.CreateMessageRequestParams) -> t.CreateMessageRequestParams:
    members = msgspec.to_builtins(before)
    shown = {"systemPrompt": "", **{name: members[name] for name in _EDITABLE if name in members}}
    text = await edit_text(terminal, wire_json(shown, indent=2).decode(), suffix=".json", prompt="")
    changed = msgspec.json.decode(text, type=dict[str, Any])
    unknown = sorted(set(changed) - set(_EDITABLE))
    if unknown:
        raise ValueError(f"unknown member {unknown[0]!r}; expected {', '.join(_EDITABLE)}")
    rest = {name: value for name, value in members.items() if name not in _EDITABLE}
    return msgspec.convert({**rest, **changed}, t.CreateMessageRequestParams)


async def _on_a_line(terminal: Terminal, before: t.CreateMessageRequestParams) -> t.CreateMessageRequestParams:
    last = before.messages[-1]
    if not isinstance(last.content, t.TextContent):
        raise ValueError("the last message is not plain text; set EDITOR to edit it")
    text = await terminal.ask("new last message: ")
    if not text:
        raise ValueError("nothing was typed")
    return replace(before, messages=[*before.messages[:-1], replace(last, content=t.TextContent(text=text))])


def _conversation(messages: Iterable[t.SamplingMessage]) -> str:
    """Format messages; only the first line of each begins at the margin, so that one cannot pass for two."""
    lines = []
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        for block in blocks:
            first, *more = block_text(block).splitlines() or [""]
            lines += [f"{message.role}: {first}", *(f"    {line}" for line in more)]
    return "\n".join(lines)


def _tools(tools: list[t.Tool]) -> str:
    return "\n".join(f"{one_line(tool.name)}: {one_line(tool.description or '')}" for tool in tools)


def _dollars(amount: float) -> str:
    return f"${amount:.4f}"


def terminal_sampling_review(
    screen: Screen | None = None, *, no_input: bool = False, terminal_lock: asyncio.Lock | None = None
) -> SamplingPrompter | None:
    """Return a prompter that reviews sampling requests and responses in this terminal; None without a terminal.

    ``terminal_lock`` is held while it asks, for a terminal shared with other prompts.
    """
    if no_input or not is_interactive():
        return None
    turns = QuestionQueue(screen, terminal_lock)

    async def prompter(review: SamplingReview) -> SamplingDecision | None:
        return await turns.take(review, review_sampling)

    return prompter
