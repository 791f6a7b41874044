"""The keyword arguments of ``Client`` and of its calls, the frozen records they are resolved to, and its lifecycle.

::

    created ─▶ connecting ─▶ initialized ─▶ active ─▶ terminated
                   │  ▲            │           │
                   ▼  └── next call, or entered again ──┐
                 failed ◀──────────┴───────────┴────────┘

``initialized`` means that a revision was negotiated; in stateless revisions by the answer to ``server/discover``. No
call is sent before ``active``.

``ClientOptions`` is what a type checker and an editor see; ``ClientSettings`` is what the rest of the package reads,
with every default in one place. Names that users know from other clients (``sampling_handler`` and the like) are
translated by ``trunkline.keywords``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from msgspec import Struct, ValidationError, convert

from trunkline.errors import ConfigError
from trunkline.protocol.extensions import APPS, CLIENT_DEFAULTS
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST_HANDSHAKE, REVISION_NAMES, Revision, find_revision
from trunkline.timers import Clock
from trunkline.types import (
    CreateMessageRequestParams,
    ElicitRequestParams,
    Implementation,
    LoggingLevel,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
)

__all__ = [
    "TRANSITIONS",
    "CallOptions",
    "ClientAuth",
    "ClientOptions",
    "ClientSettings",
    "ClientState",
    "EraMemory",
    "Lifecycle",
    "ProgressCallback",
    "StateCallback",
    "check_option_names",
    "resolve_settings",
]

log = logging.getLogger("trunkline")


class ClientState(StrEnum):
    """The states of a client; each equals its name as a string."""

    CREATED = "created"
    CONNECTING = "connecting"
    INITIALIZED = "initialized"
    ACTIVE = "active"
    TERMINATED = "terminated"
    FAILED = "failed"


StateCallback: TypeAlias = Callable[[ClientState, Exception | None], object]

#: By state: the states that may follow it.
TRANSITIONS = MappingProxyType(
    {
        ClientState.CREATED: frozenset({ClientState.CONNECTING, ClientState.TERMINATED}),
        ClientState.CONNECTING: frozenset({ClientState.INITIALIZED, ClientState.FAILED, ClientState.TERMINATED}),
        ClientState.INITIALIZED: frozenset({ClientState.ACTIVE, ClientState.FAILED, ClientState.TERMINATED}),
        ClientState.ACTIVE: frozenset({ClientState.FAILED, ClientState.TERMINATED}),
        ClientState.FAILED: frozenset({ClientState.CONNECTING, ClientState.TERMINATED}),
        ClientState.TERMINATED: frozenset({ClientState.CONNECTING}),
    }
)


class Lifecycle:
    """The current state of one client, with the reason if it failed."""

    __slots__ = ("_on_state", "reason", "state")

    def __init__(self, on_state: StateCallback | None) -> None:
        """Start in the state ``created``."""
        self.state = ClientState.CREATED
        self.reason: Exception | None = None
        self._on_state = on_state

    def move(self, state: ClientState, reason: Exception | None = None) -> None:
        """Change the state and call the callback; a transition that is not in the table does nothing.

        Several things can end a connection at once (a process dies while it is being closed), and the first one
        decides.
        """
        if state not in TRANSITIONS[self.state]:
            return
        self.state = state
        self.reason = reason
        if self._on_state is not None:
            try:
                self._on_state(state, reason)
            except Exception:
                log.exception("a state callback failed (%s)", state)


if TYPE_CHECKING:
    # Most servers need no login, and the code for one is loaded when it is needed.
    from trunkline.auth.oauth import ApiKey, BearerToken, OAuth
    from trunkline.connection import Timeouts
    from trunkline.keywords import ServerNotification
    from trunkline.protocol.extension_definition import Extension


#: How a client authenticates to a server with a URL.
ClientAuth: TypeAlias = "str | OAuth | BearerToken | ApiKey"
ProgressCallback: TypeAlias = Callable[[int | float, int | float | None, str | None], object]
#: By launch fingerprint: the name of the revision that was negotiated.
EraMemory: TypeAlias = MutableMapping[str, str]
_Sampling: TypeAlias = Callable[[CreateMessageRequestParams], Any | Awaitable[Any]]
_Elicitation: TypeAlias = Callable[[ElicitRequestParams], Any | Awaitable[Any]]
_Roots: TypeAlias = Sequence[Any] | Callable[[], Any]
_Log: TypeAlias = Callable[[LoggingMessageNotificationParams], object]


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of ``Client``."""

    #: "auto", "handshake" for any revision with a handshake, or the name of the one revision to speak.
    revision: str
    #: Calls a model on the server's behalf; returns a result, a string or a content block.
    sampling: _Sampling | None
    #: Whether the sampling callback accepts requests with tools.
    sampling_tools: bool
    #: Asks the user on the server's behalf; returns an ElicitResult, the content, True, False or None.
    elicitation: _Elicitation | None
    #: Whether the elicitation callback can also send the user to a URL.
    elicitation_urls: bool
    #: The folders that the server may work on: paths, URIs or ``Root``, or a function that returns them.
    roots: _Roots | None
    #: Called with the server's log messages.
    logging: _Log | None
    #: Called with every notification but progress: method and params.
    on_notification: Callable[[str, dict[str, Any]], object] | None
    #: Called with every state and, for a failure, its reason.
    on_state: StateCallback | None
    #: Called with every change of the server's lists.
    on_change: Callable[[Any], object] | None
    #: Called with the progress of calls that have no callback of their own.
    on_progress: ProgressCallback | None
    #: Experimental capabilities to declare.
    experimental: dict[str, Any] | None
    #: Extensions to declare: a list of them, or settings by identifier. Tasks and skills are declared in any case,
    #: unless their settings are None.
    extensions: Mapping[str, Any] | Sequence[Extension] | None
    #: Whether to declare that this client shows pages of MCP Apps: servers then name the pages of their tools, and list
    #: the tools that only pages call.
    apps: bool
    #: Whether a server may request sampling and elicitation as tasks, in revisions with tasks in their core.
    received_tasks: bool
    #: The name and version that this client reports.
    client_info: Implementation | None
    #: Seconds of silence allowed in a request; progress restarts them.
    timeout: float | None
    #: For URLs: a token, sent as ``Authorization: Bearer``; "oauth" to log in; or an ``OAuth``, ``BearerToken`` or
    #: ``ApiKey``.
    auth: ClientAuth | None
    #: For URLs: headers to send with every request.
    headers: Mapping[str, str] | None
    #: For URLs: the proxy's URL; None uses the environment, the empty string means no proxy.
    proxy: str | None
    #: For URLs: a file with the certificates to trust instead of the system's.
    ca_file: str | os.PathLike[str] | None
    #: For URLs: an ``ssl.SSLContext``, used unchanged.
    ssl: Any
    #: Environment variables for a server process, on top of a minimal environment.
    env: Mapping[str, str] | None
    #: The working directory of a server process.
    cwd: str | os.PathLike[str] | None
    #: Called with what a server process writes to stderr, as it arrives.
    on_stderr: Callable[[bytes], None] | None
    #: Cache results for as long as the server declares them fresh.
    cache: bool
    #: Validate structured results against the tool's output schema, once the tool list is known.
    validate: bool
    limits: Limits | None
    #: Restart a server process when the next call finds it gone.
    restart: bool
    #: The minimum level of log messages.
    log_level: LoggingLevel | None
    clock: Clock | None
    #: Remembers, beyond this client, which era a server speaks.
    era_memory: EraMemory | None
    sampling_handler: Callable[..., Any] | None
    elicitation_handler: Callable[..., Any] | None
    log_handler: _Log | None
    progress_handler: ProgressCallback | None
    message_handler: Callable[[ServerNotification], object] | None


