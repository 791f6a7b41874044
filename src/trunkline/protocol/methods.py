"""Every method of the protocol, one row each: sender, revisions, params and result.

A method that a revision lacks has no row in that revision's tables: absence is the gate. Params and results are decoded
here, by decoders created on first use, since a starting program needs only a few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, field
from msgspec.json import Decoder
from msgspec.structs import asdict, replace

import trunkline.types as t
from trunkline.protocol.caller import EXTENSIONS
from trunkline.protocol.extensions import SKILLS, TASKS
from trunkline.protocol.revisions import (
    ALL_REVISIONS,
    HANDSHAKE,
    ONLY_2025_11,
    SINCE_2025_03,
    SINCE_2025_06_HANDSHAKE,
    SINCE_2025_11,
    STATELESS,
    Revision,
    Span,
)

__all__ = [
    "METHODS",
    "MISNAMED_METHODS",
    "Method",
    "capability_needed",
    "decode_large_result",
    "decode_params",
    "decode_result",
    "decode_structured_content",
    "embedded_requests",
    "notifications_to_client",
    "notifications_to_server",
    "read_meta",
    "requests_to_client",
    "requests_to_server",
]

_LARGE_RESULT = 256 * 1024  # Bytes that are decoded in a few milliseconds.


# Compared and hashed by identity, since each is the only one of its name.
class Method(Struct, frozen=True, eq=False, kw_only=True):
    """One method; a span of None means that it is never sent in that direction."""

    name: str
    kind: Literal["request", "notification"]
    #: The revisions in which a client sends it to a server.
    to_server: Span | None = None
    #: The revisions in which a server sends it to a client.
    to_client: Span | None = None
    #: The revisions in which a server puts it into ``inputRequests`` and nowhere else.
    embedded: Span | None = None
    params: type[Struct] = t.RequestParams
    #: The type of the result; None for notifications.
    result: Any = None
    #: The result may be an ``InputRequiredResult`` instead.
    input_required: bool = False
    #: The request stays open and carries notifications.
    stream: bool = False
    #: The member of params that HTTP mirrors in a header.
    name_member: Literal["name", "uri", "task_id"] | None = None
    #: The capability that the receiver must have declared, as a dotted path.
    capability: str | None = None
    #: The revisions in which that capability exists; in others no declaration is needed.
    capability_span: Span = ALL_REVISIONS
    #: The extension that the method belongs to, in the revisions that have the extension.
    extension: str | None = None
    #: The result carries cache hints.
    cacheable: bool = False

    @property
    def sender(self) -> Literal["client", "server", "both"]:
        """The side that sends it, over all revisions."""
        if self.to_server is None:
            return "server"
        return "client" if self.to_client is None else "both"


def _client_request(name: str, span: Span, /, **row: Any) -> Method:
    return Method(name=name, kind="request", to_server=span, **row)


def _server_request(name: str, span: Span, /, **row: Any) -> Method:
    return Method(name=name, kind="request", to_client=span, embedded=STATELESS, **row)


def _either_request(name: str, span: Span, /, **row: Any) -> Method:
    return Method(name=name, kind="request", to_server=span, to_client=span, **row)


def _notification(name: str, /, **row: Any) -> Method:
    return Method(name=name, kind="notification", **{"params": t.NotificationParams, **row})


METHODS: tuple[Method, ...] = (
    _client_request("initialize", HANDSHAKE, params=t.InitializeRequestParams, result=t.InitializeResult),
    _client_request("server/discover", STATELESS, result=t.DiscoverResult, cacheable=True),
    _either_request("ping", HANDSHAKE, result=t.EmptyResult),
    _client_request(
        "tools/list",
        ALL_REVISIONS,
        params=t.PaginatedRequestParams,
        result=t.ListToolsResult,
        capability="tools",
        cacheable=True,
    ),
    _client_request(
        "tools/call",
        ALL_REVISIONS,
        params=t.CallToolRequestParams,
        result=t.CallToolResult,
        capability="tools",
        input_required=True,
        name_member="name",
    ),
    _client_request(
        "resources/list",
        ALL_REVISIONS,
        params=t.PaginatedRequestParams,
        result=t.ListResourcesResult,
        capability="resources",
        cacheable=True,
    ),
    _client_request(
        "resources/templates/list",
        ALL_REVISIONS,
        params=t.PaginatedRequestParams,
        result=t.ListResourceTemplatesResult,
        capability="resources",
        cacheable=True,
    ),
    _client_request(
        "resources/read",
        ALL_REVISIONS,
        params=t.ReadResourceRequestParams,
        result=t.ReadResourceResult,
        capability="resources",
        input_required=True,
        name_member="uri",
        cacheable=True,
    ),
    _client_request(
        "resources/subscribe",
        HANDSHAKE,
        params=t.SubscribeRequestParams,
        result=t.EmptyResult,
        capability="resources.subscribe",
    ),
    _client_request(
        "resources/unsubscribe",
        HANDSHAKE,
        params=t.UnsubscribeRequestParams,
        result=t.EmptyResult,
        capability="resources.subscribe",
    ),
    _client_request(
        "prompts/list",
        ALL_REVISIONS,
        params=t.PaginatedRequestParams,
        result=t.ListPromptsResult,
        capability="prompts",
        cacheable=True,
    ),
    _client_request(
        "prompts/get",
        ALL_REVISIONS,
        params=t.GetPromptRequestParams,
        result=t.GetPromptResult,
        capability="prompts",
        input_required=True,
        name_member="name",
    ),
    _client_request(
        "completion/complete",
        ALL_REVISIONS,
        params=t.CompleteRequestParams,
        result=t.CompleteResult,
        capability="completions",
        capability_span=SINCE_2025_03,
    ),
    _client_request(
        "logging/setLevel",
        HANDSHAKE,
        params=t.SetLevelRequestParams,
        result=t.EmptyResult,
        capability="logging",
    ),
    _client_request(
        "subscriptions/listen",
        STATELESS,
        params=t.SubscriptionsListenRequestParams,
        result=t.SubscriptionsListenResult,
        stream=True,
    ),
    _server_request(
        "sampling/createMessage",
        HANDSHAKE,
        params=t.CreateMessageRequestParams,
        result=t.CreateMessageResult,
        capability="sampling",
    ),
    _server_request(
        "elicitation/create",
        SINCE_2025_06_HANDSHAKE,
        params=t.ElicitRequestParams,
        result=t.ElicitResult,
        capability="elicitation",
    ),
    _server_request("roots/list", HANDSHAKE, result=t.ListRootsResult, capability="roots"),
    Method(
        name="tasks/get",
        kind="request",
        to_server=SINCE_2025_11,
        to_client=ONLY_2025_11,
        params=t.GetTaskRequestParams,
        result=t.GetTaskResult,
        capability="tasks",
        capability_span=ONLY_2025_11,
        extension=TASKS,
        name_member="task_id",
    ),
    _client_request(
        "tasks/update",
        STATELESS,
        params=t.UpdateTaskRequestParams,
        result=t.EmptyResult,
        extension=TASKS,
        name_member="task_id",
    ),
    _either_request(
        "tasks/result",
        ONLY_2025_11,
        params=t.GetTaskPayloadRequestParams,
        result=t.GetTaskPayloadResult,
        capability="tasks",
    ),
    Method(
        name="tasks/cancel",
        kind="request",
        to_server=SINCE_2025_11,
        to_client=ONLY_2025_11,
        params=t.CancelTaskRequestParams,
        result=t.CancelTaskResult,
        capability="tasks.cancel",
        capability_span=ONLY_2025_11,
        extension=TASKS,
        name_member="task_id",
    ),
    _either_request(
        "tasks/list",
        ONLY_2025_11,
        params=t.PaginatedRequestParams,
        result=t.ListTasksResult,
        capability="tasks.list",
    ),
    _client_request(
        "skills/list",
        ALL_REVISIONS,
        params=t.PaginatedRequestParams,
        result=t.ListSkillsResult,
        extension=SKILLS,
        cacheable=True,
    ),
    _client_request(
        "skills/get",
        ALL_REVISIONS,
        params=t.GetSkillRequestParams,
        result=t.GetSkillResult,
        extension=SKILLS,
        cacheable=True,
    ),
    _client_request(
        "resources/directory/read",
        ALL_REVISIONS,
        params=t.ReadResourceDirectoryRequestParams,
        result=t.ReadResourceDirectoryResult,
        extension=SKILLS,
    ),
    _notification("notifications/initialized", to_server=HANDSHAKE),
    _notification(
        "notifications/cancelled",
        to_server=ALL_REVISIONS,
        to_client=ALL_REVISIONS,
        params=t.CancelledNotificationParams,
    ),
    _notification(
        "notifications/progress", to_server=HANDSHAKE, to_client=ALL_REVISIONS, params=t.ProgressNotificationParams
    ),
    _notification(
        "notifications/message",
        to_client=ALL_REVISIONS,
        params=t.LoggingMessageNotificationParams,
    ),
    _notification("notifications/tools/list_changed", to_client=ALL_REVISIONS),
    _notification("notifications/prompts/list_changed", to_client=ALL_REVISIONS),
    _notification("notifications/resources/list_changed", to_client=ALL_REVISIONS),
    _notification(
        "notifications/resources/updated",
        to_client=ALL_REVISIONS,
        params=t.ResourceUpdatedNotificationParams,
    ),
    _notification("notifications/roots/list_changed", to_server=HANDSHAKE),
    _notification(
        "notifications/subscriptions/acknowledged",
        to_client=STATELESS,
        params=t.SubscriptionsAcknowledgedNotificationParams,
    ),
    _notification(
        "notifications/elicitation/complete",
        to_client=ONLY_2025_11,
        params=t.ElicitationCompleteNotificationParams,
        capability="elicitation.url",
    ),
    _notification(
        "notifications/tasks/status",
        to_server=ONLY_2025_11,
        to_client=ONLY_2025_11,
        params=t.TaskStatusNotificationParams,
    ),
    _notification("notifications/tasks", to_client=STATELESS, params=t.TaskNotificationParams, extension=TASKS),
)

#: Wrong names that existing programs use, with the right ones.
MISNAMED_METHODS: Mapping[str, str] = MappingProxyType(
    {"sampling/complete": "sampling/createMessage", "elicitation/request": "elicitation/create"}
)


class _Meta(Struct, frozen=True):
    meta: dict[str, Any] | None = field(name="_meta", default=None)


@cache
def requests_to_server(revision: Revision) -> Mapping[str, Method]:
    """Return the requests that a client may send in a revision, by name."""
    return _table(revision, "request", "to_server")


@cache
def requests_to_client(revision: Revision) -> Mapping[str, Method]:
    """Return the requests that a server may send in a revision, by name."""
    return _table(revision, "request", "to_client")


@cache
def notifications_to_server(revision: Revision) -> Mapping[str, Method]:
    """Return the notifications that a client may send in a revision, by name."""
    return _table(revision, "notification", "to_server")


@cache
def notifications_to_client(revision: Revision) -> Mapping[str, Method]:
    """Return the notifications that a server may send in a revision, by name."""
    return _table(revision, "notification", "to_client")


@cache
def embedded_requests(revision: Revision) -> Mapping[str, Method]:
    """Return the requests that in a revision travel only inside results, by name."""
    return _table(revision, "request", "embedded")


def _table(revision: Revision, kind: str, way: str) -> Mapping[str, Method]:
    spans = ((method, getattr(method, way)) for method in METHODS if method.kind == kind)
    return MappingProxyType({method.name: method for method, span in spans if span and span.covers(revision)})


def capability_needed(method: Method, revision: Revision) -> str | None:
    """Return the capability that the receiver of a method must have declared, as a path for ``supports``."""
    if method.capability is not None and method.capability_span.covers(revision):
        return method.capability
    return None if method.extension is None else f"{EXTENSIONS}{method.extension}"


@cache
def _decoder(kind: Any) -> Decoder[Any]:
    return Decoder(kind)


def decode_params(method: Method, raw: Raw | None) -> Any:
    """Decode a method's params to their type; missing params are an empty object.

    Raises:
        msgspec.ValidationError: a member is missing or has the wrong type.
    """
    return _decoder(method.params).decode(b"{}" if raw is None else raw)


def decode_result(method: Method, raw: Raw) -> Any:
    """Decode the result of a method, or the ``InputRequiredResult`` that came instead.

    Raises:
        msgspec.ValidationError: a member is missing or has the wrong type.
    """
    # Searching the bytes is much cheaper than decoding each result twice; only a hit is decoded.
    if method.input_required and bytes(raw).find(b"input_required") >= 0:
        result = _decoder(t.Result).decode(raw)
        if result.result_type == "input_required":
            return _decoder(t.InputRequiredResult).decode(raw)
    return _decoder(method.result).decode(raw)


def decode_large_result(method: Method, raw: Raw) -> t.CallToolResult | None:
    """Decode a large tool result with its structured content left ``Raw``; return None for any other result.

    Millions of members would stall the event loop for seconds, and a party that forwards the result reads none of them.
    """
    if method.result is not t.CallToolResult or len(raw) <= _LARGE_RESULT:
        return None
    try:
        result = _decoder(_RawToolResult).decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return t.CallToolResult(**asdict(result)) if result.result_type in (None, "complete") else None


class _RawToolResult(t.CallToolResult, frozen=True, kw_only=True):
    structured_content: Raw | UnsetType = UNSET


def decode_structured_content(result: Any) -> Any:
    """Return a result of ``decode_large_result`` with its structured content decoded; any other result unchanged."""
    if not isinstance(result, t.CallToolResult) or not isinstance(result.structured_content, Raw):
        return result
    return replace(result, structured_content=_decoder(Any).decode(result.structured_content))


def read_meta(raw: Raw | None) -> dict[str, Any]:
    """Return the whole ``_meta`` of params or a result, including members that no type knows."""
    meta: dict[str, Any] | None = None if raw is None else _decoder(_Meta).decode(raw).meta
    return meta or {}
