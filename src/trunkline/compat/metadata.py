"""``func_metadata`` of the official SDK: a pydantic model of a function's arguments and one of its result.

Tools under the official SDK's names are served by it: their schemas are the ones pydantic generates, arguments that are
not declared are dropped, and lists and objects that arrive as text are parsed.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import pydantic_core
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter, WithJsonSchema, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from trunkline.compat.exceptions import InvalidSignature, MCPDeprecationWarning
from trunkline.compat.results import to_blocks
from trunkline.compat.types import Model, model_class
from trunkline.compat.versions import STATE
from trunkline.server.dependencies import find_depends, is_context
from trunkline.server.results import Audio, File, Image

__all__ = ["ArgModelBase", "FuncMetadata", "content_blocks", "func_metadata", "readable_typed_dict"]

_EMPTY = inspect.Parameter.empty
_SEQUENCES = (list, tuple, Sequence)
#: Errors of pydantic about a type that has no schema.
_NO_SCHEMA = (PydanticUserError, NameError, TypeError, ValueError, pydantic_core.SchemaError)


class _StrictSchema(GenerateJsonSchema):
    """Raises where pydantic would warn that a part of a type has no schema."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Raise the warning."""
        raise ValueError(f"{kind}: {detail}")


class ArgModelBase(BaseModel):
    """The base of models of arguments."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def model_dump_one_level(self) -> dict[str, Any]:
        """Return the arguments by the names of the parameters; their values are not converted."""
        return {(field.alias or name): getattr(self, name) for name, field in type(self).model_fields.items()}


class FuncMetadata(BaseModel):
    """The models of a function's arguments and result; assigning to them later changes the next call."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    arg_model: Annotated[type[ArgModelBase], WithJsonSchema(None)]
    output_schema: dict[str, Any] | None = None
    output_model: Annotated[Any, WithJsonSchema(None)] = None
    wrap_output: bool = False
    _adapters: dict[Any, Any] = PrivateAttr(default_factory=dict)

    def model_post_init(self, context: Any, /) -> None:
        """Generate the schema of the result, if there is a model of it and no schema was given."""
        if self.output_model is not None and self.output_schema is None:
            mode: Any = "serialization" if STATE.camel_case else "validation"
            schema = self._adapter().json_schema(schema_generator=_StrictSchema, mode=mode)
            self.output_schema = _with_inline_root(schema)

    def _adapter(self) -> TypeAdapter[Any]:
        model = self.output_model
        if id(model) not in self._adapters:
            self._adapters = {id(model): TypeAdapter(readable_typed_dict(model))}
        adapter: TypeAdapter[Any] = self._adapters[id(model)]
        return adapter

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with lists and objects that were sent as text parsed."""
        made = dict(data)
        fields = dict(self.arg_model.model_fields)
        fields |= {field.alias: field for field in self.arg_model.model_fields.values() if field.alias}
        for name, value in data.items():
            if name not in fields or not isinstance(value, str) or fields[name].annotation is str:
                continue
            try:
                parsed = json.loads(value)
            except (ValueError, RecursionError):
                continue
            # A text that is a JSON text or number was meant as text.
            if not isinstance(parsed, str | int | float):
                made[name] = parsed
        return made

    def validate_arguments(self, arguments_to_validate: dict[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of a call.

        Raises:
            pydantic.ValidationError: an argument does not match.
        """
        return self.arg_model.model_validate(self.pre_parse_json(arguments_to_validate)).model_dump_one_level()

    async def call_fn(
        self,
        fn: Callable[..., Any],
        fn_is_async: bool,
        arguments: dict[str, Any],
        arguments_to_pass_directly: dict[str, Any] | None = None,
    ) -> Any:
        """Call the function with validated arguments; a sync function runs in a worker thread."""
        call = functools.partial(fn, **arguments, **(arguments_to_pass_directly or {}))
        if fn_is_async:
            return await call()
        return call() if STATE.camel_case else await asyncio.to_thread(call)

    async def call_fn_with_arg_validation(
        self,
        fn: Callable[..., Any],
        fn_is_async: bool,
        arguments_to_validate: dict[str, Any],
        arguments_to_pass_directly: dict[str, Any] | None = None,
        pre_validated: dict[str, Any] | None = None,
    ) -> Any:
        """Validate the arguments and call the function."""
        if not STATE.camel_case:
            warnings.warn(
                "call_fn_with_arg_validation is deprecated: call validate_arguments, then call_fn",
                MCPDeprecationWarning,
                stacklevel=2,
            )
        given = self.validate_arguments(arguments_to_validate) if pre_validated is None else pre_validated
        return await self.call_fn(fn, fn_is_async, given, arguments_to_pass_directly)

    def convert_result(self, result: Any) -> Any:
        """Return the result of a call: in version 2 the protocol's, in version 1 content and structured value."""
        if isinstance(result, model_class("InputRequiredResult")):
            return result
        model = None if self.output_schema is None else self.output_model
        if isinstance(result, model_class("CallToolResult")):
            if model is not None and not result.is_error:
                self._adapter().validate_python(result.structured_content)
            return result
        blocks = content_blocks(result)
        structured = None if model is None else self._structured(result)
        if STATE.camel_case:
            return blocks if model is None else (blocks, structured)
        return model_class("CallToolResult")(content=blocks, structured_content=structured)

    def _structured(self, result: Any) -> Any:
        adapter = self._adapter()
        value = {"result": result} if self.wrap_output else result
        validated = adapter.validate_python(value, by_alias=True, by_name=True)
        if isinstance(validated, BaseModel):
            # Through the object, so that a subclass keeps its own members.
            return validated.model_dump(mode="json", by_alias=True)
        return adapter.dump_python(validated, mode="json", by_alias=True)


