"""Tools, prompts and resources as objects, as both frameworks have them: pydantic models that can be run by hand.

A server of ours keeps definitions; these objects are made from them when they are asked for, and turned into
definitions when they are added. ``run``, ``render`` and ``read`` go through a server of ours, so that arguments are
read and results are made exactly as in a request.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

import trunkline.types as t
from trunkline.compat.component_versions import check_version
from trunkline.compat.decorators import options_of_mark
from trunkline.compat.exceptions import NotFoundError
from trunkline.compat.results import PromptResult, ResourceResult, ToolResult
from trunkline.compat.types import model_class, to_model, to_plain
from trunkline.server.prompts import PromptDefinition
from trunkline.server.resources import ResourceDefinition, TemplateDefinition
from trunkline.server.tools import ToolDefinition

__all__ = [
    "Component",
    "FunctionPrompt",
    "FunctionResource",
    "FunctionResourceTemplate",
    "FunctionTool",
    "Prompt",
    "PromptArgument",
    "Resource",
    "ResourceTemplate",
    "Tool",
    "from_definition",
    "options_of",
]


def _no_tasks() -> Any:
    from trunkline.compat.task_config import TaskConfig

    return TaskConfig.from_bool(False)


class Component(BaseModel):
    """What tools, prompts and resources share."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", populate_by_name=True)

    KEY_PREFIX: ClassVar[str] = ""
    #: Whether it is an object of the official SDK's.
    _official: ClassVar[bool] = False

    name: str
    version: str | None = None
    title: str | None = None
    description: str | None = None
    icons: list[Any] | None = None
    tags: set[str] = Field(default_factory=set)
    meta: dict[str, Any] | None = None
    enabled: bool = Field(default=True, exclude=True)
    auth: Any = None
    task_config: Any = Field(default_factory=_no_tasks)
    #: The definition it stands for, once it belongs to a server.
    definition: Any = Field(default=None, exclude=True, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, data: Any) -> Any:
        if isinstance(data, dict):
            data = {key: value for key, value in data.items() if not (key == "tags" and value is None)}
            if data.get("version") is not None:
                data["version"] = check_version(data["version"])
                if "@" in str(data["version"]):
                    raise ValueError(f"Version string cannot contain '@' (used as key delimiter): {data['version']!r}")
        return data

    @classmethod
    def make_key(cls, identifier: str) -> str:
        """Return the key of a component of this kind."""
        return f"{cls.KEY_PREFIX}:{identifier}" if cls.KEY_PREFIX else identifier

    @classmethod
    def _home(cls) -> Any:
        """Return the server that components of this class belong to before they are added to one."""
        from trunkline.compat.servers import blank_server

        return blank_server(cls._official)

    @property
    def identifier(self) -> str:
        """What it is found by."""
        return self.name

    @property
    def key(self) -> str:
        """The kind, the name and the version."""
        return f"{self.make_key(self.identifier)}@{self.version or ''}"

    def get_meta(self) -> dict[str, Any]:
        """Return ``_meta`` as it is listed, with the tags."""
        meta = dict(self.meta or {})
        given = meta.get("fastmcp")
        own = {key: value for key, value in (given if isinstance(given, dict) else {}).items() if key != "_internal"}
        own["tags"] = sorted(self.tags)
        if self.version is not None:
            own["version"] = self.version
        return {**meta, "fastmcp": own}

    def enable(self) -> None:
        """Refuse: a server is asked."""
        raise NotImplementedError("call server.enable(...)")

    def disable(self) -> None:
        """Refuse: a server is asked."""
        raise NotImplementedError("call server.disable(...)")

    def copy(self, **changes: Any) -> Any:
        """Return a copy."""
        return self.model_copy(**changes)

    def __eq__(self, other: object) -> bool:
        """Compare the members."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        """Identify the object."""
        return id(self)


def _overrides(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: given[name] for name in names if given.get(name) is not None}


# --- tools -----------------------------------------------------------------------------------------------------------


class Tool(Component):
    """A tool: subclasses say in ``run`` what it does."""

    KEY_PREFIX: ClassVar[str] = "tool"

    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: dict[str, Any] | None = None
    annotations: Any = None
    execution: Any = None
    return_type: Any = Field(default=None, exclude=True)
    serializer: Any = Field(default=None, exclude=True)
    timeout: float | None = None
    run_in_thread: bool = True

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **options: Any) -> FunctionTool:
        """Make a tool of a function."""
        return FunctionTool.from_function(fn, name, **options)

    @classmethod
    def from_tool(cls, tool: Any, **changes: Any) -> Any:
        """Make a changed copy of a tool."""
        from trunkline.compat.transformed_tools import TransformedTool

        return TransformedTool.from_tool(tool, **changes)

    def to_mcp_tool(self, **overrides: Any) -> Any:
        """Return the tool as it is listed."""
        from trunkline.compat.definitions import title_of

        name = overrides.get("name", self.name)
        notes = to_plain(overrides.get("annotations", self.annotations)) or {}
        listed = {
            "name": self.name,
            "title": self.title or notes.get("title") or title_of(name),
            "description": self.description,
            "input_schema": self.parameters,
            "output_schema": self.output_schema,
            "annotations": to_plain(self.annotations),
            "execution": to_plain(self.execution),
            "icons": to_plain(self.icons),
            "meta": self.get_meta(),
        }
        listed |= {("meta" if name == "_meta" else name): value for name, value in overrides.items()}
        return model_class("Tool")(**{name: value for name, value in listed.items() if value is not None})

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the tool."""
        raise NotImplementedError("Subclasses must implement run()")

    def convert_result(self, raw_value: Any) -> ToolResult:
        """Return what a function returned as a result."""
        from trunkline.compat.fast_functions import to_fast_result

        annotation = getattr(getattr(self._around_or_own(), "signature", None), "return_type", self.return_type)
        return to_fast_result(raw_value, self.output_schema, self.serializer, annotation)

    def _around_or_own(self) -> Any:
        """Return the function that makes the results, or None."""
        definition = getattr(self, "_around", None) or self.definition
        return None if definition is None else definition.function


