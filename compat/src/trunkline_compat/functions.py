"""A user's function as each framework reads it: the schema of its arguments and of its result, and how it is called.

Both frameworks let pydantic read signatures, so schemas come from pydantic, and arguments are converted by it. They
differ in what is written into the schemas and in how a returned value becomes content.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import json
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import pydantic_core
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from trunkline.server.docstrings import read_docstring
from trunkline.server.results import Audio, File, Image
from trunkline_compat.contents import ToolResult, blocks_of, json_text
from trunkline_compat.context import Context
from trunkline_compat.dependencies import Dependency, enter_dependencies
from trunkline_compat.errors import InvalidSignature
from trunkline_compat.schemas import inline_references, root_object, without_titles
from trunkline_compat.types import Model, model_class
from trunkline_compat.versions import STATE

__all__ = ["FastFunction", "Function", "OfficialFunction"]

_EMPTY = inspect.Parameter.empty
_UNIONS = (Union, types.UnionType)
#: What pydantic raises for a type that has no schema.
_NO_SCHEMA = (PydanticUserError, NameError, TypeError, ValueError, pydantic_core.SchemaError)
#: Writes any value as JSON, each model by its own configuration.
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


class ArgumentModel(BaseModel):
    """The arguments of a call, converted."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    #: By the name of a member, that of the parameter, which pydantic may have reserved.
    parameter_names: ClassVar[Mapping[str, str]] = {}

    def model_dump_one_level(self) -> dict[str, Any]:
        """Return the keyword arguments of the call; their values are not converted back."""
        return {parameter: getattr(self, member) for member, parameter in self.parameter_names.items()}


