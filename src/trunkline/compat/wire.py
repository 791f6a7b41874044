"""Small parts of the two packages that code imports, mostly for annotations."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

from trunkline.compat.versions import STATE
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISION_NAMES
from trunkline.protocol.uri_template import UriTemplate

__all__ = [
    "DEFAULT_INHERITED_ENV_VARS",
    "HANDSHAKE_PROTOCOL_VERSIONS",
    "LATEST_HANDSHAKE_VERSION",
    "LATEST_MODERN_VERSION",
    "LATEST_PROTOCOL_VERSION",
    "MODERN_PROTOCOL_VERSIONS",
    "SUPPORTED_PROTOCOL_VERSIONS",
    "BaseSession",
    "BearerAuth",
    "CallNext",
    "ClientMessageMetadata",
    "ClientRequestContext",
    "ElicitationFnT",
    "FastMCPDeprecationWarning",
    "GetSessionIdCallback",
    "HandlerResult",
    "IncomingMessage",
    "InputRequiredRoundsExceededError",
    "InvalidUriTemplate",
    "LifespanContextT",
    "ListRootsFnT",
    "LoggingFnT",
    "MessageHandler",
    "MessageHandlerFnT",
    "MessageMetadata",
    "OAuth",
    "ProgressFnT",
    "RequestResponder",
    "RequestStateSecurity",
    "RequestT",
    "SamplingFnT",
    "ServerMessageMetadata",
    "ServerMiddleware",
    "ServerSessionT",
    "UriTemplate",
    "create_client_server_memory_streams",
    "find_available_port",
    "get_default_environment",
    "get_display_name",
]

LATEST_HANDSHAKE_VERSION = NEWEST_HANDSHAKE.name
LATEST_MODERN_VERSION = NEWEST.name
LATEST_PROTOCOL_VERSION = NEWEST_HANDSHAKE.name if STATE.camel_case else NEWEST.name
SUPPORTED_PROTOCOL_VERSIONS = tuple(REVISION_NAMES)
DEFAULT_INHERITED_ENV_VARS = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
HANDSHAKE_PROTOCOL_VERSIONS = tuple(name for name in REVISION_NAMES if name <= NEWEST_HANDSHAKE.name)
MODERN_PROTOCOL_VERSIONS = tuple(name for name in REVISION_NAMES if name > NEWEST_HANDSHAKE.name)

# Names of types that code uses in annotations.
ProgressFnT = Callable[..., Any]
CallNext = Callable[..., Any]
ElicitationFnT = Callable[..., Any]
SamplingFnT = Callable[..., Any]
ListRootsFnT = Callable[..., Any]
LoggingFnT = Callable[..., Any]
MessageHandlerFnT = Callable[..., Any]
GetSessionIdCallback = Callable[[], str | None]
HandlerResult = Any
IncomingMessage = Any
MessageMetadata = Any
ServerSessionT = TypeVar("ServerSessionT")
LifespanContextT = TypeVar("LifespanContextT")
RequestT = TypeVar("RequestT")


class InvalidUriTemplate(ValueError):
    """A text is no URI template."""

    @classmethod
    def check(cls, text: str) -> None:
        """Raise if a text is no URI template."""
        try:
            UriTemplate.parse(text)
        except ValueError as error:
            if text.rfind("{") > text.rfind("}"):
                raise cls(f"Unclosed expression in {text!r}") from error
            raise cls(str(error)) from error


class FastMCPDeprecationWarning(DeprecationWarning):
    """Something of FastMCP is on its way out."""


class RequestStateSecurity(SimpleNamespace):
    """How request state is sealed; ``request_state_security=`` warns that it has no effect."""

    def __init__(self, *_: Any, **options: Any) -> None:
        """Keep the options."""
        super().__init__(**options)

    @classmethod
    def ephemeral(cls) -> RequestStateSecurity:
        """Return one whose key lasts as long as the process."""
        return cls()


class InputRequiredRoundsExceededError(RuntimeError):
    """A server asked for input too often."""


class ServerMiddleware:
    """A function around requests; for annotations."""

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls


class ClientRequestContext(SimpleNamespace):
    """What a client's callback is told about a request; for annotations."""

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls


def find_available_port() -> int:
    """Return a port that nothing listens on."""
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


class BaseSession:
    """The base of sessions, for annotations."""

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls


class RequestResponder(BaseSession):
    """A request that waits for its answer, for annotations."""


class ServerMessageMetadata(SimpleNamespace):
    """What a transport knows about a message to a server."""


class ClientMessageMetadata(SimpleNamespace):
    """What a transport knows about a message to a client."""


class MessageHandler:
    """Hears all messages of a server; override what is of interest."""

    async def __call__(self, message: Any) -> None:
        """Dispatch a message."""
        await self.dispatch(message)

    async def dispatch(self, message: Any) -> None:
        """Call the methods for a message."""
        await self.on_message(message)
        inner = getattr(message, "root", message)
        name = type(inner).__name__.removesuffix("Notification")
        method = "on_" + "".join(f"_{each.lower()}" if each.isupper() else each for each in name).lstrip("_")
        if hasattr(self, method):
            await getattr(self, method)(inner)

    async def on_message(self, message: Any) -> None:
        """Hear any message."""


class BearerAuth:
    """A token for a server at a URL."""

    def __init__(self, token: str) -> None:
        """Keep the token."""
        self.token = token

    def own(self) -> Any:
        """Return what our client takes."""
        return self.token


class OAuth:
    """A login for a server at a URL."""

    def __init__(self, mcp_url: str | None = None, **options: Any) -> None:
        """Keep the options."""
        self.mcp_url = mcp_url
        self.options = options

    def own(self) -> Any:
        """Return what our client takes."""
        from trunkline.auth import OAuth as OwnOAuth

        given = self.options
        scopes = given.get("scopes")
        return OwnOAuth(
            scopes=scopes.split() if isinstance(scopes, str) else scopes,
            client_name=given.get("client_name") or "FastMCP Client",
            client_id=given.get("client_id"),
            client_secret=given.get("client_secret"),
            client_metadata_url=given.get("client_metadata_url"),
            redirect_port=given.get("callback_port") or 0,
        )


def get_default_environment() -> dict[str, str]:
    """Return the variables that a server process inherits."""
    return {name: os.environ[name] for name in DEFAULT_INHERITED_ENV_VARS if name in os.environ}


def get_display_name(item: Any) -> str:
    """Return the title of a tool, prompt or resource, or its name."""
    hints = getattr(item, "annotations", None)
    return str(getattr(item, "title", None) or getattr(hints, "title", None) or item.name)


@asynccontextmanager
async def create_client_server_memory_streams() -> AsyncIterator[Any]:
    """Return the streams of a client and those of a server, joined."""
    import anyio

    to_client, from_server = anyio.create_memory_object_stream[Any](10)
    to_server, from_client = anyio.create_memory_object_stream[Any](10)
    async with to_client, from_server, to_server, from_client:
        yield (from_server, to_server), (from_client, to_client)
