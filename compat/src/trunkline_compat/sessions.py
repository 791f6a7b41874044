"""The official SDK's clients around ours: a session on two streams, and ``Client`` of version 2.

Results are models, as there: ``session.list_tools()`` returns a result with ``tools``.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict

import trunkline.types as t
from trunkline.client.client import Client as OwnClient
from trunkline.errors import AuthError, MissingCapability, RequestFailed
from trunkline.errors import ToolError as OwnToolError
from trunkline_compat.errors import McpError, ToolError
from trunkline_compat.serving import unwrap
from trunkline_compat.streams import ProcessStream, StreamLink
from trunkline_compat.types import REQUEST_MODELS, model_class, to_model, to_plain, to_struct

__all__ = [
    "ClientSession",
    "MCPClient",
    "StdioServerParameters",
    "callback_options",
    "create_connected_server_and_client_session",
    "sse_client",
    "stdio_client",
    "streamablehttp_client",
    "translated",
]


class StdioServerParameters(BaseModel):
    """A command that starts a server."""

    model_config = ConfigDict(extra="allow")

    command: str
    args: list[str] = []
    env: dict[str, str] | None = None
    cwd: str | Path | None = None

    def target(self) -> dict[str, Any]:
        """Return it as an ``mcpServers`` entry."""
        return self.model_dump(exclude_none=True, include={"command", "args", "env", "cwd"}, mode="json")


@asynccontextmanager
async def stdio_client(server: StdioServerParameters, errlog: Any = None) -> AsyncIterator[tuple[Any, Any]]:
    """Return the streams of a server that is started by a command."""
    stream = ProcessStream(server.target())
    yield stream, stream


@asynccontextmanager
async def streamablehttp_client(url: str, headers: Any = None, *_: Any, **options: Any) -> AsyncIterator[Any]:
    """Return the streams of a server at a URL; the third is a function that always returns None.

    Raises:
        TypeError: the credentials are an object of another HTTP library.
    """
    client = options.get("http_client")
    if options.get("auth") is not None or getattr(client, "auth", None) is not None:
        raise TypeError("auth= is not supported by trunkline-compat: use trunkline.Client(url, auth=…), or headers=")
    headers = headers or dict(getattr(client, "headers", ()))
    stream = ProcessStream({"type": "http", "url": str(url), "headers": dict(headers or {})})
    yield stream, stream, lambda: None


@asynccontextmanager
async def sse_client(url: str, headers: Any = None, *_: Any, **__: Any) -> AsyncIterator[Any]:
    """Return the streams of a server that speaks the oldest HTTP transport."""
    stream = ProcessStream({"type": "sse", "url": str(url), "headers": dict(headers or {})})
    yield stream, stream


def as_seconds(value: Any) -> float | None:
    """Return a time as a number of seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else value


async def translated(work: Awaitable[Any]) -> Any:
    """Await our client, and raise what both frameworks raise."""
    try:
        return await work
    except OwnToolError as error:
        raise ToolError(str(error)) from error
    except RequestFailed as error:
        raise McpError.of(error) from error
    except AuthError as error:
        raise McpError(code=-32001, message=str(error)) from error
    except MissingCapability as error:
        # There the request is sent all the same, and the server refuses it.
        raise McpError(code=-32601, message=f"Method not found: {error}") from error


