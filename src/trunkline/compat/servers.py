"""Servers under the names of FastMCP and the official SDK: what both have in common.

A server of ours with their methods: registration with their keywords, lists and calls from code, switching things off,
settings that can be set later, routes of one's own. Everything is served by our code.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw
from pydantic import BaseModel, ConfigDict

from trunkline.compat.callables import name_of, named_parameters
from trunkline.compat.component_versions import newest
from trunkline.compat.components import Component, Prompt, Resource, Tool, from_definition, options_of
from trunkline.compat.context import CURRENT_CONTEXT, FastContext, serving_context
from trunkline.compat.definitions import FastTool, is_local
from trunkline.compat.exceptions import NotFoundError, ToolError
from trunkline.compat.fast_templates import FastUriTemplate
from trunkline.compat.keywords import CompatibilityWarning
from trunkline.compat.prompt_definitions import FastPrompt, check_prompt_function
from trunkline.compat.resource_definitions import FastResource, FastTemplate, fast_unknown, read_handler
from trunkline.compat.resource_security import DEFAULT_RESOURCE_SECURITY, INHERIT_SECURITY
from trunkline.compat.task_config import task_config_of
from trunkline.compat.tool_names import validate_and_warn_tool_name
from trunkline.compat.types import to_plain
from trunkline.errors import HandlerError, MissingCapability, RequestFailed
from trunkline.server.context import Context
from trunkline.server.options import prompt_options, resource_options, tool_options
from trunkline.server.prompts import PromptDefinition
from trunkline.server.resources import ResourceDefinition, TemplateDefinition
from trunkline.server.server import Server
from trunkline.server.tools import ToolDefinition, error_result

__all__ = ["ForeignServer", "Settings", "blank_server", "shelf_of", "versioned_key"]

log = logging.getLogger("trunkline")

#: What the two frameworks say about a component and a server of ours has no use for.
_KEPT = ("version", "enabled", "auth", "task", "app", "serializer", "security", "resource_security")


class Settings(BaseModel):
    """Settings that may be changed until the server runs."""

    model_config = ConfigDict(extra="allow")

    host: str = "127.0.0.1"
    port: int = 8000
    debug: bool = False
    log_level: str = "INFO"
    mount_path: str = "/"
    sse_path: str = "/sse"
    message_path: str = "/messages/"
    streamable_http_path: str = "/mcp"
    json_response: bool = False
    stateless_http: bool = False
    warn_on_duplicate_resources: bool = True
    warn_on_duplicate_tools: bool = True
    warn_on_duplicate_prompts: bool = True
    dependencies: list[str] = []
    lifespan: Any = None
    auth: Any = None
    transport_security: Any = None


class _ConnectionScope:
    """The connection of a session, as far as code that must clean up after it needs it."""

    def __init__(self, server: Any, holder: Any) -> None:
        self._server, self._holder = server, holder
        self.exit_stack = self

    def push_async_callback(self, callback: Any, *args: Any, **options: Any) -> None:
        """Call an async function when the connection has ended."""
        self._server.on_connection_end(self._holder, lambda: callback(*args, **options))


class ForeignServer(Server):
    """A server with the methods that both frameworks have."""

    _context_class: type[Context] | None = FastContext
    #: It records the spans of its framework itself.
    traces_requests = False
    #: Whether schemas are listed without references.
    dereferences = True
    #: Whether sync functions run in worker threads.
    threads = True
    #: The class of its tools.
    tool_class: type[ToolDefinition] = FastTool
    #: The classes of its prompts, resources and templates.
    prompt_class: type[PromptDefinition] = FastPrompt
    resource_class: type[ResourceDefinition] = FastResource
    template_class: type[TemplateDefinition] = FastTemplate
    #: The classes of objects that stand for what the server offers, where they are not FastMCP's.
    object_kinds: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, name: str | None = None, instructions: str | None = None, **options: Any) -> None:
        """Define a server."""
        self._rules: list[tuple[bool, Callable[[Any], bool]]] = []
        #: By session: what was switched on and off for it alone.
        self._session_rules: dict[Any, list[tuple[bool, Callable[[Any], bool]]]] = {}
        self._session_rule_data: dict[Any, list[dict[str, Any]]] = {}
        self._extras: dict[tuple[str, str], dict[str, Any]] = {}
        self._objects: dict[int, tuple[Any, Component]] = {}
        self._connection_ends: dict[int, list[Callable[[], Any]]] = {}
        self._connection_scopes: dict[int, Any] = {}
        self.custom_routes: list[Any] = []
        self.foreign_auth = options.pop("auth", None)
        #: The policy for values of template variables; None: none is refused.
        self.resource_security = options.pop("resource_security", DEFAULT_RESOURCE_SECURITY)
        super().__init__(name or "server", instructions, visible=self._is_shown, **options)
        self.handlers["resources/read"] = read_handler(self)
        self.handlers["tools/call"] = self._tool_handler(self.handlers["tools/call"])
        self._ready = True
        self.middleware = (self._bind_context, *self.middleware)
        self._refresh()

    @property
    def _additional_http_routes(self) -> list[Any]:
        return self.custom_routes

    @_additional_http_routes.setter
    def _additional_http_routes(self, routes: list[Any]) -> None:
        self.custom_routes = routes

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls

    def __repr__(self) -> str:
        """Show the name."""
        return f"{type(self).__name__}({self.name!r})"

    async def _bind_context(self, request: Any, call_next: Any) -> Any:
        """Make the context of a request the current one, for functions that look it up."""
        token = CURRENT_CONTEXT.set(request.context)
        try:
            return await call_next(request)
        finally:
            CURRENT_CONTEXT.reset(token)

    def on_connection_end(self, holder: Any, callback: Callable[[], Any]) -> None:
        """Call an async function when a connection, or the session that it belongs to, has ended."""
        self._connection_ends.setdefault(id(holder), []).append(callback)

    def connection_scope(self, holder: Any) -> Any:
        """Return the one object that stands for a connection, as long as it lasts."""
        if id(holder) not in self._connection_scopes:
            self._connection_scopes[id(holder)] = _ConnectionScope(self, holder)
        return self._connection_scopes[id(holder)]

    async def release(self, holder: object) -> None:
        """Release what was held for a connection that has ended."""
        self._connection_scopes.pop(id(holder), None)
        for callback in reversed(self._connection_ends.pop(id(holder), [])):
            try:
                await callback()
            except Exception:
                log.exception("the clean-up after a connection failed")
        # By its id: another connection may get the same one, and must not inherit what was kept for this.
        for kept in (self._session_rules, self._session_rule_data, self.__dict__.get("_compat_states", {})):
            kept.pop(id(holder), None)
        await super().release(holder)

    def worded(self, exchange: Any, error: Exception) -> Exception:
        """Return the exception that answers a failure."""
        if isinstance(error, HandlerError | RequestFailed | MissingCapability):
            return error
        return ToolError(str(error)) if exchange.method == "tools/call" else RequestFailed(str(error))

    def _tool_handler(self, inner: Any) -> Any:
        """Return the handler of ``tools/call``: an unknown tool is a result with an error, as in both frameworks."""

        async def handle(exchange: Any, params: Any) -> Any:
            tool = self.registry.tools.get(params.name)
            if tool is None or not self.listing.is_visible(exchange.admitted.caller, tool):
                if is_local(exchange):
                    raise NotFoundError(f"Unknown tool: {params.name!r}")
                return error_result(self.unknown_tool(params.name))
            return await inner(exchange, params)

        return handle

    def unknown_tool(self, name: str) -> str:
        """Return the error message for an unknown tool."""
        return f"Unknown tool: {name!r}"

    def unknown_resource(self, exchange: Any, uri: str, error: Exception) -> Exception:
        """Return the answer to a URI that names nothing, or nothing that may be read."""
        return fast_unknown(exchange, uri, error)

    def failed_resource(self, exchange: Any, uri: str, error: Exception) -> Exception:
        """Return the answer to a failed read."""
        if not isinstance(error, HandlerError):
            log.error("Error reading resource %r", uri, exc_info=error)
        return self.worded(exchange, error)

    # --- registration ------------------------------------------------------------------------------------------------

    def make_tool(self, function: Callable[..., Any], options: Mapping[str, Any]) -> ToolDefinition:
        """Make the definition of a tool."""
        given = self._own_options("tool", function, options)
        if "input_schema" not in given:
            self.check_tool_function(function)
        return self.tool_class(function, tool_options(given), owner=self)

    def check_tool_function(self, function: Callable[..., Any]) -> None:
        """Raise ValueError if a function cannot be called with named arguments."""
        for each in inspect.signature(function).parameters.values():
            if each.kind is each.VAR_POSITIONAL:
                raise ValueError("Functions with *args are not supported as tools")
            if each.kind is each.VAR_KEYWORD:
                raise ValueError("Functions with **kwargs are not supported as tools")
            if each.kind is each.POSITIONAL_ONLY:
                raise ValueError(
                    "Functions with positional-only parameters are not supported as tools: use standard parameters"
                )

    def make_prompt(self, function: Callable[..., Any], options: Mapping[str, Any]) -> PromptDefinition:
        """Make the definition of a prompt."""
        given = self._own_options("prompt", function, options)
        self.check_prompt_function(function)
        return self.prompt_class(function, prompt_options(given), owner=self)

    def check_prompt_function(self, function: Callable[..., Any]) -> None:
        """Raise ValueError if a function cannot be called with named arguments."""
        check_prompt_function(function)

    def make_resource(self, uri: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        """Make the definition of a resource or a template."""
        if "{" in uri:
            return self.make_template(uri, function, options)
        given = self._own_options("resource", function, options)
        given["mime_type"] = given.get("mime_type") or "text/plain"
        return self.resource_class(uri, function, resource_options(given), owner=self)

    def make_template(self, uri: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        """Make the definition of a template.

        Raises:
            ValueError: the variables of the template and the parameters of the function do not fit together.
        """
        given = self._own_options("resource", function, options)
        given["mime_type"] = given.get("mime_type") or "text/plain"
        function = self.template_function(uri, function)
        security = options.get("security", INHERIT_SECURITY)
        return self.template_class(uri, function, resource_options(given), owner=self, security=security)  # type: ignore[call-arg]

    def template_function(self, uri: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of a template with a parameter for each of its variables."""
        for each in inspect.signature(function).parameters.values():
            if each.kind is each.VAR_POSITIONAL:
                raise ValueError("Functions with *args are not supported as resource templates")
            if each.kind is each.POSITIONAL_ONLY:
                raise ValueError(
                    "Functions with positional-only parameters are not supported as resource templates: "
                    "use standard parameters"
                )
        return named_parameters(function, FastUriTemplate(uri).names)

    def _own_options(self, place: str, function: Any, options: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in options.items() if value is not None or name == "output_schema"}
        given = {name: value for name, value in given.items() if name not in _KEPT}
        if "output_schema" in given and given["output_schema"] is ...:
            del given["output_schema"]
        if given.get("output_schema") is False:
            given["output_schema"] = None
        if hasattr(given.get("annotations"), "model_dump"):
            given["annotations"] = to_plain(given["annotations"])
        if not callable(function):
            raise TypeError(f"{function!r} is not a callable object: a {place} is made of a function")
        given.setdefault("name", name_of(function))
        if given["name"] == "<lambda>":
            if place != "resource":
                raise ValueError("You must provide a name for lambda functions")
            del given["name"]
        if place == "tool":
            validate_and_warn_tool_name(given["name"])
        given.setdefault("run_in_thread", self.threads)
        return given

    def _add_tool(self, function: Callable[..., object], options: Mapping[str, object]) -> None:
        definition = self.make_tool(function, options)
        self._keep("tools", definition.name, definition, options)

    def _add_prompt(self, function: Callable[..., object], options: Mapping[str, object]) -> None:
        definition = self.make_prompt(function, options)
        self._keep("prompts", definition.name, definition, options)

    def _add_resource(self, uri: str, function: Callable[..., object], options: Mapping[str, object]) -> None:
        kind = "templates" if "{" in uri else "resources"
        self._keep(kind, uri, self.make_resource(uri, function, options), options)

    def _keep(self, kind: str, key: str, definition: Any, options: Mapping[str, Any]) -> None:
        extras = {name: options[name] for name in _KEPT if options.get(name) is not None}
        if "version" in extras:
            extras["version"] = Component(name=key, version=extras["version"]).version
        self._check_mixing(kind, key, extras.get("version"))
        stored = versioned_key(key, extras.get("version"))
        if stored in getattr(self._own, kind) and self._on_duplicate == "ignore":
            return
        self._extras[kind, stored] = extras
        for name in ("app", "serializer") if hasattr(self, "add_extension") else ("task", "app", "serializer"):
            if options.get(name):
                warnings.warn(f"{name}= has no effect", CompatibilityWarning, stacklevel=4)
        self._put(kind, stored, definition)
        self._kept(kind, stored, extras)

    def _kept(self, kind: str, stored: str, extras: Mapping[str, Any]) -> None:
        """Called when something was registered."""

    def _check_mixing(self, kind: str, key: str, version: str | None) -> None:
        """Check that the versions of a component are all given, or none is.

        Raises:
            ValueError: one with a version and one without would have the same name.
        """
        shelf = getattr(self._own, kind)
        if version is not None and key in shelf:
            raise ValueError(
                f"Cannot add versioned {kind[:-1]} {key!r} (version {version!r}): an unversioned one exists already"
            )
        if version is None and any(
            name == key and other is not None for name, other in (self.split_key(kind, each) for each in shelf)
        ):
            raise ValueError(f"Cannot add unversioned {kind[:-1]} {key!r}: versioned ones exist already")

    def split_key(self, kind: str, stored: str) -> tuple[str, str | None]:
        """Return the name or URI, and the version, of what is kept under a key."""
        version = self._extras.get((kind, stored), {}).get("version")
        return (stored, None) if version is None else (stored.removesuffix(f"@{version}"), version)

    def remove_versions(self, kind: str, key: str, version: str | None = None) -> None:
        """Remove a component: one version of it, or all.

        Raises:
            KeyError: there is none.
        """
        found = [
            each
            for each in getattr(self._own, kind)
            if self.split_key(kind, each)[0] == key and version in (None, self.split_key(kind, each)[1])
        ]
        if not found:
            about = "" if version is None else f" with version {version!r}"
            raise KeyError(f"{kind[:-1].capitalize()} {key!r}{about} not found")
        for each in found:
            self._remove(kind, each)
            self._extras.pop((kind, each), None)

    def own_objects(self, kind: str) -> list[Any]:
        """Return what this server itself registered, as objects, all versions."""
        return [self.object_of(kind, key, definition) for key, definition in getattr(self._own, kind).items()]

    def own_object(self, kind: str, key: str, version: Any = None) -> Any:
        """Return the newest version that this server itself registered, or None."""
        shelf = getattr(self._own, kind)
        if key in shelf:
            found = [self.object_of(kind, key, shelf[key])]
        else:
            found = [self.object_of(kind, each, shelf[each]) for each in shelf if self.split_key(kind, each)[0] == key]
        return newest(found, version)

    def add_object(self, component: Any) -> Any:
        """Register a tool, prompt, resource or template that was made as an object."""
        options = options_of(component)
        extra = {name: getattr(component, name, None) for name in ("version", "enabled", "auth")}
        if isinstance(component, Tool):
            fn = getattr(component, "fn", None)
            definition: Any
            if component.definition is not None and type(component).run in _function_run():
                definition = self.make_tool(fn, _tool_keywords(component, options))  # type: ignore[arg-type]
            else:
                definition = self._tool_of_object(component, options)
            kind, key = "tools", component.name
        elif isinstance(component, Prompt):
            definition = self._prompt_of_object(component, options)
            kind, key = "prompts", component.name
        elif isinstance(component, Resource):
            definition = self._resource_of_object(component, options)
            kind, key = "resources", str(component.uri)
        else:
            definition = self._template_of_object(component, options)
            kind, key = "templates", component.uri_template
        self._keep(kind, key, definition, extra)
        stored = versioned_key(key, component.version)
        kept = getattr(self._own, kind).get(stored)
        if kept is not definition and kept is not None:
            return self.object_of(kind, stored, kept)
        self._objects[id(definition)] = (definition, component)
        return component

    def _tool_of_object(self, tool: Any, options: dict[str, Any]) -> ToolDefinition:
        async def run(**arguments: Any) -> Any:
            return await tool.run(arguments)

        schema = {"type": "object", **tool.parameters}
        return self.make_tool(run, {**options, "input_schema": schema, "output_schema": tool.output_schema})

    def _prompt_of_object(self, prompt: Any, options: dict[str, Any]) -> PromptDefinition:
        fn = getattr(prompt, "fn", None)
        if fn is not None:
            return self.make_prompt(fn, options)

        async def render(**arguments: Any) -> Any:
            return await prompt.render(arguments)

        render.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    each.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if each.required else None,
                    annotation=Any,
                )
                for each in prompt.arguments or ()
            ]
        )
        return self.make_prompt(render, options)

    def _resource_of_object(self, resource: Any, options: dict[str, Any]) -> Any:
        async def read() -> Any:
            return await resource.read()

        # An object says itself what it holds.
        read.__trunkline_object__ = True  # type: ignore[attr-defined]
        return self.make_resource(str(resource.uri), read, options)

    def _template_of_object(self, template: Any, options: dict[str, Any]) -> Any:
        fn = getattr(template, "fn", None)
        if fn is not None:
            return self.make_resource(template.uri_template, fn, options)

        async def read(**arguments: Any) -> Any:
            return await template.read(arguments)

        names = FastUriTemplate(template.uri_template).names
        read.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=str) for name in names]
        )
        return self.make_resource(template.uri_template, read, options)

    # --- objects -----------------------------------------------------------------------------------------------------

    def object_of(self, kind: str, key: str, definition: Any) -> Any:
        """Return the object that stands for a definition."""
        known = self._objects.get(id(definition))
        if known is not None and known[0] is definition:
            return known[1]
        made = from_definition(definition, self.object_kinds.get(kind))
        source = definition.source or definition
        owner = source.function.owner
        stored = key if definition.source is None else getattr(source, "uri", None) or source.name
        extras = getattr(owner, "_extras", {}).get((kind, stored), {})
        for name in ("version", "auth"):
            if extras.get(name) is not None:
                setattr(made, name, extras[name])
        if "task" in extras:
            made.task_config = task_config_of(extras["task"])
        self._objects[id(definition)] = (definition, made)
        return made

    def objects(self, kind: str, *, shown: bool = True) -> list[Any]:
        """Return all tools, prompts, resources or templates that are switched on."""
        shelf: Mapping[str, Any] = getattr(self.registry, kind)
        return [
            self.object_of(kind, key, definition)
            for key, definition in shelf.items()
            if not shown or self.listing.is_visible(None, definition)  # type: ignore[arg-type]
        ]

    def session_rule_data(self, session: Any) -> list[dict[str, Any]]:
        """Return what was switched for one session, as data."""
        return list(self._session_rule_data.get(_scope_key(session), ()))

    def add_session_rule(
        self, session: Any, on: bool, matches: Callable[[Any], bool], data: dict[str, Any] | None = None
    ) -> None:
        """Switch on or off what matches, for one session."""
        self._session_rule_data.setdefault(_scope_key(session), []).append(data or {"enabled": on})
        self._session_rules.setdefault(_scope_key(session), []).append((on, matches))
        for kind in ("tools", "prompts", "resources"):
            self.changed(kind)

    def forget_session_rules(self, session: Any) -> None:
        """Remove the rules of one session; it is shown the same as all others."""
        self._session_rules.pop(_scope_key(session), None)
        self._session_rule_data.pop(_scope_key(session), None)
        for kind in ("tools", "prompts", "resources"):
            self.changed(kind)

    # --- names -------------------------------------------------------------------------------------------------------

    def rename(self, **changes: Any) -> None:
        """Change the name, the version or another part of what the server says about itself."""
        self.info = msgspec.structs.replace(self.info, **changes)
        self.stamp = Raw(msgspec.json.encode(self.info))

    def introduce(self, options: Any) -> None:
        """Apply the initialization options to the server."""
        changes = {"name": options.server_name, "version": options.server_version or self.version}
        self.rename(**{name: value for name, value in changes.items() if value})
        if options.instructions:
            self.instructions = options.instructions
        experimental = getattr(options.capabilities, "experimental", None)
        if experimental:
            self.experimental = dict(experimental)

    # --- switching on and off ----------------------------------------------------------------------------------------

    def _is_shown(self, caller: Any, definition: Any) -> bool:
        key = getattr(definition, "uri", None) or definition.name
        extras = self._extras.get((shelf_of(definition), key), {})
        shown = extras.get("enabled") is not False
        session = getattr(caller, "session", None)
        for on, matches in (*self._rules, *self._rules_for(session)):
            if matches(definition):
                shown = on
        return shown

    def _rules_for(self, session: Any) -> Sequence[tuple[bool, Callable[[Any], bool]]]:
        return self._session_rules.get(_scope_key(session), ()) if session is not None else ()

    def add_rule(self, on: bool, matches: Callable[[Any], bool]) -> None:
        """Switch on or off what matches; later rules win."""
        self._rules.append((on, matches))
        self._refresh()
        for kind in ("tools", "prompts", "resources"):
            self.changed(kind)


