"""FastMCP's dependencies: what a function asks for by a default, or looks up while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from trunkline.compat.context import CURRENT_REQUEST, current_context
from trunkline.compat.features.injection import BoundDepends as Depends
from trunkline.compat.features.injection import Shared
from trunkline.server.context import Context

__all__ = [
    "CurrentAccessToken",
    "CurrentContext",
    "CurrentFastMCP",
    "CurrentHeaders",
    "CurrentRequest",
    "Dependency",
    "Depends",
    "OptionalCurrentContext",
    "Progress",
    "Shared",
    "TokenClaim",
    "get_access_token",
    "get_context",
    "get_http_headers",
    "get_http_request",
    "get_server",
    "is_docket_available",
]

#: Headers that belong to one request and must not be passed on to another.
_OWN_HEADERS = frozenset(
    {
        "host",
        "content-length",
        "content-type",
        "connection",
        "transfer-encoding",
        "upgrade",
        "te",
        "keep-alive",
        "expect",
        "accept",
        "authorization",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "cookie",
        "mcp-session-id",
    }
)


def get_context() -> Any:
    """Return the context of the request being served.

    Raises:
        RuntimeError: none is.
    """
    found = current_context()
    if found is None:
        raise RuntimeError("No active context found.")
    return found


def get_server() -> Any:
    """Return the server that serves the request.

    Raises:
        RuntimeError: none is being served.
    """
    found = current_context()
    if found is None:
        raise RuntimeError("No FastMCP server instance found in context")
    return found.server


def get_http_request() -> Any:
    """Return the HTTP request, as Starlette has it.

    Raises:
        RuntimeError: there is none.
    """
    found = CURRENT_REQUEST.get()
    if found is None:
        raise RuntimeError("No active HTTP request found.")
    return found


def get_http_headers(include_all: bool = False, include: Any = None) -> dict[str, str]:
    """Return the headers of the HTTP request by lower-case name; none where there is no HTTP request."""
    request = CURRENT_REQUEST.get()
    if request is None:
        return {}
    wanted = {str(name).lower() for name in include or ()}
    return {
        name.lower(): value
        for name, value in request.headers.items()
        if include_all or name.lower() in wanted or name.lower() not in _OWN_HEADERS
    }


def get_access_token() -> Any:
    """Return the token of the caller, or None."""
    from trunkline.compat.auth.current import access_token_of

    found = current_context()
    if found is not None and found._exchange is not None and found.auth is not None:
        return access_token_of(found.auth)
    from trunkline.compat.request_context import fastmcp_request_ctx

    given = fastmcp_request_ctx.get()
    user = None if given is None or given.request is None else given.request.scope.get("user")
    return getattr(user, "access_token", None) or access_token_of(None)


class Dependency(Depends):
    """The base of dependencies that are objects: entered for a call, and left after it."""

    def __new__(cls, *_: Any, **__: Any) -> Dependency:
        """Prepare the object, whatever its own constructor does."""
        made = super().__new__(cls)

        @asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            async with made as value:
                yield value

        Depends.__init__(made, opened)
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept what a subclass accepts."""

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls

    async def __aenter__(self) -> Any:
        """Return the value."""
        raise NotImplementedError("subclasses implement __aenter__()")

    async def __aexit__(self, *_: object) -> None:
        """Do nothing after the call."""


def _context(ctx: Context) -> Any:
    return current_context() or ctx


def CurrentContext() -> Any:
    """Ask for the context."""
    return Depends(_context)


OptionalCurrentContext = CurrentContext


def CurrentFastMCP() -> Any:
    """Ask for the server."""
    return Depends(get_server)


CurrentServer = CurrentFastMCP


def CurrentRequest() -> Any:
    """Ask for the HTTP request."""
    return Depends(get_http_request)


def _headers() -> dict[str, str]:
    return get_http_headers(include_all=True)


def CurrentHeaders() -> Any:
    """Ask for the headers of the HTTP request."""
    return Depends(_headers)


def _token() -> Any:
    found = get_access_token()
    if found is None:
        raise RuntimeError("No access token found: the request is not authenticated")
    return found


def CurrentAccessToken() -> Any:
    """Ask for the caller's token."""
    return Depends(_token)


def TokenClaim(name: str) -> Any:
    """Ask for a claim of the caller's token."""

    def claim() -> Any:
        claims: Mapping[str, Any] = getattr(_token(), "claims", {}) or {}
        if name not in claims:
            raise RuntimeError(f"the token has no claim {name!r}")
        return claims[name]

    return Depends(claim)


class _ProgressReporter:
    """Counts steps and reports them."""

    def __init__(self) -> None:
        self.current: float | None = None
        self.total: float = 1
        self.message: str | None = None

    async def set_total(self, total: float) -> None:
        """Set the total amount of work."""
        self.total = total

    async def increment(self, amount: float = 1) -> None:
        """Report that some of the work is done."""
        self.current = (self.current or 0) + amount
        await self._report()

    async def set_message(self, message: str | None) -> None:
        """Set the message about the current step."""
        self.message = message
        await self._report()

    async def _report(self) -> None:
        context = current_context()
        if context is not None:
            with suppress(Exception):
                await context.report_progress(self.current or 0, self.total, self.message)


def Progress() -> Any:
    """Ask for something to report progress with."""
    return Depends(_ProgressReporter)


def is_docket_available() -> bool:
    """Return False: there are no background tasks here."""
    return False
