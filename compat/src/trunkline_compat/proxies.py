"""FastMCP's proxies: a server that offers what another one offers, over a client of ours.

While the server runs, one client is connected; what the other server lists is registered here, so that a proxy can be
mounted like any other server, and is registered anew when the other server announces a change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

import trunkline.types as t
from trunkline.client.client import Client as OwnClient
from trunkline.errors import RequestFailed
from trunkline_compat.clients import Client, resolve_target
from trunkline_compat.components import Component, Prompt, PromptArgument, Resource, ResourceTemplate, Tool
from trunkline_compat.contents import PromptResult, ResourceContent, ResourceResult, ToolResult
from trunkline_compat.fast import FastMCP
from trunkline_compat.types import to_model

__all__ = ["FastMCPProxy", "ProxyClient", "create_proxy"]


class ProxyClient(Client):
    """A client for a proxy."""


class FastMCPProxy(FastMCP):
    """A server that offers what another one offers."""

    def __init__(
        self, client: Any = None, *, client_factory: Any = None, name: str | None = None, **options: Any
    ) -> None:
        """Initialize with the other server: a client of it, or a function that returns one."""
        self._target = client if client is not None else client_factory
        inner = options.pop("lifespan", None)

        @asynccontextmanager
        async def connected(server: Any) -> AsyncIterator[Any]:
            async with self._connect():
                if inner is None:
                    yield {}
                else:
                    async with inner(server) as value:
                        yield value

        super().__init__(name or "FastMCPProxy", lifespan=connected, on_duplicate="replace", **options)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[None]:
        target = self._target() if callable(self._target) and not isinstance(self._target, Client) else self._target
        link = _Link(self)
        async with OwnClient(resolve_target(target), on_notification=link.heard) as client:
            link.client = client
            await link.copy_lists()
            yield


class _Link:
    """The connection of a proxy to the other server."""

    def __init__(self, proxy: FastMCPProxy) -> None:
        self._proxy = proxy
        self.client: OwnClient | None = None
        self._copying = asyncio.Lock()

    async def heard(self, method: str, params: Any) -> None:
        """Copy the lists again when the other server announces a change."""
        if method.endswith("/list_changed") and self.client is not None:
            async with self._copying:
                await self.copy_lists()

    async def copy_lists(self) -> None:
        """Register what the other server lists, and remove what it no longer lists."""
        assert self.client is not None
        declared = self.client.server_capabilities
        copied: dict[str, list[Any]] = {"tools": [], "prompts": [], "resources": [], "templates": []}
        if "tools" in declared:
            copied["tools"] = [_RemoteTool.of(each, self.client) for each in await self.client.list_tools()]
        if "prompts" in declared:
            copied["prompts"] = [_RemotePrompt.of(each, self.client) for each in await self.client.list_prompts()]
        if "resources" in declared:
            copied["resources"] = [_RemoteResource.of(each, self.client) for each in await self.client.list_resources()]
            templates = await self.client.list_resource_templates()
            copied["templates"] = [_RemoteTemplate.of(each, self.client) for each in templates]
        for kind, components in copied.items():
            for key in set(getattr(self._proxy, kind)) - {each.key for each in components}:
                self._proxy.remove_component(kind, key)
            for component in components:
                self._proxy.add_component(component)


def _shared(listed: Any, client: OwnClient) -> dict[str, Any]:
    return {
        "name": listed.name,
        "title": listed.title,
        "description": listed.description,
        "icons": None if listed.icons is None else [to_model(icon) for icon in listed.icons],
        "meta": listed.meta,
        "client": client,
    }


class _Remote(Component):
    """A component of the other server."""

    client: Any = None

    def listed_meta(self) -> dict[str, Any] | None:
        """Return what the other server lists."""
        return self.meta


class _RemoteTool(_Remote, Tool):
    """A tool of the other server."""

    @classmethod
    def of(cls, listed: t.Tool, client: OwnClient) -> _RemoteTool:
        """Make one from what the other server lists."""
        return cls(
            **_shared(listed, client),
            parameters=listed.input_schema,
            output_schema=listed.output_schema,
            annotations=None if listed.annotations is None else to_model(listed.annotations),
        )

    def listed_title(self) -> str | None:
        """Return what the other server lists."""
        return self.title

    async def result_of(self, arguments: dict[str, Any]) -> ToolResult:
        """Call the tool there; its failure is a result here."""
        answer = await self.client.call_tool(self.name, arguments, raise_on_error=False)
        structured = answer.structured_content
        return ToolResult(
            to_model(list(answer.content)),
            None if structured is msgspec.UNSET else structured,
            None,
            bool(answer.is_error),
        )


class _RemotePrompt(_Remote, Prompt):
    """A prompt of the other server."""

    @classmethod
    def of(cls, listed: t.Prompt, client: OwnClient) -> _RemotePrompt:
        """Make one from what the other server lists."""
        arguments = [
            PromptArgument(name=each.name, description=each.description, required=bool(each.required))
            for each in listed.arguments or ()
        ]
        return cls(**_shared(listed, client), arguments=arguments)

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Render the prompt there."""
        answer = to_model(await self.client.get_prompt(self.name, arguments))
        return PromptResult(answer.messages, answer.description)


class _RemoteResource(_Remote, Resource):
    """A resource of the other server."""

    @classmethod
    def of(cls, listed: t.Resource, client: OwnClient) -> _RemoteResource:
        """Make one from what the other server lists."""
        return cls(
            **_shared(listed, client), uri=listed.uri, mime_type=listed.mime_type or "text/plain", size=listed.size
        )

    async def result_of(self) -> ResourceResult:
        """Read the resource there."""
        return await _read(self.client, str(self.uri))


class _RemoteTemplate(_Remote, ResourceTemplate):
    """A template of the other server."""

    @classmethod
    def of(cls, listed: t.ResourceTemplate, client: OwnClient) -> _RemoteTemplate:
        """Make one from what the other server lists."""
        mime_type = listed.mime_type or "text/plain"
        return cls(**_shared(listed, client), uri_template=listed.uri_template, mime_type=mime_type)

    async def result_of(self, arguments: dict[str, Any]) -> ResourceResult:
        """Read the resource there."""
        from trunkline.protocol.uri_template import UriTemplate

        return await _read(self.client, UriTemplate.parse(self.uri_template).expand(arguments))


async def _read(client: OwnClient, uri: str) -> ResourceResult:
    contents = await client.read_resource(uri)
    if not contents:
        raise RequestFailed(f"the other server returned no contents for {uri}")
    return ResourceResult([ResourceContent.of(each) for each in contents])


def create_proxy(target: Any, name: str | None = None, **options: Any) -> FastMCPProxy:
    """Return a server that offers what another one offers: a client, a server, a URL, a file or a configuration."""
    return FastMCPProxy(target, name=name, **options)
