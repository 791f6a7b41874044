"""FastMCP's dependencies: what a function asks for by a default, or looks up while it runs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from trunkline_compat.context import CURRENT_REQUEST, Context, current_context

__all__ = [
    "CurrentAccessToken",
    "CurrentContext",
    "CurrentFastMCP",
    "CurrentHeaders",
    "CurrentRequest",
    "Dependency",
    "Depends",
    "Progress",
    "TokenClaim",
    "enter_dependencies",
    "get_access_token",
    "get_context",
    "get_http_headers",
    "get_http_request",
    "get_server",
]

#: Headers that belong to one connection, or to the caller alone, and are not passed on unless asked for.
_OWN_HEADERS = (
    *("accept", "authorization", "connection", "content-length", "content-type", "cookie", "expect", "host"),
    *("keep-alive", "mcp-session-id", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te"),
    *("transfer-encoding", "upgrade"),
)


# --- looked up while a function runs ---------------------------------------------------------------------------------


def get_context() -> Any:
    """Return the context of the request being served.

    Raises:
        RuntimeError: none is.
    """
    context = current_context()
    if context is None:
        raise RuntimeError("there is no context: no request is being served")
    return context


def get_server() -> Any:
    """Return the server that serves the request."""
    return get_context().fastmcp


def get_http_request() -> Any:
    """Return the HTTP request, as Starlette has it.

    Raises:
        RuntimeError: there is none.
    """
    request = CURRENT_REQUEST.get()
    if request is None:
        raise RuntimeError("there is no HTTP request: the server is not called over HTTP")
    return request


def get_http_headers(include_all: bool = False, include: Collection[str] | None = None) -> dict[str, str]:
    """Return the headers of the HTTP request by lower-case name; none where there is no HTTP request."""
    request = CURRENT_REQUEST.get()
    if request is None:
        return {}
    wanted = {name.lower() for name in include or ()}
    headers = {name.lower(): value for name, value in request.headers.items()}
    return {name: value for name, value in headers.items() if include_all or name in wanted or name not in _OWN_HEADERS}


def get_access_token() -> Any:
    """Return the token of the caller, or None."""
    from trunkline_compat.auth import current_access_token

    return current_access_token()


# --- asked for by a default ------------------------------------------------------------------------------------------


class Dependency:
    """A value that is computed for each call: by a function, or by a subclass that is entered for the call."""

    def __init__(self, factory: Callable[..., Any] | None = None, *, use_cache: bool = True) -> None:
        """Initialize with the function that returns, or yields, the value."""
        self.factory = factory
        self.use_cache = use_cache

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls

    async def __aenter__(self) -> Any:
        """Return the value of a subclass."""
        raise NotImplementedError(f"{type(self).__name__} must get a function, or override __aenter__()")

    async def __aexit__(self, *_: object) -> None:
        """Do nothing after the call."""


def Depends(factory: Callable[..., Any], **options: Any) -> Any:
    """Ask for the value of a function, which may ask for dependencies itself."""
    return Dependency(factory, use_cache=options.get("use_cache", True))


@asynccontextmanager
async def enter_dependencies(dependencies: Mapping[str, Dependency], context: Any) -> AsyncIterator[dict[str, Any]]:
    """Compute the values of dependencies; what they opened is closed afterwards, in reverse order."""
    async with AsyncExitStack() as stack:
        values: dict[Any, Any] = {}
        yield {name: await _resolve(each, context, stack, values) for name, each in dependencies.items()}


async def _resolve(dependency: Dependency, context: Any, stack: AsyncExitStack, values: dict[Any, Any]) -> Any:
    factory = dependency.factory
    if factory is None:
        return await stack.enter_async_context(dependency)
    if dependency.use_cache and factory in values:
        return values[factory]
    kwargs = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        if isinstance(parameter.default, Dependency):
            kwargs[name] = await _resolve(parameter.default, context, stack, values)
        elif isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Context):
            kwargs[name] = context
    if inspect.isasyncgenfunction(factory):
        value = await stack.enter_async_context(asynccontextmanager(factory)(**kwargs))
    else:
        value = factory(**kwargs)
        if inspect.isawaitable(value):
            value = await value
        if hasattr(value, "__aenter__") and hasattr(value, "__aexit__") and not inspect.isclass(factory):
            value = await stack.enter_async_context(value)
        elif hasattr(value, "__enter__") and hasattr(value, "gen"):
            value = stack.enter_context(value)
    values[factory] = value
    return value


def CurrentContext() -> Any:
    """Ask for the context."""
    return Depends(get_context)


def CurrentFastMCP() -> Any:
    """Ask for the server."""
    return Depends(get_server)


def CurrentRequest() -> Any:
    """Ask for the HTTP request."""
    return Depends(get_http_request)


def CurrentHeaders() -> Any:
    """Ask for the headers of the HTTP request."""
    return Depends(lambda: get_http_headers(include_all=True))


def CurrentAccessToken() -> Any:
    """Ask for the caller's token."""
    return Depends(_required_token)


def TokenClaim(name: str) -> Any:
    """Ask for a claim of the caller's token."""

    def claim() -> Any:
        claims = _required_token().claims or {}
        if name not in claims:
            raise RuntimeError(f"the token has no claim {name!r}")
        return claims[name]

    return Depends(claim)


def Progress() -> Any:
    """Ask for an object that counts steps and reports them."""
    return Depends(_ProgressReporter)


def _required_token() -> Any:
    token = get_access_token()
    if token is None:
        raise RuntimeError("there is no access token: the request is not authenticated")
    return token


class _ProgressReporter:
    """Counts steps and reports them to the caller."""

    def __init__(self) -> None:
        self.current: float = 0
        self.total: float | None = None
        self.message: str | None = None

    async def set_total(self, total: float) -> None:
        """Set the total amount of work."""
        self.total = total

    async def increment(self, amount: float = 1) -> None:
        """Report that some of the work is done."""
        self.current += amount
        await self._report()

    async def set_message(self, message: str | None) -> None:
        """Set the message about the current step."""
        self.message = message
        await self._report()

    async def _report(self) -> None:
        context = current_context()
        if context is not None:
            with suppress(RuntimeError):
                await context.report_progress(self.current, self.total, self.message)
