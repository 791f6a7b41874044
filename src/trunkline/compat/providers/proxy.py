"""FastMCP's proxies: a server that passes everything on to another, and that server's questions back to the caller."""

from __future__ import annotations

import asyncio
import inspect
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trunkline.types as t
from trunkline.compat.clients import Client, TransportOptions
from trunkline.compat.component_versions import VersionSpec, newest
from trunkline.compat.components import Prompt, PromptArgument, Resource, ResourceTemplate, Tool
from trunkline.compat.context import ServerSession, current_context
from trunkline.compat.exceptions import McpError, ResourceError
from trunkline.compat.fast_server import FastMCP
from trunkline.compat.fast_templates import expand_uri_template
from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext
from trunkline.compat.providers.base import Provider, matching_template
from trunkline.compat.results import PromptResult, ResourceContent, ResourceResult, ToolResult
from trunkline.compat.sessions import ClientSession
from trunkline.errors import LinkError, RequestFailed

__all__ = [
    "FastMCPProxy",
    "ProxyClient",
    "ProxyMetadataMiddleware",
    "ProxyPrompt",
    "ProxyProvider",
    "ProxyResource",
    "ProxyTemplate",
    "ProxyTool",
    "StatefulProxyClient",
    "create_proxy",
]

#: What one connection says about itself: never copied to another.
_OF_THE_CONNECTION = frozenset(
    {
        "progressToken",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/logLevel",
        "io.modelcontextprotocol/serverInfo",
    }
)
_INTERNAL_ERROR = -32603  # JSON-RPC 2.0, section 5.1.
_CACHE_SECONDS = 300.0  # FastMCP's own.


# --- the client of the server behind ---------------------------------------------------------------------------------


class _ForwardingClientSession(ClientSession):
    """A session that passes results on as they are: whether they match their schema is for the caller to check."""

    validate = False


class ProxyClient(Client):
    """A client of the server behind: what that server asks for is asked of the proxy's caller."""

    def __init__(self, transport: Any, *, forward_incoming_headers: bool = True, **options: Any) -> None:
        """Initialize with what to connect to; handlers that are given replace the forwarding ones."""
        self._front: Any = None
        given = {
            "mode": "legacy",
            "roots": self._roots,
            "sampling_handler": self._sample,
            "elicitation_handler": self._elicit,
            "log_handler": self._log,
            "transport_options": TransportOptions(_ForwardingClientSession, forward_incoming_headers),
            **options,
        }
        self._given = {**options, "forward_incoming_headers": forward_incoming_headers}
        super().__init__(transport, **given)

    def new(self) -> Client:
        """Return a client of the same server that is not connected."""
        made = type(self)(self.transport, **self._given)
        made._transport_options = self._transport_options
        return made

    def serve(self, context: Any) -> None:
        """Ask the caller of this context what the server behind asks for."""
        self._front = context

    def _session(self) -> ServerSession:
        front = self._front or current_context()
        if front is None or front._exchange is None:
            raise McpError(code=_INTERNAL_ERROR, message="there is no request whose caller could be asked")
        return ServerSession(front)

    async def _roots(self, _: Any) -> Any:
        return [str(each.uri) for each in (await self._session().list_roots()).roots]

    async def _sample(self, messages: Any, params: Any, _: Any) -> Any:
        names = ("system_prompt", "temperature", "stop_sequences", "model_preferences", "include_context", "metadata")
        options = {name: getattr(params, name, None) for name in names}
        return await self._session().create_message(
            messages, max_tokens=params.max_tokens, **{name: value for name, value in options.items() if value}
        )

    async def _elicit(self, message: str, response_type: Any, params: Any, _: Any) -> Any:
        if getattr(params, "url", None):
            return await self._session().elicit_url(message, params.url, params.elicitation_id)
        return await self._session().elicit(message, requested_schema=params.requested_schema)

    async def _log(self, message: Any) -> None:
        front = self._front or current_context()
        if front is not None and front._exchange is not None:
            await ServerSession(front).send_log_message(message.level, message.data, message.logger)


