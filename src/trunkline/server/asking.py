"""The four questions a handler may ask its caller, from typed arguments to typed answers.

Whether a question may be asked is decided before anything leaves: the method being served must allow questions, the
revision must have the question, and the caller must have declared it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidParams, LocalProtocolError, MissingCapability
from trunkline.protocol.fields import hidden
from trunkline.protocol.methods import embedded_requests, requests_to_client
from trunkline.server.questions import Asking, Question, read_answer

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["LONGEST_PAGE_ID", "Elicited", "Sampled", "elicit", "elicit_url", "list_roots", "sample"]

#: The most characters of an id that a handler gives to a question about a page.
LONGEST_PAGE_ID = 256
# How often, and how long in a round, we look whether a page was finished before we ask the caller again.
_LOOK_EVERY = 0.25
_LOOKS_A_ROUND = 8


class Elicited(Struct, frozen=True):
    """What the user did with a form, and its typed content if that was to accept."""

    action: t.ElicitAction
    data: Any = None

    @property
    def accepted(self) -> bool:
        """Whether the user accepted."""
        return self.action == "accept"

    @property
    def content(self) -> Any:
        """The same as ``data``, under the name the protocol gives it."""
        return self.data


class Sampled(Struct, frozen=True):
    """What the client's model answered."""

    result: t.CreateMessageResult

    @property
    def content(self) -> list[Any]:
        """The blocks of the answer."""
        blocks = self.result.content
        return blocks if isinstance(blocks, list) else [blocks]

    @property
    def text(self) -> str:
        """The text of the answer, blocks joined."""
        return "".join(block.text for block in self.content if isinstance(block, t.TextContent))

    @property
    def tool_uses(self) -> list[t.ToolUseContent]:
        """The tools the model wants to be called."""
        return [block for block in self.content if isinstance(block, t.ToolUseContent)]

    @property
    def model(self) -> str:
        """The model that answered."""
        return self.result.model

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped."""
        return self.result.stop_reason


async def elicit(server: Server, exchange: Exchange, *, message: str, kind: Any, key: str | None) -> Elicited:
    """Ask the user to fill in a form of a type."""
    from trunkline.server.forms import form_schema
    from trunkline.server.mismatch import Mismatch

    asking = _may_ask(server, exchange, "elicitation/create", "elicitation.form")
    schema, read = form_schema(kind)
    params = t.ElicitRequestParams(mode="form", message=message, requested_schema=schema)
    question = Question("elicitation/create", params, key)
    while True:
        answer: t.ElicitResult = read_answer(await asking.ask(question), t.ElicitResult, "elicitation/create")
        if answer.action != "accept":
            return Elicited(answer.action)
        try:
            return Elicited("accept", read(answer.content or {}))
        except (Mismatch, ValueError):
            # The same question object again: the answer did not fit the form, so it is asked once more.
            continue


async def elicit_url(
    server: Server,
    exchange: Exchange,
    *,
    message: str,
    url: str,
    done: Callable[[], bool | Awaitable[bool]] | None,
    elicitation_id: str | None,
    key: str | None,
) -> Elicited:
    """Ask the user to open a page, and see to it that it was finished."""
    asking = _may_ask(server, exchange, "elicitation/create", "elicitation.url")
    if not url[:8].lower().startswith(("https://", "http://")):
        raise LocalProtocolError(f"a page to open has an http or https URL, not {url[:40]!r}")
    handshake = exchange.admitted.caller.revision.handshake
    chosen = _page_id(elicitation_id)
    name = chosen if handshake else None
    params = t.ElicitRequestParams(mode="url", message=message, url=url, elicitation_id=name)
    question = Question("elicitation/create", params, key)
    while True:
        answer: t.ElicitResult = read_answer(await asking.ask(question), t.ElicitResult, "elicitation/create")
        if answer.action != "accept" or done is None:
            return Elicited(answer.action)
        looks = int(server.limits.ask_seconds / _LOOK_EVERY) if handshake else _LOOKS_A_ROUND
        if await _finished(done, looks):
            if name is not None:
                complete = t.ElicitationCompleteNotificationParams(elicitation_id=name)
                exchange.notify("notifications/elicitation/complete", complete)
            return Elicited("accept")
        if handshake:
            return Elicited("cancel")


async def sample(
    server: Server,
    exchange: Exchange,
    *,
    messages: str | t.SamplingMessage | Sequence[str | t.SamplingMessage],
    max_tokens: int,
    key: str | None,
    **options: Any,
) -> Sampled:
    """Ask the client's model for a message."""
    needs_tools = options.get("tools") or options.get("tool_choice")
    asking = _may_ask(server, exchange, "sampling/createMessage", "sampling.tools" if needs_tools else "sampling")
    given = [messages] if isinstance(messages, str | t.SamplingMessage) else list(messages)
    turns = [_message(each) for each in given]
    _check_tool_turns(turns)
    params = t.CreateMessageRequestParams(messages=turns, max_tokens=max_tokens, **_sampling_options(options))
    question = Question("sampling/createMessage", params, key)
    return Sampled(read_answer(await asking.ask(question), t.CreateMessageResult, question.method))