class FunctionTool(Tool):
    """A tool made of a function."""

    fn: Callable[..., Any]

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        call = self.fn if inspect.isroutine(self.fn) else getattr(self.fn, "__call__", None)  # noqa: B004
        return inspect.iscoroutinefunction(call)

    @property
    def context_kwarg(self) -> str | None:
        """The parameter that is given the context."""
        name: str | None = self._own().function.context_name
        return name

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **options: Any) -> FunctionTool:
        """Make a tool of a function."""
        if not callable(fn):
            raise TypeError(f"{fn!r} is not a callable object: a tool is made of a function")
        options = {**options_of_mark(fn), **options}
        metadata = options.pop("metadata", None)
        if metadata is not None:
            options = {**{key: value for key, value in vars(metadata).items() if value is not None}, **options}
        if name is not None:
            options["name"] = name
        extra = {key: options.pop(key) for key in ("version", "enabled", "auth") if key in options}
        definition = cls._home().make_tool(fn, options)
        made: FunctionTool = from_definition(definition, cls)
        return made.model_copy(update={key: value for key, value in extra.items() if value is not None})

    def _own(self) -> Any:
        if self.definition is None:
            self.definition = self._home().make_tool(self.fn, options_of(self))
        return self.definition

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> ToolResult:
        """Run the tool."""
        from trunkline.compat.calls import run_tool

        return await run_tool(self._own(), arguments, context)


# --- prompts ---------------------------------------------------------------------------------------------------------


class PromptArgument(BaseModel):
    """One argument of a prompt."""

    name: str
    description: str | None = None
    required: bool = False


class Prompt(Component):
    """A prompt: subclasses say in ``render`` what it says."""

    KEY_PREFIX: ClassVar[str] = "prompt"

    arguments: list[PromptArgument] | None = None

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **options: Any) -> FunctionPrompt:
        """Make a prompt of a function."""
        return FunctionPrompt.from_function(fn, name, **options)

    def to_mcp_prompt(self, **overrides: Any) -> Any:
        """Return the prompt as it is listed."""
        listed = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "arguments": [each.model_dump() for each in self.arguments or ()],
            "icons": to_plain(self.icons),
            "meta": self.get_meta(),
            **overrides,
        }
        return model_class("Prompt")(**{name: value for name, value in listed.items() if value is not None})

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Render the prompt."""
        raise NotImplementedError("Subclasses must implement render()")

    def convert_result(self, raw_value: Any) -> PromptResult:
        """Return what a function returned as a result."""
        return raw_value if isinstance(raw_value, PromptResult) else PromptResult(raw_value)


class FunctionPrompt(Prompt):
    """A prompt made of a function."""

    fn: Callable[..., Any] = Field(exclude=True)

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **options: Any) -> FunctionPrompt:
        """Make a prompt of a function."""
        options = {**options_of_mark(fn), **options}
        if name is not None:
            options["name"] = name
        extra = {key: options.pop(key) for key in ("version", "enabled", "auth") if key in options}
        made: FunctionPrompt = from_definition(cls._home().make_prompt(fn, options), cls)
        return made.model_copy(update={key: value for key, value in extra.items() if value is not None})

    async def render(self, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Render the prompt."""
        from trunkline.compat.calls import run_prompt
        from trunkline.compat.input_required import is_input_required

        value = await run_prompt(self._own(), arguments)
        return value if is_input_required(value) else self.convert_result(value)

    def convert_result(self, raw_value: Any) -> PromptResult:
        """Return what the function returned as a result."""
        made: PromptResult = self._own().convert(raw_value)
        return made

    def _own(self) -> Any:
        if self.definition is None:
            self.definition = self._home().make_prompt(self.fn, options_of(self))
        return self.definition


