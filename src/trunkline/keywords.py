"""Keywords of FastMCP and the official SDK, translated to ours; and earlier ones of our own.

A keyword of another framework is one of three things here: another name of one of our options; without effect, which is
a warning unless its value requests the behaviour that we have anyway; or not supported, which is a ``TypeError`` that
says what to use instead, unless its value switches the feature off. Keywords in no table are left to the caller, which
rejects them. Callbacks of other clients are called as those clients call them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Container, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from trunkline.errors import ConfigError

__all__ = ["CompatibilityWarning", "Place", "ServerNotification", "translate"]

#: Where a keyword was passed.
Place: TypeAlias = Literal["server", "tool", "prompt", "resource", "http", "run", "client"]


class CompatibilityWarning(UserWarning):
    """A keyword of another framework was accepted and has no effect."""


class ServerNotification(Struct, frozen=True):
    """A notification as a ``message_handler`` receives it."""

    method: str
    params: dict[str, Any]


class _NoEffect(NamedTuple):
    """Why a keyword has no effect, and the values that request the behaviour that we have anyway."""

    reason: str
    agrees: tuple[object, ...] = ()


_LOGGING = "logging is configured with Python's logging module"
_DUPLICATES = "a name registered twice is an error unless on_duplicate= says otherwise"
_TRAVERSAL = "values of template variables are always checked for path traversal"

_RENAMED_FOR_ALL: Mapping[str, str] = MappingProxyType({"run_in_thread": "thread"})
_RENAMED: Mapping[Place, Mapping[str, str]] = MappingProxyType(
    {
        "server": {"experimental_capabilities": "experimental", "strict_input_validation": "strict_arguments"},
        "tool": {**_RENAMED_FOR_ALL, "inputSchema": "input_schema", "outputSchema": "output_schema"},
        "prompt": _RENAMED_FOR_ALL,
        "resource": {**_RENAMED_FOR_ALL, "mimeType": "mime_type"},
        "http": {
            "streamable_http_path": "path",
            "ssl_certfile": "certfile",
            "ssl_keyfile": "keyfile",
            "ssl_keyfile_password": "keyfile_password",
        },
        "client": {
            "mode": "revision",
            "read_timeout_seconds": "timeout",
            "logging_callback": "logging",
            "log_handler": "logging",
            "progress_handler": "on_progress",
            "info": "client_info",
        },
    }
)

_COMPONENT: Mapping[str, _NoEffect] = MappingProxyType(
    {
        "enabled": _NoEffect("everything registered is offered", (True,)),
        "version": _NoEffect("tools, prompts and resources have no versions"),
        "serializer": _NoEffect("results are encoded by their type"),
        "security": _NoEffect(_TRAVERSAL),
        "resource_security": _NoEffect(_TRAVERSAL),
    }
)
_WITHOUT_EFFECT: Mapping[Place, Mapping[str, _NoEffect]] = MappingProxyType(
    {
        "server": {
            "debug": _NoEffect(_LOGGING, (False,)),
            "log_level": _NoEffect(_LOGGING),
            "dereference_schemas": _NoEffect("schemas are always sent without references, unless recursive", (True,)),
            "warn_on_duplicate_tools": _NoEffect(_DUPLICATES),
            "warn_on_duplicate_resources": _NoEffect(_DUPLICATES),
            "warn_on_duplicate_prompts": _NoEffect(_DUPLICATES),
            "dependencies": _NoEffect("nothing is installed for a server", ([], ())),
            "resource_security": _NoEffect(_TRAVERSAL),
        },
        "tool": _COMPONENT,
        "prompt": _COMPONENT,
        "resource": _COMPONENT,
        "run": {"show_banner": _NoEffect("there is no banner", (False,))},
        "client": {"verify": _NoEffect("certificates are always verified, with those of ca_file= too", (True,))},
    }
)

_AUTH = "pass the scopes that a caller needs with scopes=[...], or hide it with visible="
_STORE = 'everything that outlives a request is in the server\'s one store: write store="state.db" or store="redis://…"'
_NOT_A_TOOL: Mapping[str, str] = MappingProxyType(
    {
        "auth": _AUTH,
        "task": "only tools run as tasks: pass task=True to a tool",
        "app": 'only tools have pages: @server.app("ui://…") registers one, app="ui://…" links a tool to it',
    }
)
_UNSUPPORTED: Mapping[Place, Mapping[str, str]] = MappingProxyType(
    {
        "server": {
            "providers": "register functions, or mount other servers",
            "transforms": "register under the name you want, or mount with a namespace",
            "session_state_store": "keep state for a client in handles (ctx.handle), for all in the value of lifespan=",
            "client_log_level": "clients set their own level",
            "include_tags": "show what has a tag with visible=",
            "exclude_tags": "hide what has a tag with visible=",
            "tool_serializer": "return text, or ToolResult(content=...)",
            "sampling_handler": "ctx.sample asks the client's model; call a model of your own in the tool",
            "resources": "register them with @server.resource",
            "subscriptions": "subscriptions need no configuration",
            "request_state_security": "pass the keys with state_keys=[...]",
            "cache_hints": "use cache_ttl_ms=, and ttl_ms= and cache_scope= on a resource",
            "auth_server_provider": "use auth=AuthorizationServer(...)",
            "handles": _STORE,
            "backplane": _STORE,
            "token_verifier": "use auth= with a verifier such as JWTVerifier(...)",
        },
        "tool": {"auth": _AUTH},
        "prompt": _NOT_A_TOOL,
        "resource": _NOT_A_TOOL,
        "http": {
            "middleware": "wrap the ASGI application in your middleware instead",
            "event_store": "events are always kept, in the store of the server; Limits(log_events=...) says how many",
            "retry_interval": "use retry_ms=",
            "transport_security": "use allowed_hosts= and allowed_origins=",
            "uvicorn_config": "use certfile= and keyfile=",
            "backplane": _STORE,
        },
        "client": {
            "sampling_callback": "use sampling=, a function of the params alone",
            "elicitation_callback": "use elicitation=, a function of the params alone",
            "list_roots_callback": "use roots=, a list or a function without parameters",
            "init_timeout": "use limits=Limits(connect_seconds=...)",
            "input_required_max_rounds": "use limits=Limits(rounds=...)",
        },
    }
)

_NONE: Mapping[str, Any] = MappingProxyType({})


def translate(place: Place, given: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    """Return the options under our names; unknown options are returned unchanged.

    Raises:
        TypeError: an option is not supported.
        ConfigError: an option is given under two names.
    """
    options: dict[str, Any] = {}
    renamed, without = _RENAMED.get(place, _NONE), _WITHOUT_EFFECT.get(place, _NONE)
    unsupported = _UNSUPPORTED.get(place, _NONE)
    for name, value in given.items():
        if name in known:
            if value is not None or name not in options:
                options[name] = value
        elif name in renamed:
            _set(options, given, name, renamed[name], value)
        elif (place, name) in _CONVERTED:
            for own, converted in _CONVERTED[place, name](value).items():
                _set(options, given, name, own, converted)
        elif name in without:
            _explain(name, value, without[name])
        elif name not in unsupported:
            options[name] = value
        elif value:
            raise TypeError(f"option {name!r}: {unsupported[name]}")
    return options


def _set(options: dict[str, Any], given: Mapping[str, Any], name: str, own: str, value: object) -> None:
    """Set an option that was given under another name."""
    if value is None:
        if own not in given:
            options.setdefault(own, None)
    elif given.get(own) is not None or options.get(own) is not None:
        raise ConfigError(f"{name} is another name for {own}: give only one of them.")
    else:
        options[own] = value


def _seconds(value: float | None) -> dict[str, Any]:
    return {} if value is None else {"cache_ttl_ms": int(value * 1000)}


def _structured(value: bool | None) -> dict[str, Any]:
    return {"output_schema": None} if value is False else {}


def _sampling(callback: Callable[..., Any] | None) -> dict[str, Any]:
    return {} if callback is None else {"sampling": lambda params: callback(params.messages, params, None)}


def _elicitation(callback: Callable[..., Any] | None) -> dict[str, Any]:
    if callback is None:
        return {}
    # Such a callback builds its answer by calling the given type with the fields by name: a dictionary will do.
    return {
        "elicitation": lambda params: callback(params.message, dict if params.requested_schema else None, params, None)
    }


def _messages(callback: Callable[[ServerNotification], object] | None) -> dict[str, Any]:
    if callback is None:
        return {}
    return {"on_notification": lambda method, params: callback(ServerNotification(method, params))}


#: Options with another meaning, and the functions that convert them.
_CONVERTED: Mapping[tuple[Place, str], Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        ("server", "cache_ttl"): _seconds,
        ("tool", "structured_output"): _structured,
        ("client", "sampling_handler"): _sampling,
        ("client", "elicitation_handler"): _elicitation,
        ("client", "message_handler"): _messages,
    }
)


def _explain(name: str, value: object, row: _NoEffect) -> None:
    """Warn that a keyword has no effect.

    Raises:
        TypeError: it would hide a definition, which is not supported, and offering it silently would be worse.
    """
    if name == "enabled" and value is False:
        raise TypeError("option 'enabled': everything registered is offered; leave it out, or hide it with visible=")
    if value is not None and value not in row.agrees:
        warnings.warn(f"{name}={value!r} has no effect: {row.reason}", CompatibilityWarning, stacklevel=_user_level())


def _user_level() -> int:
    """Return the stack level of the first caller outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "trunkline":
        level, frame = level + 1, frame.f_back
    return level
