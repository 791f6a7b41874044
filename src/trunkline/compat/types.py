"""The protocol's types as the official SDK writes them: pydantic models made from our structs.

They are constructed and read with camelCase and snake_case names, have ``type``, ``method`` and ``jsonrpc`` members,
and the usual methods of pydantic. ``to_model`` and ``to_struct`` convert between the two families. How a model is
dumped by default depends on the SDK's major version, as there: camelCase in version 1, snake_case in version 2.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Iterator, Mapping
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import pydantic
from msgspec import Raw, Struct
from pydantic import BaseModel, ConfigDict, Field, RootModel

import trunkline.types as t
from trunkline.compat.versions import STATE
from trunkline.protocol.methods import METHODS
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISION_NAMES

__all__ = ["REQUEST_MODELS", "Model", "known_names", "model_class", "to_model", "to_plain", "to_struct"]

S = TypeVar("S")


class Model(BaseModel):
    """The base of all models: members of other revisions and of others are kept."""

    model_config = ConfigDict(populate_by_name=True, extra="allow", arbitrary_types_allowed=True, defer_build=True)

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters: the members say their types themselves."""
        return cls

    def __getattr__(self, name: str) -> Any:
        """Read a member by its name on the wire."""
        snake = _snake(name)
        if snake != name and snake in type(self).model_fields:
            return getattr(self, snake)
        return super().__getattr__(name)  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a member by either name."""
        snake = _snake(name)
        super().__setattr__(snake if snake in type(self).model_fields else name, value)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the members; without ``by_alias`` under the names that the SDK's version has."""
        if options.get("by_alias") is None:
            options["by_alias"] = STATE.camel_case
        return super().model_dump(**options)

    def model_dump_json(self, **options: Any) -> str:
        """Return the members as JSON; without ``by_alias`` under the names that the SDK's version has."""
        if options.get("by_alias") is None:
            options["by_alias"] = STATE.camel_case
        return super().model_dump_json(**options)


def _snake(name: str) -> str:
    if name.islower() or name.startswith("_"):
        return name
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


# --- requests and notifications --------------------------------------------------------------------------------------

_REQUESTS: Mapping[str, str] = MappingProxyType(
    {
        "initialize": "InitializeRequest",
        "server/discover": "DiscoverRequest",
        "ping": "PingRequest",
        "tools/list": "ListToolsRequest",
        "tools/call": "CallToolRequest",
        "resources/list": "ListResourcesRequest",
        "resources/templates/list": "ListResourceTemplatesRequest",
        "resources/read": "ReadResourceRequest",
        "resources/subscribe": "SubscribeRequest",
        "resources/unsubscribe": "UnsubscribeRequest",
        "prompts/list": "ListPromptsRequest",
        "prompts/get": "GetPromptRequest",
        "completion/complete": "CompleteRequest",
        "logging/setLevel": "SetLevelRequest",
        "sampling/createMessage": "CreateMessageRequest",
        "elicitation/create": "ElicitRequest",
        "roots/list": "ListRootsRequest",
        "subscriptions/listen": "SubscriptionsListenRequest",
        "tasks/get": "GetTaskRequest",
        "tasks/result": "GetTaskPayloadRequest",
        "tasks/list": "ListTasksRequest",
        "tasks/cancel": "CancelTaskRequest",
        "notifications/initialized": "InitializedNotification",
        "notifications/cancelled": "CancelledNotification",
        "notifications/progress": "ProgressNotification",
        "notifications/message": "LoggingMessageNotification",
        "notifications/resources/updated": "ResourceUpdatedNotification",
        "notifications/resources/list_changed": "ResourceListChangedNotification",
        "notifications/tools/list_changed": "ToolListChangedNotification",
        "notifications/prompts/list_changed": "PromptListChangedNotification",
        "notifications/roots/list_changed": "RootsListChangedNotification",
        "notifications/elicitation/complete": "ElicitCompleteNotification",
        "notifications/tasks/status": "TaskStatusNotification",
        "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
    }
)

#: The models of requests and notifications, by method.
REQUEST_MODELS = _REQUESTS