class ClientSession:
    """A session with a server, on two streams."""

    def __init__(
        self,
        read_stream: Any,
        write_stream: Any,
        read_timeout_seconds: Any = None,
        sampling_callback: Any = None,
        elicitation_callback: Any = None,
        list_roots_callback: Any = None,
        logging_callback: Any = None,
        message_handler: Any = None,
        client_info: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the streams and the callbacks; nothing is sent yet."""
        own = callback_options(
            sampling=None if sampling_callback is None else lambda params: sampling_callback(None, params),
            elicitation=None if elicitation_callback is None else lambda params: elicitation_callback(None, params),
            roots=None if list_roots_callback is None else lambda: list_roots_callback(None),
            logging=logging_callback,
            messages=message_handler,
        )
        if read_timeout_seconds is not None:
            own["timeout"] = as_seconds(read_timeout_seconds)
        if client_info is not None:
            own["client_info"] = to_struct(client_info, t.Implementation)
        target = getattr(read_stream, "target", None)
        link = StreamLink(read_stream, write_stream) if target is None else target
        self._client = OwnClient(link, revision=options.get("revision", "handshake"), **own)
        self._connected = False

    async def __aenter__(self) -> ClientSession:
        """Return the session; the handshake is ``initialize``."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self._client.aclose()

    async def initialize(self) -> Any:
        """Connect and negotiate a revision."""
        if not self._connected:
            await translated(self._client.__aenter__())
            self._connected = True
        return initialize_result(self._client)

    def get_server_capabilities(self) -> Any:
        """Return what the server declared."""
        return model_class("ServerCapabilities").model_validate(self._client.server_capabilities)

    async def _page(self, method: str, cursor: str | None, params: Any) -> Any:
        cursor = cursor or getattr(params, "cursor", None)
        return await self.request(method, {"cursor": cursor} if cursor else {})

    async def request(self, method: str, params: Mapping[str, Any] | None, **options: Any) -> Any:
        """Send a request, and return its result as the model of the method."""
        result = await translated(self._client.request(method, dict(params or {}), **options))
        kind = REQUEST_MODELS[method].removesuffix("Request") + "Result"
        members = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
        return model_class(kind).model_validate(members)

    async def list_tools(self, cursor: str | None = None, *, params: Any = None) -> Any:
        """List one page of the tools."""
        return await self._page("tools/list", cursor, params)

    async def list_resources(self, cursor: str | None = None, *, params: Any = None) -> Any:
        """List one page of the resources."""
        return await self._page("resources/list", cursor, params)

    async def list_resource_templates(self, cursor: str | None = None, *, params: Any = None) -> Any:
        """List one page of the templates."""
        return await self._page("resources/templates/list", cursor, params)

    async def list_prompts(self, cursor: str | None = None, *, params: Any = None) -> Any:
        """List one page of the prompts."""
        return await self._page("prompts/list", cursor, params)

    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        read_timeout_seconds: Any = None,
        progress_callback: Any = None,
        *,
        meta: Any = None,
        **_: Any,
    ) -> Any:
        """Call a tool; a failure of the tool is a result."""
        result = await translated(
            self._client.call_tool(
                name,
                None if arguments is None else to_plain(arguments),
                timeout=as_seconds(read_timeout_seconds),
                on_progress=progress_callback,
                raise_on_error=False,
                meta=meta,
            )
        )
        return call_result(result)

    async def read_resource(self, uri: Any) -> Any:
        """Read a resource."""
        contents = await translated(self._client.read_resource(str(uri)))
        return model_class("ReadResourceResult")(contents=to_model(list(contents)))

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        """Render a prompt."""
        return to_model(await translated(self._client.get_prompt(name, arguments)))

    async def complete(self, ref: Any, argument: Any, context_arguments: Any = None) -> Any:
        """Complete an argument."""
        return model_class("CompleteResult")(completion=await complete(self._client, ref, argument, context_arguments))

    async def send_ping(self) -> Any:
        """Check that the server is there."""
        await translated(self._client.ping())
        return model_class("EmptyResult")()

    async def set_logging_level(self, level: Any) -> Any:
        """Set the least level of log messages."""
        await translated(self._client.set_logging_level(level))
        return model_class("EmptyResult")()

    async def subscribe_resource(self, uri: Any) -> Any:
        """Subscribe to a resource."""
        await translated(self._client.subscribe(str(uri)))
        return model_class("EmptyResult")()

    async def unsubscribe_resource(self, uri: Any) -> Any:
        """Unsubscribe from a resource."""
        await translated(self._client.unsubscribe(str(uri)))
        return model_class("EmptyResult")()

    async def send_roots_list_changed(self) -> None:
        """Notify the server that the roots changed."""
        await self._client.notify_roots_changed()

    async def send_request(self, request: Any, result_type: Any = None, **_: Any) -> Any:
        """Send a request and read its result as a model."""
        plain = to_plain(getattr(request, "root", request))
        result = await translated(self._client.request(plain["method"], plain.get("params")))
        return result if result_type is None else result_type.model_validate(result)


