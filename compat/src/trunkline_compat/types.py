"""The protocol's types as the official SDK writes them: pydantic models made from our structs.

They are constructed and read with camelCase and snake_case names, have ``type``, ``method`` and ``jsonrpc`` members,
and the usual methods of pydantic. ``to_model`` and ``to_struct`` convert between the two families. How a model is
dumped by default depends on the SDK's major version, as there: camelCase in version 1, snake_case in version 2.
"""

from __future__ import annotations

import types as python_types
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import pydantic
from msgspec import Raw, Struct
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel

import trunkline.types as t
from trunkline.protocol.methods import METHODS
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISION_NAMES
from trunkline_compat.versions import STATE

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
            options["by_alias"] = STATE.is_sdk_1
        return super().model_dump(**options)

    def model_dump_json(self, **options: Any) -> str:
        """Return the members as JSON; without ``by_alias`` under the names that the SDK's version has."""
        if options.get("by_alias") is None:
            options["by_alias"] = STATE.is_sdk_1
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
    *("BaseMetadata", "ClientTasksCapability", "ClientTasksRequestsCapability", "CompletionsCapability"),
    *("FormElicitationCapability", "LoggingCapability", "SamplingContextCapability"),
    *("SamplingToolsCapability", "ServerTasksCapability", "ServerTasksRequestsCapability"),
    *("TasksCallCapability", "TasksCancelCapability", "TasksCreateElicitationCapability"),
    *("TasksCreateMessageCapability", "TasksElicitationCapability", "TasksListCapability"),
    *("TasksSamplingCapability", "TasksToolsCapability", "UrlElicitationCapability"),
)


_GENERIC = ("Request", "PaginatedRequest", "Notification")
_ELICITATION = (
    "ElicitRequestFormParams",
    "ElicitRequestURLParams",
    "ElicitRequestedSchema",
    "ElicitationRequiredErrorData",
)
_ALIASES = MappingProxyType(
    {
        "Content": "ContentBlock",
        "CreateMessageResultWithTools": "CreateMessageResult",
        "ElicitCompleteNotificationParams": "ElicitationCompleteNotificationParams",
        "SamplingRole": "Role",
    }
)
_UNIONS = (
    *("SamplingContent", "JSONRPCMessage", "ClientRequest", "ClientNotification", "ClientResult"),
    *("ServerRequest", "ServerNotification", "ServerResult"),
)
_JSON_RPC = ("ErrorData", "JSONRPCRequest", "JSONRPCNotification", "JSONRPCResponse", "JSONRPCError")
_METHODS_BY_MODEL = MappingProxyType({_REQUESTS[row.name]: row for row in METHODS if row.name in _REQUESTS})


