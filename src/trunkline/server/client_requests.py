"""The four requests that a handler may send to its caller, from typed arguments to typed results.

Whether a request may be sent is checked first: the method being served must allow requests to the caller, the revision
must have the request, and the caller must have declared the capability.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidParams, LocalProtocolError, MissingCapability
from trunkline.protocol.channel import Channel, RequestToClient
from trunkline.protocol.fields import hidden_fields
from trunkline.protocol.methods import embedded_requests, requests_to_client
from trunkline.protocol.revisions import Feature
from trunkline.server.channels import LiveChannel, channel_for, decode_response

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
    "RunAsTask",
    "SamplingResult",
    "elicit",
    "elicit_url",
    "list_roots",
    "sample",
]

T = TypeVar("T")
#: The preferred model: preferences as a record or as JSON, or names of models in order of preference.
ModelChoice: TypeAlias = "t.ModelPreferences | str | Sequence[str | t.ModelHint] | Mapping[str, JsonInput]"
#: Whether the client runs a request as a task; a function is called with every state of that task.
RunAsTask: TypeAlias = "bool | Callable[[t.Task], None]"

#: The maximum length of an elicitation id.
MAX_ELICITATION_ID_LENGTH = 256
#: By capability: a member of the request that some revisions lack, and the name of the missing feature.
_MEMBERS: Mapping[str, tuple[type, str, str]] = MappingProxyType(
    {
        "elicitation.url": (t.ElicitRequestParams, "url", "URL elicitation"),
        "sampling.tools": (t.CreateMessageRequestParams, "tools", "sampling with tools"),
    }
)
# How often ``done`` is called in one round, and the pause between two calls, before the caller is asked again.
_POLL_SECONDS = 0.25
_POLLS_PER_ROUND = 8  # Two seconds a round: a request held longer may meet a proxy's timeout.


class AcceptedElicitation(Struct, Generic[T], frozen=True):
    """The user accepted; ``data`` is the content of the form, converted to the requested type."""

    data: T
    action: Literal["accept"] = "accept"

    @property
    def accepted(self) -> Literal[True]:
        """Whether the user accepted."""
        return True

    @property
    def content(self) -> T:
        """The same as ``data``, under the protocol's name."""
        return self.data


class DeclinedElicitation(Struct, frozen=True):
    """The user declined: an explicit no."""

    data: None = None
    action: Literal["decline"] = "decline"

    @property
    def accepted(self) -> Literal[False]:
        """Whether the user accepted."""
        return False

    @property
    def content(self) -> None:
        """The same as ``data``, which is None."""
        return None


class CancelledElicitation(Struct, frozen=True):
    """The user dismissed the form without an answer."""

    data: None = None
    action: Literal["cancel"] = "cancel"

    @property
    def accepted(self) -> Literal[False]:
        """Whether the user accepted."""
        return False

    @property
    def content(self) -> None:
        """The same as ``data``, which is None."""
        return None


#: The user's reaction to an elicitation; distinguish the three by ``action``, ``isinstance`` or ``match``.
ElicitationResult: TypeAlias = AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation


