"""FastMCP's server class, versions 2 to 4."""

from __future__ import annotations

import logging
import secrets
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError as PydanticError

from trunkline.errors import ConfigError, HandlerError, MissingCapability, RequestFailed
from trunkline.protocol.uri_template import UriTemplate
from trunkline.server.registry import namespaced, namespaced_uri
from trunkline_compat.components import (
    Component,
    FunctionPrompt,
    FunctionResource,
    FunctionTool,
    Prompt,
    RequiredScopes,
    Resource,
    ResourceTemplate,
    Tool,
)
from trunkline_compat.contents import PromptResult, ResourceResult, ToolResult
from trunkline_compat.context import FastContext
from trunkline_compat.errors import NotFoundError, ToolError, ValidationError
from trunkline_compat.middleware import as_function, changes_lists, remember_failure
from trunkline_compat.overrides import serve_overrides
from trunkline_compat.serving import SETTINGS, ForeignServer, returning
from trunkline_compat.versions import STATE

__all__ = ["FastMCP"]

log = logging.getLogger("fastmcp")

#: Options that have no effect, and why.
_IGNORED = {
    "cache_expiration_seconds": "nothing is cached",
    "resource_prefix_format": "the namespace is the first part of the path",
    "strict_input_validation": "arguments are converted where that loses nothing",
    "dereference_schemas": "schemas have no references unless they are recursive",
    "tasks": "a tool says itself whether it runs as a task, with task=True",
    "client_log_level": "clients set their own level",
    "session_state_store": "the state of a session is kept in memory",
}
#: Options that have an effect, beside the settings.
_OPTIONS = (
    *("version", "website_url", "icons", "auth", "middleware", "lifespan", "tools", "include_tags", "exclude_tags"),
    *("mask_error_details", "title", "description", "list_page_size", "tags"),
)
#: Options of features that are not adapted, and what to use.
_ABSENT = {
    "providers": "mount other servers with mount(), or register functions",
    "transforms": "register under the name you want, mount with a namespace, or use enable() and disable()",
}


