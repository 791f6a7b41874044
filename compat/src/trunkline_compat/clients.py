"""FastMCP's client around ours, and its transports: results are models, as there, and a list is the whole list."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

import trunkline.types as t
from trunkline.client.client import Client as OwnClient
from trunkline.errors import LinkError
from trunkline_compat.serving import unwrap
from trunkline_compat.sessions import (
    as_seconds,
    call_result,
    callback_options,
    complete,
    initialize_result,
    translated,
)
from trunkline_compat.types import model_class, to_model, to_plain, to_struct
from trunkline_compat.versions import STATE

__all__ = [
    "CallToolResult",
    "Client",
    "ClientTransport",
    "FastMCPTransport",
    "MCPConfig",
    "NodeStdioTransport",
    "NpxStdioTransport",
    "PythonStdioTransport",
    "RemoteMCPServer",
    "SSETransport",
    "StdioMCPServer",
    "StdioTransport",
    "StreamableHttpTransport",
    "UvxStdioTransport",
    "infer_transport",
    "resolve_target",
]


# --- transports ------------------------------------------------------------------------------------------------------


class ClientTransport:
    """The base of all transports: each says what our client connects to."""

    def target(self) -> Any:
        """Return what our client connects to."""
        raise NotImplementedError(f"{type(self).__name__} must define what it connects to")


class FastMCPTransport(ClientTransport):
    """A server in this process."""

    def __init__(self, mcp: Any, **_: Any) -> None:
        """Initialize with the server."""
        self.server = mcp

    def target(self) -> Any:
        """Return the server."""
        return unwrap(self.server)


class StreamableHttpTransport(ClientTransport):
    """A server at a URL."""

    kind = "http"

    def __init__(self, url: Any, headers: Any = None, auth: Any = None, **_: Any) -> None:
        """Initialize with the URL, headers, and a token."""
        self.url = str(url)
        self.headers = dict(headers or {})
        self.auth = auth

    def target(self) -> Any:
        """Return an ``mcpServers`` entry."""
        return {"type": self.kind, "url": self.url, "headers": self.headers}


class SSETransport(StreamableHttpTransport):
    """A server that speaks the oldest HTTP transport."""

    kind = "sse"


class StdioTransport(ClientTransport):
    """A server that is started by a command."""

    def __init__(self, command: str, args: Any = (), env: Any = None, cwd: Any = None, **_: Any) -> None:
        """Initialize with the command."""
        self.command, self.args, self.env, self.cwd = command, [str(each) for each in args or ()], env, cwd

    def target(self) -> Any:
        """Return an ``mcpServers`` entry."""
        entry = {"command": self.command, "args": self.args, "env": self.env, "cwd": self.cwd}
        return {name: value for name, value in entry.items() if value is not None}


class PythonStdioTransport(StdioTransport):
    """A Python file."""

    def __init__(self, script_path: Any, args: Any = (), python_cmd: str = sys.executable, **options: Any) -> None:
        """Initialize with the file."""
        super().__init__(python_cmd, [script_path, *(args or ())], **options)


class NodeStdioTransport(StdioTransport):
    """A JavaScript file."""

    def __init__(self, script_path: Any, args: Any = (), node_cmd: str = "node", **options: Any) -> None:
        """Initialize with the file."""
        super().__init__(node_cmd, [script_path, *(args or ())], **options)


class NpxStdioTransport(StdioTransport):
    """A package of npm."""

    def __init__(self, package: str, args: Any = (), **options: Any) -> None:
        """Initialize with the package."""
        super().__init__("npx", ["-y", package, *(args or ())], **options)


class UvxStdioTransport(StdioTransport):
    """A package of PyPI, run by uvx."""

    def __init__(self, tool_name: str, tool_args: Any = (), **options: Any) -> None:
        """Initialize with the package."""
        super().__init__("uvx", [tool_name, *(tool_args or ())], **options)


def infer_transport(target: Any) -> ClientTransport:
    """Return the transport for a server, a URL or a file."""
    if isinstance(target, ClientTransport):
        return target
    text = str(target) if isinstance(target, str | Path) or hasattr(target, "unicode_string") else ""
    if text.startswith(("http://", "https://")):
        return SSETransport(text) if text.rstrip("/").endswith("/sse") else StreamableHttpTransport(text)
    if text:
        return NodeStdioTransport(text) if text.endswith(".js") else PythonStdioTransport(text)
    return FastMCPTransport(target)


# --- configurations --------------------------------------------------------------------------------------------------


class StdioMCPServer(BaseModel):
    """A server of a configuration that is started by a command."""

    model_config = ConfigDict(extra="allow")

    command: str
    args: list[str] = Field(default_factory=list)
    env: dict[str, Any] = Field(default_factory=dict)
    cwd: str | None = None


class RemoteMCPServer(BaseModel):
    """A server of a configuration at a URL."""

    model_config = ConfigDict(extra="allow")

    url: str
    transport: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    auth: Any = None


class MCPConfig(BaseModel):
    """The servers of a configuration, by name."""

    model_config = ConfigDict(extra="allow")

    mcpServers: dict[str, StdioMCPServer | RemoteMCPServer] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, data: Any) -> Any:
        """Accept the servers without the member that holds them."""
        return data if not isinstance(data, dict) or "mcpServers" in data else {"mcpServers": data}

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> MCPConfig:
        """Read a configuration."""
        return cls.model_validate(config)

    @classmethod
    def from_file(cls, file_path: str | Path) -> MCPConfig:
        """Read a configuration from a file."""
        return cls.model_validate(json.loads(Path(file_path).read_text(encoding="utf-8")))

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as data."""
        return self.model_dump(exclude_none=True)


