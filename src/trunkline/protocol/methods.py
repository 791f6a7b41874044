"""Every method of the protocol, one row each: sender, revisions, params and result.

A method that a revision lacks has no row in that revision's tables: absence is the gate. Params and results are decoded
here, by decoders created on first use, since a starting program needs only a few of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Raw, Struct, field
from msgspec.json import Decoder

import trunkline.types as t
from trunkline.protocol.revisions import (
    EVER,
    HANDSHAKE,
    ONLY_2025_11,
    SINCE_2025_03,
    SINCE_2025_06_HANDSHAKE,
    STATELESS,
    Revision,
    Span,
)

__all__ = [
    "LOOSE_NAMES",
    "METHODS",
    "Method",
    "capability_needed",
    "decode_params",
    "decode_result",
    "embedded_requests",
    "notifications_to_client",
    "notifications_to_server",
    "read_meta",
    "requests_to_client",
    "requests_to_server",
]


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
    name_member: Literal["name", "uri"] | None = None
    #: The capability that the receiver must have declared, as a dotted path.
    capability: str | None = None
    #: The revisions in which that capability exists: before it, nothing need be declared.
    capability_span: Span = EVER
    #: The capability that the sender must have declared, as a dotted path.
    sender_capability: str | None = None
    #: The result carries cache hints.
    cacheable: bool = False

    @property
    def sender(self) -> Literal["client", "server", "both"]:
        """The side that sends it, over all revisions."""
        if self.to_server is None:
            return "server"
        return "client" if self.to_client is None else "both"


def _asked_of_server(name: str, span: Span, /, **row: Any) -> Method:
    return Method(name=name, kind="request", to_server=span, **row)


def _asked_of_client(name: str, span: Span, /, **row: Any) -> Method:
    return Method(name=name, kind="request", to_client=span, embedded=STATELESS, **row)


def _asked_of_both(name: str, span: Span, /, **row: Any) -> Method:
    return Method(name=name, kind="request", to_server=span, to_client=span, **row)


def _told(name: str, /, **row: Any) -> Method:
    return Method(name=name, kind="notification", **{"params": t.NotificationParams, **row})


METHODS: tuple[Method, ...] = (
    _asked_of_server("initialize", HANDSHAKE, params=t.InitializeRequestParams, result=t.InitializeResult),
    _asked_of_server("server/discover", STATELESS, result=t.DiscoverResult, cacheable=True),
    _asked_of_both("ping", HANDSHAKE, result=t.EmptyResult),
    _asked_of_server(
        "tools/list",
        EVER,
        params=t.PaginatedRequestParams,
        result=t.ListToolsResult,
        capability="tools",
        cacheable=True,
    ),
    _asked_of_server(
        "tools/call",
        EVER,
        params=t.CallToolRequestParams,
        result=t.CallToolResult,
        capability="tools",
        input_required=True,
        name_member="name",
    ),
    _asked_of_server(
        "resources/list",
        EVER,
        params=t.PaginatedRequestParams,
        result=t.ListResourcesResult,
        capability="resources",
        cacheable=True,
    ),
    _asked_of_server(
        "resources/templates/list",
        EVER,
        params=t.PaginatedRequestParams,
        result=t.ListResourceTemplatesResult,
        capability="resources",
        cacheable=True,
    ),
    _asked_of_server(
        "resources/read",
        EVER,
        params=t.ReadResourceRequestParams,
        result=t.ReadResourceResult,
        capability="resources",
        input_required=True,
        name_member="uri",
        cacheable=True,
    ),
    _asked_of_server(
        "resources/subscribe",
        HANDSHAKE,
        params=t.SubscribeRequestParams,
        result=t.EmptyResult,
        capability="resources.subscribe",
    ),
    _asked_of_server(
        "resources/unsubscribe",
        HANDSHAKE,
        params=t.UnsubscribeRequestParams,
        result=t.EmptyResult,
        capability="resources.subscribe",
    ),
    _asked_of_server(
        "prompts/list",
        EVER,
        params=t.PaginatedRequestParams,
        result=t.ListPromptsResult,
        capability="prompts",
        cacheable=True,
    ),
    _asked_of_server(
        "prompts/get",
        EVER,
        params=t.GetPromptRequestParams,
        result=t.GetPromptResult,
        capability="prompts",
        input_required=True,
        name_member="name",
    ),
    _asked_of_server(
        "completion/complete",
        EVER,
        params=t.CompleteRequestParams,
        result=t.CompleteResult,
        capability="completions",
        capability_span=SINCE_2025_03,
    ),
    _asked_of_server(
        "logging/setLevel",
        HANDSHAKE,
        params=t.SetLevelRequestParams,
        result=t.EmptyResult,
        capability="logging",
    ),
    _asked_of_server(
        "subscriptions/listen",
        STATELESS,
        params=t.SubscriptionsListenRequestParams,
        result=t.SubscriptionsListenResult,
        stream=True,
    ),
    _asked_of_client(
        "sampling/createMessage",
        HANDSHAKE,
        params=t.CreateMessageRequestParams,
        result=t.CreateMessageResult,
        capability="sampling",
    ),
    _asked_of_client(
        "elicitation/create",
        SINCE_2025_06_HANDSHAKE,
        params=t.ElicitRequestParams,
        result=t.ElicitResult,
        capability="elicitation",
    ),
    _asked_of_client("roots/list", HANDSHAKE, result=t.ListRootsResult, capability="roots"),
    _asked_of_both(
        "tasks/get", ONLY_2025_11, params=t.GetTaskRequestParams, result=t.GetTaskResult, capability="tasks"
    ),
    _asked_of_both(
        "tasks/result",
        ONLY_2025_11,
        params=t.GetTaskPayloadRequestParams,
        result=t.GetTaskPayloadResult,
        capability="tasks",
    ),
    _asked_of_both(
        "tasks/cancel",
        ONLY_2025_11,
        params=t.CancelTaskRequestParams,
        result=t.CancelTaskResult,
        capability="tasks.cancel",
    ),
    _asked_of_both(
        "tasks/list",
        ONLY_2025_11,
        params=t.PaginatedRequestParams,
        result=t.ListTasksResult,
        capability="tasks.list",
    ),
    _told("notifications/initialized", to_server=HANDSHAKE),
    _told("notifications/cancelled", to_server=EVER, to_client=EVER, params=t.CancelledNotificationParams),
    _told("notifications/progress", to_server=HANDSHAKE, to_client=EVER, params=t.ProgressNotificationParams),
    _told(
        "notifications/message",
        to_client=EVER,
        params=t.LoggingMessageNotificationParams,
        sender_capability="logging",
    ),
    _told("notifications/tools/list_changed", to_client=EVER, sender_capability="tools.listChanged"),
    _told("notifications/prompts/list_changed", to_client=EVER, sender_capability="prompts.listChanged"),
    _told("notifications/resources/list_changed", to_client=EVER, sender_capability="resources.listChanged"),
    _told(
        "notifications/resources/updated",
        to_client=EVER,
        params=t.ResourceUpdatedNotificationParams,
        sender_capability="resources.subscribe",
    ),
    _told("notifications/roots/list_changed", to_server=HANDSHAKE, sender_capability="roots.listChanged"),
    _told(
        "notifications/subscriptions/acknowledged",
        to_client=STATELESS,
        params=t.SubscriptionsAcknowledgedNotificationParams,
    ),
    _told(
        "notifications/elicitation/complete",
        to_client=ONLY_2025_11,
        params=t.ElicitationCompleteNotificationParams,
        capability="elicitation.url",
    ),
    _told(
        "notifications/tasks/status",
        to_server=ONLY_2025_11,
        to_client=ONLY_2025_11,
        params=t.TaskStatusNotificationParams,
        sender_capability="tasks",
    ),
)

#: Wrong names that existing programs use, with the right ones.
LOOSE_NAMES: Mapping[str, str] = MappingProxyType(
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
    """Return the capability that the receiver of a method must have declared, as a dotted path."""
    return method.capability if method.capability_span.covers(revision) else None


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
    if method.input_required and b"input_required" in bytes(raw):
        result = _decoder(t.Result).decode(raw)
        if result.result_type == "input_required":
            return _decoder(t.InputRequiredResult).decode(raw)
    return _decoder(method.result).decode(raw)


def read_meta(raw: Raw | None) -> dict[str, Any]:
    """Return the whole ``_meta`` of params or a result, including members that no type knows."""
    meta: dict[str, Any] | None = None if raw is None else _decoder(_Meta).decode(raw).meta
    return meta or {}
