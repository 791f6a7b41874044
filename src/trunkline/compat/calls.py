"""Calls of a server's tools, prompts and resources from code, with or without a request in progress.

Inside a request the call belongs to that request: logs, progress and questions reach its caller. Without one it runs
for a caller that hears nothing and declared nothing; the server's lifespan is entered for as long as the call takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.compat.context import current_context, serving
from trunkline.compat.definitions import FastTool, OfficialTool
from trunkline.compat.exceptions import McpError, NotFoundError, PromptError, ResourceError, ToolError
from trunkline.compat.results import Message, PromptResult, ResourceContent, ResourceResult, ToolResult
from trunkline.compat.types import to_model, to_plain
from trunkline.errors import InvalidParams, RequestFailed, ResourceNotFound
from trunkline.protocol.caller import MEMORY, Caller
from trunkline.protocol.methods import METHODS
from trunkline.protocol.request_validation import ValidatedRequest
from trunkline.protocol.revisions import NEWEST_HANDSHAKE

__all__ = ["LocalExchange", "exchange_for", "request", "run_function", "run_official", "run_tool"]

_ROWS = MappingProxyType({row.name: row for row in METHODS})


class _NoConnection:
    """The connection of a call that came over none."""

    streams = False

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.holder = self
        self.exchanges: dict[Any, Any] = {}

    async def drain(self) -> None:
        """Wait for nothing."""

    def notify(self, method: str, params: Any, **_: Any) -> bool:
        """Drop a message."""
        return False

    def release_stream(self) -> bool:
        """Return False: there is no stream."""
        return False


class LocalExchange:
    """The exchange of a call from code; within a request, another view of that request's exchange."""

    #: A call within the process is answered directly, and never becomes a task.
    may_become_task = reports_status = suspended = False

    #: Failures are raised where the call was made.
    local = True

    def __init__(self, outer: Any, server: Any, method: str, params: Any) -> None:
        """Make one for a method and its params."""
        self._outer = outer
        self.method = method
        self.params: Any = None if outer is None else outer.params
        #: The failure of the function that ran last: what a result with ``isError`` was made of.
        self.failure: Exception | None = None
        self._store: Any = None
        self._elicitor: Any = None
        self.task: Any = asyncio.current_task()
        self.id: Any = 0 if outer is None else outer.id
        self.connection: Any = _NoConnection(server) if outer is None else outer.connection
        caller = Caller(NEWEST_HANDSHAKE, None, {}, MEMORY) if outer is None else outer.admitted.caller
        self.admitted = ValidatedRequest(caller, _ROWS[method], params)

    @property
    def elicitor(self) -> Any:
        """The elicitor of the outermost request, which resumes after an answer."""
        return self._elicitor if self._outer is None else self._outer.elicitor

    @elicitor.setter
    def elicitor(self, value: Any) -> None:
        if self._outer is None:
            self._elicitor = value
        else:
            self._outer.elicitor = value

    @property
    def store(self) -> Any:
        """What is kept for the request, which all handlers that it runs through share."""
        return self._store if self._outer is None else self._outer.store

    @store.setter
    def store(self, value: Any) -> None:
        if self._outer is None:
            self._store = value
        else:
            self._outer.store = value

    @property
    def open(self) -> bool:
        """Whether an answer is still wanted."""
        return True if self._outer is None else bool(self._outer.open)

    def notify(self, method: str, params: Any) -> bool:
        """Send a message that belongs to the request."""
        return False if self._outer is None else bool(self._outer.notify(method, params))

    async def request(self, method: str, params: Any, **how: Any) -> Any:
        """Ask the caller something."""
        return await self._outer.request(method, params, **how)


@asynccontextmanager
async def exchange_for(server: Any, method: str, params: Any) -> AsyncIterator[Any]:
    """Open an exchange on a server; outside of a request its lifespans are entered meanwhile."""
    current = current_context()
    outer = None if current is None else current._exchange
    exchange = LocalExchange(outer, server, method, params)
    if outer is not None:
        yield exchange
        return
    holder = exchange.connection
    server.acquire_lifespans(holder)
    try:
        for lifespan in server._held.get(holder, ()):
            await asyncio.shield(lifespan.ready)
        with serving((server._context_class)(server, exchange)):
            yield exchange
    finally:
        await server.release(holder)


async def request(server: Any, method: str, params: Any) -> Any:
    """Serve one request from code: through the middleware to the handler."""
    async with exchange_for(server, method, params) as exchange:
        result = await server.call_in_middleware(exchange, params, server.handlers[method])
        if isinstance(result, Raw):
            result = msgspec.json.decode(result, type=_ROWS[method].result)
        return result