class ClientSettings(Struct, frozen=True, kw_only=True):
    """The resolved options of a client."""

    pinned: Revision | None = None
    #: Use the handshake without probing for a stateless revision first.
    handshake: bool = False
    sampling: Any = None
    sampling_tools: bool = False
    elicitation: Any = None
    elicitation_urls: bool = False
    roots: Any = None
    logging: Any = None
    on_notification: Any = None
    on_state: Any = None
    on_change: Any = None
    on_progress: Any = None
    experimental: dict[str, Any] | None = None
    #: The declared settings by identifier, and the extensions that were passed as objects.
    extensions: Mapping[str, Any] = CLIENT_DEFAULTS
    extension_objects: tuple[Extension, ...] = ()
    apps: bool = False
    received_tasks: bool = True
    client_info: Implementation
    timeout: float | None = None
    auth: Any = None
    headers: Mapping[str, str] | None = None
    proxy: str | None = None
    ca_file: str | None = None
    ssl: Any = None
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    on_stderr: Any = None
    cache: bool = True
    validate: bool = True
    limits: Limits
    restart: bool = True
    log_level: LoggingLevel | None = None
    clock: Any = None
    era_memory: Any = None
    #: Where a host observes the traffic (``TrafficTap``); not an option of users.
    tap: Any = None