# --- resources -------------------------------------------------------------------------------------------------------


class Resource(Component):
    """A resource: subclasses say in ``read`` what it holds."""

    KEY_PREFIX: ClassVar[str] = "resource"

    name: str = ""
    uri: Any
    mime_type: str = "text/plain"
    annotations: Any = None

    @model_validator(mode="after")
    def _named(self) -> Resource:
        if not self.name:
            self.name = str(self.uri)
        return self

    @property
    def identifier(self) -> str:
        """The URI."""
        return str(self.uri)

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri: Any, **options: Any) -> FunctionResource:
        """Make a resource of a function."""
        return FunctionResource.from_function(fn, uri, **options)

    def to_mcp_resource(self, **overrides: Any) -> Any:
        """Return the resource as it is listed."""
        listed = {
            "uri": str(self.uri),
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mime_type": self.mime_type,
            "annotations": to_plain(self.annotations),
            "icons": to_plain(self.icons),
            "meta": self.get_meta(),
            **overrides,
        }
        return model_class("Resource")(**{name: value for name, value in listed.items() if value is not None})

    async def read(self) -> Any:
        """Read the resource."""
        raise NotImplementedError("Subclasses must implement read()")

    def convert_result(self, raw_value: Any) -> ResourceResult:
        """Return what a function returned as a result."""
        from trunkline.compat.resource_definitions import public_meta

        return ResourceResult.of(raw_value, self.mime_type, public_meta(self.meta))

    async def _read(self) -> ResourceResult:
        """Read the resource and return a whole result."""
        return self.convert_result(await self.read())


class FunctionResource(Resource):
    """A resource made of a function."""

    fn: Callable[..., Any] = Field(exclude=True)

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri: Any, **options: Any) -> FunctionResource:
        """Make a resource of a function."""
        if getattr(fn, "__name__", "") == "<lambda>" and not options.get("name"):
            raise ValueError("You must provide a name for lambda functions")
        extra = {key: options.pop(key) for key in ("version", "enabled", "auth") if key in options}
        made: FunctionResource = from_definition(cls._home().make_resource(str(uri), fn, options), cls)
        return made.model_copy(update={key: value for key, value in extra.items() if value is not None})

    async def read(self) -> Any:
        """Call the function, in a worker thread if it is sync."""
        from trunkline.compat.calls import run_function

        definition = self.definition
        if definition is None:
            definition = self.definition = self._home().make_resource(str(self.uri), self.fn, options_of(self))
        return await run_function(definition, "resources/read", t.ReadResourceRequestParams(uri=str(self.uri)), {})


def _inherited() -> Any:
    from trunkline.compat.resource_security import INHERIT_SECURITY

    return INHERIT_SECURITY


class ResourceTemplate(Component):
    """A family of resources."""

    KEY_PREFIX: ClassVar[str] = "template"

    uri_template: str
    mime_type: str = "text/plain"
    parameters: dict[str, Any] = Field(default_factory=dict)
    annotations: Any = None
    security: Any = Field(default_factory=_inherited, exclude=True)
    #: The variables of the query whose value is a list, separated by commas.
    _list_query_params: frozenset[str] = PrivateAttr(default=frozenset())
    _pattern: Any = PrivateAttr(default=None)

    @property
    def identifier(self) -> str:
        """The template."""
        return self.uri_template

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri_template: str, **options: Any) -> FunctionResourceTemplate:
        """Make a template of a function."""
        return FunctionResourceTemplate.from_function(fn, uri_template, **options)

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables if a URI belongs to this family."""
        known = self._pattern
        if known is None or (known.text, known.list_params) != (self.uri_template, self._list_query_params):
            from trunkline.compat.fast_templates import FastUriTemplate

            self._pattern = FastUriTemplate(self.uri_template, self._list_query_params)
        values: dict[str, Any] | None = self._pattern.match(str(uri))
        return values

    def resolve_security(self, default: Any) -> Any:
        """Return the policy for the values of its variables: its own, or the server's."""
        from trunkline.compat.resource_security import policy_of

        return policy_of(self.security, default)

    def to_mcp_template(self, **overrides: Any) -> Any:
        """Return the template as it is listed."""
        listed = {
            "uri_template": self.uri_template,
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "mime_type": self.mime_type,
            "annotations": to_plain(self.annotations),
            "icons": to_plain(self.icons),
            "meta": self.get_meta(),
            **overrides,
        }
        return model_class("ResourceTemplate")(**{name: value for name, value in listed.items() if value is not None})

    async def read(self, arguments: dict[str, Any]) -> Any:
        """Read one resource of the family."""
        raise NotImplementedError("Subclasses must implement read()")

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Resource:
        """Return one resource of the family."""

        async def read() -> Any:
            return await self.read(params)

        return FunctionResource(
            uri=uri,
            name=self.name,
            title=self.title,
            description=self.description,
            mime_type=self.mime_type,
            icons=self.icons,
            annotations=self.annotations,
            meta=self.meta,
            tags=self.tags,
            version=self.version,
            auth=self.auth,
            fn=read,
        )