async def call_tool(server: Any, name: str, arguments: Mapping[str, Any] | None) -> t.CallToolResult:
    """Call a tool by name.

    Raises:
        NotFoundError: there is none.
        McpError: the request was refused.
    """
    params = t.CallToolRequestParams(name=name, arguments=Raw(msgspec.json.encode(to_plain(arguments or {}))))
    try:
        result: t.CallToolResult = await request(server, "tools/call", params)
    except InvalidParams as error:
        if error.message.startswith("Unknown tool"):
            raise NotFoundError(f"Unknown tool: {name!r}") from error
        raise McpError.from_failure(error) from error
    return result


def tool_result(result: t.CallToolResult, *, raise_on_error: bool = True) -> ToolResult:
    """Return a result of ours as the frameworks' object.

    Raises:
        ToolError: the tool failed.
    """
    if result.is_error and raise_on_error:
        raise ToolError("\n".join(each.text for each in result.content if isinstance(each, t.TextContent)))
    return ToolResult.from_mcp_result(to_model(result))


async def run_tool(definition: Any, arguments: Mapping[str, Any], context: Any = None) -> ToolResult:
    """Run the tool of a definition, whatever server it belongs to.

    Raises:
        ToolError: the tool failed.
    """
    raw = Raw(msgspec.json.encode(to_plain(dict(arguments))))
    params = t.CallToolRequestParams(name=definition.name, arguments=raw)
    async with exchange_for(definition.function.owner, "tools/call", params) as exchange:
        if isinstance(definition, FastTool):
            return await definition.run(exchange, raw)
        return tool_result(await definition.call(exchange, raw))


async def run_official(definition: OfficialTool, arguments: Mapping[str, Any], *, convert: bool) -> Any:
    """Run a tool of the official SDK's; return the protocol's result, or what its function returned.

    Raises:
        ToolError: the arguments do not match, or the function failed.
    """
    raw = Raw(msgspec.json.encode(to_plain(dict(arguments))))
    params = t.CallToolRequestParams(name=definition.name, arguments=raw)
    async with exchange_for(definition.function.owner, "tools/call", params) as exchange:
        return await definition.run(exchange, raw, convert=convert)


async def run_function(definition: Any, method: str, params: Any, kwargs: dict[str, Any]) -> Any:
    """Run the function of a definition with these arguments, its context and dependencies, and return its value."""
    async with exchange_for(definition.function.owner, method, params) as exchange:
        return await definition.function.run(exchange, kwargs)


async def read_resource(server: Any, uri: str) -> ResourceResult:
    """Read a resource by its URI.

    Raises:
        NotFoundError: there is none.
        ResourceError: it cannot be read.
    """
    try:
        result: t.ReadResourceResult = await request(server, "resources/read", t.ReadResourceRequestParams(uri=uri))
    except ResourceNotFound as error:
        raise NotFoundError(f"Unknown resource: {uri!r}") from error
    except RequestFailed as error:
        raise ResourceError(error.message) from error
    if not isinstance(result, t.ReadResourceResult):
        return result
    contents = [
        ResourceContent(each.text if each.blob is None else _bytes(each.blob), each.mime_type, each.meta)
        for each in result.contents
    ]
    return ResourceResult(contents, result.meta)


def _bytes(blob: str) -> bytes:
    from base64 import b64decode

    return b64decode(blob)


async def get_prompt(server: Any, name: str, arguments: Mapping[str, Any] | None) -> t.GetPromptResult:
    """Render a prompt by name.

    Raises:
        NotFoundError: there is none.
        PromptError: it cannot be rendered.
    """
    params = t.GetPromptRequestParams(name=name, arguments=_texts(arguments))
    try:
        result: t.GetPromptResult = await request(server, "prompts/get", params)
    except InvalidParams as error:
        if error.message.startswith("Unknown prompt"):
            raise NotFoundError(f"Unknown prompt: {name!r}") from error
        raise PromptError(error.message) from error
    return result


async def run_prompt(definition: Any, arguments: Mapping[str, Any] | None) -> Any:
    """Run the function of a prompt with arguments as they are, and return its value."""
    params = t.GetPromptRequestParams(name=definition.name)
    async with exchange_for(definition.function.owner, "prompts/get", params) as exchange:
        return await definition.render(exchange, arguments)


async def render_prompt(definition: Any, arguments: Mapping[str, Any] | None, context: Any = None) -> PromptResult:
    """Render the prompt of a definition, whatever server it belongs to."""
    params = t.GetPromptRequestParams(name=definition.name, arguments=_texts(arguments))
    async with exchange_for(definition.function.owner, "prompts/get", params) as exchange:
        return prompt_result(await definition.get(exchange, params.arguments))


def prompt_result(result: t.GetPromptResult) -> PromptResult:
    """Return a result of ours as the frameworks' object."""
    messages = [Message(to_model(each.content), each.role) for each in result.messages]
    return PromptResult(messages, result.description, result.meta)


def _texts(arguments: Mapping[str, Any] | None) -> dict[str, str] | None:
    if arguments is None:
        return None
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(to_plain(value)).decode()
        for name, value in arguments.items()
    }