def initialize_result(client: OwnClient) -> Any:
    """Return what a server said when the client connected."""
    return model_class("InitializeResult")(
        protocol_version=client.revision,
        capabilities=client.server_capabilities,
        server_info=to_model(client.server_info) or {"name": "", "version": ""},
        instructions=client.instructions,
    )


def call_result(result: Any) -> Any:
    """Return the result of a call as a model."""
    structured = result.structured_content
    return model_class("CallToolResult")(
        content=to_model(list(result.content)),
        structured_content=None if structured is msgspec.UNSET else to_plain(structured),
        is_error=bool(result.is_error),
        meta=result.meta,
    )


async def complete(client: OwnClient, ref: Any, argument: Any, context: Any) -> Any:
    """Complete an argument, and return the suggestions as a model."""
    kind: Any = t.PromptReference if "prompt" in ref.type else t.ResourceTemplateReference
    return to_model(await translated(client.complete(to_struct(ref, kind), to_plain(argument), context=context)))


def callback_options(
    *,
    sampling: Callable[[Any], Any] | None = None,
    elicitation: Callable[[Any], Any] | None = None,
    roots: Callable[[], Any] | None = None,
    logging: Callable[[Any], Any] | None = None,
    messages: Callable[[Any], Any] | None = None,
) -> dict[str, Any]:
    """Return callbacks that take and return models as options of our client."""
    options: dict[str, Any] = {}
    if sampling is not None:

        async def sample(params: Any) -> Any:
            return _answer(await _awaited(sampling(to_model(params))), t.CreateMessageResult)

        options |= {"sampling": sample, "sampling_tools": True}
    if elicitation is not None:

        async def elicit(params: Any) -> Any:
            kind = "ElicitRequestURLParams" if params.mode == "url" else "ElicitRequestFormParams"
            plain = {name: value for name, value in msgspec.to_builtins(params).items() if value is not None}
            return _answer(await _awaited(elicitation(model_class(kind).model_validate(plain))), t.ElicitResult)

        options |= {"elicitation": elicit, "elicitation_urls": True}
    if roots is not None:

        async def list_roots() -> Any:
            found = await _awaited(roots())
            return _answer(found, t.ListRootsResult).roots if hasattr(found, "roots") else found

        options["roots"] = list_roots
    if logging is not None:
        options["logging"] = lambda params: logging(to_model(params))
    if messages is not None:

        async def hear(method: str, params: Mapping[str, Any]) -> None:
            kind = model_class(REQUEST_MODELS.get(method, "Notification"))
            message: Any = kind.model_validate({"method": method, "params": dict(params) or None})
            wrapper = model_class("ServerNotification")
            await _awaited(messages(wrapper(message) if hasattr(wrapper, "model_validate") else message))

        options["on_notification"] = hear
    return options


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _answer(answer: Any, kind: Any) -> Any:
    if isinstance(answer, model_class("ErrorData")):
        raise McpError(answer)
    return to_struct(answer, kind) if isinstance(answer, BaseModel) else answer


@asynccontextmanager
async def create_connected_server_and_client_session(server: Any, **options: Any) -> AsyncIterator[ClientSession]:
    """Connect a client to a server in this process."""
    options.pop("raise_exceptions", None)
    async with ClientSession(ProcessStream(unwrap(server)), None, **options) as session:
        await session.initialize()
        yield session


class MCPClient(ClientSession):
    """The official SDK's ``Client`` of version 2: connects when it is entered."""

    def __init__(self, server: Any, *, mode: str = "auto", **options: Any) -> None:
        """Initialize with a server, a URL or the parameters of a command."""
        options.pop("raise_exceptions", None)
        target = server.target() if isinstance(server, StdioServerParameters) else unwrap(server)
        revision = "handshake" if mode == "legacy" else mode
        super().__init__(ProcessStream(target), None, revision=revision, **options)

    async def __aenter__(self) -> MCPClient:
        """Connect."""
        await self.initialize()
        return self

    @property
    def server_capabilities(self) -> Any:
        """What the server declared."""
        return self.get_server_capabilities()

    @property
    def server_info(self) -> Any:
        """The server's name and version."""
        return to_model(self._client.server_info)

    @property
    def instructions(self) -> str | None:
        """The server's instructions."""
        return self._client.instructions
