"""FastMCP's server class: ``fastmcp.FastMCP``.

Middleware objects, transforms and providers are served by a pipeline of objects; a server that has none of them is
served by our own handlers.
"""

from __future__ import annotations

import logging
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import trunkline.types as t
from trunkline.compat.callables import name_of
from trunkline.compat.component_versions import check_version
from trunkline.compat.components import Component
from trunkline.compat.composition import ComposedServer
from trunkline.compat.context import FastContext
from trunkline.compat.decorators import mark_function, options_of_mark
from trunkline.compat.exceptions import NotFoundError, ToolError
from trunkline.compat.features.cache_hints import build_cache_hints
from trunkline.compat.features.request_methods import RequestMethods
from trunkline.compat.features.state import StateStore
from trunkline.compat.http_apps import HttpMethods
from trunkline.compat.input_required import marked_seal
from trunkline.compat.keywords import CompatibilityWarning
from trunkline.compat.results import PromptResult, ResourceResult, ToolResult
from trunkline.compat.servers import Settings, versioned_key
from trunkline.compat.types import to_model, to_struct
from trunkline.compat.utilities import configure_logging
from trunkline.compat.utilities import settings as process_settings
from trunkline.compat.versions import STATE
from trunkline.errors import HandlerError, MissingCapability, RequestFailed

__all__ = ["FastMCP"]

log = logging.getLogger("fastmcp")

_SETTINGS = frozenset(Settings.model_fields) - {"lifespan", "auth"}
#: Options of the constructor that ask for something we do otherwise, and why they do nothing.
_IGNORED = tuple(
    {
        "tasks": "tasks are not supported",
        "client_log_level": "clients set their own level",
        "sampling_handler": "the client's model is asked",
        "sampling_handler_behavior": "the client's model is asked",
        "tool_serializer": "results are encoded by their type",
        "request_state_security": "state is always sealed",
        "resource_prefix_format": "a namespace is the first segment of a URI",
    }.items()
)
_DUPLICATES = ("on_duplicate", "on_duplicate_tools", "on_duplicate_resources", "on_duplicate_prompts")