class FunctionResourceTemplate(ResourceTemplate):
    """A family of resources made of a function."""

    fn: Callable[..., Any] = Field(exclude=True)

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri_template: str, **options: Any) -> FunctionResourceTemplate:
        """Make a template of a function."""
        if getattr(fn, "__name__", "") == "<lambda>" and not options.get("name"):
            raise ValueError("You must provide a name for lambda functions")
        extra = {key: options.pop(key) for key in ("version", "enabled", "auth") if key in options}
        try:
            definition = cls._home().make_template(uri_template, fn, options)
        except TypeError as error:
            raise ValueError(str(error)) from error
        made: FunctionResourceTemplate = from_definition(definition, cls)
        return made.model_copy(update={key: value for key, value in extra.items() if value is not None})

    def _own(self) -> Any:
        if self.definition is None:
            self.definition = self._home().make_template(self.uri_template, self.fn, options_of(self))
        return self.definition

    async def read(self, arguments: dict[str, Any]) -> Any:
        """Call the function, in a worker thread if it is sync."""
        from trunkline.compat.calls import run_function

        definition = self._own()
        params = t.ReadResourceRequestParams(uri=self.uri_template)
        return await run_function(definition, "resources/read", params, definition.bound(arguments))


# --- from and to definitions -----------------------------------------------------------------------------------------


def from_definition(definition: Any, kind: Any = None) -> Any:
    """Return a definition of ours as an object."""
    options = definition.options
    given: dict[str, Any] = {
        "title": options.title,
        "icons": to_model(list(options.icons)) if options.icons else None,
        "tags": set(options.tags),
        "meta": None if options.meta is None else dict(options.meta),
        "fn": definition.function.function,
        "definition": definition,
    }
    if isinstance(definition, ToolDefinition):
        listed = definition.listed()
        return (kind or FunctionTool)(
            name=definition.name,
            description=listed.description,
            parameters=getattr(definition, "parameters", listed.input_schema),
            output_schema=getattr(definition, "output", listed.output_schema),
            annotations=to_model(listed.annotations),
            timeout=options.timeout,
            run_in_thread=options.thread,
            **given,
        )
    if isinstance(definition, PromptDefinition):
        listed_prompt = definition.listed()
        arguments = [
            PromptArgument(name=each.name, description=each.description, required=bool(each.required))
            for each in listed_prompt.arguments or ()
        ]
        return (kind or FunctionPrompt)(
            name=definition.name, description=listed_prompt.description, arguments=arguments, **given
        )
    return _readable(definition, kind, given)


def _readable(definition: Any, kind: Any, given: dict[str, Any]) -> Any:
    listed = definition.listed()
    given |= {
        "name": definition.name,
        "description": listed.description,
        "annotations": to_model(listed.annotations),
        **({} if listed.mime_type is None else {"mime_type": listed.mime_type}),
    }
    if isinstance(definition, ResourceDefinition):
        return (kind or FunctionResource)(uri=definition.uri, **given)
    if isinstance(definition, TemplateDefinition):
        schema = definition.function.signature.input_schema()
        given["security"] = getattr(definition, "security", _inherited())
        made = (kind or FunctionResourceTemplate)(uri_template=definition.uri, parameters=schema, **given)
        made._list_query_params = getattr(definition.template, "list_params", frozenset())
        return made
    raise NotFoundError(f"no object stands for a {type(definition).__name__}")


def options_of(component: Component) -> dict[str, Any]:
    """Return what an object says about itself as keywords of a registration."""
    names = ["name", "title", "description", "icons", "tags", "meta", "annotations", "mime_type"]
    options = _overrides(component.__dict__, names)
    if "icons" in options:
        options["icons"] = [msgspec.convert(to_plain(icon), t.Icon) for icon in options["icons"]]
    if "annotations" in options:
        options["annotations"] = to_plain(options["annotations"])
    if isinstance(component, Tool):
        options |= _overrides(component.__dict__, ["timeout", "run_in_thread"])
    if isinstance(component, ResourceTemplate):
        options["security"] = component.security
    return options
