"""Constants, small helpers, and classes that exist only so that imports and annotations work."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISION_NAMES
from trunkline_compat.versions import STATE

LATEST_PROTOCOL_VERSION = NEWEST_HANDSHAKE.name if STATE.is_sdk_1 else NEWEST.name
LATEST_HANDSHAKE_VERSION = NEWEST_HANDSHAKE.name
LATEST_MODERN_VERSION = NEWEST.name
SUPPORTED_PROTOCOL_VERSIONS = list(REVISION_NAMES)
HANDSHAKE_PROTOCOL_VERSIONS = [name for name in REVISION_NAMES if name <= NEWEST_HANDSHAKE.name]
MODERN_PROTOCOL_VERSIONS = [name for name in REVISION_NAMES if name > NEWEST_HANDSHAKE.name]
DEFAULT_INHERITED_ENV_VARS = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"]
UI_MIME_TYPE = "text/html;profile=mcp-app"

ProgressFnT = CallNext = ElicitationFnT = SamplingFnT = ListRootsFnT = LoggingFnT = MessageHandlerFnT = Callable[
    ..., Any
]
GetSessionIdCallback = Callable[[], str | None]
HandlerResult = IncomingMessage = MessageMetadata = Any
ServerSessionT = TypeVar("ServerSessionT")
LifespanContextT = TypeVar("LifespanContextT")
LifespanResultT = TypeVar("LifespanResultT")
RequestT = TypeVar("RequestT")


class Placeholder(SimpleNamespace):
    """Accepts any options, and type parameters."""

    def __init__(self, *_: Any, **options: Any) -> None:
        """Initialize with the options."""
        super().__init__(**options)

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls


def _placeholder(name: str) -> type[Placeholder]:
    return type(name, (Placeholder,), {"__doc__": f"Stands for {name}."})


BaseSession, RequestResponder, ServerMiddleware, ClientRequestContext = map(
    _placeholder, ("BaseSession", "RequestResponder", "ServerMiddleware", "ClientRequestContext")
)
ServerMessageMetadata, ClientMessageMetadata, CacheHint, ResourceSecurity = map(
    _placeholder, ("ServerMessageMetadata", "ClientMessageMetadata", "CacheHint", "ResourceSecurity")
)
EventStore, EventMessage, TaskConfig = map(_placeholder, ("EventStore", "EventMessage", "TaskConfig"))
# Records that subclasses of an OAuth proxy name in their annotations.
OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken = map(
    _placeholder, ("OAuthClientInformationFull", "OAuthClientMetadata", "OAuthMetadata", "OAuthToken")
)
AuthorizationParams, AuthorizationCode, RefreshToken = map(
    _placeholder, ("AuthorizationParams", "AuthorizationCode", "RefreshToken")
)


class RequestStateSecurity(Placeholder):
    """How request state is sealed: our server does that by itself."""

    @classmethod
    def ephemeral(cls) -> RequestStateSecurity:
        """Return one whose key lasts as long as the process."""
        return cls()


class MCPDeprecationWarning(DeprecationWarning):
    """A part of the official SDK is on its way out."""


def get_default_environment() -> dict[str, str]:
    """Return the variables that a server process inherits."""
    return {name: os.environ[name] for name in DEFAULT_INHERITED_ENV_VARS if name in os.environ}


def get_logger(name: str) -> logging.Logger:
    """Return a logger."""
    return logging.getLogger(name)


def configure_logging(level: Any = "INFO", **_: Any) -> None:
    """Set the level of the root logger."""
    logging.basicConfig(level=level)


def parse_scopes(value: Any) -> list[str] | None:
    """Return scopes that were written as one text, separated by blanks or commas, or as a list."""
    if value is None:
        return None
    return value.replace(",", " ").split() if isinstance(value, str) else [str(each) for each in value]
