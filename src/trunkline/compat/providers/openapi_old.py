"""``FastMCP.from_openapi`` and ``from_fastapi``: each operation of an OpenAPI document as a tool.

A call puts the arguments where the document says (path, query, header, cookie or body) and sends the request with the
given HTTP client. Names and descriptions are the document's. Every operation is a tool, as in FastMCP since version
2.8; maps of routes to resources are not supported and say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from pydantic import Field

from trunkline.compat.components import Tool
from trunkline.compat.exceptions import ToolError
from trunkline.compat.fast_server import FastMCP
from trunkline.compat.results import ToolResult

__all__ = ["OpenAPITool", "server_from_fastapi", "server_from_openapi"]

_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
_NAME = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST_NAME = 56  # FastMCP's own limit for names made of operation ids.
_MAX_DEPTH = 20  # References of honest documents nest a few levels deep.


class OpenAPITool(Tool):
    """A tool that sends one HTTP request."""

    client: Any = None
    method: str = "GET"
    path: str = ""
    #: By argument: where it goes and under which name.
    places: dict[str, tuple[str, str]] = Field(default_factory=dict)
    #: Whether the whole body is one argument, because it is no object.
    whole_body: bool = False

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Send the request.

        Raises:
            ToolError: it could not be sent, or the answer is an error.
        """
        path = self.path
        query: dict[str, Any] = {}
        headers: dict[str, str] = {}
        cookies: dict[str, str] = {}
        body: dict[str, Any] = {}
        for argument, value in arguments.items():
            place, name = self.places.get(argument, ("body", argument))
            if value is None and place != "body":
                continue
            if place == "path":
                path = path.replace(f"{{{name}}}", quote(_text(value), safe=""))
            elif place == "query":
                query[name] = value
            elif place == "header":
                headers[name] = _text(value)
            elif place == "cookie":
                cookies[name] = _text(value)
            else:
                body[name] = value
        options: dict[str, Any] = {"params": query or None, "headers": headers or None, "cookies": cookies or None}
        if body:
            options["json"] = next(iter(body.values())) if self.whole_body else body
        try:
            response = await self.client.request(self.method, path, **options)
        except Exception as error:
            raise ToolError(f"Request error: {error}") from error
        return _answer(response)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _answer(response: Any) -> ToolResult:
    if response.status_code >= 400:
        detail = response.text[:2000]
        raise ToolError(f"HTTP error {response.status_code}: {response.reason_phrase} - {detail}")
    try:
        value = response.json()
    except ValueError:
        return ToolResult(response.text)
    structured = value if isinstance(value, dict) else {"result": value}
    return ToolResult(json.dumps(value), structured)


def server_from_openapi(spec: Mapping[str, Any], client: Any, options: dict[str, Any]) -> FastMCP:
    """Make a server with a tool for each operation of a document."""
    for name in ("route_maps", "route_map_fn", "mcp_component_fn"):
        if options.pop(name, None):
            raise NotImplementedError(f"{name}= is not available under trunkline.compat: every operation is a tool")
    names = dict(options.pop("mcp_names", None) or {})
    tags = set(options.pop("tags", None) or ())
    for ignored in ("timeout", "validate_output", "all_routes_as_tools", "httpx_client_kwargs"):
        options.pop(ignored, None)
    title = str(spec.get("info", {}).get("title", "OpenAPI FastMCP"))
    server = FastMCP(options.pop("name", None) or title, **options)
    taken: set[str] = set()
    for tool in _tools(spec, client, names, tags):
        name, number = tool.name, 1
        while tool.name in taken:
            number += 1
            tool.name = f"{name}_{number}"
        taken.add(tool.name)
        server.add_tool(tool)
    return server


def server_from_fastapi(app: Any, options: dict[str, Any]) -> FastMCP:
    """Make a server with a tool for each route of a FastAPI application."""
    try:
        import httpx2 as httpx
    except ImportError:
        import httpx  # type: ignore[import-not-found, no-redef, unused-ignore]
    kwargs = {"base_url": "http://fastapi", **(options.get("httpx_client_kwargs") or {})}
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), **kwargs)
    options.setdefault("name", app.title)
    return server_from_openapi(app.openapi(), client, options)


def _tools(spec: Mapping[str, Any], client: Any, names: Mapping[str, str], tags: set[str]) -> Iterator[OpenAPITool]:
    for path, item in spec.get("paths", {}).items():
        for method in _METHODS:
            if method not in item:
                continue
            operation = item[method]
            parameters, places, whole = _arguments(spec, item, operation)
            ident = operation.get("operationId") or f"{method}_{path}"
            name = names.get(ident) or _NAME.sub("_", ident.partition("__")[0]).strip("_")[:_LONGEST_NAME].rstrip("_")
            yield OpenAPITool(
                name=name,
                description=operation.get("description") or operation.get("summary") or f"{method.upper()} {path}",
                tags={*operation.get("tags", ()), *tags},
                parameters=parameters,
                client=client,
                method=method.upper(),
                path=path,
                places=places,
                whole_body=whole,
            )


def _arguments(
    spec: Mapping[str, Any], item: Mapping[str, Any], operation: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[str, str]], bool]:
    """Return the schema of an operation's arguments, and where each of them goes."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    places: dict[str, tuple[str, str]] = {}
    body = _resolved(spec, operation.get("requestBody", {}))
    media: Mapping[str, Any] = next(iter(body.get("content", {}).values()), {})
    schema = _resolved(spec, media.get("schema", {}))
    members = dict(schema.get("properties", {}))
    for each in (*item.get("parameters", ()), *operation.get("parameters", ())):
        given = _resolved(spec, each)
        name = given["name"] if given["name"] not in members else f"{given['name']}__{given['in']}"
        about = dict(given.get("schema", {}))
        if given.get("description"):
            about["description"] = given["description"]
        properties[name], places[name] = about, (given["in"], given["name"])
        if given.get("required") and name not in required:
            required.append(name)
    whole = bool(schema) and not members
    if whole:
        members = {"body": schema}
    for name, about in members.items():
        properties[name], places[name] = about, ("body", name)
    if body.get("required") or schema.get("required"):
        required += ["body"] if whole else [name for name in schema.get("required", ()) if name in members]
    made: dict[str, Any] = {"type": "object", "properties": properties}
    return ({**made, "required": required} if required else made), places, whole


def _resolved(spec: Mapping[str, Any], part: Any, depth: int = 0) -> Any:
    """Return a part of a document with its references replaced; one that refers to itself ends at some depth."""
    if isinstance(part, list):
        return [_resolved(spec, each, depth) for each in part]
    if not isinstance(part, Mapping) or depth > _MAX_DEPTH:
        return part if not isinstance(part, Mapping) else {}
    reference = part.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        found: Any = spec
        for step in reference[2:].split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~"), {})
        rest = {key: value for key, value in part.items() if key != "$ref"}
        return _resolved(spec, {**found, **rest}, depth + 1)
    return {key: _resolved(spec, value, depth + 1) for key, value in part.items()}
