"""FastMCP's client around ours: results are models, as there, and a list is the whole list."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import trunkline.types as t
from trunkline.client.client import Client as OwnClient
from trunkline.compat.features.client_session import SessionOfClient, all_items
from trunkline.compat.sessions import as_theirs, call_model, elicit_model, seconds, to_message_handler
from trunkline.compat.types import model_class, to_model, to_plain, to_struct
from trunkline.errors import LinkError
from trunkline.protocol.limits import Limits
from trunkline.server.server import Server

__all__ = ["CallToolResult", "Client", "TransportOptions"]

#: How many pages of a list are read at most.
_MAX_PAGES = 250


class CallToolResult:
    """What FastMCP's client returns from a call."""

    def __init__(self, content: Any, structured_content: Any, meta: Any, data: Any, is_error: bool) -> None:
        """Keep the parts."""
        self.content = content
        self.structured_content = structured_content
        self.meta = meta
        self.data = data
        self.is_error = is_error

    def __eq__(self, other: object) -> bool:
        """Compare the parts."""
        return isinstance(other, CallToolResult) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        """Identify the object."""
        return id(self)

    def __repr__(self) -> str:
        """Show the parts."""
        return f"CallToolResult({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


@dataclass(frozen=True)
class TransportOptions:
    """How a client uses its transport: the class of its session, and whether it passes headers of its caller on."""

    session_class: Any = None
    forward_incoming_headers: bool = False