class SamplingResult(Struct, frozen=True):
    """The message of the client's model."""

    result: t.CreateMessageResult

    @property
    def content(self) -> list[t.SamplingMessageContentBlock]:
        """The content blocks of the message."""
        blocks = self.result.content
        return blocks if isinstance(blocks, list) else [blocks]

    @property
    def text(self) -> str:
        """The text blocks of the message, joined."""
        return "".join(block.text for block in self.content if isinstance(block, t.TextContent))

    @property
    def tool_uses(self) -> list[t.ToolUseContent]:
        """The tool calls that the model requests."""
        return [block for block in self.content if isinstance(block, t.ToolUseContent)]

    @property
    def model(self) -> str:
        """The model that was used."""
        return self.result.model

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped."""
        return self.result.stop_reason


async def elicit(
    server: Server, exchange: Exchange, *, message: str, kind: object, key: str | None, task: RunAsTask = False
) -> ElicitationResult[Any]:
    """Ask the user to fill in a form for a type."""
    from trunkline.server.elicitation_forms import form_schema
    from trunkline.server.validation_errors import InvalidValue

    channel = _require_channel(exchange, "elicitation/create", "elicitation.form")
    schema, read = form_schema(kind)
    params = t.ElicitRequestParams(mode="form", message=message, requested_schema=schema)
    request = RequestToClient("elicitation/create", params, key)
    while True:
        raw = await _ask(server, channel, request, task=task)
        answer = decode_response(raw, t.ElicitResult, "elicitation/create")
        if answer.action != "accept":
            return _not_accepted(answer.action)
        try:
            return AcceptedElicitation(read(answer.content or {}))
        except (InvalidValue, ValueError):
            # The response did not fit the form: sending the same request object again rejects it.
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
    """Ask the user to open a URL, and wait until ``done`` returns True."""
    channel = _require_channel(exchange, "elicitation/create", "elicitation.url")
    if not url[:8].lower().startswith(("https://", "http://")):
        raise LocalProtocolError(f"elicit_url needs an http or https URL, not {url[:40]!r}")
    handshake = exchange.admitted.caller.revision.handshake
    chosen = _new_elicitation_id(elicitation_id)
    name = chosen if handshake else None
    params = t.ElicitRequestParams(mode="url", message=message, url=url, elicitation_id=name)
    request = RequestToClient("elicitation/create", params, key)
    while True:
        answer = decode_response(await channel.ask(request), t.ElicitResult, "elicitation/create")
        if answer.action != "accept":
            return _not_accepted(answer.action)
        if done is None:
            return AcceptedElicitation(None)
        # A task holds no request open, and the user need not be asked again.
        waits = handshake or exchange.reports_status
        polls = int(server.limits.ask_seconds / _POLL_SECONDS) if waits else _POLLS_PER_ROUND
        if await _poll_until_done(done, polls):
            if name is not None:
                complete = t.ElicitationCompleteNotificationParams(elicitation_id=name)
                exchange.notify("notifications/elicitation/complete", complete)
            return AcceptedElicitation(None)
        if waits:
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
    task: RunAsTask = False,
) -> SamplingResult:
    """Ask the client's model for a message."""
    needs = "sampling.tools" if tools or tool_choice else "sampling"
    channel = _require_channel(exchange, "sampling/createMessage", needs)
    given = [messages] if isinstance(messages, str | t.SamplingMessage) else list(messages)
    converted = [_sampling_message(each) for each in given]
    _check_tool_results(converted)
    params = t.CreateMessageRequestParams(
        messages=converted,
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
    request = RequestToClient("sampling/createMessage", params, key)
    raw = await _ask(server, channel, request, task=task)
    return SamplingResult(decode_response(raw, t.CreateMessageResult, request.method))


async def list_roots(server: Server, exchange: Exchange, *, key: str | None) -> list[t.Root]:
    """Ask the client for its roots."""
    channel = _require_channel(exchange, "roots/list", "roots")
    request = RequestToClient("roots/list", t.RequestParams(), key)
    result = decode_response(await channel.ask(request), t.ListRootsResult, request.method)
    for root in result.roots:
        if not root.uri.startswith("file://"):
            raise InvalidParams(f"Invalid params: a root must have a file:// URI, not {root.uri[:40]!r}")
    return result.roots


def _require_channel(exchange: Exchange, method: str, capability: str) -> Channel:
    """Return the channel of an exchange, if the request may be sent here.

    Raises:
        LocalProtocolError: the method being served does not allow requests to the caller.
        MissingCapability: the revision does not have the request, or the caller did not declare the capability.
    """
    # With a session, roots may be requested while any method is served: in those revisions it is a separate request.
    separate = method == "roots/list" and exchange.admitted.caller.session is not None
    if not (exchange.admitted.row.input_required or separate):
        raise LocalProtocolError(
            f"a handler of {exchange.method} cannot send {method} to the caller: only tools, prompts, resources can"
        )
    caller = exchange.admitted.caller
    revision = caller.revision
    if method not in requests_to_client(revision) and method not in embedded_requests(revision):
        raise MissingCapability(f"Protocol revision {revision.name} has no {method}", capability=capability)
    params, member, what = _MEMBERS.get(capability, (t.RequestParams, "", ""))
    if member in hidden_fields(params, revision):
        raise MissingCapability(f"Protocol revision {revision.name} has no {what}", capability=capability)
    if not caller.supports(capability):
        if caller.session is not None and caller.client_info is None:
            # Served without its handshake, see `serve_alone` of the HTTP sessions: what it declared is not known.
            raise MissingCapability(
                f"This server keeps no session for clients of revision {revision.name}, so {method} cannot be sent to "
                "them. It can if its workers share a store, or if there is one worker and sessions are not turned off",
                capability=capability,
            )
        raise MissingCapability(
            f"The client did not declare the capability {capability!r}, which {method} needs", capability=capability
        )
    return channel_for(exchange)


async def _ask(server: Server, channel: Channel, request: RequestToClient, *, task: RunAsTask) -> Raw:
    """Send a request; as a task if that is requested and the client supports it."""
    # Questions of a server's task are fetched by the client.
    if not task or not isinstance(channel, LiveChannel):
        return await channel.ask(request)
    caller = channel.exchange.admitted.caller
    wanted = f"tasks.requests.{request.method.replace('/', '.')}"
    if Feature.CORE_TASKS not in caller.revision.features or not caller.supports(wanted):
        return await channel.ask(request)
    from trunkline.server.tasks.requester import ask_as_task

    on_state = task if callable(task) else None
    return await ask_as_task(channel, request, limits=server.limits, on_state=on_state)


def _new_elicitation_id(given: str | None) -> str:
    """Return the given elicitation id, or a random one.

    Raises:
        LocalProtocolError: the given id is empty, too long, or has unprintable characters.
    """
    if given is None:
        return os.urandom(16).hex()
    if not 0 < len(given) <= MAX_ELICITATION_ID_LENGTH or not given.isprintable():
        raise LocalProtocolError(
            f"an elicitation_id needs 1 to {MAX_ELICITATION_ID_LENGTH} printable characters, not {given[:40]!r}"
        )
    return given


async def _poll_until_done(done: Callable[[], bool | Awaitable[bool]], polls: int) -> bool:
    for _ in range(polls):
        finished = done()
        if await finished if inspect.isawaitable(finished) else finished:
            return True
        await asyncio.sleep(_POLL_SECONDS)
    return False


def _sampling_message(given: str | t.SamplingMessage) -> t.SamplingMessage:
    if isinstance(given, t.SamplingMessage):
        return given
    return t.SamplingMessage(role="user", content=t.TextContent(text=given))


def _check_tool_results(messages: Sequence[t.SamplingMessage]) -> None:
    """Check that a message with tool results has nothing else, and answers exactly the tool calls just before it.

    Raises:
        LocalProtocolError: it does not (2025-11-25, client/sampling, Message Content Constraints).
    """
    called: set[str] = set()
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = {block.tool_use_id for block in blocks if isinstance(block, t.ToolResultContent)}
        if results and len(results) != len(blocks):
            raise LocalProtocolError("a message with tool results must not contain anything else")
        if results != called:
            missing, extra = ", ".join(sorted(called - results)), ", ".join(sorted(results - called))
            fault = f"no result for {missing}" if missing else f"no call for the result of {extra}"
            raise LocalProtocolError(f"tool results must answer exactly the tool calls just before them: {fault}")
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
