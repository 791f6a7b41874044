"""The official SDK's clients around ours: a session on two streams, and ``Client`` of version 2.

Results are models, as there: ``session.list_tools()`` returns a result with ``tools``.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict

import trunkline.types as t
from trunkline.client.client import Client as OwnClient
from trunkline.compat.exceptions import McpError, ToolError
from trunkline.compat.streams import ProcessStream, StreamLink
from trunkline.compat.types import model_class, to_model, to_plain, to_struct
from trunkline.errors import AuthError, MissingCapability, RequestFailed
from trunkline.errors import ToolError as OwnToolError

__all__ = [
    "ClientSession",
    "MCPClient",
    "StdioServerParameters",
    "as_theirs",
    "call_model",
    "create_connected_server_and_client_session",
    "elicit_model",
    "is_by_hand",
    "seconds",
    "sse_client",
    "stdio_client",
    "streamablehttp_client",
    "to_message_handler",
]


class StdioServerParameters(BaseModel):
    """A command that starts a server."""

    model_config = ConfigDict(extra="allow")

    command: str
    args: list[str] = []
    env: dict[str, str] | None = None
    cwd: str | Path | None = None
    encoding: str = "utf-8"
    encoding_error_handler: str = "strict"

    def target(self) -> dict[str, Any]:
        """Return it as an ``mcpServers`` entry."""
        entry = {"command": self.command, "args": self.args, "env": self.env, "cwd": self.cwd}
        return {name: value for name, value in entry.items() if value is not None}


@asynccontextmanager
async def stdio_client(server: StdioServerParameters, errlog: Any = None) -> AsyncIterator[tuple[Any, Any]]:
    """Return the streams of a server that is started by a command."""
    stream = ProcessStream(server.target())
    yield stream, stream


@asynccontextmanager
async def streamablehttp_client(url: str, headers: Any = None, *_: Any, **options: Any) -> AsyncIterator[Any]:
    """Return the streams of a server at a URL; the third is a function that returns the session's id."""
    stream = ProcessStream(_url_entry(url, headers, "http"))
    yield stream, stream, lambda: None


@asynccontextmanager
async def sse_client(url: str, headers: Any = None, *_: Any, **options: Any) -> AsyncIterator[Any]:
    """Return the streams of a server that speaks the oldest HTTP transport."""
    stream = ProcessStream(_url_entry(url, headers, "sse"))
    yield stream, stream


def _url_entry(url: str, headers: Any, kind: str) -> dict[str, Any]:
    return {"type": kind, "url": str(url), **({"headers": dict(headers)} if headers else {})}


