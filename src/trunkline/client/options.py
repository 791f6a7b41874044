"""What a client can be told: the keyword arguments of ``Client``, and the frozen record they become.

``Options`` is what a type checker and an editor see; ``Settings`` is what the rest of the package reads, with every
default in one place. Names that users of other clients know (``sampling_handler`` and the like) are taken as well, and
called the way they expect.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from msgspec import Struct, ValidationError, convert

from trunkline.client.state import StateCallback
from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import ALL_NAMES, NEWEST_HANDSHAKE, Revision, find
from trunkline.timekeeper import Clock
from trunkline.types import (
    CreateMessageRequestParams,
    ElicitRequestParams,
    Implementation,
    LoggingLevel,
    LoggingMessageNotificationParams,
)

if TYPE_CHECKING:
    # Most servers need no login, and what one takes is loaded when it is needed.
    from trunkline.auth.oauth import ApiKey, BearerToken, OAuth

__all__ = ["Auth", "EraMemory", "Notice", "Options", "Progress", "Settings", "settings_from"]

#: How a client shows a server that is reached by a URL who asks.
Auth: TypeAlias = "str | OAuth | BearerToken | ApiKey"
Progress: TypeAlias = Callable[[int | float, int | float | None, str | None], object]
#: Launch fingerprints and the name of the revision that was agreed on there.
EraMemory: TypeAlias = MutableMapping[str, str]
_Sampling: TypeAlias = Callable[[CreateMessageRequestParams], Any | Awaitable[Any]]
_Elicitation: TypeAlias = Callable[[ElicitRequestParams], Any | Awaitable[Any]]
_Roots: TypeAlias = Sequence[Any] | Callable[[], Any]
_Log: TypeAlias = Callable[[LoggingMessageNotificationParams], object]


class Notice(Struct, frozen=True):
    """A notification as a ``message_handler`` gets it."""

    method: str
    params: dict[str, Any]


class Options(TypedDict, total=False):
    """The keyword arguments of ``Client``."""

    #: "auto", "handshake" for whichever revision with a handshake, or the name of the one revision to speak.
    revision: str
    #: Asks a model on the server's behalf: a result, a text or a content block.
    sampling: _Sampling | None
    #: The sampling callback takes requests with tools.
    sampling_tools: bool
    #: Asks the user on the server's behalf: an ElicitResult, the content, True, False or None.
    elicitation: _Elicitation | None
    #: The elicitation callback can also send the user to a page.
    elicitation_urls: bool
    #: The folders the server may work on: paths, URIs or ``Root``, or a function that gives them.
    roots: _Roots | None
    #: Hears the server's log messages.
    logging: _Log | None
    #: Hears every notification but progress: method and params.
    on_notification: Callable[[str, dict[str, Any]], object] | None
    #: Hears every state and, for a failure, its reason.
    on_state: StateCallback | None
    #: Hears every change of the server's lists.
    on_change: Callable[[Any], object] | None
    #: Hears the progress of calls that have no callback of their own.
    on_progress: Progress | None
    #: Capabilities of one's own.
    experimental: dict[str, Any] | None
    #: Who this client says it is.
    client_info: Implementation | None
    #: Seconds of silence a request may take; progress starts them again.
    timeout: float | None
    #: For URLs: a token, sent as ``Authorization: Bearer``; "oauth" to log in; or an ``OAuth``, ``BearerToken`` or
    #: ``ApiKey``.
    auth: Auth | None
    #: For URLs: headers that are sent with every request.
    headers: Mapping[str, str] | None
    #: For URLs: the proxy's URL; None leaves it to the environment, the empty text means none.
    proxy: str | None
    #: For URLs: a file with the certificates to trust instead of the system's.
    ca_file: str | os.PathLike[str] | None
    #: For URLs: an ``ssl.SSLContext``, used as it is.
    ssl: Any
    #: Variables for a server process, on top of a minimal environment.
    env: Mapping[str, str] | None
    #: Where a server process starts.
    cwd: str | os.PathLike[str] | None
    #: Is given what a server process writes to stderr, as it comes.
    on_stderr: Callable[[bytes], None] | None
    #: Keep results for as long as the server says they are fresh.
    cache: bool
    #: Check structured results against the tool's output schema, once its list was seen.
    validate: bool
    limits: Limits | None
    #: Start a server process again when the next call finds it gone.
    restart: bool
    #: The least severe log messages wanted.
    log_level: LoggingLevel | None
    clock: Clock | None
    #: Where to remember, beyond this client, which era a server speaks.
    era_memory: EraMemory | None
    sampling_handler: Callable[..., Any] | None
    elicitation_handler: Callable[..., Any] | None
    log_handler: _Log | None
    progress_handler: Progress | None
    message_handler: Callable[[Notice], object] | None


class Settings(Struct, frozen=True, kw_only=True):
    """What a client was told, complete."""

    pinned: Revision | None = None
    #: Shake hands, without asking first whether the server knows better.
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


def settings_from(options: Mapping[str, Any], target: object = None) -> Settings:
    """Complete the options with what they left out; limits may stand in an ``mcpServers`` entry as well.

    Raises:
        ConfigError: a revision or a limit that does not exist, or one thing told under two names.
        TypeError: an option that does not exist.
    """
    given = dict(options)
    for other, own in _OTHER_NAMES.items():
        if other in given:
            given[own] = given.pop(other)
    _check_names(given)
    for alias, (name, adapt) in _ALIASES.items():
        callback = given.pop(alias, None)
        if callback is not None:
            if given.get(name) is not None:
                raise ConfigError(f"{alias} is another name for {name}: give one of them.")
            given[name] = adapt(callback)
    given["handshake"] = given.get("revision") == "handshake"
    given["pinned"] = _revision(given.pop("revision", "auto"))
    for name in ("ca_file", "cwd"):
        given[name] = None if given.get(name) is None else os.fspath(given[name])
    given["limits"] = given.get("limits") or _limits(target)
    given["client_info"] = given.get("client_info") or _this_program()
    given["elicitation_urls"] = given.get("elicitation_urls") or getattr(given.get("elicitation"), "takes_urls", False)
    return Settings(**given)


def _check_names(given: Mapping[str, Any]) -> None:
    known = Options.__annotations__
    for name in given:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=1)
            raise TypeError(f"Client has no option {name!r}{f'; did you mean {near[0]!r}?' if near else ''}")


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
    revision = find(name)
    if revision is None:
        known = ", ".join(ALL_NAMES)
        raise ConfigError(f'revision="{name}" is none that exists: give "auto", "handshake" or one of {known}.')
    return revision


def _this_program() -> Implementation:
    from trunkline import __version__

    return Implementation(name="trunkline", version=__version__)


# --- names that users know from elsewhere ----------------------------------------------------------------------------


def _same(callback: Any) -> Any:
    return callback


def _sampling(callback: Callable[..., Any]) -> _Sampling:
    return lambda params: callback(params.messages, params, None)


def _elicitation(callback: Callable[..., Any]) -> _Elicitation:
    # Such a callback makes its answer by calling the type it is given with the fields by name: a dictionary will do.
    return lambda params: callback(params.message, dict if params.requested_schema else None, params, None)


def _message(callback: Callable[[Notice], object]) -> Callable[[str, dict[str, Any]], object]:
    return lambda method, params: callback(Notice(method, params))


#: Names of others for the very same option.
_OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "mode": "revision",
        "read_timeout_seconds": "timeout",
        "logging_callback": "logging",
        "info": "client_info",
    }
)

_ALIASES: Mapping[str, tuple[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        "sampling_handler": ("sampling", _sampling),
        "elicitation_handler": ("elicitation", _elicitation),
        "log_handler": ("logging", _same),
        "progress_handler": ("on_progress", _same),
        "message_handler": ("on_notification", _message),
    }
)