class FastMCP(RequestMethods, HttpMethods, ComposedServer):  # type: ignore[misc]
    """A server with FastMCP's methods."""

    _context_class = FastContext

    def __init__(self, name: str | None = None, instructions: str | None = None, **options: Any) -> None:
        """Define a server."""
        given = {key: value for key, value in options.items() if value is not None or key == "resource_security"}
        settings = {key: given.pop(key) for key in tuple(given) if key in _SETTINGS}
        self.settings = Settings(**settings)
        for key, reason in _IGNORED:
            if given.pop(key, None):
                warnings.warn(f"{key}= has no effect: {reason}", CompatibilityWarning, stacklevel=2)
        self.strict_input_validation = bool(
            given.pop("strict_input_validation", process_settings.strict_input_validation)
        )
        self.dereferences = bool(given.pop("dereference_schemas", True))
        policies = [given.pop(key) for key in _DUPLICATES if key in given]
        tools, middleware = given.pop("tools", ()), given.pop("middleware", ())
        self._transforms: list[Any] = list(given.pop("transforms", ()))
        self._providers: list[Any] = []
        self._provider_lifespans: list[Any] = []
        self._start_extensions()
        self._state_store = StateStore(given.pop("session_state_store", None))
        self.cache_hints = build_cache_hints(given.pop("cache_ttl", None), given.pop("cache_scope", None))
        self._completion_handler: Any = None
        self.list_page_size: int | None = given.get("list_page_size")
        if given.get("list_page_size", 1) <= 0:
            raise ValueError("list_page_size must be a positive integer")
        self.foreign_middleware: list[Any] = []
        self.local_provider: Any = self._make_local_provider()
        self.provider_error_strategy = str(given.pop("provider_error_strategy", "warn"))
        providers = given.pop("providers", ())
        include, exclude = given.pop("include_tags", None), given.pop("exclude_tags", None)
        if given.get("icons"):
            given["icons"] = [to_struct(icon, t.Icon) for icon in given["icons"]]
        if given.get("version") is not None:
            given["version"] = check_version(given["version"])
        given.setdefault("mask_error_details", False)
        super().__init__(
            name or f"FastMCP-{secrets.token_hex(2)}",
            instructions,
            on_duplicate=policies[0] if policies else "warn",
            **given,
        )
        # Announced there whether there are any or not.
        self.announced = self.announced | {"tools", "resources", "prompts"}
        self._refresh()
        self._tags_filter(include, exclude)
        for each in middleware:
            self.add_middleware(each)
        for tool in tools:
            self.add_tool(tool)
        for provider in providers:
            self.add_provider(provider)
        self.use_pipeline()

    @property
    def auth(self) -> Any:
        """The auth provider."""
        return self.foreign_auth

    @auth.setter
    def auth(self, value: Any) -> None:
        self.foreign_auth = value or self.foreign_auth

    @property
    def seal(self) -> Any:
        """Seals and opens request state, under the SDK's mark."""
        return marked_seal(self)

    @property
    def icons(self) -> Any:
        """The server's icons."""
        return to_model(self.info.icons) or []

    @property
    def website_url(self) -> str | None:
        """The server's page."""
        return self.info.website_url

    @property
    def transforms(self) -> list[Any]:
        """The transforms, first applied first."""
        return list(self._transforms)

    @property
    def providers(self) -> list[Any]:
        """The providers."""
        return [self.local_provider, *self._providers]

    def _make_local_provider(self) -> Any:
        """Return the provider of what the server itself offers."""
        from trunkline.compat.providers.local import LocalProvider

        return LocalProvider(storage=self)

    @property
    def _local_provider(self) -> Any:
        return self.local_provider

    @property
    def _mask_error_details(self) -> bool:
        return self.masks_errors

    @property
    def _mcp_server(self) -> Any:
        from trunkline.compat.lowlevel import ServerView

        return ServerView(self)

    @property
    def _tool_manager(self) -> Any:
        from trunkline.compat.managers import ToolManager

        return ToolManager(self)

    def error_text(self, what: str, error: Exception) -> str:
        """Return what a caller is told about an unexpected failure."""
        return what if self.masks_errors else f"{what}: {error}"

    def worded(self, exchange: Any, error: Exception) -> Exception:
        """Return the exception that answers a failure."""
        if isinstance(error, HandlerError | RequestFailed | MissingCapability):
            return error
        params = exchange.admitted.params
        kind = {"tools/call": "calling tool", "prompts/get": "rendering prompt"}.get(
            exchange.method, "reading resource"
        )
        what = f"Error {kind} {getattr(params, 'name', None) or getattr(params, 'uri', '')!r}"
        text = self.error_text(what, error)
        return ToolError(text) if exchange.method == "tools/call" else RequestFailed(text)

    # --- registration ------------------------------------------------------------------------------------------------

    def tool(self, name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
        """Register a function as a tool, with or without parentheses, or called with the function."""
        return self._decorating("tool", name_or_fn, name, options, self._add_tool)

    def prompt(self, name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
        """Register a function as a prompt, with or without parentheses, or called with the function."""
        return self._decorating("prompt", name_or_fn, name, options, self._add_prompt)

    def _decorating(self, what: str, given: Any, name: str | None, options: dict[str, Any], add: Any) -> Any:
        if isinstance(given, classmethod):
            raise TypeError(f"register the method of an object or a class, not a {type(given).__name__}")
        if isinstance(given, staticmethod):
            given = given.__func__
        if isinstance(given, str):
            if name is not None:
                raise TypeError(
                    "Cannot specify both a name as first argument and as keyword argument: "
                    f"{given!r} and {name!r} name one {what}"
                )
            given, name = None, given
        if given is not None and not callable(given):
            raise TypeError(f"{what}: the first argument is a function or a name, not a {type(given).__name__}")
        if name is not None:
            options = {**options, "name": name}

        def register(function: Any) -> Any:
            if isinstance(function, Component):
                return self.add_object(function)
            if isinstance(function, classmethod):
                raise TypeError("register the method of an object or a class, not a classmethod")
            if isinstance(function, staticmethod):
                function = function.__func__
            add(function, options)
            return self._registered(function, what, options)

        return register if given is None else register(given)

    @staticmethod
    def _registered(function: Any, what: str, options: Mapping[str, Any]) -> Any:
        """Return the function, marked; before FastMCP 3 it was an object whose ``fn`` is the function."""
        with suppress(AttributeError):
            mark_function(what, function, dict(options))
        if int((STATE.version("fastmcp") or "4").partition(".")[0]) < 3 and not hasattr(function, "fn"):
            # A method of an object has no attributes of its own.
            with suppress(AttributeError):
                function.fn = function
        return function

    def add_tool(self, tool: Any, *rest: Any, **options: Any) -> Any:  # type: ignore[override]
        """Register a tool made as an object, or a function."""
        if isinstance(tool, Component):
            return self.add_object(tool)
        options = {**options_of_mark(tool), **options}
        options |= dict(zip(("name", "description"), rest, strict=False))
        self._add_tool(tool, options)
        name = str(options.get("name") or name_of(tool))
        stored = versioned_key(name, check_version(options.get("version")))
        return self.object_of("tools", stored, self._own.tools[stored])

    def add_prompt(self, prompt: Any, **options: Any) -> Any:  # type: ignore[override]
        """Register a prompt made as an object, or a function."""
        if isinstance(prompt, Component):
            return self.add_object(prompt)
        self._add_prompt(prompt, {**options_of_mark(prompt), **options})
        return prompt

    def resource(self, uri: Any, **options: Any) -> Any:
        """Register a function as a resource, or as a template if the URI has variables."""
        if callable(uri):
            raise TypeError(
                "The @resource decorator was used incorrectly. It requires a URI as the first argument: "
                "@resource('uri')"
            )

        def register(function: Callable[..., Any]) -> Any:
            if isinstance(function, classmethod):
                raise TypeError("register the method of an object or a class, not a classmethod")
            self._add_resource(str(uri), function, options)
            return self._registered(function, "resource", {**options, "uri": str(uri)})

        return register

    def add_resource(self, resource: Any, *rest: Any, **options: Any) -> Any:  # type: ignore[override]
        """Register a resource made as an object."""
        if isinstance(resource, Component):
            return self.add_object(resource)
        marked = options_of_mark(resource)
        if "uri" in marked:
            self._add_resource(marked.pop("uri"), resource, {**marked, **options})
            return resource
        super().add_resource(str(resource), *rest, **options)
        return None

    def add_template(self, template: Any) -> Any:
        """Register a template made as an object."""
        return self.add_object(template)

    def add_resource_fn(self, fn: Any, uri: str, **options: Any) -> None:
        """Register a function as a resource."""
        self.resource(uri, **options)(fn)

    def completion(self, *given: Any) -> Any:
        """Register what completes arguments."""
        from trunkline.compat.features.completions import completing, serve_completions

        def register(function: Any) -> Any:
            self._completion_handler = function
            self._set_fallback_completion(completing(function))
            serve_completions(self, function)
            return function

        return register(given[0]) if given and callable(given[0]) else register

    add_completion_handler = completion

    # --- from code ---------------------------------------------------------------------------------------------------

    async def list_tools(self, *, run_middleware: bool = True) -> Sequence[Any]:
        """List the tools as objects."""
        return await self._listed("tools", run_middleware)

    async def list_resources(self, *, run_middleware: bool = True) -> Sequence[Any]:
        """List the resources as objects."""
        return await self._listed("resources", run_middleware)

    async def list_resource_templates(self, *, run_middleware: bool = True) -> Sequence[Any]:
        """List the templates as objects."""
        return await self._listed("templates", run_middleware)

    async def list_prompts(self, *, run_middleware: bool = True) -> Sequence[Any]:
        """List the prompts as objects."""
        return await self._listed("prompts", run_middleware)

    async def _listed(self, kind: str, run_middleware: bool) -> Sequence[Any]:
        from trunkline.compat.pipeline import list_objects

        return await list_objects(self, kind, run_middleware=run_middleware)

    async def get_tools(self) -> dict[str, Any]:
        """Return the tools by name, as FastMCP 2 has it."""
        return {tool.name: tool for tool in await self.list_tools()}

    async def get_resources(self) -> dict[str, Any]:
        """Return the resources by URI, as FastMCP 2 has it."""
        return {str(each.uri): each for each in await self.list_resources()}

    async def get_resource_templates(self) -> dict[str, Any]:
        """Return the templates, as FastMCP 2 has it."""
        return {each.uri_template: each for each in await self.list_resource_templates()}

    async def get_prompts(self) -> dict[str, Any]:
        """Return the prompts by name, as FastMCP 2 has it."""
        return {each.name: each for each in await self.list_prompts()}

    async def get_tool(self, name: str, version: Any = None) -> Any:
        """Return a tool, or None; FastMCP 2 raises."""
        return await self._one("tools", name, version)

    async def get_resource(self, uri: Any, version: Any = None) -> Any:
        """Return a resource, or None."""
        return await self._one("resources", str(uri), version)

    async def get_resource_template(self, uri: Any, version: Any = None) -> Any:
        """Return the template that a URI belongs to, or None."""
        return await self._one("templates", str(uri), version)

    async def get_prompt(self, name: str, version: Any = None) -> Any:
        """Return a prompt, or None."""
        return await self._one("prompts", name, version)

    # Subclasses of FastMCP call and override these: the lookups before the server's own filter.
    async def _get_tool(self, name: str, version: Any = None) -> Any:
        return await self._one("tools", name, version)

    async def _get_resource(self, uri: str, version: Any = None) -> Any:
        return await self._one("resources", uri, version)

    async def _get_resource_template(self, uri: str, version: Any = None) -> Any:
        return await self._one("templates", uri, version)

    async def _get_prompt(self, name: str, version: Any = None) -> Any:
        return await self._one("prompts", name, version)

    async def _one(self, kind: str, key: str, version: Any) -> Any:
        from trunkline.compat.pipeline import find_object

        found = await find_object(self, kind, key, version)
        if found is None and int((STATE.version("fastmcp") or "4").partition(".")[0]) < 3:
            raise NotFoundError(f"Unknown {kind[:-1]}: {key!r}")
        return found

    async def call_tool(
        self, name: str, arguments: Any = None, *, version: Any = None, run_middleware: bool = True, **_: Any
    ) -> ToolResult:
        """Call a tool.

        Raises:
            ToolError: it failed.
            NotFoundError: there is none.
        """
        from trunkline.compat import pipeline

        result: ToolResult = await pipeline.call_tool(
            self, name, arguments, version=version, run_middleware=run_middleware
        )
        return result

    async def read_resource(
        self, uri: Any, *, version: Any = None, run_middleware: bool = True, **_: Any
    ) -> ResourceResult:
        """Read a resource."""
        from trunkline.compat import pipeline

        result: ResourceResult = await pipeline.read_resource(
            self, str(uri), version=version, run_middleware=run_middleware
        )
        return result

    async def render_prompt(
        self, name: str, arguments: Any = None, *, version: Any = None, run_middleware: bool = True, **_: Any
    ) -> PromptResult:
        """Render a prompt."""
        from trunkline.compat import pipeline

        result: PromptResult = await pipeline.render_prompt(
            self, name, arguments, version=version, run_middleware=run_middleware
        )
        return result

    # --- making servers ----------------------------------------------------------------------------------------------

    @classmethod
    def as_proxy(cls, backend: Any, **options: Any) -> Any:
        """Make a server that passes everything on to another."""
        from trunkline.compat.providers.proxy import create_proxy

        return create_proxy(backend, **options)

    @classmethod
    def from_openapi(cls, openapi_spec: Any, client: Any = None, name: str | None = None, **options: Any) -> Any:
        """Make a server with a tool for each operation of an OpenAPI document."""
        from trunkline.compat.openapi.provider import server_from_openapi

        return server_from_openapi(cls, openapi_spec, client, {"name": name, **options})

    @classmethod
    def from_fastapi(cls, app: Any, name: str | None = None, **options: Any) -> Any:
        """Make a server with a tool for each route of a FastAPI application."""
        from trunkline.compat.openapi.provider import server_from_fastapi

        return server_from_fastapi(cls, app, {**({"name": name} if name else {}), **options})

    @classmethod
    def generate_name(cls, name: str | None = None) -> str:
        """Return a name with a random end."""
        return f"{name or cls.__name__}-{secrets.token_hex(2)}"


if process_settings.log_enabled:
    configure_logging(process_settings.log_level)
