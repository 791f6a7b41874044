"""FastMCP's proxies: a server that passes everything on to another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from trunkline.compat.clients import Client
from trunkline.compat.components import Prompt, PromptArgument, Resource, ResourceTemplate, Tool
from trunkline.compat.fast_server import FastMCP
from trunkline.compat.providers.base import Provider
from trunkline.compat.results import PromptResult, ResourceContent, ResourceResult, ToolResult

__all__ = ["FastMCPProxy", "ProxyClient", "ProxyProvider", "create_proxy"]


class _Backend:
    """The server behind: a client that is connected while something is asked."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Client]:
        """Connect for one request."""
        async with self._client as client:
            yield client


class ProxyClient(Client):
    """A client of the server behind."""


class ProxyTool(Tool):
    """A tool of the server behind."""

    backend: Any = None
    inner_name: str = ""

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Pass a call on."""
        async with self.backend.connected() as client:
            return ToolResult.from_mcp_result(await client.call_tool_mcp(self.inner_name or self.name, arguments))


class ProxyResource(Resource):
    """A resource of the server behind."""

    backend: Any = None
    inner_uri: str = ""

    async def read(self) -> Any:
        """Pass a read on."""
        return await _read(self.backend, self.inner_uri)


class ProxyTemplate(ResourceTemplate):
    """A template of the server behind."""

    backend: Any = None

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Resource:
        """Return one resource of the family."""
        return ProxyResource(uri=uri, name=self.name, mime_type=self.mime_type, backend=self.backend, inner_uri=uri)


class ProxyPrompt(Prompt):
    """A prompt of the server behind."""

    backend: Any = None
    inner_name: str = ""

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Pass a request on."""
        async with self.backend.connected() as client:
            result = await client.get_prompt(self.inner_name, arguments)
            return PromptResult(list(result.messages), result.description, result.meta)


async def _read(backend: _Backend, uri: str) -> ResourceResult:
    from base64 import b64decode

    async with backend.connected() as client:
        contents = await client.read_resource(uri)
    return ResourceResult(
        [
            ResourceContent(each.text if hasattr(each, "text") else b64decode(each.blob), each.mime_type)
            for each in contents
        ]
    )


class ProxyProvider(Provider):
    """Everything that a server behind offers."""

    def __init__(self, client: Any) -> None:
        """Initialize with a client, or what one connects to."""
        super().__init__()
        self._backend = _Backend(client if isinstance(client, Client) else Client(client))

    async def _all(self, verb: str) -> list[Any]:
        from trunkline.errors import MissingCapability

        async with self._backend.connected() as client:
            try:
                return await getattr(client, verb)()  # type: ignore[no-any-return]
            except MissingCapability:
                return []

    async def _list_tools(self) -> Sequence[Any]:
        return [
            ProxyTool(
                name=each.name,
                inner_name=each.name,
                title=each.title,
                description=each.description,
                parameters=each.input_schema,
                output_schema=each.output_schema,
                annotations=each.annotations,
                icons=each.icons,
                meta=each.meta,
                backend=self._backend,
            )
            for each in await self._all("list_tools")
        ]

    async def _list_resources(self) -> Sequence[Any]:
        return [
            ProxyResource(
                uri=str(each.uri),
                inner_uri=str(each.uri),
                name=each.name,
                title=each.title,
                description=each.description,
                mime_type=each.mime_type or "text/plain",
                backend=self._backend,
            )
            for each in await self._all("list_resources")
        ]

    async def _list_resource_templates(self) -> Sequence[Any]:
        return [
            ProxyTemplate(
                uri_template=each.uri_template,
                name=each.name,
                title=each.title,
                description=each.description,
                mime_type=each.mime_type or "text/plain",
                backend=self._backend,
            )
            for each in await self._all("list_resource_templates")
        ]

    async def _list_prompts(self) -> Sequence[Any]:
        return [
            ProxyPrompt(
                name=each.name,
                inner_name=each.name,
                title=each.title,
                description=each.description,
                arguments=[
                    PromptArgument(
                        name=argument.name, description=argument.description, required=bool(argument.required)
                    )
                    for argument in each.arguments or ()
                ],
                backend=self._backend,
            )
            for each in await self._all("list_prompts")
        ]


def create_proxy(target: Any, **options: Any) -> FastMCP:
    """Make a server that passes everything on to another."""
    server = FastMCP(**options)
    server.add_provider(ProxyProvider(target))
    return server


class FastMCPProxy(FastMCP):
    """A server that passes everything on to another."""

    def __init__(self, client: Any = None, *, client_factory: Any = None, **options: Any) -> None:
        """Initialize with a client, or a function that makes one."""
        super().__init__(**options)
        self.add_provider(ProxyProvider(client if client_factory is None else client_factory()))