class _Models(dict[str, Any]):
    """The models by name; each is made when it is first asked for."""

    def __init__(self, make: Callable[[str], None]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Any:
        self._make(name)
        return self[name]


class _Family:
    """The models, made one by one from the structs they stand for."""

    def __init__(self) -> None:
        self.models = _Models(self._add)

    def _add(self, name: str) -> None:
        """Make the model of a name, with those that it needs.

        Raises:
            KeyError: there is none.
        """
        models = self.models
        if name in _EMPTY:
            models[name] = self._make(name, (Model,), {})
        elif name in ("TextResourceContents", "BlobResourceContents"):
            self.of(t.ResourceContents)
        elif name in _GENERIC:
            base = (Model,) if name != "PaginatedRequest" else (models["Request"],)
            members: Any = {"method": (str, ...), "params": (Any, None)}
            models[name] = self._make(name, base, {} if name == "PaginatedRequest" else members)
        elif name in _METHODS_BY_MODEL:
            self._add_request(name, _METHODS_BY_MODEL[name])
        elif name in _UNIONS:
            models[name] = _union(name, models)
        elif name.startswith("JSONRPC") or name == "ErrorData":
            _add_json_rpc(models, self._make)
        elif name in _ELICITATION:
            _add_elicitation(models, self._make)
        elif name in _ALIASES:
            models[name] = models[_ALIASES[name]]
        elif name in t.__all__ and not name.startswith("META_"):
            kind = getattr(t, name)
            models[name] = self.of(kind) if _is_struct(kind) else self._translated(kind)
        else:
            models[name] = _constants()[name]

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
                if field.name not in inherited and (name, field.name) not in _absent_members():
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
        kind = self.models[_TYPES[key]] if key in _TYPES else self._translated(field.type)
        if key in _TYPES and not field.required:
            kind = kind | None
        if key == ("InputRequiredResult", "input_requests"):
            kind = dict[str, Any] | None
        if field.name == "uri" and owner != "ResourceTemplateReference":
            # Servers for version 1 pass URL objects; they run where version 2 is installed, too.
            kind = _any_url() if STATE.is_sdk_1 else Annotated[str, BeforeValidator(str)]
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

    def _add_request(self, name: str, row: Any) -> None:
        """Make the model of a method: its name, and its params."""
        params = self.of(row.params)
        is_needed = any(field.required for field in _fields(row.params))
        members = {
            "method": (Literal[row.name], row.name),
            "params": (params, ...) if is_needed else (params | None, None),
        }
        base = self.models["Request" if row.kind == "request" else "Notification"]
        self.models[name] = self._make(name, (base,), members)


def _absent_members() -> frozenset[tuple[str, str]]:
    """Return the members that a model lacks: those of its two kinds, and in version 1 what that does not know."""
    always = {("ResourceContents", "text"), ("ResourceContents", "blob")}
    first = {("ClientCapabilities", "extensions"), ("ServerCapabilities", "extensions")}
    return frozenset(always | first if STATE.is_sdk_1 else always)


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


@cache
def _constants() -> Mapping[str, Any]:
    constants = {
        "LATEST_PROTOCOL_VERSION": NEWEST_HANDSHAKE.name if STATE.is_sdk_1 else NEWEST.name,
        "DEFAULT_NEGOTIATED_VERSION": REVISION_NAMES[1],
        "PARSE_ERROR": -32700,
        "INVALID_REQUEST": -32600,
        "METHOD_NOT_FOUND": -32601,
        "INVALID_PARAMS": -32602,
        "INTERNAL_ERROR": -32603,
        "CONNECTION_CLOSED": -32000,
        "REQUEST_TIMEOUT": -32001,
        "RESOURCE_NOT_FOUND": -32002,
        "URL_ELICITATION_REQUIRED": -32042,
        "MISSING_REQUIRED_CLIENT_CAPABILITY": -32021,
        "UNSUPPORTED_PROTOCOL_VERSION": -32022,
        "HEADER_MISMATCH": -32020,
        "AnyFunction": Any,
        "IncludeContext": Literal["none", "thisServer", "allServers"],
        "StopReason": str,
        "IconTheme": Literal["light", "dark"],
        "Meta": dict[str, Any],
        "RequestParamsMeta": dict[str, Any],
        "InputResponse": Any,
        "PROTOCOL_VERSION_META_KEY": t.META_PROTOCOL_VERSION,
        "CLIENT_INFO_META_KEY": t.META_CLIENT_INFO,
        "CLIENT_CAPABILITIES_META_KEY": t.META_CLIENT_CAPABILITIES,
        "LOG_LEVEL_META_KEY": t.META_LOG_LEVEL,
        "SERVER_INFO_META_KEY": t.META_SERVER_INFO,
        "SUBSCRIPTION_ID_META_KEY": t.META_SUBSCRIPTION_ID,
        "AnyUrl": pydantic.AnyUrl,
        "FileUrl": pydantic.FileUrl,
        "MCPModel": Model,
    }
    for name in ("working", "input_required", "completed", "failed", "cancelled"):
        constants[f"TASK_STATUS_{name.upper()}"] = name
    for name in ("forbidden", "optional", "required"):
        constants[f"TASK_{name.upper()}"] = name
    return constants


def _union(name: str, models: Mapping[str, Any]) -> Any:
    """Return what may be any of several: content, messages, and what one side sends to the other."""
    if name == "SamplingContent":
        return models["TextContent"] | models["ImageContent"] | models["AudioContent"]
    if name == "JSONRPCMessage":
        parts = [f"JSONRPC{kind}" for kind in ("Request", "Notification", "Response", "Error")]
    elif name.endswith("Result"):
        of_client = ("CreateMessageResult", "ListRootsResult", "ElicitResult")
        results = [each for each in sorted(t.__all__) if each.endswith("Result") and _is_struct(getattr(t, each))]
        of_server = [each for each in results if each not in (*of_client, "EmptyResult", "Result")]
        parts = ["EmptyResult", *(of_client if name == "ClientResult" else of_server)]
    else:
        kind = "Request" if name.endswith("Request") else "Notification"
        parts = [
            model
            for model, row in _METHODS_BY_MODEL.items()
            if model.endswith(kind) and _is_sent_by(row, "client" if name.startswith("Client") else "server")
        ]
    return _one_of(name, tuple(models[part] for part in parts))


def _is_sent_by(row: Any, side: str) -> bool:
    if side == "client":
        return row.to_server is not None
    return row.to_client is not None or row.embedded is not None


def _one_of(name: str, kinds: tuple[Any, ...]) -> Any:
    """Return a model with a ``root`` of one of these kinds, as version 1 has; version 2 has unions."""
    union: Any = Union[kinds]  # noqa: UP007 - made of parts that are known only now
    if not STATE.is_sdk_1:
        return union
    return python_types.new_class(name, (RootModel[union],), {}, lambda body: body.update(__module__="mcp.types"))


# --- what others use -------------------------------------------------------------------------------------------------


@cache
def _models() -> Mapping[str, Any]:
    """Return the models of this process; the SDK's version decides about some members."""
    return _Family().models


@cache
def known_names() -> frozenset[str]:
    """Return the names of all types and constants."""
    structs = [name for name in t.__all__ if not name.startswith("META_")]
    pairs = ("TextResourceContents", "BlobResourceContents")
    more = (*_EMPTY, *_GENERIC, *_METHODS_BY_MODEL, *_UNIONS, *_JSON_RPC, *_ELICITATION, *_ALIASES, *_constants())
    return frozenset((*structs, *pairs, *more))


def model_class(name: str) -> Any:
    """Return the model of this name."""
    return _models()[name]


def __getattr__(name: str) -> Any:
    if name in known_names():
        return _models()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


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
        # Through JSON: a struct may hold parts that are encoded already.
        return msgspec.json.decode(msgspec.json.encode(value))
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
        # Through JSON: a struct may keep parts encoded.
        return msgspec.json.decode(msgspec.json.encode(to_plain(value)), type=kind)
    except msgspec.ValidationError as error:
        raise TypeError(f"this is no {getattr(kind, '__name__', kind)}: {error}") from error