class StatefulProxyClient(ProxyClient):
    """A client that stays connected: the server behind sees one session for each of the proxy's callers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Initialize as the base class."""
        super().__init__(*args, **options)
        self._open: dict[int, Client] = {}

    def new_stateful(self) -> Client:
        """Return the client of the connection being served; it is closed when that connection ends."""
        context = current_context()
        holder = None if context is None or context._exchange is None else context._exchange.connection.holder
        if holder is None:
            return self.new()
        found = self._open.get(id(holder))
        if found is None:
            found = self._open[id(holder)] = ProxyClient(self.transport, **self._given)
            context.server.on_connection_end(holder, lambda: self._close(id(holder)))
        return found

    async def _close(self, key: int) -> None:
        client = self._open.pop(key, None)
        if client is not None and client.is_connected():
            await client.close()

    async def clear(self) -> None:
        """Close all connections."""
        for key in tuple(self._open):
            await self._close(key)


def _create_client_factory(target: Any, **options: Any) -> Callable[[], Any]:
    """Return a function that makes the client of a request: a connected client is used as it is."""
    if isinstance(target, Client):
        if target.is_connected() and not isinstance(target, ProxyClient):
            return lambda: target
        return lambda: _forwarding(target.new())
    mode = options.pop("mode", None)
    base = ProxyClient(target, **options)

    def make() -> Any:
        made = base.new()
        made.mode = mode or _mode_of_caller()
        made.reconfigure()
        return made

    return make


def _forwarding(client: Client) -> Client:
    if client._transport_options is None:
        client._transport_options = TransportOptions(_ForwardingClientSession, True)
    return client


def _mode_of_caller() -> str:
    """Return the era that the caller speaks: a question must come back in the same one."""
    context = current_context()
    if context is None or context._exchange is None:
        return "legacy"
    return "legacy" if context._exchange.admitted.caller.revision.handshake else "auto"


# --- what the server behind offers -----------------------------------------------------------------------------------


class _Behind:
    """The way to the server behind: a client that is connected while something is asked."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory

    async def client(self) -> Client:
        """Make the client of this request."""
        made = self.factory()
        found: Client = await made if inspect.isawaitable(made) else made
        return found

    @asynccontextmanager
    async def connected(self, client: Client | None = None) -> AsyncIterator[Client]:
        """Connect for one request; what goes wrong on the way there is an error of the protocol."""
        try:
            client = client or await self.client()
            if isinstance(client, ProxyClient):
                client.serve(current_context())
            if client.is_connected():
                yield client
                return
            async with client:
                yield client
        except RequestFailed:
            raise
        except (RuntimeError, LinkError, OSError) as error:
            raise McpError(code=_INTERNAL_ERROR, message=str(error)) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore"):
                raise McpError(code=_INTERNAL_ERROR, message=str(error)) from error
            raise


def _meta() -> dict[str, Any] | None:
    """Return the ``_meta`` of the caller's request that concerns what is asked, not the connection."""
    context = current_context()
    if context is None or context._exchange is None:
        return None
    return {name: value for name, value in context.meta.items() if name not in _OF_THE_CONNECTION} or None


class _ProgressRelay:
    """Passes the progress of a call on to the caller of the request being served, before the call's result."""

    def __init__(self) -> None:
        self._front = current_context()
        self._sent: list[asyncio.Future[None]] = []

    def report(self, progress: float, total: float | None = None, message: str | None = None) -> Any:
        """Called when the server behind reports progress."""
        if self._front is None:
            return None
        self._sent.append(asyncio.ensure_future(self._front.report_progress(progress, total, message)))
        return self._sent[-1]

    async def drain(self) -> None:
        """Wait until everything reported so far was sent."""
        await asyncio.gather(*self._sent, return_exceptions=True)