class FastMCP(ForeignServer):
    """A server as FastMCP defines it."""

    context_class = FastContext

    def __init__(self, name: str | None = None, instructions: str | None = None, **options: Any) -> None:
        """Define a server."""
        given = {key: value for key, value in options.items() if value is not None}
        for key, reason in _IGNORED.items():
            if given.pop(key, None):
                warnings.warn(f"FastMCP({key}=…) has no effect under trunkline-compat: {reason}", stacklevel=2)
        for key, instead in _ABSENT.items():
            if given.pop(key, None):
                raise TypeError(f"FastMCP({key}=…) is not supported by trunkline-compat: {instead}")
        for key in set(given) - {*_OPTIONS, *SETTINGS}:
            if not key.startswith("on_duplicate"):
                warnings.warn(f"FastMCP({key}=…) is not known to trunkline-compat, and has no effect", stacklevel=2)
        self.masks_errors = bool(given.get("mask_error_details"))
        self._duplicates: str = next((given[key] for key in given if key.startswith("on_duplicate")), "warn")
        #: The servers mounted here, with their namespaces.
        self.mounted: list[tuple[str | None, ForeignServer]] = []
        #: Whether a middleware changes lists, and whether this server is mounted in another.
        self.filters_lists = self.is_mounted = False
        #: Rules of ``enable`` and ``disable``: the last one that matches decides.
        self._rules: list[tuple[bool, Callable[[Component], bool]]] = []
        super().__init__(name or f"FastMCP-{secrets.token_hex(2)}", instructions, given)
        if given.get("include_tags"):
            self.enable(tags=set(given["include_tags"]), only=True)
        if given.get("exclude_tags"):
            self.disable(tags=set(given["exclude_tags"]))
        for middleware in given.get("middleware", ()):
            self.add_middleware(middleware)
        for tool in given.get("tools", ()):
            self.add_tool(tool)
        serve_overrides(self, FastMCP)

    # Published servers filter their tools by overriding these two, although they are inner methods there.

    async def _list_tools_mcp(self) -> list[Any]:
        return [tool.to_mcp_tool() for tool in await self.list_tools()]

    async def _call_tool_mcp(self, key: str, arguments: dict[str, Any]) -> Any:
        return await self.call_tool(key, arguments)

    def default_version(self) -> str:
        """Return the version of FastMCP."""
        return STATE.version("fastmcp") or ""

    # --- registration ------------------------------------------------------------------------------------------------

    def _register(self, component: Component, table: dict[str, Any]) -> Any:
        if component.key in table and self._duplicates != "replace":
            kind = type(component).__name__
            if self._duplicates == "error":
                raise ValueError(f"{kind} already exists: {component.key}")
            if self._duplicates == "ignore":
                return table[component.key]
            log.warning("%s already exists and is replaced: %s", kind, component.key)
        self.add_component(component)
        return component

    def tool(self, name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
        """Register a function as a tool, with or without parentheses, or called with the function."""
        return _decorator("tool", name_or_fn, name, lambda fn, chosen: self.add_tool(_tool(fn, chosen, options)))

    def add_tool(self, tool: Any, **options: Any) -> Any:
        """Register a tool made as an object, or a function."""
        if not isinstance(tool, Tool):
            options = {**marks_of(tool), **options}
            tool = _tool(tool, options.pop("name", None), options)
        return self._register(tool, self.tools)

    def prompt(self, name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
        """Register a function as a prompt, with or without parentheses, or called with the function."""

        def add(fn: Any, chosen: str | None) -> None:
            self._register(FunctionPrompt.from_function(fn, chosen, **_known(options)), self.prompts)

        return _decorator("prompt", name_or_fn, name, add)

    def add_prompt(self, prompt: Any) -> Any:
        """Register a prompt made as an object, or a function."""
        if not isinstance(prompt, Prompt):
            prompt = FunctionPrompt.from_function(prompt, **marks_of(prompt))
        return self._register(prompt, self.prompts)

    def resource(self, uri: str, *, name: str | None = None, **options: Any) -> Any:
        """Register a function as a resource, or as a template if the URI has variables."""
        if callable(uri):
            raise TypeError("write @mcp.resource('scheme://path'): the URI is missing")

        def register(fn: Any) -> Any:
            self._add_readable(fn, uri, name, options)
            return _marked(fn, "resource", {**options, "uri": uri, "name": name})

        return register

    def _add_readable(self, fn: Any, uri: str, name: str | None, options: dict[str, Any]) -> None:
        known = _known(options)
        app = options.get("app")
        if app is not None:
            from trunkline_compat.apps import page_meta

            known["meta"] = {**(known.get("meta") or {}), "ui": page_meta(app)}
        if uri.startswith("ui://") and known.get("mime_type") is None:
            known["mime_type"] = "text/html;profile=mcp-app"
        if UriTemplate.parse(uri).names:
            self._register(ResourceTemplate.from_function(fn, uri, name, **known), self.templates)
        else:
            self._register(FunctionResource.of(fn, uri, name, **known), self.resources)

    def add_resource(self, resource: Any) -> Any:
        """Register a resource made as an object, or a function that was marked with ``@resource``."""
        if not isinstance(resource, Resource):
            options = marks_of(resource)
            self._add_readable(resource, options.pop("uri"), options.pop("name", None), options)
            return resource
        return self._register(resource, self.resources)

    def add_template(self, template: ResourceTemplate) -> Any:
        """Register a template made as an object."""
        return self._register(template, self.templates)

    def add_resource_fn(self, fn: Any, uri: str, name: str | None = None, **options: Any) -> None:
        """Register a function as a resource."""
        self._add_readable(fn, uri, name, options)

    def remove_tool(self, name: str) -> None:
        """Remove a tool."""
        self.remove_component("tools", name)

    def completion(self, function: Any = None) -> Any:
        """Register what completes arguments, with or without parentheses."""
        decorator = returning(self.set_completion)
        return decorator if function is None else decorator(function)

    def add_middleware(self, middleware: Any) -> None:
        """Run a middleware object around every request."""
        self.filters_lists = self.filters_lists or changes_lists(middleware)
        self._check_lists(self, is_mounted=self.is_mounted)
        self.server.add_middleware(as_function(self, middleware))

    @staticmethod
    def _check_lists(server: Any, *, is_mounted: bool) -> None:
        """Refuse a filter that would not run: lists of a mounted server are made by the outer one."""
        if is_mounted and getattr(server, "filters_lists", False):
            raise TypeError(f"add the middleware for lists of {server.name!r} to the server that it is mounted in")

    # --- composition -------------------------------------------------------------------------------------------------

    def mount(self, server: Any, namespace: str | None = None, **options: Any) -> None:
        """Offer another server's things under a namespace; later changes are followed."""
        if isinstance(server, str):
            # Before version 2.9 the prefix came first.
            server, namespace = namespace, server
        if options.get("tool_names"):
            raise TypeError(
                "mount(tool_names=…) is not supported by trunkline-compat: name the tools where they are defined"
            )
        namespace = namespace or options.get("prefix") or None
        self._check_lists(server, is_mounted=True)
        server.is_mounted = True
        self.mounted.append((namespace, server))
        self.server.mount(server.server, namespace)
        self.custom_routes += server.custom_routes

    async def import_server(self, server: Any, prefix: str | None = None, **_: Any) -> None:
        """Offer another server's things under a prefix; unlike there, later changes are followed."""
        self.mount(server, prefix)

    @classmethod
    def from_openapi(
        cls, openapi_spec: dict[str, Any], client: Any = None, name: str | None = None, **options: Any
    ) -> Any:
        """Make a server of an OpenAPI document: a tool for each operation."""
        from trunkline_compat.openapi import server_from_openapi

        return server_from_openapi(cls, openapi_spec, client, name, options)

    @classmethod
    def from_fastapi(cls, app: Any, name: str | None = None, **options: Any) -> Any:
        """Refuse, and name the way that works."""
        raise ConfigError(
            "from_fastapi is not supported by trunkline-compat: serve the application, and use "
            "FastMCP.from_openapi(app.openapi(), client=httpx.AsyncClient(base_url=…))"
        )

    @classmethod
    def as_proxy(cls, backend: Any, **options: Any) -> Any:
        """Make a server that offers what another one offers."""
        from trunkline_compat.proxies import create_proxy

        return create_proxy(backend, **options)

    from_client = as_proxy

    # --- switching on and off ----------------------------------------------------------------------------------------

    def enable(self, *, only: bool = False, **criteria: Any) -> FastMCP:
        """Offer what matches; with ``only`` nothing else."""
        if only:
            self._rules.append((False, lambda _: True))
        return self._switch(True, criteria)

    def disable(self, **criteria: Any) -> FastMCP:
        """Offer what matches no longer."""
        return self._switch(False, criteria)

    def _switch(self, on: bool, criteria: dict[str, Any]) -> FastMCP:
        self._rules.append((on, _matcher(**criteria)))
        for kind in ("tools", "prompts", "resources"):
            self.server.changed(kind)
        return self

    def is_offered(self, component: Component) -> bool:
        """Return whether a component is switched on."""
        offered = component.enabled
        for on, matches in self._rules:
            if matches(component):
                offered = on
        return offered

    # --- running -----------------------------------------------------------------------------------------------------

    def default_transport(self) -> str:
        """Return the transport that the environment names, or stdio."""
        from trunkline_compat.settings import settings

        return settings.transport

    async def run_tool(self, tool: Tool, arguments: dict[str, Any]) -> ToolResult:
        """Run a tool; the text of an unexpected failure names it."""
        try:
            return await tool.result_of(arguments)
        except (RequestFailed, MissingCapability):
            raise
        except HandlerError as error:
            remember_failure(error)
            raise
        except PydanticError as error:
            failure = ValidationError(str(error))
            failure.__cause__ = error
            # From version 3 on middleware sees FastMCP's own exception around that of pydantic.
            remember_failure(failure if STATE.fastmcp_major >= 3 else error)
            raise failure from error
        except Exception as error:
            log.exception("Error calling tool %r", tool.name)
            label = f"Error calling tool {tool.name!r}"
            unexpected = ToolError(self._failure_text(label, error))
            remember_failure(unexpected)
            raise unexpected from error

    def all_components(self, kind: str) -> dict[str, Any]:
        """Return what is offered by name or URI, mounted servers included."""
        offered = {key: each for key, each in getattr(self, kind).items() if self.is_offered(each)}
        rename = namespaced if kind in ("tools", "prompts") else namespaced_uri
        for namespace, server in self.mounted:
            inner = server.all_components(kind) if isinstance(server, FastMCP) else getattr(server, kind)
            for key, component in inner.items():
                name = rename(namespace, key)
                offered.setdefault(name, _renamed(component, kind, name) if namespace else component)
        return offered

    def _one(self, kind: str, key: str) -> Any:
        """Return a component; from version 3 on None if there is none."""
        component = self.all_components(kind).get(key)
        if component is None and STATE.fastmcp_major < 3:
            raise NotFoundError(f"Unknown {kind[:-1]}: {key!r}")
        return component

    async def list_tools(self, **_: Any) -> Sequence[Any]:
        """List the tools as objects."""
        return list(self.all_components("tools").values())

    async def list_resources(self, **_: Any) -> Sequence[Any]:
        """List the resources as objects."""
        return list(self.all_components("resources").values())

    async def list_resource_templates(self, **_: Any) -> Sequence[Any]:
        """List the templates as objects."""
        return list(self.all_components("templates").values())

    async def list_prompts(self, **_: Any) -> Sequence[Any]:
        """List the prompts as objects."""
        return list(self.all_components("prompts").values())

    async def get_tools(self) -> dict[str, Any]:
        """Return the tools by name."""
        return self.all_components("tools")

    async def get_resources(self) -> dict[str, Any]:
        """Return the resources by URI."""
        return self.all_components("resources")

    async def get_resource_templates(self) -> dict[str, Any]:
        """Return the templates."""
        return self.all_components("templates")

    async def get_prompts(self) -> dict[str, Any]:
        """Return the prompts by name."""
        return self.all_components("prompts")

    async def get_tool(self, name: str, **_: Any) -> Any:
        """Return a tool."""
        return self._one("tools", name)

    async def get_resource(self, uri: Any, **_: Any) -> Any:
        """Return a resource."""
        return self._one("resources", str(uri))

    async def get_resource_template(self, uri: Any, **_: Any) -> Any:
        """Return a template."""
        return self._one("templates", str(uri))

    async def get_prompt(self, name: str, **_: Any) -> Any:
        """Return a prompt."""
        return self._one("prompts", name)

    async def call_tool(self, name: str, arguments: Any = None, **_: Any) -> ToolResult:
        """Call a tool.

        Raises:
            ToolError: it failed.
            NotFoundError: there is none.
        """
        tool = self.all_components("tools").get(name)
        if tool is None:
            raise NotFoundError(f"Unknown tool: {name!r}")
        return await self.run_tool(tool, dict(arguments or {}))

    async def read_resource(self, uri: Any, **_: Any) -> ResourceResult:
        """Read a resource."""
        resources = self.all_components("resources")
        if str(uri) in resources:
            return await resources[str(uri)].result_of()  # type: ignore[no-any-return]
        for key, template in self.all_components("templates").items():
            values = UriTemplate.parse(key).match(str(uri))
            if values is not None:
                return await template.result_of(values)  # type: ignore[no-any-return]
        raise NotFoundError(f"Unknown resource: {str(uri)!r}")

    async def render_prompt(self, name: str, arguments: Any = None, **_: Any) -> PromptResult:
        """Render a prompt."""
        prompt = self.all_components("prompts").get(name)
        if prompt is None:
            raise NotFoundError(f"Unknown prompt: {name!r}")
        value = await self.run_prompt(prompt, dict(arguments or {}))
        return value if isinstance(value, PromptResult) else PromptResult(value)


# --- decorators ------------------------------------------------------------------------------------------------------

_MARK = "__fastmcp_options__"
_MEMBERS = (
    *("title", "description", "tags", "output_schema", "annotations", "exclude_args", "meta", "enabled", "icons"),
    *("task", "timeout", "mime_type", "size"),
)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that have an effect here.

    Raises:
        TypeError: a check of the caller is not one that is mapped to scopes: leaving it out would let everybody in.
    """
    known = {key: value for key, value in options.items() if key in _MEMBERS}
    if (check := options.get("auth")) is not None:
        if not isinstance(check, RequiredScopes):
            raise TypeError("auth= of a component is require_scopes(…) under trunkline-compat")
        known["scopes"] = tuple(check)
    return known


def _tool(fn: Any, name: str | None, options: dict[str, Any]) -> Any:
    if isinstance(fn, Tool):
        return fn
    known = _known(options)
    app = options.get("app")
    if app is not None:
        from trunkline_compat.apps import tool_meta

        known["meta"] = {**(known.get("meta") or {}), "ui": tool_meta(app)}
    return FunctionTool.from_function(_plain_function(fn), name, **known)


def _plain_function(fn: Any) -> Any:
    if isinstance(fn, classmethod):
        raise TypeError("register the bound method of a class or an object, not a classmethod")
    return fn.__func__ if isinstance(fn, staticmethod) else fn


def _decorator(kind: str, given: Any, name: str | None, add: Callable[[Any, str | None], Any]) -> Any:
    """Return a decorator, or decorate at once if the function is given."""
    if isinstance(given, str):
        if name is not None:
            raise TypeError(f"a {kind} has one name: {given!r} and {name!r} are given")
        given, name = None, given

    def register(fn: Any) -> Any:
        if isinstance(fn, Component):
            add(fn, name)
            return fn
        fn = _plain_function(fn)
        add(fn, name)
        return _marked(fn, kind, {"name": name})

    return register if given is None else register(given)


def _marked(fn: Any, kind: str, options: dict[str, Any]) -> Any:
    """Return the function, with the object's attribute ``fn`` that it had before version 3."""
    # A method of an object has no attributes of its own.
    with suppress(AttributeError):
        setattr(fn, _MARK, (kind, options))
        if STATE.fastmcp_major < 3 and not hasattr(fn, "fn"):
            fn.fn = fn
    return fn


def marks_of(fn: Any) -> dict[str, Any]:
    """Return the options that a decorator of a module, such as ``fastmcp.tools.tool``, left on a function."""
    return {key: value for key, value in getattr(fn, _MARK, ("", {}))[1].items() if value is not None}


def standalone_decorator(kind: str) -> Callable[..., Any]:
    """Return a decorator that only marks a function, to be registered later with ``add_tool`` and the like."""

    def decorate(given: Any = None, *, name: str | None = None, **options: Any) -> Any:
        if isinstance(given, str):
            key = "uri" if kind == "resource" else "name"
            options, given = {**options, key: given}, None
        marked = {**options, **({"name": name} if name else {})}

        def register(fn: Any) -> Any:
            return _marked(fn, kind, marked)

        return register if given is None else register(given)

    return decorate


tool, prompt, resource = (standalone_decorator(kind) for kind in ("tool", "prompt", "resource"))


# --- matching --------------------------------------------------------------------------------------------------------


def _matcher(
    names: Iterable[str] | None = None,
    keys: Iterable[str] | None = None,
    tags: Iterable[str] | None = None,
    components: Iterable[str] | None = None,
    **_: Any,
) -> Callable[[Component], bool]:
    """Return whether a component has one of the names, one of the tags and one of the kinds, where those are given."""
    wanted_names = None if names is None and keys is None else {*(names or ()), *(keys or ())}
    wanted_tags = None if tags is None else set(tags)
    kinds = None if components is None else set(components)

    def matches(component: Component) -> bool:
        named = wanted_names is None or bool({component.name, component.key, _full_key(component)} & wanted_names)
        tagged = wanted_tags is None or bool(component.tags & wanted_tags)
        return named and tagged and (kinds is None or _kind_of(component) in kinds)

    return matches


def _kind_of(component: Component) -> str:
    if isinstance(component, Tool):
        return "tool"
    if isinstance(component, Prompt):
        return "prompt"
    return "resource" if isinstance(component, Resource) else "template"


def _full_key(component: Component) -> str:
    return f"{_kind_of(component)}:{component.key}"


def _renamed(component: Component, kind: str, name: str) -> Component:
    member = {"resources": "uri", "templates": "uri_template"}.get(kind, "name")
    renamed = component.model_copy(update={member: name})
    renamed.__pydantic_private__ = component.__pydantic_private__
    return renamed
