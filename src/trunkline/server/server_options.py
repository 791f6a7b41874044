"""The options of a server: their names, and the code that validates them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, get_args

import msgspec

import trunkline.types as t
from trunkline.errors import ConfigError
from trunkline.protocol.caller import ScopeHierarchy
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import REVISION_NAMES
from trunkline.server.components import OnDuplicate
from trunkline.server.listing import VisibilityFilter
from trunkline.server.options import own_options
from trunkline.server.validation_errors import did_you_mean
from trunkline.timers import Clock

if TYPE_CHECKING:
    from trunkline.auth.verifiers import ServerAuth
    from trunkline.protocol.extension_definition import Extension
    from trunkline.server.task_options import TaskSettings
    from trunkline.store.interface import Store
    from trunkline.store.server_store import StoreOption

__all__ = ["ServerOptions", "ServerSettings", "read_options", "server_limits"]

_HTTP_OPTIONS = (
    "host",
    "port",
    "streamable_http_path",
    "sse_path",
    "message_path",
    "json_response",
    "stateless_http",
    "resource",
)


class ServerOptions(TypedDict, total=False):
    """The less common options of a server; None is the same as omitting an option."""

    title: str | None
    description: str | None
    website_url: str | None
    icons: Sequence[t.Icon] | None
    tools: Sequence[Callable[..., Any]]
    experimental: Mapping[str, Any] | None
    extensions: Mapping[str, Any] | Sequence[Extension] | None
    tasks: TaskSettings | None
    skills: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    capabilities: Sequence[str]
    revisions: Sequence[str] | None
    state_keys: Sequence[str | bytes] | None
    visible: VisibilityFilter | None
    on_duplicate: OnDuplicate
    mask_error_details: bool
    wrap_results: bool
    strict_arguments: bool
    list_page_size: int | None
    cache_ttl_ms: int
    clock: Clock | None
    store: str | os.PathLike[str] | Store | None
    auth: ServerAuth
    implied_scopes: Mapping[str, Sequence[str]]
    resource: str
    host: str
    port: int
    streamable_http_path: str
    sse_path: str
    message_path: str
    json_response: bool
    stateless_http: bool


class ServerSettings:
    """What a server was defined with, apart from what is registered on it."""

    def __init__(self, name: str, version: str, options: ServerOptions) -> None:
        """Read the validated options."""
        self.info: t.Implementation = t.Implementation(
            name=name,
            version=version,
            title=options.get("title"),
            description=options.get("description"),
            website_url=options.get("website_url"),
            icons=list(options.get("icons") or ()) or None,
        )
        self.experimental: Mapping[str, Any] | None = options.get("experimental")
        #: The kinds of definitions that are declared although there may be none yet.
        self.announced: frozenset[str] = frozenset(options.get("capabilities", ()))
        #: The methods that ``answer`` gave a handler.
        self.answered: frozenset[str] = frozenset()
        #: The declared extensions by identifier, with their settings.
        self.extensions: Mapping[str, Any] = {}
        self.extension_objects: tuple[Extension, ...] = ()
        self.masks_errors: bool = options.get("mask_error_details", True)
        #: Whether tools send a value that is not an object as ``{"result": …}`` in every revision, so that a tool's
        #: results always have the same shape; False sends the bare value where the revision allows it.
        self.wraps_results: bool = options.get("wrap_results", True)
        self.strict_arguments: bool = options.get("strict_arguments", False)
        self.cache_ttl_ms: int = options.get("cache_ttl_ms", 0)
        #: Authenticates requests over HTTP; None accepts all of them.
        self.auth: ServerAuth | None = options.get("auth")
        #: The scopes that imply others.
        self.hierarchy: ScopeHierarchy = ScopeHierarchy(options.get("implied_scopes") or {})
        #: The HTTP options that were passed to the constructor rather than to ``run``.
        self.http: dict[str, Any] = {name: options[name] for name in _HTTP_OPTIONS if name in options}  # type: ignore[literal-required]
        #: Where everything is stored that outlives a request, and the keys of what is sealed.
        self.store: StoreOption = options.get("store")
        self.state_keys: Sequence[str | bytes] | None = options.get("state_keys")
        self.tasks: TaskSettings | None = options.get("tasks")
        self.clock: Clock | None = options.get("clock")
        self.revisions: tuple[str, ...] = tuple(options.get("revisions") or REVISION_NAMES)


def server_limits(given: Limits, page_size: int | None) -> Limits:
    """Return the limits, with the page size from the options.

    Raises:
        ConfigError: the page size is less than one.
    """
    limits = given if page_size is None else msgspec.structs.replace(given, page_size=page_size)
    if limits.page_size < 1:
        raise ConfigError(f"list_page_size={limits.page_size}: a page must hold at least one item")
    return limits


#: The flags of the code of generator, coroutine and async generator functions, as `inspect` has them.
_NOT_A_CONTEXT_MANAGER = 0x20 | 0x80 | 0x200
#: The named parameters of ``Server``, besides its options.
_PARAMETERS = ("name", "instructions", "version", "lifespan", "middleware", "limits")


def read_options(given: ServerOptions, lifespan: object, middleware: object) -> ServerOptions:
    """Return the validated options under Trunkline's names.

    Raises:
        TypeError: an option is unknown, and the message names the closest one; or a function cannot be used.
        ConfigError: an option has an invalid value.
    """
    known = ServerOptions.__annotations__
    options: dict[str, Any] = {}
    for name, value in own_options("server", given, known).items():
        if name not in known:
            raise TypeError(f"Server has no option {name!r}{did_you_mean(name, (*_PARAMETERS, *known))}")
        if value is not None:
            options[name] = value
    _check(options)
    _check_functions(lifespan, middleware)
    return options  # type: ignore[return-value]


def _check(options: Mapping[str, Any]) -> None:
    if "auth" in options and not (callable(options["auth"]) or hasattr(options["auth"], "verify")):
        raise ConfigError(
            "auth= must be a verifier such as JWTVerifier(issuer=..., audience=...), or a function that takes the "
            "headers of a request and returns a Principal, or None to reject it"
        )
    if options.get("on_duplicate", "error") not in get_args(OnDuplicate):
        allowed = ", ".join(get_args(OnDuplicate))
        raise ConfigError(f"on_duplicate={options['on_duplicate']!r} is not valid; use one of {allowed}")
    unknown = [name for name in options.get("revisions") or () if name not in REVISION_NAMES]
    if unknown:
        raise ConfigError(f"revisions={unknown!r} are unknown; the revisions are {', '.join(REVISION_NAMES)}")
    _check_storage(options)


def _check_storage(options: Mapping[str, Any]) -> None:
    tasks, store = options.get("tasks"), options.get("store")
    if tasks is not None:
        from trunkline.server.task_options import TaskSettings

        if not isinstance(tasks, TaskSettings):
            raise ConfigError(
                "tasks= takes TaskSettings(...). Which tools run as tasks is said with task=True on each; where tasks "
                "are stored, with everything else, by store=, such as store='state.db'"
            )
    if store is not None and not isinstance(store, str | os.PathLike):
        from trunkline.store.interface import Store

        if not isinstance(store, Store):
            raise ConfigError("store= must be the path of an SQLite file, or a URL such as redis://HOST:6379/0")


def _check_functions(lifespan: object, middleware: object) -> None:
    """Reject a lifespan and middleware that would fail at the first request only.

    Raises:
        TypeError: the text says what to write.
    """
    for each in () if callable(middleware) else middleware:  # type: ignore[attr-defined]
        if not callable(each):
            raise TypeError(
                f"middleware= takes functions `async (request, call_next)`; an object of {type(each).__name__} is none"
            )
    if callable(middleware):
        raise TypeError(f"middleware= takes a list of functions: write [{getattr(middleware, '__name__', '...')}]")
    if lifespan is not None and not callable(lifespan):
        raise TypeError(f"lifespan= takes a function of the server, not {type(lifespan).__name__}")
    if getattr(getattr(lifespan, "__code__", None), "co_flags", 0) & _NOT_A_CONTEXT_MANAGER:
        name = getattr(lifespan, "__name__", "")
        raise TypeError(f"lifespan={name} is no context manager: decorate {name} with @contextlib.asynccontextmanager")