#: Members whose type is looser in our structs than in the models, by struct and member.
_TYPES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("InitializeResult", "capabilities"): "ServerCapabilities",
        ("DiscoverResult", "capabilities"): "ServerCapabilities",
        ("InitializeRequestParams", "capabilities"): "ClientCapabilities",
        ("ServerCapabilities", "logging"): "LoggingCapability",
        ("ServerCapabilities", "completions"): "CompletionsCapability",
    }
)
#: Defaults that differ from ours.
_DEFAULTS: Mapping[tuple[str, str], Any] = MappingProxyType({("CallToolResult", "is_error"): False})
_EMPTY = (
    "BaseMetadata",
    "ClientTasksCapability",
    "ClientTasksRequestsCapability",
    "CompletionsCapability",
    "FormElicitationCapability",
    "LoggingCapability",
    "SamplingContextCapability",
    "SamplingToolsCapability",
    "ServerTasksCapability",
    "ServerTasksRequestsCapability",
    "TasksCallCapability",
    "TasksCancelCapability",
    "TasksCreateElicitationCapability",
    "TasksCreateMessageCapability",
    "TasksElicitationCapability",
    "TasksListCapability",
    "TasksSamplingCapability",
    "TasksToolsCapability",
    "UrlElicitationCapability",
)