async def list_roots(server: Server, exchange: Exchange, *, key: str | None) -> list[t.Root]:
    """Ask the client for the folders it works in."""
    asking = _may_ask(server, exchange, "roots/list", "roots")
    question = Question("roots/list", t.RequestParams(), key)
    result: t.ListRootsResult = read_answer(await asking.ask(question), t.ListRootsResult, question.method)
    for root in result.roots:
        if not root.uri.startswith("file://"):
            raise InvalidParams(f"Invalid params: a root has a file:// URI, not {root.uri[:40]!r}")
    return result.roots


def _may_ask(server: Server, exchange: Exchange, method: str, capability: str) -> Asking:
    """Give the way to ask, if this question may be asked here.

    Raises:
        LocalProtocolError: the method being served allows no questions.
        MissingCapability: the revision has no such question, or the caller did not declare it.
    """
    if not exchange.admitted.row.input_required:
        raise LocalProtocolError(
            f"a handler of {exchange.method} cannot ask the caller: only tools, prompts, resources can"
        )
    caller = exchange.admitted.caller
    revision = caller.revision
    if method not in requests_to_client(revision) and method not in embedded_requests(revision):
        raise MissingCapability(f"Protocol revision {revision.name} has no {method}", capability=capability)
    if capability == "elicitation.url" and "url" in hidden(t.ElicitRequestParams, revision):
        raise MissingCapability(f"Protocol revision {revision.name} has no pages to open", capability=capability)
    if not caller.supports(capability):
        raise MissingCapability(
            f"The client did not declare the capability {capability!r}, which {method} needs", capability=capability
        )
    return server.asking(exchange)


def _page_id(given: str | None) -> str:
    """Give the id of a question about a page: the given one, else one that nobody can guess.

    Raises:
        LocalProtocolError: the given one is empty, too long, or holds what cannot be seen.
    """
    if given is None:
        return os.urandom(16).hex()
    if not 0 < len(given) <= LONGEST_PAGE_ID or not given.isprintable():
        raise LocalProtocolError(
            f"an elicitation_id has 1 to {LONGEST_PAGE_ID} characters that can be seen, not {given[:40]!r}"
        )
    return given


async def _finished(done: Callable[[], bool | Awaitable[bool]], looks: int) -> bool:
    for _ in range(looks):
        answer = done()
        if await answer if inspect.isawaitable(answer) else answer:
            return True
        await asyncio.sleep(_LOOK_EVERY)
    return False


def _message(given: str | t.SamplingMessage) -> t.SamplingMessage:
    if isinstance(given, t.SamplingMessage):
        return given
    return t.SamplingMessage(role="user", content=t.TextContent(text=given))


def _check_tool_turns(turns: Sequence[t.SamplingMessage]) -> None:
    """See that results of tools stand alone in their message and answer the calls just before.

    Raises:
        LocalProtocolError: they do not (2025-11-25, client/sampling, Message Content Constraints).
    """
    called: set[str] = set()
    for turn in turns:
        blocks = turn.content if isinstance(turn.content, list) else [turn.content]
        results = {block.tool_use_id for block in blocks if isinstance(block, t.ToolResultContent)}
        if results and len(results) != len(blocks):
            raise LocalProtocolError("a message with results of tools holds nothing else")
        if results != called:
            missing = ", ".join(sorted(called - results)) or "no call"
            raise LocalProtocolError(f"results of tools answer the calls just before them; {missing} is not answered")
        called = {block.id for block in blocks if isinstance(block, t.ToolUseContent)}


def _sampling_options(options: dict[str, Any]) -> dict[str, Any]:
    preferences = options.get("model_preferences")
    if isinstance(preferences, str):
        preferences = [preferences]
    if isinstance(preferences, list):
        hints = [t.ModelHint(name=each) if isinstance(each, str) else each for each in preferences]
        options = {**options, "model_preferences": t.ModelPreferences(hints=hints)}
    if isinstance(options.get("tool_choice"), str):
        options = {**options, "tool_choice": t.ToolChoice(mode=options["tool_choice"])}
    return options