class Client:
    """FastMCP's client."""

    def __init__(self, transport: Any, *, transport_options: TransportOptions | None = None, **options: Any) -> None:
        """Initialize with a server, a URL, a file, a configuration or a transport."""
        forwards = transport_options is not None and transport_options.forward_incoming_headers
        self._target = _resolve(transport, forwards=forwards)
        self.transport = _as_transport(transport)
        self.mode = str(options.get("mode") or "auto")
        self._transport_options = transport_options
        given = {name: value for name, value in options.items() if value is not None}
        if given.get("extensions"):
            given["extensions"] = {each.identifier: dict(each.settings) for each in given["extensions"]}
        for name in ("auto_initialize", "generate_name", "name", "result_claims", "cache", "verify"):
            given.pop(name, None)
        if "timeout" in given:
            given["timeout"] = seconds(given["timeout"])
        if "init_timeout" in given:
            given.pop("init_timeout")
        if "input_required_max_rounds" in given:
            given["limits"] = Limits(rounds=given.pop("input_required_max_rounds"))
        if "client_info" in given:
            given["client_info"] = to_struct(given["client_info"], t.Implementation)
        if hasattr(given.get("auth"), "own"):
            given["auth"] = given["auth"].own()
        for name, adapt in _HANDLERS:
            if name in given:
                given |= adapt(given.pop(name))
        given["validate"] = False
        #: By tool: the schema of its results, as listed.
        self._schemas: dict[str, Any] = {}
        self._options = given
        self._client = OwnClient(self._target, cache=False, **given)

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls

    @property
    def server_info(self) -> Any:
        """The server's name and version."""
        return to_model(self._client.server_info)

    @property
    def server_capabilities(self) -> Any:
        """What the server declared."""
        return model_class("ServerCapabilities").model_validate(self._client.server_capabilities)

    @property
    def instructions(self) -> str | None:
        """The server's instructions."""
        return self._client.instructions

    def reconfigure(self) -> None:
        """Make our client anew, after the mode, the headers or the options of the transport were changed."""
        options = {**self._options, "mode": self.mode}
        how = self._transport_options
        target = self._target
        if how is not None and how.forward_incoming_headers and isinstance(target, Mapping) and "url" in target:
            target = {**target, "headers": {**_incoming_headers(), **(target.get("headers") or {})}}
        self._client = OwnClient(target, cache=False, **options)

    async def __aenter__(self) -> Client:
        """Connect.

        Raises:
            RuntimeError: there is no way to the server.
        """
        if self._transport_options is not None and not self.is_connected():
            self.reconfigure()
        try:
            await as_theirs(self._client.__aenter__())
        except LinkError as error:
            raise RuntimeError(f"Client failed to connect: {error}") from error
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Disconnect."""
        await self._client.__aexit__(*exc)

    def is_connected(self) -> bool:
        """Return True while connected."""
        return str(self._client.state) == "active"

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()

    def new(self) -> Client:
        """Return a client of the same server that is not connected."""
        return Client(self.transport, **self._options)

    @property
    def initialize_result(self) -> Any:
        """What the server said in the handshake."""
        client = self._client
        if client.revision is None:
            return None
        return model_class("InitializeResult")(
            protocol_version=client.revision,
            capabilities=client.server_capabilities,
            server_info=to_model(client.server_info) or {"name": "", "version": ""},
            instructions=client.instructions,
        )

    @property
    def session(self) -> Any:
        """The session: whole results, and requests of any method."""
        if not hasattr(self, "_session_view"):
            self._session_view = SessionOfClient(self)
        return self._session_view

    @property
    def protocol_version(self) -> str | None:
        """The revision."""
        return self._client.revision

    async def ping(self) -> bool:
        """Check that the server is there."""
        await as_theirs(self._client.ping())
        return True

    async def list_tools(self, *, max_pages: int = _MAX_PAGES, cache_mode: str = "use") -> list[Any]:
        """List the tools, all pages."""
        found = await all_items(self.list_tools_mcp, "tools", max_pages, cache_mode=cache_mode)
        self._schemas = {each.name: each.output_schema for each in found}
        return found

    async def list_tools_mcp(self, *, cursor: str | None = None, cache_mode: str = "use") -> Any:
        """List one page of the tools."""
        return await self.session.list_tools(cursor=cursor)

    async def list_resources(self, *, max_pages: int = _MAX_PAGES, **options: Any) -> list[Any]:
        """List the resources, all pages."""
        return await all_items(self.list_resources_mcp, "resources", max_pages, **options)

    async def list_resources_mcp(self, *, cursor: str | None = None, cache_mode: str = "use") -> Any:
        """List one page of the resources."""
        return await self.session.list_resources(cursor=cursor)

    async def list_resource_templates(self, *, max_pages: int = _MAX_PAGES, **options: Any) -> list[Any]:
        """List the templates, all pages."""
        return await all_items(self.list_resource_templates_mcp, "resource_templates", max_pages, **options)

    async def list_resource_templates_mcp(self, *, cursor: str | None = None, cache_mode: str = "use") -> Any:
        """List one page of the templates."""
        return await self.session.list_resource_templates(cursor=cursor)

    async def list_prompts(self, *, max_pages: int = _MAX_PAGES, **options: Any) -> list[Any]:
        """List the prompts, all pages."""
        return await all_items(self.list_prompts_mcp, "prompts", max_pages, **options)

    async def list_prompts_mcp(self, *, cursor: str | None = None, cache_mode: str = "use") -> Any:
        """List one page of the prompts."""
        return await self.session.list_prompts(cursor=cursor)

    async def call_tool_mcp(self, name: str, arguments: Any = None, **options: Any) -> Any:
        """Call a tool; a failure of the tool is a result."""
        result = await self.call_tool(name, arguments, raise_on_error=False, **options)
        return model_class("CallToolResult")(
            content=result.content,
            structured_content=result.structured_content,
            is_error=result.is_error,
            meta=result.meta,
        )

    async def call_tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        timeout: Any = None,
        progress_handler: Any = None,
        raise_on_error: bool = True,
        meta: Any = None,
        version: str | None = None,
        **_: Any,
    ) -> CallToolResult:
        """Call a tool.

        Raises:
            ToolError: the tool failed.
        """
        result = await as_theirs(
            self._client.call_tool(
                name,
                to_plain(arguments or {}),
                timeout=seconds(timeout),
                on_progress=progress_handler,
                raise_on_error=raise_on_error,
                meta=_with_version(meta, version),
            )
        )
        model = call_model(result)
        if not result.is_error and model.structured_content is not None:
            await self._check_result(name, model.structured_content)
        data = None if result.is_error else _unwrapped(result.data, model)
        return CallToolResult(model.content, model.structured_content, model.meta, data, bool(result.is_error))

    async def _check_result(self, name: str, structured: Any) -> None:
        """Check a result against the schema that the server lists for the tool.

        Raises:
            RuntimeError: it does not match.
        """
        how = self._transport_options
        if how is not None and not getattr(how.session_class, "validate", True):
            return
        if name not in self._schemas:
            self._schemas |= {each.name: each.output_schema for each in await as_theirs(self._client.list_tools())}
        schema = self._schemas.get(name)
        problem = None if schema is None else _violation(schema, structured)
        if problem is not None:
            raise RuntimeError(f"Invalid structured content returned by tool {name}: {problem}")

    async def read_resource(self, uri: Any, *, version: str | None = None, meta: Any = None, **_: Any) -> list[Any]:
        """Read a resource."""
        found = await as_theirs(self._client.read_resource(str(uri), meta=_with_version(meta, version)))
        return to_model(found)  # type: ignore[no-any-return]

    async def read_resource_mcp(self, uri: Any, *, version: str | None = None, meta: Any = None, **_: Any) -> Any:
        """Read a resource: the whole result."""
        params = t.ReadResourceRequestParams(uri=str(uri))
        client = self._client
        result, _ = await as_theirs(
            client._core.call(
                "resources/read", params, timeouts=client._timeouts, meta=_with_version(meta, version), repeat=True
            )
        )
        return to_model(result)

    async def get_prompt(
        self, name: str, arguments: Any = None, *, version: str | None = None, meta: Any = None, **_: Any
    ) -> Any:
        """Render a prompt."""
        given = None if arguments is None else to_plain(arguments)
        return to_model(await as_theirs(self._client.get_prompt(name, given, meta=_with_version(meta, version))))

    get_prompt_mcp = get_prompt

    async def complete(self, ref: Any, argument: Any, context_arguments: Any = None) -> Any:
        """Complete an argument."""
        kind = t.PromptReference if "prompt" in ref.type else t.ResourceTemplateReference
        return to_model(
            await as_theirs(
                self._client.complete(to_struct(ref, kind), to_plain(argument), context=context_arguments)  # type: ignore[arg-type]
            )
        )

    async def set_logging_level(self, level: Any) -> None:
        """Set the least level of log messages."""
        await as_theirs(self._client.set_logging_level(level))

    async def send_roots_list_changed(self) -> None:
        """Notify the server that the roots changed."""
        await self._client.notify_roots_changed()


def _unwrapped(data: Any, model: Any) -> Any:
    """Return a value without the object around it that the server says it put there."""
    own = (model.meta or {}).get("fastmcp") or {}
    wrapped = own.get("wrap_result") and data == model.structured_content
    return data["result"] if wrapped and isinstance(data, dict) and set(data) == {"result"} else data


def _violation(schema: Any, value: Any) -> str | None:
    """Return how a value violates a schema, or None; in the words of ``jsonschema`` where it is installed."""
    try:
        import jsonschema  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        from trunkline.protocol.json_schema import compile_schema

        found = compile_schema(schema).first_violation(value)
        return None if found is None else found.message
    error = next(iter(jsonschema.Draft202012Validator(schema).iter_errors(value)), None)
    return None if error is None else str(error.message)


def _as_transport(given: Any) -> Any:
    """Return what a client says it connects with: a transport object, or what was given where there is none."""
    from trunkline.compat.transports import infer_transport

    if isinstance(given, str | Server) or hasattr(given, "unicode_string"):
        return infer_transport(given if isinstance(given, Server) else str(given))
    return given


#: Headers that belong to one connection, beside those of the protocol: our client sets its own.
_OF_THE_HOP = frozenset({"accept", "accept-encoding", "cookie", "dpop", "last-event-id", "user-agent"})


def _incoming_headers() -> dict[str, str]:
    """Return the headers of the request being served that may be sent on; those of the protocol belong to its hop."""
    from trunkline.compat.dependencies import get_http_headers

    try:
        found = get_http_headers(include={"authorization"})
    except RuntimeError:
        return {}
    return {name: value for name, value in found.items() if not name.startswith("mcp-") and name not in _OF_THE_HOP}


def _with_version(meta: Any, version: str | None) -> Any:
    """Return the ``_meta`` of a request that asks for a version of a component."""
    if version is None:
        return meta
    given = dict(meta or {})
    return {**given, "fastmcp": {**(given.get("fastmcp") or {}), "version": version}}


def _resolve(transport: Any, *, forwards: bool = False) -> Any:
    """Return what our client connects to; ``forwards``: whether servers behind a router are sent a caller's headers."""
    entry = getattr(transport, "target", None)
    if callable(entry):
        return entry()
    if isinstance(transport, Client):
        return transport._target
    if hasattr(transport, "mcpServers"):
        transport = transport.to_dict()
    if isinstance(transport, Mapping) and "mcpServers" in transport:
        servers = dict(transport["mcpServers"])
        if len(servers) == 1:
            return next(iter(servers.values()))
        return _router(servers, forwards=forwards)
    if isinstance(transport, Path):
        return str(transport)
    if isinstance(transport, Server):
        return transport
    return getattr(transport, "_server", None) or (
        str(transport) if hasattr(transport, "unicode_string") else transport
    )