class _Family:
    """The models, made one by one from the structs they stand for."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}
        self._any_url: Any = None

    def build(self) -> dict[str, Any]:
        """Make all of them."""
        for name in _EMPTY:
            self.models[name] = self._make(name, (Model,), {})
        for name in sorted(t.__all__):
            kind = getattr(t, name)
            if isinstance(kind, type) and issubclass(kind, Struct):
                self.models.setdefault(name, self.of(kind))
            elif not name.startswith("META_"):
                self.models[name] = self._translated(kind)
        self._add_requests()
        _add_json_rpc(self.models, self._make)
        _add_elicitation(self.models, self._make)
        _add_constants(self.models)
        _add_unions(self.models)
        return self.models

    def of(self, kind: type[Struct]) -> Any:
        """Return the model of a struct."""
        name = kind.__name__
        if name == "Wire":
            return Model
        if name not in self.models:
            bases = tuple(self.of(base) for base in kind.__bases__ if issubclass(base, Struct) and base is not Struct)
            inherited = {each.name for base in kind.__bases__ for each in _fields(base)}
            members: dict[str, Any] = {}
            if kind.__struct_config__.tag is not None:
                tag = kind.__struct_config__.tag
                members["type"] = (Literal[tag], tag)
            if name == "ResourceLink":
                bases, inherited = (self.of(t.Resource),), {each.name for each in _fields(t.Resource)}
            for field in _fields(kind):
                if field.name not in inherited and not (name == "ResourceContents" and field.name in ("text", "blob")):
                    members[field.name] = self._member(name, field)
            self.models[name] = self._make(name, bases or (Model,), members)
            if name == "ResourceContents":
                base = (self.models[name],)
                self.models["TextResourceContents"] = self._make("TextResourceContents", base, {"text": (str, ...)})
                self.models["BlobResourceContents"] = self._make("BlobResourceContents", base, {"blob": (str, ...)})
        return self.models[name]

    def _make(self, name: str, bases: tuple[Any, ...], members: Mapping[str, Any]) -> Any:
        made: Any = pydantic.create_model(name, __base__=bases, __module__="mcp.types", **members)
        return made

    def _member(self, owner: str, field: Any) -> tuple[Any, Any]:
        key = (owner, field.name)
        kind = self.models.get(_TYPES[key]) if key in _TYPES else self._translated(field.type)
        if key in _TYPES:
            kind = (kind or self.of(getattr(t, _TYPES[key]))) | None if not field.required else kind
            kind = kind or self.of(getattr(t, _TYPES[key]))
        if key == ("InputRequiredResult", "input_requests"):
            kind = dict[str, Any] | None
        if field.name == "uri" and STATE.camel_case and owner != "ResourceTemplateReference":
            kind = _any_url()
        if key == ("Annotations", "priority"):
            return float | None, Field(default=None, ge=0.0, le=1.0)
        if field.name == "arguments" and owner == "CallToolRequestParams":
            kind = dict[str, Any] | None
        if key in _DEFAULTS:
            return bool, Field(default=_DEFAULTS[key], alias=field.encode_name)
        alias = {} if field.encode_name == field.name else {"alias": field.encode_name}
        if field.required:
            return kind, Field(**alias)
        if field.default_factory is not msgspec.NODEFAULT:
            return kind, Field(default_factory=field.default_factory, **alias)
        return kind, Field(default=None, **alias)

    def _translated(self, kind: Any) -> Any:
        """Put models in the place of structs, anywhere in a type."""
        if isinstance(kind, type) and issubclass(kind, Struct):
            model = self.of(kind)
            if kind is t.ResourceContents:
                return self.models["TextResourceContents"] | self.models["BlobResourceContents"]
            return model
        if kind is Raw:
            return Any
        origin = get_origin(kind)
        if origin in (Union, UnionType):
            parts = [self._translated(part) for part in get_args(kind) if part is not msgspec.UnsetType]
            return Union[tuple(parts)]  # noqa: UP007 - made of parts that are known only now
        if origin in (list, dict):
            return origin[tuple(self._translated(part) for part in get_args(kind))]
        return kind

    def _add_requests(self) -> None:
        """Make a model for each method: its name, and its params."""
        variables: Any = {"method": (str, ...), "params": (Any, None)}
        self.models["Request"] = self._make("Request", (Model,), variables)
        self.models["PaginatedRequest"] = self._make("PaginatedRequest", (self.models["Request"],), {})
        self.models["Notification"] = self._make("Notification", (Model,), variables)
        for row in METHODS:
            name = _REQUESTS.get(row.name)
            if name is None or name in self.models:
                continue
            base = self.models["Request" if row.kind == "request" else "Notification"]
            params = self.of(row.params)
            needed = any(field.required for field in _fields(row.params))
            members = {
                "method": (Literal[row.name], row.name),
                "params": (params, ...) if needed else (params | None, None),
            }
            self.models[name] = self._make(name, (base,), members)


def _fields(kind: Any) -> tuple[Any, ...]:
    return msgspec.structs.fields(kind) if issubclass(kind, Struct) and kind is not Struct else ()


def _any_url() -> Any:
    from typing import Annotated

    from pydantic import AnyUrl, UrlConstraints

    return Annotated[AnyUrl, UrlConstraints(host_required=False)]


def _add_json_rpc(models: dict[str, Any], make: Any) -> None:
    version = {"jsonrpc": (Literal["2.0"], "2.0")}
    ident = int | str
    models["ErrorData"] = make("ErrorData", (Model,), {"code": (int, ...), "message": (str, ...), "data": (Any, None)})
    call = {**version, "method": (str, ...), "params": (dict[str, Any] | None, None)}
    models["JSONRPCRequest"] = make("JSONRPCRequest", (Model,), {**call, "id": (ident, ...)})
    models["JSONRPCNotification"] = make("JSONRPCNotification", (Model,), call)
    models["JSONRPCResponse"] = make(
        "JSONRPCResponse", (Model,), {**version, "id": (ident, ...), "result": (dict[str, Any], ...)}
    )
    models["JSONRPCError"] = make(
        "JSONRPCError", (Model,), {**version, "id": (ident | None, None), "error": (models["ErrorData"], ...)}
    )
    kinds = tuple(models[f"JSONRPC{name}"] for name in ("Request", "Notification", "Response", "Error"))
    models["JSONRPCMessage"] = _one_of("JSONRPCMessage", kinds)


def _add_elicitation(models: dict[str, Any], make: Any) -> None:
    base = (models["ElicitRequestParams"],)
    form = {
        "mode": (Literal["form"], "form"),
        "message": (str, ...),
        "requested_schema": (dict[str, Any], Field(alias="requestedSchema")),
    }
    page = {
        "mode": (Literal["url"], "url"),
        "message": (str, ...),
        "url": (str, ...),
        "elicitation_id": (str | None, Field(default=None, alias="elicitationId")),
    }
    models["ElicitRequestFormParams"] = make("ElicitRequestFormParams", base, form)
    page_model = models["ElicitRequestURLParams"] = make("ElicitRequestURLParams", base, page)
    models["ElicitRequestedSchema"] = dict[str, Any]
    models["ElicitationRequiredErrorData"] = make(
        "ElicitationRequiredErrorData",
        (Model,),
        {"elicitations": (list[page_model], ...)},  # type: ignore[valid-type]
    )
    models["ElicitCompleteNotificationParams"] = models["ElicitationCompleteNotificationParams"]
    models["CreateMessageResultWithTools"] = models["CreateMessageResult"]


def _add_constants(models: dict[str, Any]) -> None:
    models.update(
        LATEST_PROTOCOL_VERSION=NEWEST_HANDSHAKE.name if STATE.camel_case else NEWEST.name,
        DEFAULT_NEGOTIATED_VERSION=REVISION_NAMES[1],
        PARSE_ERROR=-32700,
        INVALID_REQUEST=-32600,
        METHOD_NOT_FOUND=-32601,
        INVALID_PARAMS=-32602,
        INTERNAL_ERROR=-32603,
        CONNECTION_CLOSED=-32000,
        REQUEST_TIMEOUT=-32001,
        RESOURCE_NOT_FOUND=-32002,
        URL_ELICITATION_REQUIRED=-32042,
        MISSING_REQUIRED_CLIENT_CAPABILITY=-32021,
        UNSUPPORTED_PROTOCOL_VERSION=-32022,
        HEADER_MISMATCH=-32020,
        AnyFunction=Any,
        IncludeContext=Literal["none", "thisServer", "allServers"],
        StopReason=str,
        IconTheme=Literal["light", "dark"],
        Meta=dict[str, Any],
        RequestParamsMeta=dict[str, Any],
        InputResponse=Any,
        PROTOCOL_VERSION_META_KEY=t.META_PROTOCOL_VERSION,
        CLIENT_INFO_META_KEY=t.META_CLIENT_INFO,
        CLIENT_CAPABILITIES_META_KEY=t.META_CLIENT_CAPABILITIES,
        LOG_LEVEL_META_KEY=t.META_LOG_LEVEL,
        SERVER_INFO_META_KEY=t.META_SERVER_INFO,
        SUBSCRIPTION_ID_META_KEY=t.META_SUBSCRIPTION_ID,
        AnyUrl=pydantic.AnyUrl,
        FileUrl=pydantic.FileUrl,
        MCPModel=Model,
    )
    models["SamplingRole"] = models["Role"]
    for name in ("working", "input_required", "completed", "failed", "cancelled"):
        models[f"TASK_STATUS_{name.upper()}"] = name
    for name in ("forbidden", "optional", "required"):
        models[f"TASK_{name.upper()}"] = name


def _add_unions(models: dict[str, Any]) -> None:
    """Add what may be any of several: content, and what one side sends to the other."""
    models["Content"] = models["ContentBlock"]
    models["SamplingContent"] = models["TextContent"] | models["ImageContent"] | models["AudioContent"]
    to_server = {row.name for row in METHODS if row.to_server is not None}
    to_client = {row.name for row in METHODS if row.to_client is not None or row.embedded is not None}
    for side, names in (("Client", to_server), ("Server", to_client)):
        for kind in ("Request", "Notification"):
            parts = [
                models[model]
                for method, model in _REQUESTS.items()
                if method in names and model.endswith(kind) and model in models
            ]
            models[f"{side}{kind}"] = _one_of(f"{side}{kind}", tuple(parts))
    results = [name for name in models if name.endswith("Result") and isinstance(models[name], type)]
    client = {"CreateMessageResult", "ListRootsResult", "ElicitResult"}
    ours = [models[name] for name in results if name in client]
    theirs = [models[name] for name in results if name not in client and name != "Result"]
    models["ClientResult"] = _one_of("ClientResult", (models["EmptyResult"], *ours))
    models["ServerResult"] = _one_of("ServerResult", (models["EmptyResult"], *theirs))


def _one_of(name: str, kinds: tuple[Any, ...]) -> Any:
    """Return a model with a ``root`` of one of these kinds, as version 1 has; version 2 has unions."""
    union: Any = Union[kinds]  # noqa: UP007 - made of parts that are known only now
    if not STATE.camel_case:
        return union
    return python_types.new_class(name, (RootModel[union],), {}, lambda body: body.update(__module__="mcp.types"))


# --- what others use -------------------------------------------------------------------------------------------------


class _Made:
    """The models of this process, made when the first is used: the SDK's version decides about some members."""

    models: ClassVar[Mapping[str, Any]] = MappingProxyType({})


