"""Extensions of the official SDK: a named bundle of tools, resources, methods and a look at every call of a tool."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

import trunkline.types as t
from trunkline.compat.exceptions import McpError
from trunkline.compat.types import model_class, to_model, to_plain, to_struct
from trunkline.errors import MethodNotFound
from trunkline.protocol.methods import METHODS

__all__ = [
    "ClientExtension",
    "Extension",
    "MethodBinding",
    "ResourceBinding",
    "ToolBinding",
    "advertise",
    "apply_extensions",
    "require_client_extension",
]

_IDENTIFIER = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")


def check_identifier(identifier: Any) -> str:
    """Return an identifier.

    Raises:
        TypeError: it is not ``vendor-prefix/name``.
    """
    if not isinstance(identifier, str) or not _IDENTIFIER.fullmatch(identifier):
        raise TypeError(f"the identifier of an extension is vendor-prefix/name, not {identifier!r}")
    return identifier


@dataclass
class ToolBinding:
    """A function that becomes a tool of the server."""

    fn: Callable[..., Any]
    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: Any = None
    icons: Any = None
    meta: dict[str, Any] | None = None
    structured_output: bool | None = None


@dataclass
class ResourceBinding:
    """A resource of the server."""

    resource: Any


@dataclass
class MethodBinding:
    """A request of the extension's own, and its handler ``async (ctx, params)``."""

    method: str
    params_type: Any
    handler: Callable[[Any, Any], Awaitable[Any]]
    protocol_versions: frozenset[str] | None = None

    def __post_init__(self) -> None:
        """Check the method.

        Raises:
            ValueError: the protocol has it, or it would never be served.
        """
        if any(row.name == self.method for row in METHODS):
            raise ValueError(f"{self.method!r} is a method of the protocol: an extension adds methods of its own")
        if self.protocol_versions is not None and not self.protocol_versions:
            raise ValueError(
                f"MethodBinding for {self.method!r} has an empty protocol_versions set, so it could never be served; "
                "use None to admit every version"
            )


class Extension:
    """The base of extensions: override what the extension adds."""

    identifier: str = ""

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the identifier, if the class has one."""
        super().__init_subclass__(**options)
        if "identifier" in vars(cls) and isinstance(vars(cls)["identifier"], str):
            check_identifier(cls.identifier)

    def settings(self) -> dict[str, Any]:
        """Return the settings that are declared to clients."""
        return {}

    def tools(self) -> Sequence[ToolBinding]:
        """Return the tools."""
        return ()

    def resources(self) -> Sequence[ResourceBinding]:
        """Return the resources."""
        return ()

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods."""
        return ()

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        """Answer a call of a tool, or hand it on."""
        return await call_next(ctx)


@dataclass
class ClientExtension:
    """An extension that a client declares, with its settings."""

    identifier: str
    settings: dict[str, Any] = field(default_factory=dict)


def advertise(identifier: str, settings: dict[str, Any] | None = None) -> ClientExtension:
    """Return an extension for a client to declare."""
    return ClientExtension(check_identifier(identifier), dict(settings or {}))


def require_client_extension(ctx: Any, identifier: str) -> None:
    """Raise the protocol's error if the client did not declare an extension."""
    session = ctx.session
    declared = getattr(session.client_capabilities, "extensions", None) or {}
    if identifier not in declared:
        raise McpError(
            code=-32021,
            message=f"Missing required client capability: the extension {identifier}",
            data={"requiredCapabilities": {"extensions": {identifier: {}}}},
        )


def apply_extensions(server: Any, extensions: Sequence[Extension]) -> None:
    """Add what extensions have to a server.

    Raises:
        TypeError: one has no identifier.
        ValueError: two have the same identifier or method.
    """
    declared: dict[str, Any] = {}
    for each in extensions:
        identifier = check_identifier(each.identifier)
        if identifier in declared:
            raise ValueError(f"Extension {identifier!r} is registered already")
        declared[identifier] = each.settings()
        for tool in each.tools():
            given = {key: value for key, value in vars(tool).items() if key != "fn" and value is not None}
            server.put_tool(tool.fn, given)
        for resource in each.resources():
            server.add_object(resource.resource)
        for binding in each.methods():
            _add_method(server, identifier, binding)
    server.extensions = {**(server.extensions or {}), **declared}
    looking = [each for each in extensions if type(each).intercept_tool_call is not Extension.intercept_tool_call]
    if looking:
        server.handlers["tools/call"] = _intercepted(server.handlers["tools/call"], extensions, server)


def _add_method(server: Any, identifier: str, binding: MethodBinding) -> None:
    name = binding.method
    if name in server.custom_methods:
        raise ValueError(
            f"Extension {identifier!r} binds method {name!r}, which is already registered; "
            "extension methods are additive and cannot replace another handler"
        )

    async def serve(params: dict[str, Any], context: Any) -> Any:
        served = context.request_context
        if binding.protocol_versions is not None and served.protocol_version not in binding.protocol_versions:
            raise MethodNotFound(f"Method not found: {name}", data=name)
        given = {key: value for key, value in params.items() if key != "_meta"}
        result = await binding.handler(served, binding.params_type.model_validate(given))
        return to_plain(result)

    from trunkline.server.context import Context

    serve.__annotations__ = {"params": dict[str, Any], "context": Context, "return": Any}
    server.method(name)(serve)


def _intercepted(inner: Any, extensions: Sequence[Extension], server: Any) -> Any:
    """Return the handler of ``tools/call`` with the extensions around it, the first outermost."""

    async def handle(exchange: Any, params: t.CallToolRequestParams) -> Any:
        arguments = {} if params.arguments is None else msgspec.json.decode(params.arguments)
        shown = model_class("CallToolRequestParams")(name=params.name, arguments=arguments)
        context = server._context_class(server, exchange).request_context
        answered: list[Any] = []

        async def last(_: Any) -> Any:
            result = await inner(exchange, params)
            model = to_model(result) if isinstance(result, t.CallToolResult) else result
            answered[:] = [model, result]
            return model

        chain: Any = last
        for each in reversed(extensions):
            chain = _link(each, shown, chain)
        result = await chain(context)
        if answered and result is answered[0]:
            return answered[1]
        return to_struct(result, t.CallToolResult) if isinstance(result, model_class("CallToolResult")) else result

    return handle


def _link(extension: Extension, params: Any, inner: Any) -> Any:
    async def call(context: Any) -> Any:
        return await extension.intercept_tool_call(params, context, inner)

    return call