def _fastmcp_part(meta: Any) -> dict[str, Any]:
    own = (meta or {}).get("fastmcp") or (meta or {}).get("_fastmcp") or {}
    return own if isinstance(own, dict) else {}


def _common(each: Any) -> dict[str, Any]:
    """Return what all components say about themselves."""
    own = _fastmcp_part(each.meta)
    return {
        "name": each.name,
        "title": each.title,
        "description": each.description,
        "icons": each.icons,
        "meta": each.meta,
        "tags": set(own.get("tags") or ()),
        "version": own.get("version"),
    }


class ProxyTool(Tool):
    """A tool of the server behind."""

    behind: Any = None
    inner_name: str = ""

    @classmethod
    def from_mcp_tool(cls, client_factory: Any, mcp_tool: Any) -> ProxyTool:
        """Make one of a tool that was listed."""
        return cls(
            **_common(mcp_tool),
            parameters=mcp_tool.input_schema,
            output_schema=mcp_tool.output_schema,
            annotations=mcp_tool.annotations,
            execution=mcp_tool.execution,
            behind=_Behind(client_factory),
            inner_name=mcp_tool.name,
        )

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Pass a call on."""
        version = {"version": self.version} if self.version else {}
        relay = _ProgressRelay()
        async with self.behind.connected() as client:
            result = await client.call_tool_mcp(
                self.inner_name, arguments, meta=_meta(), progress_handler=relay.report, **version
            )
            await relay.drain()
        return ToolResult.from_mcp_result(result)

    def get_span_attributes(self) -> dict[str, Any]:
        """Return what traces say about the tool."""
        return {"fastmcp.component.key": self.key, "fastmcp.proxy.backend_name": self.inner_name or self.name}


class ProxyResource(Resource):
    """A resource of the server behind."""

    behind: Any = None
    inner_uri: str = ""

    @classmethod
    def from_mcp_resource(cls, client_factory: Any, mcp_resource: Any) -> ProxyResource:
        """Make one of a resource that was listed."""
        return cls(
            **_common(mcp_resource),
            uri=str(mcp_resource.uri),
            mime_type=mcp_resource.mime_type or "text/plain",
            annotations=mcp_resource.annotations,
            behind=_Behind(client_factory),
            inner_uri=str(mcp_resource.uri),
        )

    async def read(self) -> Any:
        """Pass a read on."""
        version = {"version": self.version} if self.version else {}
        async with self.behind.connected() as client:
            result = await client.read_resource_mcp(self.inner_uri, meta=_meta(), **version)
        if not result.contents:
            raise ResourceError(f"Remote server returned empty content for {self.inner_uri}")
        contents = [
            ResourceContent(each.text if hasattr(each, "text") else b64decode(each.blob), each.mime_type, each.meta)
            for each in result.contents
        ]
        meta = {name: value for name, value in (result.meta or {}).items() if name not in _OF_THE_CONNECTION}
        return ResourceResult(contents, meta or None)

    def get_span_attributes(self) -> dict[str, Any]:
        """Return what traces say about the resource."""
        return {"fastmcp.component.key": self.key, "fastmcp.proxy.backend_uri": self.inner_uri or str(self.uri)}


class ProxyTemplate(ResourceTemplate):
    """A template of the server behind."""

    behind: Any = None
    inner_template: str = ""

    @classmethod
    def from_mcp_template(cls, client_factory: Any, mcp_template: Any) -> ProxyTemplate:
        """Make one of a template that was listed."""
        return cls(
            **_common(mcp_template),
            uri_template=mcp_template.uri_template,
            mime_type=mcp_template.mime_type or "text/plain",
            annotations=mcp_template.annotations,
            behind=_Behind(client_factory),
            inner_template=mcp_template.uri_template,
        )

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Resource:
        """Return one resource of the family."""
        given = {name: value for name, value in params.items() if value is not None}
        return ProxyResource(
            uri=uri,
            name=self.name,
            description=self.description,
            mime_type=self.mime_type,
            version=self.version,
            behind=self.behind,
            # Under its own name the URI is passed on as it came: the server behind knows which values are lists.
            inner_uri=uri
            if self.uri_template == self.inner_template
            else expand_uri_template(self.inner_template, given),
        )

    async def read(self, arguments: dict[str, Any]) -> Any:
        """Pass a read on."""
        found = await self.create_resource(expand_uri_template(self.uri_template, arguments), arguments)
        return await found.read()

    def get_span_attributes(self) -> dict[str, Any]:
        """Return what traces say about the template."""
        inner = self.inner_template or self.uri_template
        return {"fastmcp.component.key": self.key, "fastmcp.proxy.backend_uri_template": inner}


class ProxyPrompt(Prompt):
    """A prompt of the server behind."""

    behind: Any = None
    inner_name: str = ""

    @classmethod
    def from_mcp_prompt(cls, client_factory: Any, mcp_prompt: Any) -> ProxyPrompt:
        """Make one of a prompt that was listed."""
        arguments = [
            PromptArgument(name=each.name, description=each.description, required=bool(each.required))
            for each in mcp_prompt.arguments or ()
        ]
        return cls(
            **_common(mcp_prompt), arguments=arguments, behind=_Behind(client_factory), inner_name=mcp_prompt.name
        )

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Pass a request on."""
        version = {"version": self.version} if self.version else {}
        async with self.behind.connected() as client:
            result = await client.get_prompt(self.inner_name, arguments, meta=_meta(), **version)
        meta = {name: value for name, value in (result.meta or {}).items() if name not in _OF_THE_CONNECTION}
        return PromptResult(list(result.messages), result.description, meta or None)

    def get_span_attributes(self) -> dict[str, Any]:
        """Return what traces say about the prompt."""
        return {"fastmcp.component.key": self.key, "fastmcp.proxy.backend_name": self.inner_name or self.name}