def _scope_key(scope: Any) -> Any:
    """Return the key of a session, or of the caller in place of one."""
    return scope if isinstance(scope, str) else id(scope)


def versioned_key(key: str, version: str | None) -> str:
    """Return the key of a version of a component."""
    return key if version is None else f"{key}@{version}"


def _tool_keywords(tool: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords that make the same tool of its function again."""
    source = tool.definition.options
    kept = {
        name: getattr(source, name)
        for name in source.__struct_fields__
        if name in ("input_schema", "exclude_args", "wrap_result") and getattr(source, name)
    }
    listed = tool.definition.listed().output_schema
    if tool.output_schema != listed:
        kept["output_schema"] = tool.output_schema
    elif source.output_schema is None or isinstance(source.output_schema, dict):
        kept["output_schema"] = source.output_schema
    return {**kept, **options}


def _function_run() -> Any:
    from trunkline.compat.components import FunctionTool
    from trunkline.compat.official_components import OfficialTool

    return FunctionTool.run, OfficialTool.run


def shelf_of(definition: Any) -> str:
    """Return the name of the table that a definition belongs to."""
    if isinstance(definition, ToolDefinition):
        return "tools"
    if isinstance(definition, PromptDefinition):
        return "prompts"
    return "templates" if isinstance(definition, TemplateDefinition) else "resources"


class _ObjectServer(ForeignServer):
    """The server that objects belong to which are added to none: they are served by another."""

    _context_class: Any = staticmethod(serving_context)


@cache
def blank_server(official: bool = False) -> ForeignServer:
    """Return the server that objects belong to before they are added to one."""
    if official:
        from trunkline.compat.official import MCPServer

        return MCPServer("objects")
    return _ObjectServer("objects", mask_error_details=False)