class Function:
    """A function, its parameters and its return annotation."""

    def __init__(self, function: Callable[..., Any], *, exclude: Collection[str] = (), name: str | None = None) -> None:
        """Read the signature.

        Raises:
            InvalidSignature: an annotation cannot be resolved, or a parameter cannot be sent.
        """
        self.function = function
        self.name: str = name or getattr(function, "__name__", None) or type(function).__name__
        self._target = _routine(function)
        self.is_async: bool = inspect.iscoroutinefunction(self._target)
        hints = self._hints()
        self.returns: Any = hints.pop("return", _EMPTY)
        #: The parameters that are filled from the request, not from its arguments.
        self.context_names: tuple[str, ...] = ()
        self.dependencies: dict[str, Dependency] = {}
        self.parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name not in exclude:
                self._sort(parameter, hints.get(parameter.name, _EMPTY))

    def _hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self._target, include_extras=True)
        except (NameError, TypeError) as error:
            raise InvalidSignature(f"the annotations of {self.name!r} cannot be resolved: {error}") from error

    def _sort(self, parameter: inspect.Parameter, annotation: Any) -> None:
        dependency = _find_dependency(parameter.default, annotation)
        if dependency is not None:
            self.dependencies[parameter.name] = dependency
        elif _is_context(annotation):
            self.context_names = (*self.context_names, parameter.name)
        elif parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            self._add_variadic(parameter)
        else:
            self.parameters.append(parameter.replace(annotation=annotation))

    def _add_variadic(self, parameter: inspect.Parameter) -> None:
        raise ValueError(f"functions with *args or **kwargs cannot be registered: {self.name}({parameter})")

    # --- arguments ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def arguments(self) -> type[ArgumentModel]:
        """The model of the arguments."""
        members: dict[str, Any] = {}
        names: dict[str, str] = {}
        for parameter in self.parameters:
            annotation = self._annotation(parameter)
            member, kind = parameter.name, annotation
            if hasattr(ArgumentModel, member) or member.startswith(("_", "model_")):
                member = f"arg_{member}"
                kind = annotation if _alias(parameter) else Annotated[annotation, Field(alias=parameter.name)]
            members[member] = (kind, ... if parameter.default is _EMPTY else parameter.default)
            names[member] = parameter.name
        model = create_model(self._model_name(), __base__=ArgumentModel, **members)
        model.parameter_names = names
        return model

    def _annotation(self, parameter: inspect.Parameter) -> Any:
        return Any if parameter.annotation is _EMPTY else parameter.annotation

    def _model_name(self) -> str:
        return f"{self.name}Arguments"

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of a call, converted by pydantic.

        Raises:
            pydantic.ValidationError: they do not match.
        """
        return self.arguments.model_validate(arguments).model_dump_one_level()

    def input_schema(self) -> dict[str, Any]:
        """Return the schema of the arguments."""
        return self.arguments.model_json_schema(by_alias=True)

    def description(self) -> str | None:
        """Return what the docstring says about the function."""
        return inspect.getdoc(self._target)

    # --- calling -----------------------------------------------------------------------------------------------------

    @property
    def in_thread(self) -> bool:
        """Whether a sync function runs in a worker thread rather than in the event loop."""
        return True

    async def call(self, kwargs: dict[str, Any], context: Any) -> Any:
        """Call the function with its arguments, the context and its dependencies; return its value."""
        for name in self.context_names:
            kwargs[name] = context
        if self.dependencies:
            async with enter_dependencies(self.dependencies, context) as values:
                return await self._call({**kwargs, **values})
        return await self._call(kwargs)

    async def _call(self, kwargs: dict[str, Any]) -> Any:
        if self.is_async:
            return await self.function(**kwargs)
        if self.in_thread:
            run = functools.partial(contextvars.copy_context().run, self.function, **kwargs)
            value = await asyncio.get_running_loop().run_in_executor(None, run)
        else:
            value = self.function(**kwargs)
        return await value if inspect.isawaitable(value) else value

    # --- results -----------------------------------------------------------------------------------------------------

    def output_schema(self) -> dict[str, Any] | None:
        """Return the schema of the structured result, or None if there is none."""
        raise NotImplementedError

    def to_result(self, value: Any) -> ToolResult:
        """Return what the function returned as the result of a call."""
        raise NotImplementedError


class OfficialFunction(Function):
    """A function as the official SDK reads it."""

    def __init__(
        self, function: Callable[..., Any], *, structured: bool | None = None, name: str | None = None
    ) -> None:
        """Read the signature; ``structured`` requires a structured result, or forbids one."""
        super().__init__(function, name=name)
        for parameter in self.parameters:
            if parameter.name.startswith("_"):
                raise InvalidSignature(f"parameter {parameter.name!r} of {self.name!r} begins with '_'")
        self._adapter: TypeAdapter[Any] | None = None
        #: Whether the value is sent as ``{"result": …}``.
        self._wraps = False
        self._schema: dict[str, Any] | None = None
        if structured is not False:
            self._describe(required=bool(structured))
        #: Parameters whose value may arrive as JSON text.
        self._not_text = frozenset(each.name for each in self.parameters if each.annotation is not str)

    def _add_variadic(self, parameter: inspect.Parameter) -> None:
        self.parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

    def _annotation(self, parameter: inspect.Parameter) -> Any:
        if parameter.annotation is not _EMPTY:
            return parameter.annotation
        # Any value is accepted; the schema says text.
        return Annotated[Any, WithJsonSchema({"title": parameter.name, "type": "string"})]

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments; objects and arrays may be sent as JSON text."""
        parsed = dict(arguments)
        for name, value in arguments.items():
            if isinstance(value, str) and name in self._not_text and value.lstrip()[:1] in ("{", "[", "n"):
                try:
                    decoded = json.loads(value)
                except (ValueError, RecursionError):
                    continue
                parsed[name] = decoded
        return super().bind(parsed)

    def description(self) -> str | None:
        """Return the docstring as it is written."""
        return getattr(self.function, "__doc__", None) or ""

    @property
    def in_thread(self) -> bool:
        """Whether a sync function runs in a worker thread: version 1 calls it in the event loop."""
        return not STATE.is_sdk_1

    def output_schema(self) -> dict[str, Any] | None:
        """Return the schema of the structured result."""
        return self._schema

    def _describe(self, *, required: bool) -> None:
        try:
            kind = self._output_type()
            if kind is not None:
                self._adapter = TypeAdapter(kind)
                self._schema = root_object(self._adapter.json_schema(schema_generator=_CompleteSchema))
        except _NO_SCHEMA:
            self._adapter = None
        if required and self._schema is None:
            raise InvalidSignature(f"Function {self.name}: the return annotation has no schema for a structured result")

    def _output_type(self) -> Any:
        """Return the type of the structured value, or None; set whether it is wrapped."""
        annotation = _without(self.returns, model_class("InputRequiredResult"))
        if annotation in (_EMPTY, Any):
            return None
        inner, notes = _unwrap(annotation)
        if _is_kind(inner, model_class("CallToolResult")):
            if not notes:
                return None
            annotation = notes[0]
            inner, _ = _unwrap(annotation)
        if _mentions_content(inner) and not STATE.is_sdk_1:
            return None
        if type(inner) is types.GenericAlias and get_origin(inner) is dict and get_args(inner)[0] is str:
            return Annotated[inner, Field(title=f"{self.name}DictOutput")]
        if isinstance(inner, type) and get_origin(inner) is None:
            if issubclass(inner, BaseModel):
                return inner
            if typing_extensions.is_typeddict(inner):
                return readable_typed_dict(inner)
            if inner not in (str, int, float, bool, bytes, types.NoneType):
                return _model_of_class(inner)
        self._wraps = True
        return create_model(f"{self.name}Output", result=(annotation, ...))

    def to_result(self, value: Any) -> ToolResult:
        """Return a value as content, each item of a list by itself, and as structured value if it has a schema."""
        if isinstance(value, ToolResult):
            return value
        if isinstance(value, model_class("CallToolResult")):
            if self._adapter is not None and not value.is_error:
                self._adapter.validate_python(value.structured_content)
            return ToolResult.of(value)
        if self._adapter is None:
            return ToolResult(_official_blocks(value))
        validated = self._adapter.validate_python({"result": value} if self._wraps else value)
        if isinstance(validated, BaseModel):
            # By the object itself, so that a subclass keeps its own members.
            structured = validated.model_dump(mode="json", by_alias=True)
        else:
            structured = self._adapter.dump_python(validated, mode="json", by_alias=True)
        return ToolResult(_official_blocks(value), structured)