def _models() -> Mapping[str, Any]:
    if not _Made.models:
        _Made.models = MappingProxyType(_Family().build())
    return _Made.models


def known_names() -> Iterator[str]:
    """Return the names of all types and constants."""
    return iter(_models())


def model_class(name: str) -> Any:
    """Return the model of this name."""
    return _models()[name]


def __getattr__(name: str) -> Any:
    models = {} if name.startswith("__") else _models()
    if name in models:
        return models[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def to_model(value: Any) -> Any:
    """Return the model of a struct, or the models of several; anything else is returned as it is."""
    if isinstance(value, list | tuple):
        return [to_model(each) for each in value]
    if not isinstance(value, Struct):
        return value
    kind = _models()[type(value).__name__]
    if type(value) is t.ResourceContents:
        kind = _models()["TextResourceContents" if value.text is not None else "BlobResourceContents"]
    # Through JSON: a struct may hold parts that are encoded already.
    return kind.model_validate(msgspec.json.decode(msgspec.json.encode(value)))


def to_plain(value: Any) -> Any:
    """Return a model, or what holds models, as JSON values under the names on the wire; None is left out."""
    if isinstance(value, BaseModel):
        return BaseModel.model_dump(value, mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return value


def to_struct(value: Any, kind: type[S]) -> S:
    """Return a struct of this type from a model, a mapping or a struct.

    Raises:
        TypeError: it does not have the members.
    """
    if isinstance(value, kind):
        return value
    try:
        return msgspec.convert(to_plain(value), kind)
    except msgspec.ValidationError as error:
        raise TypeError(f"this is no {getattr(kind, '__name__', kind)}: {error}") from error
