"""Tools, prompts and resources as objects of both frameworks: made from a function or a subclass, and run from code.

A server registers them with ours: ``serving`` puts each behind a function that our server calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter, ValidationError

import trunkline.types as t
from trunkline.protocol.uri_template import UriTemplate
from trunkline_compat.contents import PromptResult, ResourceResult, ToolResult, json_text
from trunkline_compat.context import current_context
from trunkline_compat.errors import PromptError
from trunkline_compat.functions import FastFunction, Function, OfficialFunction
from trunkline_compat.schemas import without_titles
from trunkline_compat.types import model_class, to_plain
from trunkline_compat.versions import STATE

__all__ = [
    "BinaryResource",
    "Component",
    "FileResource",
    "FunctionPrompt",
    "FunctionResource",
    "FunctionTool",
    "OfficialPrompt",
    "OfficialResource",
    "OfficialTemplate",
    "OfficialTool",
    "Prompt",
    "PromptArgument",
    "RequiredScopes",
    "Resource",
    "ResourceTemplate",
    "TextResource",
    "Tool",
    "require_scopes",
]


class Component(BaseModel):
    """What tools, prompts, resources and templates have in common."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, populate_by_name=True, defer_build=True)

    name: str = ""
    title: str | None = None
    description: str | None = None
    icons: list[Any] | None = None
    tags: set[str] = Field(default_factory=set)
    meta: dict[str, Any] | None = None
    enabled: bool = True
    #: The scopes that a caller's token needs.
    scopes: tuple[str, ...] = ()

    #: Whether the object has the form of the official SDK.
    official: ClassVar[bool] = False
    #: The server that the object is registered with, told of changes: programs change listed objects in place.
    _owner: Any = PrivateAttr(default=None)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a member; a registered object is registered anew."""
        super().__setattr__(name, value)
        if name in type(self).model_fields and self._owner is not None:
            self._owner.add_component(self)

    @property
    def key(self) -> str:
        """The name, or the URI."""
        return self.name

    def listed_meta(self) -> dict[str, Any] | None:
        """Return the ``_meta`` of the list: FastMCP adds the tags."""
        if self.official:
            return self.meta
        member = "fastmcp" if STATE.fastmcp_major >= 3 else "_fastmcp"
        return {**(self.meta or {}), member: {"tags": sorted(self.tags)}}

    def enable(self) -> None:
        """Offer it."""
        self.enabled = True

    def disable(self) -> None:
        """Offer it no longer."""
        self.enabled = False


def _function_name(fn: Callable[..., Any], name: str | None) -> str:
    name = name or getattr(fn, "__name__", None) or type(fn).__name__
    if name == "<lambda>":
        raise ValueError("a lambda has no name: pass name=")
    return name


def require_scopes(*scopes: str) -> Any:
    """Return what ``auth=`` of a component takes: the scopes that its callers need."""
    return RequiredScopes(scopes)


class RequiredScopes(tuple[str, ...]):
    """The scopes that the callers of a component need."""

    __slots__ = ()


# --- tools -----------------------------------------------------------------------------------------------------------


class Tool(Component):
    """A tool; a subclass overrides ``run``."""

    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: dict[str, Any] | None = None
    annotations: Any = None
    timeout: float | None = None
    task: Any = None

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Run the tool."""
        raise NotImplementedError(f"{type(self).__name__} must override run()")

    async def result_of(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the tool, and return its value as a result."""
        from trunkline_compat.functions import fast_result

        return fast_result(await self.run(arguments), described=self.output_schema is not None)

    def listed_title(self) -> str | None:
        """Return the title of the list: since version 4 FastMCP makes one of the name."""
        title = self.title or getattr(self.annotations, "title", None)
        if title is None and not self.official and STATE.fastmcp_major >= 4:
            return self.name.replace("_", " ").title()
        return title

    def to_mcp_tool(self, **changes: Any) -> Any:
        """Return the tool as the protocol has it."""
        members = {
            "name": self.name,
            "title": self.listed_title(),
            "description": self.description,
            "input_schema": self.parameters,
            "output_schema": self.output_schema,
            "annotations": self.annotations,
            "icons": self.icons,
            "meta": self.listed_meta(),
        }
        return model_class("Tool")(**{**members, **changes})

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **options: Any) -> Any:
        """Make a tool of a function."""
        return FunctionTool.from_function(fn, name, **options)


class FunctionTool(Tool):
    """A tool made of a function."""

    fn: Any
    _function: Function = PrivateAttr()

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **options: Any) -> Any:
        """Make a tool of a function; an ``output_schema`` of None means no structured result."""
        name = _function_name(fn, name)
        exclude = options.pop("exclude_args", None) or ()
        function = FastFunction(fn, exclude=exclude, name=getattr(fn, "__name__", name))
        options = {key: value for key, value in options.items() if value is not None or key == "output_schema"}
        output = options.pop("output_schema", ...)
        # ``NotSet`` and a type stand for what the return annotation says.
        described = function.output_schema() if output is ... or not isinstance(output, dict | None) else output
        tool = cls(
            fn=fn,
            name=name,
            parameters=options.pop("parameters", None) or function.input_schema(),
            output_schema=described,
            description=options.pop("description", None) or function.description(),
            **options,
        )
        tool._function = function
        return tool

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Run the function, and return the result."""
        return await self.result_of(arguments)

    async def result_of(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the function, and return its value as a result."""
        value = await self._function.call(self._function.bind(arguments), current_context())
        result = self._function.to_result(value)
        if self.output_schema is None and self._function.output_schema() is not None and result.meta is not None:
            # The value was put into an object for a schema that this tool does not list.
            return ToolResult(result.content)
        return result


class OfficialTool(FunctionTool):
    """A tool as the official SDK makes it of a function."""

    official: ClassVar[bool] = True

    @classmethod
    def from_function(
        cls, fn: Callable[..., Any], name: str | None = None, structured_output: bool | None = None, **options: Any
    ) -> Any:
        """Make a tool of a function."""
        name = _function_name(fn, name)
        function = OfficialFunction(fn, structured=structured_output, name=getattr(fn, "__name__", name))
        options = {key: value for key, value in options.items() if value is not None and key != "context_kwarg"}
        tool = cls(
            fn=fn,
            name=name,
            parameters=function.input_schema(),
            output_schema=function.output_schema(),
            description=options.pop("description", None) or function.description(),
            **options,
        )
        tool._function = function
        return tool

    def listed_title(self) -> str | None:
        """Return the title that was given."""
        return self.title

    @property
    def fn_metadata(self) -> Any:
        """The models of the function; a published server replaces that of the arguments."""
        return _FunctionModels(self._function)

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> Any:
        """Run the function; return its value, or the converted result."""
        value = await self._function.call(self._function.bind(arguments), context or current_context())
        return self._function.to_result(value).to_mcp_result() if convert_result else value


class _FunctionModels:
    """The model of a function's arguments, which may be replaced by a subclass."""

    def __init__(self, function: Function) -> None:
        self._function = function

    @property
    def arg_model(self) -> Any:
        """The model of the arguments."""
        return self._function.arguments

    @arg_model.setter
    def arg_model(self, model: Any) -> None:
        self._function.arguments = model


# --- prompts ---------------------------------------------------------------------------------------------------------


class PromptArgument(BaseModel):
    """An argument of a prompt."""

    name: str
    description: str | None = None
    required: bool = False


class Prompt(Component):
    """A prompt; a subclass overrides ``render``."""

    arguments: list[PromptArgument] | None = None

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Render the prompt."""
        raise NotImplementedError(f"{type(self).__name__} must override render()")

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **options: Any) -> Any:
        """Make a prompt of a function."""
        return FunctionPrompt.from_function(fn, name, **options)


class FunctionPrompt(Prompt):
    """A prompt made of a function."""

    fn: Any
    _function: Function = PrivateAttr()

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **options: Any) -> Any:
        """Make a prompt of a function."""
        name = _function_name(fn, name)
        function = OfficialFunction(fn) if cls.official else FastFunction(fn)
        options = {key: value for key, value in options.items() if value is not None and key != "context_kwarg"}
        prompt = cls(
            fn=fn,
            name=name,
            description=options.pop("description", None) or function.description(),
            arguments=cls._arguments(function),
            **options,
        )
        prompt._function = function
        return prompt

    @classmethod
    def _arguments(cls, function: Function) -> list[PromptArgument]:
        properties = function.input_schema().get("properties", {})
        arguments = []
        for parameter in function.parameters:
            schema = properties[parameter.name]
            description = schema.get("description")
            if not cls.official and parameter.annotation not in (str, inspect.Parameter.empty):
                description = _with_schema(description, schema)
            required = parameter.default is inspect.Parameter.empty
            arguments.append(PromptArgument(name=parameter.name, description=description, required=required))
        return arguments

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Call the function with the arguments, which are text on the wire.

        Raises:
            PromptError: a required argument is missing.
        """
        given = arguments or {}
        missing = {each.name for each in self.arguments or () if each.required} - set(given)
        if missing:
            raise PromptError(f"Missing required arguments: {missing}")
        function = self._function
        if not self.official:
            given = {
                each.name: _decode_text(given[each.name], each.annotation)
                for each in function.parameters
                if each.name in given
            }
        value = await function.call(function.bind(given), current_context())
        return value if self.official else PromptResult(value) if not isinstance(value, PromptResult) else value


class OfficialPrompt(FunctionPrompt):
    """A prompt as the official SDK makes it of a function."""

    official: ClassVar[bool] = True


def _with_schema(description: str | None, schema: Mapping[str, Any]) -> str:
    """Return the description of an argument that is no text: what its JSON has to look like."""
    written = json_text(without_titles({key: value for key, value in schema.items() if key != "default"}))
    if STATE.fastmcp_major >= 4:
        hint = f"Provide a value matching the following JSON schema: {written}. Encode non-string values as JSON."
    else:
        hint = f"Provide as a JSON string matching the following schema: {written}"
    return f"{description}\n\n{hint}" if description else hint


def _decode_text(value: Any, annotation: Any) -> Any:
    """Return an argument that was sent as text in the type of its parameter, if it is JSON of that type."""
    if not isinstance(value, str) or annotation in (str, inspect.Parameter.empty):
        return value
    try:
        return TypeAdapter(annotation).validate_json(value)
    except (ValidationError, ValueError):
        return value


# --- resources -------------------------------------------------------------------------------------------------------


class Resource(Component):
    """A resource; a subclass overrides ``read``."""

    uri: Any = ""
    mime_type: str = "text/plain"
    size: int | None = None
    annotations: Any = None

    @property
    def key(self) -> str:
        """The URI."""
        return str(self.uri)

    async def read(self) -> Any:
        """Read the resource: text, bytes, a value that becomes JSON, or a ``ResourceResult``."""
        raise NotImplementedError(f"{type(self).__name__} must override read()")

    async def result_of(self) -> ResourceResult:
        """Read the resource, and return its value as contents."""
        return ResourceResult.of(await self.read(), self.mime_type, official=self.official, meta=self.meta)

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri: Any, name: str | None = None, **options: Any) -> Any:
        """Make a resource of a function."""
        return FunctionResource.of(fn, uri, name, **options)


class FunctionResource(Resource):
    """A resource made of a function."""

    fn: Any
    _function: Function = PrivateAttr()

    @classmethod
    def of(cls, fn: Callable[..., Any], uri: Any, name: str | None = None, **options: Any) -> Any:
        """Make a resource of a function."""
        options = {key: value for key, value in options.items() if value is not None}
        return cls(fn=fn, uri=uri, name=_function_name(fn, name), **options)

    def model_post_init(self, context: Any, /) -> None:
        """Read the function; ``FunctionResource(uri=…, fn=…)`` is written by hand, too."""
        self._function = OfficialFunction(self.fn) if self.official else FastFunction(self.fn)
        self.name = self.name or self._function.name
        self.description = self.description or self._function.description()

    async def read(self) -> Any:
        """Call the function."""
        value = await self._function.call({}, current_context())
        return await value.read() if isinstance(value, Resource) else value


class OfficialResource(FunctionResource):
    """A resource as the official SDK makes it of a function."""

    official: ClassVar[bool] = True


class TextResource(Resource):
    """A fixed text."""

    text: str

    async def read(self) -> Any:
        """Return the text."""
        return self.text


class BinaryResource(Resource):
    """Fixed bytes."""

    data: bytes
    mime_type: str = "application/octet-stream"

    async def read(self) -> Any:
        """Return the bytes."""
        return self.data


class FileResource(Resource):
    """A file, read when it is asked for."""

    path: Path
    is_binary: bool = False

    async def read(self) -> Any:
        """Read the file."""
        is_text = self.mime_type.startswith("text/") and not self.is_binary
        return self.path.read_text(encoding="utf-8") if is_text else self.path.read_bytes()


class ResourceTemplate(Component):
    """The resources whose URIs match a template; a subclass overrides ``read``."""

    uri_template: str
    mime_type: str = "text/plain"
    parameters: dict[str, Any] = Field(default_factory=dict)
    annotations: Any = None
    fn: Any = None
    _function: Function | None = PrivateAttr(default=None)

    @property
    def key(self) -> str:
        """The template."""
        return self.uri_template

    @classmethod
    def from_function(cls, fn: Callable[..., Any], uri_template: str, name: str | None = None, **options: Any) -> Any:
        """Make a template of a function that has its variables as parameters.

        Raises:
            ValueError: a variable has no parameter, or a parameter without a default no variable.
        """
        function = OfficialFunction(fn) if cls.official else FastFunction(fn)
        names = set(UriTemplate.parse(uri_template).names)
        known = {each.name for each in function.parameters}
        required = {each.name for each in function.parameters if each.default is inspect.Parameter.empty}
        if names - known or required - names:
            raise ValueError(
                f"Mismatch between URI parameters {names} and function parameters {known} of {uri_template!r}"
            )
        options = {key: value for key, value in options.items() if value is not None}
        template = cls(
            fn=fn,
            uri_template=uri_template,
            name=_function_name(fn, name),
            description=options.pop("description", None) or function.description(),
            parameters=function.input_schema(),
            **options,
        )
        template._function = function
        return template

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the values of the variables if a URI matches, otherwise None."""
        return UriTemplate.parse(self.uri_template).match(uri)

    async def read(self, arguments: dict[str, Any]) -> Any:
        """Read one resource."""
        if self._function is None:
            raise NotImplementedError(f"{type(self).__name__} must override read()")
        function = self._function
        value = await function.call(function.bind(arguments), current_context())
        return await value.read() if isinstance(value, Resource) else value

    async def result_of(self, arguments: dict[str, Any]) -> ResourceResult:
        """Read one resource, and return its value as contents."""
        return ResourceResult.of(await self.read(arguments), self.mime_type, official=self.official, meta=self.meta)


class OfficialTemplate(ResourceTemplate):
    """A template as the official SDK makes it of a function."""

    official: ClassVar[bool] = True


def annotations_struct(value: Any, kind: Any) -> Any:
    """Return annotations that were given as a model, a dictionary or None as ours."""
    if value is None:
        return None
    import msgspec

    plain = pydantic_core.to_jsonable_python(to_plain(value))
    return msgspec.convert(plain, kind)


def icons_struct(icons: Any) -> list[t.Icon] | None:
    """Return icons that were given as models as ours."""
    from trunkline_compat.types import to_struct

    return [to_struct(icon, t.Icon) for icon in icons] if icons else None
