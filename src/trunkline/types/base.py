"""The basis of all other modules of ``types``.

Ids, ``_meta``, generic params and results, log messages, small shared records. Each wire type is one frozen struct
with the members of all five revisions; ``protocol.fields`` and ``protocol.downgrade`` decide what a given revision
may see. Attributes are snake_case and become camelCase on the wire; a member that is None (or ``UNSET``) is absent
there. A default made by a factory is always written, since the specification requires the member: only reading is
lenient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, field

__all__ = [
    "META_CLIENT_CAPABILITIES",
    "META_CLIENT_INFO",
    "META_LOG_LEVEL",
    "META_PROTOCOL_VERSION",
    "META_RELATED_TASK",
    "META_SERVER_INFO",
    "META_SUBSCRIPTION_ID",
    "Annotations",
    "CacheScope",
    "CacheableResult",
    "CancelledNotificationParams",
    "Cursor",
    "EmptyResult",
    "ErrorObject",
    "Icon",
    "Implementation",
    "InputRequest",
    "InputRequests",
    "InputRequiredResult",
    "InputResponses",
    "LoggingLevel",
    "LoggingMessageNotificationParams",
    "NotificationParams",
    "OptionalRaw",
    "PaginatedRequestParams",
    "PaginatedResult",
    "ProgressNotificationParams",
    "ProgressToken",
    "RequestId",
    "RequestMeta",
    "RequestParams",
    "Result",
    "Role",
    "SetLevelRequestParams",
    "Wire",
]

RequestId: TypeAlias = int | str
ProgressToken: TypeAlias = int | str
Cursor: TypeAlias = str
Role: TypeAlias = Literal["user", "assistant"]
LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
CacheScope: TypeAlias = Literal["public", "private"]

# The members of `_meta` that the protocol itself uses.
META_PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
META_CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
META_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
META_RELATED_TASK = "io.modelcontextprotocol/related-task"

if TYPE_CHECKING:
    OptionalRaw: TypeAlias = Raw | None
else:
    # msgspec reads `Raw | None` as null alone; as `Raw` every value is kept as bytes and the default is absence.
    OptionalRaw = Raw


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base class of all wire types: frozen, keyword-only, camelCase on the wire, defaults left out."""


class Icon(Wire, frozen=True, kw_only=True):
    """An image to show beside a name."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Annotations(Wire, frozen=True, kw_only=True):
    """The audience of content, its importance, and when it last changed (ISO 8601)."""

    audience: list[Role] | None = None
    priority: int | float | None = None
    last_modified: str | None = None


class Implementation(Wire, frozen=True, kw_only=True):
    """The name and version of a program that speaks the protocol; a missing version is read as the empty string."""

    name: str
    version: str = field(default_factory=str)
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class RequestMeta(Wire, frozen=True, kw_only=True):
    """The ``_meta`` of a request: its progress token and, in stateless revisions, the client and the revision."""

    progress_token: ProgressToken | None = None
    protocol_version: str | None = field(name=META_PROTOCOL_VERSION, default=None)
    client_info: Implementation | None = field(name=META_CLIENT_INFO, default=None)
    client_capabilities: dict[str, Any] | None = field(name=META_CLIENT_CAPABILITIES, default=None)
    log_level: LoggingLevel | None = field(name=META_LOG_LEVEL, default=None)


class RequestParams(Wire, frozen=True, kw_only=True):
    """The params of a request without params of its own."""

    meta: RequestMeta | None = field(name="_meta", default=None)


class PaginatedRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of a request for one page of a list."""

    cursor: Cursor | None = None


class NotificationParams(Wire, frozen=True, kw_only=True):
    """The params of a notification without params of its own."""

    meta: dict[str, Any] | None = field(name="_meta", default=None)


class CancelledNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """The sender cancels a request of its own; without an id a task is meant."""

    request_id: RequestId | None = None
    reason: str | None = None


class ProgressNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """The progress of the request with this token."""

    progress_token: ProgressToken
    progress: int | float
    total: int | float | None = None
    message: str | None = None


class Result(Wire, frozen=True, kw_only=True):
    """The result of a request that returns no data."""

    meta: dict[str, Any] | None = field(name="_meta", default=None)
    result_type: str | None = None


EmptyResult: TypeAlias = Result


class PaginatedResult(Result, frozen=True, kw_only=True):
    """One page of a list; with a cursor, more pages may follow."""

    next_cursor: Cursor | None = None


class CacheableResult(Result, frozen=True, kw_only=True):
    """A result that states how long, and for whom, it may be cached."""

    ttl_ms: int | None = None
    cache_scope: CacheScope | None = None


class InputRequest(Wire, frozen=True, kw_only=True):
    """A request to the client that travels inside a result; its method determines the type of its params."""

    method: str
    params: OptionalRaw = None


InputRequests: TypeAlias = dict[str, InputRequest]
InputResponses: TypeAlias = dict[str, Raw]


def _input_required() -> str:
    return "input_required"


class InputRequiredResult(Result, frozen=True, kw_only=True):
    """The server needs input before it can finish: the client sends the request again with the responses."""

    # Declared again because this member distinguishes the two kinds of result: it is always written.
    result_type: str = field(default_factory=_input_required)
    input_requests: InputRequests | None = None
    request_state: str | None = None


class ErrorObject(Wire, frozen=True, kw_only=True):
    """Why a request failed; ``data`` is ``UNSET`` when there is none, so that an explicit null is kept."""

    code: int
    message: str
    data: Any = UNSET


class SetLevelRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``logging/setLevel``: the minimum level of log messages."""

    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """One log message: any JSON value, and the name of its logger."""

    level: LoggingLevel
    data: Any
    logger: str | None = None