def func_metadata(
    func: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None
) -> FuncMetadata:
    """Read a function.

    Raises:
        InvalidSignature: a parameter cannot be sent, or a result has no schema although one is asked for.
    """
    label = getattr(func, "__name__", None) or type(func).__name__
    signature = inspect.signature(func)
    hints = _hints(func, label)
    members = _members(label, signature, hints, skip_names)
    arguments = create_model(f"{label}Arguments", __base__=ArgModelBase, **members)
    if structured_output is False:
        return FuncMetadata(arg_model=arguments)
    annotation = hints.get("return", None if signature.return_annotation is None else _EMPTY)
    if annotation is _EMPTY:
        if structured_output:
            raise InvalidSignature(f"Function {label}: return annotation required for structured output")
        return FuncMetadata(arg_model=arguments)
    return _with_output(arguments, label, annotation, structured_output)


def _hints(func: Any, label: str) -> dict[str, Any]:
    target = func
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidSignature(f"Unable to evaluate type annotations for callable {label!r}") from error


def _members(label: str, signature: inspect.Signature, hints: Mapping[str, Any], skip: Sequence[str]) -> dict[str, Any]:
    from trunkline.server.context import Context

    members: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        name = parameter.name
        if name in skip:
            continue
        if name.startswith("_"):
            raise InvalidSignature(f"Parameter {name} of {label} cannot start with '_'")
        annotation = hints.get(name, Any)
        if is_context(annotation, (Context,)) or find_depends(annotation, parameter.default) is not None:
            continue
        members |= _member(name, annotation, parameter.default, annotated=name in hints)
    return members


def _member(name: str, annotation: Any, default: Any, *, annotated: bool) -> dict[str, Any]:
    """Return a field; a name that pydantic has itself is kept as an alias."""
    extra: dict[str, Any] = {}
    notes: list[Any] = []
    if not annotated:
        # Any value passes; the schema says text, as it always did there.
        notes.append(WithJsonSchema({"title": name, "type": "string"}))
    field_name = name
    if hasattr(BaseModel, name) and callable(getattr(BaseModel, name)):
        field_name, extra["alias"] = f"field_{name}", name
    kind = Annotated[(annotation, *notes, Field(**extra))] if notes or extra else annotation
    return {field_name: kind if default is _EMPTY else (kind, default)}


# --- results ---------------------------------------------------------------------------------------------------------


def _with_output(arguments: Any, label: str, annotation: Any, wanted: bool | None) -> FuncMetadata:
    if get_origin(annotation) is Final or annotation is Final or get_origin(annotation) is typing_extensions.ClassVar:
        raise InvalidSignature(f"Function {label}: return annotation contains an invalid type qualifier")
    plain = FuncMetadata(arg_model=arguments)
    annotation = _without_input_required(annotation, label)
    if annotation is _EMPTY:
        return plain
    inner, notes = _unwrapped(annotation)
    if isinstance(inner, type) and issubclass(inner, model_class("CallToolResult")):
        if not notes:
            return plain
        # Annotated[CallToolResult, Model]: the model is that of the structured value.
        annotation = notes[0] if len(notes) == 1 else Annotated[(notes[0], *notes[1:])]
        inner, notes = _unwrapped(annotation)
    # Version 1 describes content like any other value.
    if wanted is None and not STATE.camel_case and _is_content(inner):
        return plain
    try:
        model, wrap = _output_model(label, annotation, inner)
        if model is not None:
            return FuncMetadata(arg_model=arguments, output_model=model, wrap_output=wrap)
    except _NO_SCHEMA:
        pass
    if wanted:
        raise InvalidSignature(f"Function {label}: return type {inner} is not serializable for structured output")
    return plain


def _unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        return inner, tuple(notes)
    return annotation, ()