def seconds(value: Any) -> float | None:
    """Return a time as a number of seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else value


async def as_theirs(work: Any) -> Any:
    """Raise what both frameworks raise."""
    try:
        return await work
    except OwnToolError as error:
        raise ToolError(str(error)) from error
    except RequestFailed as error:
        raise McpError.from_failure(error) from error
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
        target = getattr(read_stream, "target", None)
        given: dict[str, Any] = {"revision": options.pop("revision", "handshake")}
        if read_timeout_seconds is not None:
            given["timeout"] = seconds(read_timeout_seconds)
        given |= _callbacks(sampling_callback, elicitation_callback, list_roots_callback)
        if logging_callback is not None:
            given["logging"] = lambda params: logging_callback(to_model(params))
        if message_handler is not None:
            given["on_notification"] = to_message_handler(message_handler)
        if client_info is not None:
            given["client_info"] = to_struct(client_info, t.Implementation)
        if options.get("extensions"):
            given["extensions"] = {each.identifier: dict(each.settings) for each in options["extensions"]}
        self._client = OwnClient(StreamLink(read_stream, write_stream) if target is None else target, **given)
        self._entered = False

    async def __aenter__(self) -> ClientSession:
        """Return the session; the handshake is ``initialize``."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self._client.aclose()

    async def initialize(self) -> Any:
        """Connect and negotiate a revision."""
        if not self._entered:
            self._entered = True
            await as_theirs(self._client.__aenter__())
        client = self._client
        return model_class("InitializeResult")(
            protocol_version=client.revision,
            capabilities=client.server_capabilities,
            server_info=to_model(client.server_info) or {"name": "", "version": ""},
            instructions=client.instructions,
        )

    def get_server_capabilities(self) -> Any:
        """Return what the server declared."""
        return model_class("ServerCapabilities").model_validate(self._client.server_capabilities)

    async def _page(self, method: str, cursor: str | None, params: Any) -> Any:
        cursor = getattr(params, "cursor", None) or cursor
        return _plain_result(to_model(await as_theirs(self._client.list_page(method, cursor))))

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
        **rounds: Any,
    ) -> Any:
        """Call a tool; a failure of the tool is a result.

        With ``allow_input_required``, what the server asks for is returned and not answered; the next call brings
        ``input_responses`` and ``request_state``.
        """
        if is_by_hand(rounds):
            params = {"name": name, "arguments": to_plain(arguments or {})}
            return await self._by_hand("tools/call", params, "CallToolResult", rounds)
        result = await as_theirs(
            self._client.call_tool(
                name,
                None if arguments is None else to_plain(arguments),
                timeout=seconds(read_timeout_seconds),
                on_progress=progress_callback,
                raise_on_error=False,
                meta=meta,
            )
        )
        return call_model(result)

    async def _by_hand(self, method: str, params: dict[str, Any], kind: str, rounds: Mapping[str, Any]) -> Any:
        """Send one request of a call in rounds, and return its result or what the server asks for."""
        given = dict(params)
        if rounds.get("input_responses"):
            given["inputResponses"] = {name: to_plain(each) for name, each in rounds["input_responses"].items()}
        if rounds.get("request_state") is not None:
            given["requestState"] = rounds["request_state"]
        core = self._client._core
        timeouts = core.timeouts(None, None)
        raw = await as_theirs(core.with_session(lambda session: session.request(method, given, timeouts=timeouts)))
        value = msgspec.json.decode(raw)
        if value.get("resultType") == "input_required":
            if not rounds.get("allow_input_required"):
                raise RuntimeError("the server asks for more: pass allow_input_required=True to receive what")
            from trunkline.compat.input_required import with_requests

            return with_requests(value)
        return model_class(kind).model_validate(value)

    async def read_resource(self, uri: Any, **rounds: Any) -> Any:
        """Read a resource."""
        if is_by_hand(rounds):
            return await self._by_hand("resources/read", {"uri": str(uri)}, "ReadResourceResult", rounds)
        params = t.ReadResourceRequestParams(uri=str(uri))
        client = self._client
        found = client._core.fetch("resources/read", params, key=str(uri), timeouts=client._timeouts)
        return _plain_result(to_model(await as_theirs(found)))

    async def get_prompt(self, name: str, arguments: Any = None, **rounds: Any) -> Any:
        """Render a prompt."""
        if is_by_hand(rounds):
            params = {"name": name, "arguments": to_plain(arguments or {})}
            return await self._by_hand("prompts/get", params, "GetPromptResult", rounds)
        return _plain_result(to_model(await as_theirs(self._client.get_prompt(name, arguments))))

    async def complete(self, ref: Any, argument: Any, context_arguments: Any = None) -> Any:
        """Complete an argument."""
        kind = t.PromptReference if "prompt" in ref.type else t.ResourceTemplateReference
        found = await as_theirs(
            self._client.complete(to_struct(ref, kind), to_plain(argument), context=context_arguments)  # type: ignore[arg-type]
        )
        return model_class("CompleteResult")(completion=to_model(found))

    async def send_ping(self) -> Any:
        """Check that the server is there."""
        await as_theirs(self._client.ping())
        return model_class("EmptyResult")()

    async def set_logging_level(self, level: Any) -> Any:
        """Set the least level of log messages."""
        await as_theirs(self._client.set_logging_level(level))
        return model_class("EmptyResult")()

    async def subscribe_resource(self, uri: Any) -> Any:
        """Subscribe to a resource."""
        await as_theirs(self._client.subscribe(str(uri)))
        return model_class("EmptyResult")()

    async def unsubscribe_resource(self, uri: Any) -> Any:
        """Unsubscribe from a resource."""
        await as_theirs(self._client.unsubscribe(str(uri)))
        return model_class("EmptyResult")()

    async def send_roots_list_changed(self) -> None:
        """Notify the server that the roots changed."""
        await self._client.notify_roots_changed()

    async def send_request(self, request: Any, result_type: Any = None, **_: Any) -> Any:
        """Send a request and read its result as a model."""
        plain = to_plain(getattr(request, "root", request))
        found = await as_theirs(self._client.request(plain["method"], plain.get("params")))
        return found if result_type is None else _plain_result(result_type.model_validate(found))


