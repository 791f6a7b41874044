"""The four questions a handler may ask its caller, from typed arguments to typed answers.

Whether a question may be asked is decided before anything leaves: the method being served must allow questions, the
revision must have the question, and the caller must have declared it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidParams, LocalProtocolError, MissingCapability
from trunkline.protocol.fields import hidden_fields
from trunkline.protocol.methods import embedded_requests, requests_to_client
from trunkline.server.elicitors import ClientQuestion, Elicitor, decode_answer

if TYPE_CHECKING:
    from trunkline.server.server import Server
    from trunkline.types.json_values import JsonInput

__all__ = [
    "MAX_ELICITATION_ID_LENGTH",
    "AcceptedElicitation",
    "CancelledElicitation",
    "DeclinedElicitation",
    "ElicitationResult",
    "ModelChoice",
    "SamplingResult",
    "elicit",
    "elicit_url",
    "list_roots",
    "sample",
]

T = TypeVar("T")
#: The model that is wanted: preferences as a record or as JSON, or the names of models that would do, best first.
ModelChoice: TypeAlias = "t.ModelPreferences | str | Sequence[str | t.ModelHint] | Mapping[str, JsonInput]"

#: The most characters of an id that a handler gives to a question about a page.
MAX_ELICITATION_ID_LENGTH = 256
# How often, and how long in a round, we look whether a page was finished before we ask the caller again.
_POLL_SECONDS = 0.25
_POLLS_PER_ROUND = 8  # Two seconds a round: a request held longer may meet a proxy's timeout.


class AcceptedElicitation(Struct, Generic[T], frozen=True):
    """The user accepted; ``data`` is the content of the form, read into the type that was asked for."""

    data: T
    action: Literal["accept"] = "accept"

    @property
    def accepted(self) -> Literal[True]:
        """Whether the user accepted."""
        return True

    @property
    def content(self) -> T:
        """The same as ``data``, under the name the protocol gives it."""
        return self.data


class DeclinedElicitation(Struct, frozen=True):
    """The user declined: an answer, and the answer is no."""

    data: None = None
    action: Literal["decline"] = "decline"

    @property
    def accepted(self) -> Literal[False]:
        """Whether the user accepted."""
        return False

    @property
    def content(self) -> None:
        """The same as ``data``: there is none."""
        return None


class CancelledElicitation(Struct, frozen=True):
    """The user dismissed the question without an answer."""

    data: None = None
    action: Literal["cancel"] = "cancel"

    @property
    def accepted(self) -> Literal[False]:
        """Whether the user accepted."""
        return False

    @property
    def content(self) -> None:
        """The same as ``data``: there is none."""
        return None


#: What the user did with a question; ``action``, ``isinstance`` and ``match`` tell the three apart.
ElicitationResult: TypeAlias = AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation


class SamplingResult(Struct, frozen=True):
    """What the client's model answered."""

    result: t.CreateMessageResult

    @property
    def content(self) -> list[t.SamplingMessageContentBlock]:
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


async def elicit(
    server: Server, exchange: Exchange, *, message: str, kind: object, key: str | None
) -> ElicitationResult[Any]:
    """Ask the user to fill in the form of a type."""
    from trunkline.server.elicitation_forms import form_schema
    from trunkline.server.validation_errors import InvalidValue

    asking = _require_elicitor(server, exchange, "elicitation/create", "elicitation.form")
    schema, read = form_schema(kind)
    params = t.ElicitRequestParams(mode="form", message=message, requested_schema=schema)
    question = ClientQuestion("elicitation/create", params, key)
    while True:
        answer = decode_answer(await asking.ask(question), t.ElicitResult, "elicitation/create")
        if answer.action != "accept":
            return _not_accepted(answer.action)
        try:
            return AcceptedElicitation(read(answer.content or {}))
        except (InvalidValue, ValueError):
            # The same question object again: the answer did not fit the form, so it is asked once more.
            continue


def _not_accepted(action: Literal["decline", "cancel"]) -> DeclinedElicitation | CancelledElicitation:
    return DeclinedElicitation() if action == "decline" else CancelledElicitation()


async def elicit_url(
    server: Server,
    exchange: Exchange,
    *,
    message: str,
    url: str,
    done: Callable[[], bool | Awaitable[bool]] | None,
    elicitation_id: str | None,
    key: str | None,
) -> ElicitationResult[None]:
    """Ask the user to open a page, and see to it that it was finished."""
    asking = _require_elicitor(server, exchange, "elicitation/create", "elicitation.url")
    if not url[:8].lower().startswith(("https://", "http://")):
        raise LocalProtocolError(f"a page to open has an http or https URL, not {url[:40]!r}")
    handshake = exchange.admitted.caller.revision.handshake
    chosen = _new_elicitation_id(elicitation_id)
    name = chosen if handshake else None
    params = t.ElicitRequestParams(mode="url", message=message, url=url, elicitation_id=name)
    question = ClientQuestion("elicitation/create", params, key)
    while True:
        answer = decode_answer(await asking.ask(question), t.ElicitResult, "elicitation/create")
        if answer.action != "accept":
            return _not_accepted(answer.action)
        if done is None:
            return AcceptedElicitation(None)
        looks = int(server.limits.ask_seconds / _POLL_SECONDS) if handshake else _POLLS_PER_ROUND
        if await _poll_until_done(done, looks):
            if name is not None:
                complete = t.ElicitationCompleteNotificationParams(elicitation_id=name)
                exchange.notify("notifications/elicitation/complete", complete)
            return AcceptedElicitation(None)
        if handshake:
            return CancelledElicitation()