def _without_input_required(annotation: Any, label: str) -> Any:
    """Return the annotation without the results that ask the client for more; ``_EMPTY`` if nothing is left.

    Raises:
        InvalidSignature: a whole result is one of several possible types.
    """
    signal = model_class("InputRequiredResult")
    inner, _ = _unwrapped(annotation)
    if isinstance(inner, type) and issubclass(inner, signal):
        return _EMPTY
    if get_origin(inner) not in (Union, types.UnionType):
        return annotation
    parts = get_args(inner)
    kept = [part for part in parts if not (isinstance(part, type) and issubclass(part, signal))]
    if not kept:
        return _EMPTY
    whole = model_class("CallToolResult")
    if len(kept) > 1 and any(isinstance(part, type) and issubclass(part, whole) for part in kept):
        raise InvalidSignature(
            f"Function {label}: CallToolResult cannot be used in Union or Optional types. "
            "For an empty result, return CallToolResult(content=[])"
        )
    if len(kept) == len(parts):
        return annotation
    return kept[0] if len(kept) == 1 else Union[tuple(kept)]  # noqa: UP007 - made of parts known only now


def _is_content(annotation: Any) -> bool:
    """Return whether values of a type are content: blocks, images or sounds, alone, in a list or in a union."""
    inner, _ = _unwrapped(annotation)
    if get_origin(inner) in (*_SEQUENCES, Union, types.UnionType):
        return any(_is_content(part) for part in get_args(inner))
    if not isinstance(inner, type):
        return False
    return issubclass(inner, Image | Audio | File) or (issubclass(inner, Model) and "type" in inner.model_fields)


def _output_model(label: str, annotation: Any, inner: Any) -> tuple[Any, bool]:
    """Return a type of the structured value, or None, and whether the result is wrapped as ``result``."""
    origin = get_origin(inner)
    if origin is dict and get_args(inner)[0] is str:
        return Annotated[inner, Field(title=f"{label}DictOutput")], False
    if isinstance(inner, type) and origin is None:
        if typing_extensions.is_typeddict(inner) and STATE.camel_case:
            return _model_of_typed_dict(inner), False
        if issubclass(inner, BaseModel) or typing_extensions.is_typeddict(inner):
            return inner, False
        if inner not in (str, int, float, bool, bytes, type(None)):
            return _model_of_class(inner), False
    return create_model(f"{label}Output", result=(annotation, ...)), True


def _model_of_typed_dict(kind: Any) -> Any:
    """Return a model of a dictionary type, as version 1 has it: what may be absent is null."""
    members = {
        name: (note, ...) if name in kind.__required_keys__ else (note, None)
        for name, note in get_type_hints(kind).items()
    }
    return create_model(kind.__name__, **members)  # type: ignore[call-overload]


def _model_of_class(kind: Any) -> Any:
    """Return a model of the annotated attributes of a class; None if it has none."""
    hints = {name: note for name, note in get_type_hints(kind).items() if not name.startswith("_")}
    if not hints:
        return None
    if issubclass(kind, tuple):
        raise TypeError(f"{kind.__name__} is sent as a list, not as an object")
    fields = {name: (note, getattr(kind, name, ...)) for name, note in hints.items()}
    return create_model(kind.__name__, __config__=ConfigDict(from_attributes=True), **fields)  # type: ignore[call-overload]


def _with_inline_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with an object at its root: pydantic refers to the definition of a recursive model."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        return schema
    root = schema["$defs"][reference.removeprefix("#/$defs/")]
    return {**root, **{key: value for key, value in schema.items() if key != "$ref"}}


def readable_typed_dict(kind: Any) -> Any:
    """Return a dictionary type that pydantic reads: before Python 3.12 it refuses those of ``typing``."""
    if sys.version_info >= (3, 12) or not typing_extensions.is_typeddict(kind) or type(kind).__module__ != "typing":
        return kind
    members: dict[str, Any] = {}
    for name, hint in typing_extensions.get_type_hints(kind, include_extras=True).items():
        note, required, read_only = hint, name in kind.__required_keys__, False
        while get_origin(note) in _QUALIFIERS:
            qualifier: Any = get_origin(note)
            required = required if _QUALIFIERS[qualifier] is None else bool(_QUALIFIERS[qualifier])
            read_only = read_only or qualifier is typing_extensions.ReadOnly
            note = get_args(note)[0]
        note = typing_extensions.ReadOnly[note] if read_only else note
        members[name] = note if required else typing_extensions.NotRequired[note]
    make: Any = typing_extensions.TypedDict
    made = make(kind.__name__, members)
    made.__doc__, made.__module__ = kind.__doc__, kind.__module__
    return made


#: Whether a qualifier of a member makes it required.
_QUALIFIERS: Mapping[Any, bool | None] = types.MappingProxyType(
    {typing_extensions.Required: True, typing_extensions.NotRequired: False, typing_extensions.ReadOnly: None}
)


def content_blocks(value: Any) -> list[Any]:
    """Return a value as content: each item of a list by itself, anything but text as indented JSON."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [block for item in value for block in content_blocks(item)]
    if isinstance(value, str | Image | Audio | File) or (isinstance(value, Model) and hasattr(value, "type")):
        return to_blocks(value)
    text = pydantic_core.to_json(value, fallback=str, indent=2).decode()
    return [model_class("TextContent")(type="text", text=text)]