def _plain_result(result: Any) -> Any:
    """Return a result without what only the transport and the cache need."""
    for name in ("result_type", "ttl_ms", "cache_scope"):
        if name in type(result).model_fields:
            setattr(result, name, None)
    return result


def is_by_hand(rounds: Mapping[str, Any]) -> bool:
    """Return whether a call is one round of several that the program goes through itself."""
    return any(rounds.get(name) for name in ("allow_input_required", "input_responses", "request_state"))


def call_model(result: Any) -> Any:
    """Return the result of a call as a model."""
    raw = result.result if isinstance(getattr(result, "result", None), t.CallToolResult) else result
    structured = getattr(result, "structured_content", None)
    return model_class("CallToolResult")(
        content=to_model(list(raw.content)),
        structured_content=None if structured is msgspec.UNSET else to_plain(structured),
        is_error=bool(raw.is_error),
        meta=raw.meta,
    )


def _callbacks(sampling: Any, elicitation: Any, roots: Any) -> dict[str, Any]:
    """Return the SDK's callbacks ``(context, params)`` as ours."""
    given: dict[str, Any] = {}
    if sampling is not None:

        async def sample(params: Any) -> Any:
            return _answer(await sampling(None, to_model(params)), t.CreateMessageResult)

        given["sampling"], given["sampling_tools"] = sample, True
    if elicitation is not None:

        async def elicit(params: Any) -> Any:
            return _answer(await elicitation(None, elicit_model(params)), t.ElicitResult)

        given["elicitation"], given["elicitation_urls"] = elicit, True
    if roots is not None:

        async def list_roots() -> Any:
            return _answer(await roots(None), t.ListRootsResult).roots

        given["roots"] = list_roots
    return given


def elicit_model(params: Any) -> Any:
    """Return the params of a question as the model of its kind."""
    kind = "ElicitRequestURLParams" if params.mode == "url" else "ElicitRequestFormParams"
    plain = {name: value for name, value in msgspec.to_builtins(params).items() if value is not None}
    return model_class(kind).model_validate(plain)


def _answer(answer: Any, kind: Any) -> Any:
    if isinstance(answer, model_class("ErrorData")):
        raise McpError(answer)
    return to_struct(answer, kind)


def to_message_handler(handler: Any) -> Any:
    """Return a handler of messages as a callback for notifications."""

    async def handle(method: str, params: Mapping[str, Any]) -> None:
        from trunkline.compat.types import _REQUESTS

        kind = model_class(_REQUESTS[method]) if method in _REQUESTS else model_class("Notification")
        message: Any = kind.model_validate({"method": method, "params": dict(params) or None})
        wrapper = model_class("ServerNotification")
        message = wrapper(message) if hasattr(wrapper, "model_validate") else message
        found = handler(message)
        if inspect.isawaitable(found):
            await found

    return handle


@asynccontextmanager
async def create_connected_server_and_client_session(server: Any, **options: Any) -> AsyncIterator[ClientSession]:
    """Connect a client to a server in this process."""
    options.pop("raise_exceptions", None)
    session = ClientSession(ProcessStream(getattr(server, "_server", server)), None, **options)
    async with session:
        await session.initialize()
        yield session


class MCPClient(ClientSession):
    """The official SDK's ``Client`` of version 2: connects when it is entered."""

    def __init__(self, server: Any, *, mode: str = "auto", **options: Any) -> None:
        """Initialize with a server, a URL or the parameters of a command."""
        options.pop("raise_exceptions", None)
        target = getattr(server, "_server", server)
        if isinstance(server, StdioServerParameters):
            target = server.target()
        revision = {"legacy": "handshake"}.get(mode, mode)
        super().__init__(ProcessStream(target), None, revision=revision, **options)

    async def __aenter__(self) -> MCPClient:
        """Connect."""
        await self.initialize()
        return self

    @property
    def session(self) -> MCPClient:
        """The session, which is the client itself."""
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

    @property
    def protocol_version(self) -> str | None:
        """The revision."""
        return self._client.revision
