"""Routes of the console's API: a table of methods, path patterns and handlers.

Each module of ``trunkline.console.api`` has a part whose ``routes`` method returns its rows; ``web`` serves all of them
under ``/api``. Handlers get and return JSON values and know no HTTP: ``web`` handles authentication, size limits, the
encoding of results and the status of errors.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import unquote

from msgspec import Struct

from trunkline.errors import (
    AuthError,
    ConfigError,
    InvalidParams,
    LinkError,
    PolicyDenied,
    RequestFailed,
    RequestTimeout,
    ResourceNotFound,
    ServerUnavailable,
    TrunklineError,
)

__all__ = [
    "ApiError",
    "ApiHandler",
    "ApiRequest",
    "Download",
    "EventStream",
    "Route",
    "RouteTable",
    "error_code",
    "to_api_error",
]

log = logging.getLogger("trunkline.http")

_JSON_TYPES = MappingProxyType(
    {str: "a string", dict: "an object", list: "a list", int: "a number", bool: "true or false"}
)


class ApiError(Exception):
    """An error response: HTTP status, a code for programs, a message (a sentence), and the fix, if there is one."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        fix: str | None = None,
        allow: tuple[str, ...] = (),
        close: bool = False,
    ) -> None:
        """Create the error; ``allow`` has the methods of the path, ``close`` closes the connection."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.fix = fix
        self.allow = allow
        self.close = close


#: The code and the HTTP status of each kind of error, the most specific first.
_ERRORS: tuple[tuple[type[Exception], str, int], ...] = (
    (PolicyDenied, "denied", 403),
    (InvalidParams, "invalid_params", 400),
    (ResourceNotFound, "not_found", 404),
    (AuthError, "login_required", 409),
    (ServerUnavailable, "unavailable", 409),
    (RequestTimeout, "timeout", 504),
    (LinkError, "connection_lost", 502),
    (RequestFailed, "server_error", 502),
    (ConfigError, "configuration", 400),
    (TrunklineError, "failed", 502),
)


def error_code(error: Exception) -> tuple[str, int]:
    """Return the code and the HTTP status for an error of the host or a server."""
    return next(((code, status) for kind, code, status in _ERRORS if isinstance(error, kind)), ("internal", 500))


def to_api_error(error: Exception) -> ApiError:
    """Return the API error for an exception; an unexpected one is logged, and its text is not sent."""
    code, status = error_code(error)
    if code == "internal":
        log.error("a request of the console failed", exc_info=error)
        return ApiError(status, code, "The console failed to handle the request; its log has the reason.")
    return ApiError(status, code, str(error) or type(error).__name__)


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request to the API."""

    #: The variables of the path, decoded.
    params: Mapping[str, str] = {}
    #: The query string; the last value of a repeated name.
    query: Mapping[str, str] = {}
    #: The JSON body; None without one.
    body: Any = None
    #: The id of the browser window (``X-Console-Window``), included in events that it causes; empty if not sent.
    window: str = ""

    def member(self, name: str, kind: type = str, *, required: bool = True) -> Any:
        """Return a member of the body.

        Raises:
            ApiError: it is missing, or of another type.
        """
        value = self.body.get(name) if isinstance(self.body, dict) else None
        if value is None and not required:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ApiError(400, "invalid_request", f'The body must have the member "{name}", {_JSON_TYPES[kind]}.')
        return value


class Download(Struct, frozen=True, kw_only=True):
    """A result that is sent as a file."""

    content: bytes
    media_type: str
    name: str


class EventStream(Struct, frozen=True):
    """A result that is sent as an event stream; each value is one event, encoded as JSON."""

    events: AsyncIterator[Any]


#: Returns a value that msgspec can encode as JSON, a ``Download`` or an ``EventStream``.
ApiHandler: TypeAlias = Callable[[ApiRequest], Awaitable[Any]]


class Route(Struct, frozen=True):
    """One row of the API; ``{name}`` in a path matches one segment, ``{name...}`` at its end all remaining ones."""

    method: str
    path: str
    handler: ApiHandler


class RouteTable:
    """Finds the handler of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Compile the rows; the first that matches is used."""
        self._routes = [(route.method, re.compile(_pattern(route.path)), route.handler) for route in routes]

    def find(self, method: str, path: str) -> tuple[ApiHandler, dict[str, str]]:
        """Return the handler and the variables of an encoded path (without ``/api``).

        Raises:
            ApiError: there is no such path, or it does not have this method.
        """
        allowed = []
        for known, pattern, handler in self._routes:
            found = pattern.fullmatch(path)
            if found is None:
                continue
            if known == method:
                return handler, {name: unquote(value) for name, value in found.groupdict().items()}
            allowed.append(known)
        if allowed:
            methods = tuple(sorted(set(allowed)))
            message = f"{path} accepts {', '.join(methods)}, not {method}"
            raise ApiError(405, "method_not_allowed", message, allow=methods)
        raise ApiError(404, "not_found", f"The API has no path {path}.")


def _pattern(path: str) -> str:
    def variable(found: re.Match[str]) -> str:
        name, rest = found.group(1), found.group(2)
        return rf"(?P<{name}>.+)" if rest else rf"(?P<{name}>[^/]+)"

    parts = re.split(r"(\{\w+(?:\.\.\.)?\})", path)
    return "".join(
        re.sub(r"\{(\w+)(\.\.\.)?\}", variable, part) if part.startswith("{") else re.escape(part) for part in parts
    )