def _router(servers: Mapping[str, Any], *, forwards: bool) -> Server:
    """Return a server that offers what several servers offer, each under its name."""
    from trunkline.compat.fast_server import FastMCP
    from trunkline.compat.providers.proxy import StatefulProxyClient, create_proxy

    router = FastMCP("router")
    for name, entry in servers.items():
        client = StatefulProxyClient({"mcpServers": {name: entry}}, forward_incoming_headers=forwards)
        router.mount(create_proxy(client), name)
    return router


def _elicitation(handler: Any) -> dict[str, Any]:
    async def elicit(params: Any) -> Any:
        answer = handler(params.message, dict if params.requested_schema else None, elicit_model(params), None)
        answer = await answer if inspect.isawaitable(answer) else answer
        return to_struct(answer, t.ElicitResult) if hasattr(answer, "action") else to_plain(answer)

    return {"elicitation": elicit, "elicitation_urls": True}


def _sampling(handler: Any) -> dict[str, Any]:
    async def sample(params: Any) -> Any:
        answer = handler(to_model(params.messages), to_model(params), None)
        answer = await answer if inspect.isawaitable(answer) else answer
        return to_struct(answer, t.CreateMessageResult) if isinstance(answer, BaseModel) else answer

    return {"sampling": sample}


def _log_handler(handler: Any) -> dict[str, Any]:
    return {"logging": lambda params: handler(to_model(params))}


def _messages(handler: Any) -> dict[str, Any]:
    return {"on_notification": to_message_handler(handler)}


def _roots(roots: Any) -> dict[str, Any]:
    if not callable(roots):
        return {"roots": [str(getattr(each, "uri", each)) for each in roots]}

    async def list_roots() -> Any:
        found = roots(None)
        return await found if inspect.isawaitable(found) else found

    return {"roots": list_roots}


_HANDLERS = (
    ("elicitation_handler", _elicitation),
    ("sampling_handler", _sampling),
    ("log_handler", _log_handler),
    ("message_handler", _messages),
    ("roots", _roots),
)