class _CacheEntry:
    """A list of the server behind, and when it was asked for."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items, self.timestamp = items, time.monotonic()


class ProxyProvider(Provider):
    """Everything that another server offers; lookups use lists that are not too old."""

    def __init__(self, client_factory: Any, cache_ttl: float | None = None) -> None:
        """Initialize with a function that makes the client of a request, or what such a client connects to."""
        super().__init__()
        is_factory = callable(client_factory) and not isinstance(client_factory, FastMCP | Client)
        self.client_factory: Any = client_factory if is_factory else _create_client_factory(client_factory)
        self._cache_ttl = _CACHE_SECONDS if cache_ttl is None else cache_ttl
        self._tools_cache: _CacheEntry | None = None
        self._resources_cache: _CacheEntry | None = None
        self._templates_cache: _CacheEntry | None = None
        self._prompts_cache: _CacheEntry | None = None

    async def _get_client(self) -> Client:
        return await _Behind(self.client_factory).client()

    async def _all(self, verb: str) -> list[Any]:
        """Ask for a whole list; a server without that capability has none."""
        behind = _Behind(self.client_factory)
        try:
            client = await self._get_client()
        except (LinkError, OSError, RuntimeError) as error:
            raise McpError(code=_INTERNAL_ERROR, message=str(error)) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore"):
                raise McpError(code=_INTERNAL_ERROR, message=str(error)) from error
            raise
        async with behind.connected(client) as connected:
            try:
                return await getattr(connected, verb)()  # type: ignore[no-any-return]
            except McpError as error:
                if error.code == -32601:
                    return []
                raise

    async def _list_tools(self) -> Sequence[Any]:
        found = [ProxyTool.from_mcp_tool(self.client_factory, each) for each in await self._all("list_tools")]
        self._tools_cache = _CacheEntry(found)
        return found

    async def _list_resources(self) -> Sequence[Any]:
        listed = await self._all("list_resources")
        found = [ProxyResource.from_mcp_resource(self.client_factory, each) for each in listed]
        self._resources_cache = _CacheEntry(found)
        return found

    async def _list_resource_templates(self) -> Sequence[Any]:
        listed = await self._all("list_resource_templates")
        found = [ProxyTemplate.from_mcp_template(self.client_factory, each) for each in listed]
        self._templates_cache = _CacheEntry(found)
        return found

    async def _list_prompts(self) -> Sequence[Any]:
        found = [ProxyPrompt.from_mcp_prompt(self.client_factory, each) for each in await self._all("list_prompts")]
        self._prompts_cache = _CacheEntry(found)
        return found

    async def _recent(self, entry: _CacheEntry | None, listing: Callable[[], Any]) -> Sequence[Any]:
        if entry is not None and time.monotonic() - entry.timestamp < self._cache_ttl:
            return entry.items
        found: Sequence[Any] = await listing()
        return found

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Any:
        found = await self._recent(self._tools_cache, self._list_tools)
        return newest([each for each in found if each.name == name], version)

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Any:
        found = await self._recent(self._resources_cache, self._list_resources)
        return newest([each for each in found if str(each.uri) == uri], version)

    async def _get_resource_template(self, uri: str, version: VersionSpec | None = None) -> Any:
        found = await self._recent(self._templates_cache, self._list_resource_templates)
        return matching_template(found, uri, version)

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Any:
        found = await self._recent(self._prompts_cache, self._list_prompts)
        return newest([each for each in found if each.name == name], version)


# --- servers ---------------------------------------------------------------------------------------------------------


class ProxyMetadataMiddleware(Middleware):
    """Says about the proxy what the server behind says about itself, where the proxy says nothing."""

    def __init__(self, provider: Any, *, identity: str = "proxy") -> None:
        """Initialize with the provider, or its factory of clients; ``identity="upstream"`` takes over the name, too."""
        self._behind = _Behind(getattr(provider, "client_factory", provider))
        self.identity = identity

    async def _changed(self, result: Any) -> Any:
        client = await self._behind.client()
        try:
            async with self._behind.connected(client) as connected:
                upstream = connected.initialize_result
        except RequestFailed:
            # What it says about itself is not needed: the first request shows what is wrong.
            return result
        if upstream is None:
            return result
        theirs = {name: value for name, value in (upstream.meta or {}).items() if name not in _OF_THE_CONNECTION}
        changes: dict[str, Any] = {
            "instructions": result.instructions or upstream.instructions,
            "meta": {**theirs, **(result.meta or {})} or None,
        }
        if self.identity == "upstream" and hasattr(result, "server_info"):
            changes["server_info"] = upstream.server_info
        return result.model_copy(update=changes)

    async def on_initialize(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Answer the handshake."""
        return await self._changed(await call_next(context))

    async def on_discover(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Answer discovery."""
        return await self._changed(await call_next(context))


class FastMCPProxy(FastMCP):
    """A server that passes everything on to another."""

    def __init__(self, client: Any = None, *, client_factory: Any = None, **options: Any) -> None:
        """Initialize with a client, or a function that makes the client of a request."""
        options.setdefault("name", FastMCP.generate_name.__func__(FastMCPProxy))  # type: ignore[attr-defined]
        ttl, identity = options.pop("cache_ttl", None), options.pop("identity", "proxy")
        super().__init__(**options)
        self.client_factory: Any = client_factory or _create_client_factory(client)
        self.add_provider(ProxyProvider(self.client_factory, ttl))
        self.add_middleware(ProxyMetadataMiddleware(self.client_factory, identity=identity))
        self.handlers["ping"] = self._ping

    async def _ping(self, exchange: Any, params: Any) -> Any:
        async with _Behind(self.client_factory).connected() as client:
            await client.ping()
        return t.EmptyResult()


def create_proxy(target: Any, **options: Any) -> FastMCPProxy:
    """Make a server that passes everything on to another."""
    mode = {"mode": options.pop("mode")} if "mode" in options else {}
    return FastMCPProxy(client_factory=_create_client_factory(target, **mode), **options)