async def sample(
    server: Server,
    exchange: Exchange,
    *,
    messages: str | t.SamplingMessage | Sequence[str | t.SamplingMessage],
    max_tokens: int,
    key: str | None,
    system_prompt: str | None,
    temperature: float | None,
    stop_sequences: Sequence[str] | None,
    model_preferences: ModelChoice | None,
    tools: Sequence[t.Tool] | None,
    tool_choice: t.ToolChoice | Literal["auto", "required", "none"] | None,
    include_context: Literal["none", "thisServer", "allServers"] | None,
    metadata: Mapping[str, JsonInput] | None,
) -> SamplingResult:
    """Ask the client's model for a message."""
    needs = "sampling.tools" if tools or tool_choice else "sampling"
    asking = _require_elicitor(server, exchange, "sampling/createMessage", needs)
    given = [messages] if isinstance(messages, str | t.SamplingMessage) else list(messages)
    turns = [_sampling_message(each) for each in given]
    _check_tool_results(turns)
    params = t.CreateMessageRequestParams(
        messages=turns,
        max_tokens=max_tokens,
        model_preferences=_preferences(model_preferences),
        system_prompt=system_prompt,
        include_context=include_context,
        temperature=temperature,
        stop_sequences=None if stop_sequences is None else list(stop_sequences),
        metadata=None if metadata is None else dict(metadata),
        tools=None if tools is None else list(tools),
        tool_choice=t.ToolChoice(mode=tool_choice) if isinstance(tool_choice, str) else tool_choice,
    )
    question = ClientQuestion("sampling/createMessage", params, key)
    return SamplingResult(decode_answer(await asking.ask(question), t.CreateMessageResult, question.method))


async def list_roots(server: Server, exchange: Exchange, *, key: str | None) -> list[t.Root]:
    """Ask the client for the folders it works in."""
    asking = _require_elicitor(server, exchange, "roots/list", "roots")
    question = ClientQuestion("roots/list", t.RequestParams(), key)
    result = decode_answer(await asking.ask(question), t.ListRootsResult, question.method)
    for root in result.roots:
        if not root.uri.startswith("file://"):
            raise InvalidParams(f"Invalid params: a root has a file:// URI, not {root.uri[:40]!r}")
    return result.roots


def _require_elicitor(server: Server, exchange: Exchange, method: str, capability: str) -> Elicitor:
    """Give the way to ask, if this question may be asked here.

    Raises:
        LocalProtocolError: the method being served allows no questions.
        MissingCapability: the revision has no such question, or the caller did not declare it.
    """
    # A session is asked for its roots while any method is served: such a request stands alone in its revision.
    alone = method == "roots/list" and exchange.admitted.caller.session is not None
    if not (exchange.admitted.row.input_required or alone):
        raise LocalProtocolError(
            f"a handler of {exchange.method} cannot ask the caller: only tools, prompts, resources can"
        )
    caller = exchange.admitted.caller
    revision = caller.revision
    if method not in requests_to_client(revision) and method not in embedded_requests(revision):
        raise MissingCapability(f"Protocol revision {revision.name} has no {method}", capability=capability)
    if capability == "elicitation.url" and "url" in hidden_fields(t.ElicitRequestParams, revision):
        raise MissingCapability(f"Protocol revision {revision.name} has no pages to open", capability=capability)
    if not caller.supports(capability):
        raise MissingCapability(
            f"The client did not declare the capability {capability!r}, which {method} needs", capability=capability
        )
    return server.elicitor_for(exchange)


def _new_elicitation_id(given: str | None) -> str:
    """Give the id of a question about a page: the given one, else one that nobody can guess.

    Raises:
        LocalProtocolError: the given one is empty, too long, or holds what cannot be seen.
    """
    if given is None:
        return os.urandom(16).hex()
    if not 0 < len(given) <= MAX_ELICITATION_ID_LENGTH or not given.isprintable():
        raise LocalProtocolError(
            f"an elicitation_id has 1 to {MAX_ELICITATION_ID_LENGTH} characters that can be seen, not {given[:40]!r}"
        )
    return given


async def _poll_until_done(done: Callable[[], bool | Awaitable[bool]], looks: int) -> bool:
    for _ in range(looks):
        answer = done()
        if await answer if inspect.isawaitable(answer) else answer:
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False


def _sampling_message(given: str | t.SamplingMessage) -> t.SamplingMessage:
    if isinstance(given, t.SamplingMessage):
        return given
    return t.SamplingMessage(role="user", content=t.TextContent(text=given))


def _check_tool_results(turns: Sequence[t.SamplingMessage]) -> None:
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


def _preferences(
    given: ModelChoice | None,
) -> t.ModelPreferences | None:
    if given is None or isinstance(given, t.ModelPreferences):
        return given
    if isinstance(given, Mapping):
        return msgspec.convert(given, t.ModelPreferences)
    names = [given] if isinstance(given, str) else given
    return t.ModelPreferences(hints=[t.ModelHint(name=each) if isinstance(each, str) else each for each in names])
