"""Operations of an OpenAPI document as tools, resources and templates."""

from __future__ import annotations

import json
import logging
import re
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import quote

from trunkline.compat.components import Resource, ResourceTemplate, Tool
from trunkline.compat.openapi.schemas import is_json, success_response
from trunkline.compat.results import ResourceContent, ResourceResult, ToolResult

__all__ = ["OpenAPIResource", "OpenAPIResourceTemplate", "OpenAPITool", "UpstreamError"]

log = logging.getLogger("fastmcp")

_SHOWN_HEADERS = frozenset({"accept", "accept-encoding", "content-length", "content-type", "host", "user-agent"})
_LOCALHOST = "http://localhost"
_TEXTUAL = ("text/", "application/xml", "application/javascript", "application/x-www-form-urlencoded")


class UpstreamError(ValueError):
    """The HTTP API answered with an error: an answer, not a crash of the tool."""

    def __init__(self, message: str, status_code: int | None = None) -> None:
        """Keep the status."""
        super().__init__(message)
        self.status_code = status_code


def _redact_headers(headers: Any) -> dict[str, str]:
    """Return headers for a log: only those that never hold a secret are shown."""
    return {name.lower(): value if name.lower() in _SHOWN_HEADERS else "***" for name, value in dict(headers).items()}


def _slugify(text: str) -> str:
    """Return a text as a name."""
    return re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_]", "_", re.sub(r"[\s\-.]+", "_", text))).strip("_")


def _extract_mime_type_from_route(route: Any) -> str:
    """Return the media type of an operation's response: JSON if it may be, or the first."""
    chosen = success_response(route.responses)
    kinds = list(chosen.content_schema) if chosen is not None else []
    return next((each for each in kinds if each == "application/json"), kinds[0] if kinds else "application/json")


def _forwarded_headers(client: Any) -> dict[str, str]:
    """Return the headers of the caller's request that may be sent on: never one that the client sets itself."""
    from trunkline.compat.dependencies import get_http_headers

    try:
        found = get_http_headers()
    except RuntimeError:
        return {}
    configured = {name.lower() for name in client.headers or ()}
    return {name: value for name, value in found.items() if name not in configured and not name.startswith("mcp-")}


def _prepared(client: Any, request: Any) -> Any:
    """Return a request with what the client adds to all its requests: headers, cookies, parameters."""
    headers = dict(request.headers)
    cookies = {name: each.value for name, each in SimpleCookie(headers.pop("cookie", "")).items()}
    headers.pop("host", None)
    merged = {**_forwarded_headers(client), **headers}
    options: dict[str, Any] = {"headers": merged, "content": request.read() or None}
    if cookies:
        options["cookies"] = cookies
    return client.build_request(request.method, str(request.url), **options)


async def _sent(client: Any, request: Any) -> Any:
    """Send a request and return the answer.

    Raises:
        UpstreamError: the answer is an error, or there is none.
    """
    log.debug("%s %s %s", request.method, request.url, _redact_headers(request.headers))
    try:
        response = await client.send(request)
    except Exception as error:
        kinds = [each.__name__ for each in type(error).__mro__]
        if "TimeoutException" in kinds:
            raise UpstreamError(f"HTTP request timed out ({type(error).__name__})") from error
        if "RequestError" in kinds or "HTTPStatusError" in kinds:
            _raise_status(getattr(error, "response", None))
            raise UpstreamError(f"Request error ({type(error).__name__}): {error}") from error
        raise
    _raise_status(response)
    return response


def _raise_status(response: Any) -> None:
    status = getattr(response, "status_code", None)
    if not isinstance(status, int) or status < 400:
        return
    try:
        detail: Any = response.json()
    except ValueError:
        detail = response.text
    raise UpstreamError(f"HTTP error {status}: {response.reason_phrase} - {detail}", status)


class _Request:
    """Builds and sends the requests of one operation."""

    def __init__(self, client: Any, route: Any, director: Any) -> None:
        self.client, self.route, self.director = client, route, director

    async def send(self, arguments: dict[str, Any]) -> Any:
        """Send a request.

        Raises:
            ValueError: it cannot be built, or the answer is an error.
        """
        base = str(self.client.base_url or "") or _LOCALHOST
        try:
            request = self.director.build(self.route, arguments, base)
            prepared = _prepared(self.client, request)
        except Exception as error:
            where = f"{self.route.method} {self.route.path}"
            raise ValueError(f"Error building request for {where}: {type(error).__name__}: {error}") from error
        return await _sent(self.client, prepared)


class OpenAPITool(Tool):
    """A tool that sends one HTTP request."""

    client: Any = None
    route: Any = None
    director: Any = None

    def __repr__(self) -> str:
        """Show the operation."""
        return f"OpenAPITool(name={self.name!r}, method={self.route.method}, path={self.route.path})"

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Send the request.

        Raises:
            ValueError: it cannot be built, or the answer is an error.
        """
        response = await _Request(self.client, self.route, self.director).send(arguments)
        try:
            value = response.json()
        except ValueError:
            return ToolResult(response.text)
        wraps = bool((self.output_schema or {}).get("x-fastmcp-wrap-result")) or not isinstance(value, dict)
        return ToolResult(structured_content={"result": value} if wraps else value)


class OpenAPIResource(Resource):
    """A resource that is the answer to one HTTP request."""

    client: Any = None
    route: Any = None
    director: Any = None
    arguments: dict[str, Any] | None = None

    def __repr__(self) -> str:
        """Show the operation."""
        return f"OpenAPIResource(name={self.name!r}, uri={self.uri!r}, path={self.route.path})"

    async def read(self) -> Any:
        """Send the request and return the answer.

        Raises:
            ValueError: the answer is an error.
        """
        response = await _Request(self.client, self.route, self.director).send(self.arguments or {})
        kind = str(response.headers.get("content-type") or self.mime_type)
        plain = kind.partition(";")[0].strip().lower()
        if is_json(kind):
            return ResourceResult([ResourceContent(json.dumps(response.json()), plain)])
        if plain.startswith(_TEXTUAL):
            return ResourceResult([ResourceContent(response.text, self.mime_type)])
        return ResourceResult([ResourceContent(response.content, self.mime_type)])


class OpenAPIResourceTemplate(ResourceTemplate):
    """Resources that are the answers to requests with parameters in their path."""

    client: Any = None
    route: Any = None
    director: Any = None

    def __repr__(self) -> str:
        """Show the operation."""
        return f"OpenAPIResourceTemplate(name={self.name!r}, uri_template={self.uri_template!r})"

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the values of the path's parameters; a query that the template does not have is ignored."""
        found = super().matches(uri)
        return found if found is not None or "?" not in uri else super().matches(uri.partition("?")[0])

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Resource:
        """Return one resource of the family."""
        arguments = {_argument(self.route, name): value for name, value in params.items()}
        shown = "/".join(quote(str(value), safe="") for value in params.values())
        return OpenAPIResource(
            uri=uri,
            name=f"{self.name}-{shown}",
            description=self.description or f"Resource for {self.route.path}",
            mime_type=self.mime_type,
            tags=self.tags,
            client=self.client,
            route=self.route,
            director=self.director,
            arguments=arguments,
        )


def _argument(route: Any, variable: str) -> str:
    """Return the argument of a parameter of the path; a variable has underscores where a name has other characters."""
    for name, place in route.parameter_map.items():
        if place["location"] == "path" and variable in (place["openapi_name"], _variable(place["openapi_name"])):
            return str(name)
    return variable


def _variable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