def resolve_target(transport: Any) -> Any:
    """Return what our client connects to, from anything that FastMCP's client takes."""
    if isinstance(transport, Client):
        return transport.target
    if isinstance(transport, MCPConfig):
        transport = transport.to_dict()
    if isinstance(transport, Mapping) and "mcpServers" in transport:
        servers = dict(transport["mcpServers"])
        return next(iter(servers.values())) if len(servers) == 1 else _router(servers)
    if isinstance(transport, Mapping):
        return dict(transport)
    return infer_transport(transport).target()


def _router(servers: Mapping[str, Any]) -> Any:
    """Return a server that offers what several servers offer, each under its name."""
    from trunkline_compat.fast import FastMCP
    from trunkline_compat.proxies import create_proxy

    router = FastMCP("router")
    for name, entry in servers.items():
        router.mount(create_proxy(dict(entry)), name)
    return router.server


# --- the client ------------------------------------------------------------------------------------------------------


@dataclass
class CallToolResult:
    """What FastMCP's client returns from a call."""

    content: list[Any]
    structured_content: dict[str, Any] | None
    meta: dict[str, Any] | None
    data: Any = None
    is_error: bool = False


class Client:
    """FastMCP's client."""

    def __init__(self, transport: Any, **options: Any) -> None:
        """Initialize with a server, a URL, a file, a configuration or a transport."""
        self.transport = transport
        self.target = resolve_target(transport)
        self._options = {name: value for name, value in options.items() if value is not None}
        self._client = OwnClient(self.target, cache=False, validate=False, **self._own_options())

    def _own_options(self) -> dict[str, Any]:
        given = self._options
        roots = given.get("roots")
        sampling, elicitation = given.get("sampling_handler"), given.get("elicitation_handler")
        own = callback_options(
            sampling=None if sampling is None else lambda params: sampling(params.messages, params, None),
            elicitation=None if elicitation is None else lambda params: _elicit(elicitation, params),
            roots=(lambda: roots(None)) if callable(roots) else None,
            logging=given.get("log_handler"),
            messages=given.get("message_handler"),
        )
        if roots is not None and not callable(roots):
            own["roots"] = [str(getattr(each, "uri", each)) for each in roots]
        if "timeout" in given:
            own["timeout"] = as_seconds(given["timeout"])
        if "progress_handler" in given:
            own["on_progress"] = given["progress_handler"]
        if "client_info" in given:
            own["client_info"] = to_struct(given["client_info"], t.Implementation)
        # Clients of versions 2 and 3 know the handshake only.
        mode = given.get("mode", "legacy" if STATE.fastmcp_major < 4 else "auto")
        own["revision"] = "handshake" if mode == "legacy" else mode
        auth = given.get("auth") or getattr(self.transport, "auth", None)
        if auth is not None:
            own["auth"] = auth.own() if hasattr(auth, "own") else auth
        return own

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls

    async def __aenter__(self) -> Client:
        """Connect.

        Raises:
            RuntimeError: there is no way to the server.
        """
        try:
            await translated(self._client.__aenter__())
        except LinkError as error:
            raise RuntimeError(f"Client failed to connect: {error}") from error
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Disconnect."""
        await self._client.__aexit__(*error)

    def is_connected(self) -> bool:
        """Return whether the client is connected."""
        return str(self._client.state) == "active"

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()

    def new(self) -> Client:
        """Return a client of the same server that is not connected."""
        return Client(self.transport, **self._options)

    @property
    def initialize_result(self) -> Any:
        """What the server said when the client connected; None before."""
        return None if self._client.revision is None else initialize_result(self._client)

    async def ping(self) -> bool:
        """Check that the server is there."""
        await translated(self._client.ping())
        return True

    async def list_tools(self) -> list[Any]:
        """List the tools, all pages."""
        return to_model(list(await translated(self._client.list_tools())))  # type: ignore[no-any-return]

    async def list_resources(self) -> list[Any]:
        """List the resources, all pages."""
        return to_model(list(await translated(self._client.list_resources())))  # type: ignore[no-any-return]

    async def list_resource_templates(self) -> list[Any]:
        """List the templates, all pages."""
        return to_model(list(await translated(self._client.list_resource_templates())))  # type: ignore[no-any-return]

    async def list_prompts(self) -> list[Any]:
        """List the prompts, all pages."""
        return to_model(list(await translated(self._client.list_prompts())))  # type: ignore[no-any-return]

    async def call_tool_mcp(self, name: str, arguments: Any = None, **options: Any) -> Any:
        """Call a tool; a failure of the tool is a result."""
        result, _ = await self._call(name, arguments, raise_on_error=False, **options)
        return result

    async def _call(
        self,
        name: str,
        arguments: Any,
        *,
        raise_on_error: bool,
        timeout: Any = None,
        progress_handler: Any = None,
        meta: Any = None,
        **_: Any,
    ) -> tuple[Any, Any]:
        result = await translated(
            self._client.call_tool(
                name,
                to_plain(arguments or {}),
                timeout=as_seconds(timeout),
                on_progress=progress_handler,
                raise_on_error=raise_on_error,
                meta=meta,
            )
        )
        return call_result(result), result.data

    async def call_tool(
        self, name: str, arguments: Any = None, *, raise_on_error: bool = True, **options: Any
    ) -> CallToolResult:
        """Call a tool.

        Raises:
            ToolError: the tool failed.
        """
        model, data = await self._call(name, arguments, raise_on_error=raise_on_error, **options)
        mark = (model.meta or {}).get("fastmcp")
        if isinstance(mark, dict) and mark.get("wrap_result") and isinstance(data, dict) and set(data) == {"result"}:
            # The server says that it put an object around the value.
            data = data["result"]
        data = None if model.is_error or model.structured_content is None else data
        return CallToolResult(model.content, model.structured_content, model.meta, data, model.is_error)

    async def read_resource(self, uri: Any, **_: Any) -> list[Any]:
        """Read a resource."""
        return to_model(list(await translated(self._client.read_resource(str(uri)))))  # type: ignore[no-any-return]

    async def read_resource_mcp(self, uri: Any, **_: Any) -> Any:
        """Read a resource: the whole result."""
        return model_class("ReadResourceResult")(contents=await self.read_resource(uri))

    async def get_prompt(self, name: str, arguments: Any = None, **_: Any) -> Any:
        """Render a prompt."""
        sent = None if arguments is None else {key: _text(value) for key, value in arguments.items()}
        return to_model(await translated(self._client.get_prompt(name, sent)))

    get_prompt_mcp = get_prompt

    async def complete(self, ref: Any, argument: Any, context_arguments: Any = None) -> Any:
        """Complete an argument."""
        return await complete(self._client, ref, argument, context_arguments)

    async def set_logging_level(self, level: Any) -> None:
        """Set the least level of log messages."""
        await translated(self._client.set_logging_level(level))

    async def send_roots_list_changed(self) -> None:
        """Notify the server that the roots changed."""
        await self._client.notify_roots_changed()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(to_plain(value))


async def _elicit(handler: Any, params: Any) -> Any:
    """Ask a handler of FastMCP; what it returns without an action is the accepted content."""
    answer = handler(params.message, dict if getattr(params, "requested_schema", None) else None, params, None)
    answer = await answer if hasattr(answer, "__await__") else answer
    return (
        answer if hasattr(answer, "action") else model_class("ElicitResult")(action="accept", content=to_plain(answer))
    )