def _official_blocks(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [block for item in value for block in _official_blocks(item)]
    return blocks_of(value) or [model_class("TextContent")(type="text", text=json_text(value, indent=2))]


class FastFunction(Function):
    """A function as FastMCP reads it."""

    def __init__(self, function: Callable[..., Any], *, exclude: Collection[str] = (), name: str | None = None) -> None:
        """Read the signature; ``exclude`` are parameters that callers neither see nor set."""
        super().__init__(function, exclude=exclude, name=name)
        self._wraps = False

    def _annotation(self, parameter: inspect.Parameter) -> Any:
        inner, notes = _unwrap(super()._annotation(parameter))
        if len(notes) == 1 and isinstance(notes[0], str):
            # A text beside the type describes the parameter.
            return Annotated[inner, Field(description=notes[0])]
        return readable_typed_dict(super()._annotation(parameter))

    def _model_name(self) -> str:
        return f"call[{self.name}]"

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments; a name that the function does not have is an error."""
        known = {_alias(parameter) or parameter.name for parameter in self.parameters}
        unknown = [name for name in arguments if name not in known]
        if unknown:
            raise pydantic_core.ValidationError.from_exception_data(
                self._model_name(),
                [{"type": "unexpected_keyword_argument", "loc": (name,), "input": arguments[name]} for name in unknown],
            )
        return super().bind(arguments)

    @functools.cached_property
    def _texts(self) -> tuple[str | None, dict[str, str]]:
        text = inspect.getdoc(self._target)
        if text is None and not inspect.isroutine(self.function):
            text = inspect.getdoc(type(self.function))
        return read_docstring(text) if STATE.fastmcp_major >= 3 else (text, {})

    def description(self) -> str | None:
        """Return the docstring without the section about arguments, which describes the parameters."""
        return self._texts[0]

    def input_schema(self) -> dict[str, Any]:
        """Return the schema of the arguments, without generated titles and without references."""
        schema = self.arguments.model_json_schema(by_alias=True)
        del schema["title"]
        if STATE.fastmcp_major >= 3:
            schema["additionalProperties"] = False
        title_of = GenerateJsonSchema().get_title_from_name
        generated = {title_of(name) for name in schema.get("properties", {})}
        for name, member in schema.get("properties", {}).items():
            text = self._texts[1].get(name)
            if text is not None and "description" not in member:
                member["description"] = text
        if STATE.fastmcp_major < 4:
            return inline_references(without_titles(schema, keep_alone=STATE.fastmcp_major < 3))
        kept = {each["title"] for each in schema.get("properties", {}).values() if "title" in each} - generated
        return inline_references(without_titles(schema, kept.__contains__))

    @property
    def in_thread(self) -> bool:
        """Whether a sync function runs in a worker thread: before version 3 it is called in the event loop."""
        return STATE.fastmcp_major >= 3

    @functools.cached_property
    def _output(self) -> tuple[dict[str, Any] | None, TypeAdapter[Any] | None]:
        annotation = _without(self.returns, model_class("InputRequiredResult"))
        if annotation in (_EMPTY, Any, None, types.NoneType, ...) or _has_no_schema(annotation):
            return None, None
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(readable_typed_dict(annotation))
            schema = without_titles(adapter.json_schema(mode="serialization"))
        except _NO_SCHEMA:
            return None, None
        root = root_object(schema)
        if root.get("type") == "object" or "properties" in root:
            return inline_references(schema), adapter
        self._wraps = True
        definitions = schema.pop("$defs", None)
        wrapped: dict[str, Any] = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
        if STATE.fastmcp_major < 3:
            wrapped["description"] = "Generic wrapper for non-object return types."
        wrapped = inline_references({**wrapped, "$defs": definitions} if definitions else wrapped)
        return {**wrapped, "x-fastmcp-wrap-result": True}, adapter

    def output_schema(self) -> dict[str, Any] | None:
        """Return the schema of the structured result; a value that is no object is described as ``result``."""
        return self._output[0]

    def to_result(self, value: Any) -> ToolResult:
        """Return a value as one text, or as the content it is, and as structured value if it is an object."""
        schema, adapter = self._output
        return fast_result(value, adapter, described=schema is not None, wraps=self._wraps)


def fast_result(
    value: Any, adapter: TypeAdapter[Any] | None = None, *, described: bool = False, wraps: bool = False
) -> ToolResult:
    """Return a value as FastMCP returns it; ``described`` says whether the tool has an output schema."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, model_class("CallToolResult")):
        return ToolResult.of(value)
    content = _fast_blocks(value)
    if not described:
        # An object without a schema is sent as structured value all the same.
        plain = _plain(value, None) if isinstance(value, Mapping | BaseModel) or hasattr(value, "__dict__") else None
        is_content = bool(blocks_of(value))
        return ToolResult(content, plain if isinstance(plain, dict) and not is_content else None)
    plain = _plain(value, adapter)
    if wraps:
        meta = {"fastmcp": {"wrap_result": True}} if STATE.fastmcp_major >= 3 else None
        return ToolResult(content, {"result": plain}, meta=meta)
    return ToolResult(content, plain)


def _plain(value: Any, adapter: TypeAdapter[Any] | None) -> Any:
    """Return a value as JSON values, written by its type where there is one; None if it has no JSON form."""
    for writer in (adapter, _ANYTHING):
        if writer is not None:
            try:
                return writer.dump_python(value, mode="json", warnings=False)
            except (pydantic_core.PydanticSerializationError, ValueError):
                continue
    return None


def _fast_blocks(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list | tuple) and any(not isinstance(item, str) and blocks_of(item) for item in value):
        return [block for item in value for block in _fast_blocks(item)]
    if isinstance(value, list | tuple) and not value:
        return []
    if isinstance(value, bytes) and STATE.fastmcp_major >= 3:
        return [model_class("TextContent")(type="text", text=value.decode("utf-8", "replace"))]
    if blocks := blocks_of(value):
        return blocks
    text = json_text(value)
    # Since version 4 what is a string in JSON, such as a date, has no quotes.
    return blocks_of(json.loads(text) if text.startswith('"') and STATE.fastmcp_major >= 4 else text)


# --- annotations -----------------------------------------------------------------------------------------------------


def _routine(function: Any) -> Any:
    """Return the function behind a partial or an object with ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _is_context(annotation: Any) -> bool:
    inner, _ = _unwrap(annotation)
    if get_origin(inner) in _UNIONS:
        return any(_is_context(part) for part in get_args(inner))
    inner = get_origin(inner) or inner
    return isinstance(inner, type) and issubclass(inner, Context)


def _alias(parameter: inspect.Parameter) -> str | None:
    """Return the name that a field gives a parameter on the wire, if it does."""
    _, notes = _unwrap(parameter.annotation)
    fields = (each for each in (parameter.default, *notes) if isinstance(each, FieldInfo))
    return next((each.alias for each in fields if each.alias), None)


def _find_dependency(default: Any, annotation: Any) -> Dependency | None:
    _, notes = _unwrap(annotation)
    return next((each for each in (default, *notes) if isinstance(each, Dependency)), None)


def _unwrap(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return an annotation without what ``Annotated`` and a ``type`` statement put around it, and the notes."""
    while hasattr(annotation, "__value__") and not isinstance(annotation, type):
        annotation = annotation.__value__
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        return inner, tuple(notes)
    return annotation, ()


def _is_kind(annotation: Any, *kinds: type) -> bool:
    inner, _ = _unwrap(annotation)
    return isinstance(inner, type) and get_origin(inner) is None and issubclass(inner, kinds)


def _without(annotation: Any, kind: type) -> Any:
    """Return a union without one of its types; nothing is left of that type alone."""
    inner, _ = _unwrap(annotation)
    if _is_kind(inner, kind):
        return _EMPTY
    if get_origin(inner) not in _UNIONS or not any(_is_kind(part, kind) for part in get_args(inner)):
        return annotation
    remaining = tuple(part for part in get_args(inner) if not _is_kind(part, kind))
    return Union[remaining] if remaining else _EMPTY  # noqa: UP007 - made of parts that are known only now


def _mentions_content(annotation: Any) -> bool:
    """Return whether values of a type are content, or hold content in a list or a union."""
    inner, _ = _unwrap(annotation)
    if get_args(inner) and get_origin(inner) is not Literal:
        return any(_mentions_content(part) for part in get_args(inner) if part is not ...)
    if not isinstance(inner, type):
        return False
    whole = (Image, Audio, File, ToolResult, model_class("CallToolResult"))
    return issubclass(inner, whole) or (issubclass(inner, Model) and "type" in inner.model_fields)


def _has_no_schema(annotation: Any) -> bool:
    """Return whether FastMCP describes no results of a type: content, bytes, and since version 4 any list."""
    inner, _ = _unwrap(annotation)
    if _mentions_content(inner) or (inner is bytes and STATE.fastmcp_major >= 3):
        return True
    untyped = inner in (list, tuple, Sequence) or (
        get_origin(inner) in (list, tuple) and all(part in (Any, ...) for part in get_args(inner))
    )
    return untyped and STATE.fastmcp_major >= 4


class _CompleteSchema(GenerateJsonSchema):
    """Raises where pydantic would warn that a part of a type has no schema."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Raise the warning."""
        raise ValueError(f"{kind}: {detail}")


def _model_of_class(kind: type) -> Any:
    """Return a model of the annotated attributes of a class; None if it has none, or is sent as a list."""
    hints = {name: note for name, note in get_type_hints(kind).items() if not name.startswith("_")}
    if not hints or issubclass(kind, tuple):
        return None
    members: dict[str, Any] = {name: (note, getattr(kind, name, ...)) for name, note in hints.items()}
    return create_model(kind.__name__, __config__=ConfigDict(from_attributes=True), **members)


def readable_typed_dict(kind: Any) -> Any:
    """Return a dictionary type that pydantic reads: before Python 3.12 it refuses those of ``typing``."""
    if sys.version_info >= (3, 12) or not typing_extensions.is_typeddict(kind) or type(kind).__module__ != "typing":
        return kind
    members: dict[str, Any] = {}
    for name, note in get_type_hints(kind).items():
        members[name] = note if name in kind.__required_keys__ else typing_extensions.NotRequired[note]
    make: Any = typing_extensions.TypedDict
    readable = make(kind.__name__, members)
    readable.__doc__ = kind.__doc__
    return readable