class CallOptions(Struct, frozen=True):
    """The resolved options of one call, from the public method to the connection."""

    timeouts: Timeouts
    #: Called with each progress notification; without it, none are requested.
    on_progress: Callable[[ProgressNotificationParams], None] | None = None
    #: The caller's members of ``_meta``.
    meta: Mapping[str, Any] | None = None
    #: Over HTTP: headers that repeat arguments of the call.
    headers: Mapping[str, str] | None = None
    #: Seconds to wait for the result if the call becomes a task: the caller's total timeout. A task has no default.
    task_timeout: float | None = None


def resolve_settings(options: Mapping[str, Any], target: object = None) -> ClientSettings:
    """Fill in the defaults of the options; limits may also be given in an ``mcpServers`` entry.

    Raises:
        ConfigError: an unknown revision or limit, or one option given under two names.
        TypeError: an unknown option.
    """
    given = dict(options)
    if not given.keys() <= _NAMES:
        from trunkline.keywords import translate

        given = translate("client", given, _NAMES)
        check_option_names("Client", given, ClientOptions.__annotations__)
    given["handshake"] = given.get("revision") == "handshake"
    given["pinned"] = _revision(given.pop("revision", "auto"))
    for name in ("ca_file", "cwd"):
        given[name] = None if given.get(name) is None else os.fspath(given[name])
    if given.get("extensions"):
        from trunkline.protocol.extension_definition import read_extensions

        declared, given["extension_objects"] = read_extensions(given["extensions"], "client")
        given["extensions"] = {**CLIENT_DEFAULTS, **declared}
    else:
        given["extensions"] = CLIENT_DEFAULTS
    if given.get("apps"):
        given["extensions"] = {**given["extensions"], **_declared_apps()}
    given["limits"] = given.get("limits") or _limits(target)
    given["client_info"] = given.get("client_info") or _this_program()
    given["elicitation_urls"] = given.get("elicitation_urls") or getattr(given.get("elicitation"), "takes_urls", False)
    return ClientSettings(**given)


#: The options under our own names.
_NAMES = frozenset({"revision", *ClientSettings.__struct_fields__} - {"handshake", "pinned", "extension_objects"})


def _declared_apps() -> dict[str, Any]:
    from trunkline.protocol.apps import APP_SETTINGS

    return {APPS: dict(APP_SETTINGS)}


def check_option_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of keyword arguments.

    Raises:
        TypeError: ``owner`` has no option of that name; the nearest one is suggested.
    """
    names = frozenset(known)
    for name in given:
        if name not in names:
            import difflib

            near = difflib.get_close_matches(name, sorted(names), n=1)
            raise TypeError(f"{owner} has no option {name!r}{f'; did you mean {near[0]!r}?' if near else ''}")


def _limits(target: object) -> Limits:
    written = target.get("limits") if isinstance(target, Mapping) else None
    try:
        return Limits() if written is None else convert(written, Limits)
    except ValidationError as error:
        raise ConfigError(f"limits of the mcpServers entry: {error}; the reference lists them.") from error


def _revision(name: str) -> Revision | None:
    if name in ("auto", "handshake"):
        return None
    if name == "legacy":
        return NEWEST_HANDSHAKE
    revision = find_revision(name)
    if revision is None:
        known = ", ".join(REVISION_NAMES)
        raise ConfigError(f'revision="{name}" does not exist: use "auto", "handshake" or one of {known}.')
    return revision


def _this_program() -> Implementation:
    from trunkline import __version__

    return Implementation(name="trunkline", version=__version__)
