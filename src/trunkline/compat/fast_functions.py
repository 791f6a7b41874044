"""How FastMCP reads a function: pydantic validates the arguments, and its schemas are sent without titles."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pydantic_core
from pydantic import Field, PydanticUserError, TypeAdapter
from pydantic import ValidationError as PydanticError
from pydantic.json_schema import GenerateJsonSchema

from trunkline.compat.json_schemas import compress_schema, resolve_root_ref
from trunkline.compat.results import ToolResult, to_blocks
from trunkline.compat.types import Model, model_class
from trunkline.server.results import Audio, File, Image
from trunkline.server.results import ToolResult as OwnToolResult
from trunkline.server.signatures import Signature
from trunkline.server.validation_errors import InvalidArguments

__all__ = ["BadArguments", "FastSignature", "decode_arguments", "fast_content", "output_schema_of", "to_fast_result"]

_UNIONS = (Union, types.UnionType)
_SEQUENCES: tuple[Any, ...] = (list, tuple, Sequence)
#: Writes any value as JSON; each model by its own configuration.
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)
_NO_SCHEMA = (PydanticUserError, NameError, TypeError, ValueError, pydantic_core.SchemaError)


class BadArguments(InvalidArguments):
    """Arguments that pydantic refused; ``error`` is its exception."""

    def __init__(self, error: PydanticError) -> None:
        """Keep the exception; its text is the message."""
        super().__init__(str(error))
        self.error = error


def decode_arguments(raw: Any) -> Any:
    """Return the arguments of a call as they were sent.

    Raises:
        InvalidArguments: they are not JSON.
    """
    try:
        value = {} if raw is None else msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are not JSON: {error}") from error
    return {} if value is None else value


class _Arguments:
    """The arguments of a function, validated by pydantic as a call of it."""

    #: Whether a value must have its type already.
    strict = False

    def __init__(self, given: Sequence[tuple[str, Any, Any]], label: str) -> None:
        """Make a function that takes the same parameters and returns them."""

        def call(**arguments: Any) -> dict[str, Any]:
            return arguments

        named = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(
                name, named, default=inspect.Parameter.empty if default is msgspec.UNSET else default, annotation=note
            )
            for name, note, default in ((name, _described(note), default) for name, note, default in given)
        ]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        call.__name__ = call.__qualname__ = label
        target: Any = call
        self._adapter: TypeAdapter[Any] = TypeAdapter(target)
        from trunkline.compat.features.state import session_id_parameter_names

        self._session_ids = session_id_parameter_names(target)

    def bind(self, raw: Any) -> dict[str, Any]:
        """Return the keyword arguments of a call.

        Raises:
            BadArguments: they do not match.
        """
        try:
            given = decode_arguments(raw)
            if self.strict:
                # JSON has no dates and no enums: in strict mode pydantic reads them from text, and numbers not.
                return self._adapter.validate_json(msgspec.json.encode(given), strict=True)  # type: ignore[no-any-return]
            found: dict[str, Any] = self._adapter.validate_python(given)
        except PydanticError as error:
            raise BadArguments(error) from error
        return found

    def arguments_schema(self, descriptions: Mapping[str, str]) -> dict[str, Any]:
        """Return the schema, with the descriptions of the docstring and the titles that were written by hand."""
        raw = self._adapter.json_schema()
        schema = compress_schema(raw, prune_titles=True)
        title_of = GenerateJsonSchema().get_title_from_name
        for name, member in schema.get("properties", {}).items():
            title = raw["properties"][name].get("title")
            if isinstance(title, str) and title != title_of(name):
                member["title"] = title
            if name in descriptions and "description" not in member:
                member["description"] = descriptions[name]
            if name in self._session_ids:
                from trunkline.compat.features.state import describe_session_id

                member["description"] = describe_session_id(member.get("description"))
        return schema


def _described(annotation: Any) -> Any:
    """Return an annotation whose only note is a text with that text as its description."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        if len(notes) == 1 and isinstance(notes[0], str):
            return Annotated[inner, Field(description=notes[0])]
    return annotation


class FastSignature(Signature):
    """The signature of a function as FastMCP reads it."""

    __slots__ = ("_output",)

    def _read_arguments(self, label: str) -> Any:
        self._output: Any = msgspec.UNSET
        name = getattr(self.function, "__name__", None) or type(self.function).__name__
        return _Arguments(self._given, name)

    def _sort(self, raw: Any, hints: Any, **options: Any) -> Any:
        from trunkline.compat.features.state import with_sessions

        return super()._sort(raw, with_sessions(hints), **options)

    @property
    def promises_result(self) -> bool:
        """Never: results are made by the definition, as the framework makes them."""
        return False

    def _described(self) -> tuple[str | None, dict[str, str]]:
        if self._texts is None:
            self._texts = _texts_of(self.function)
        return self._texts

    @property
    def return_type(self) -> Any:
        """The return annotation."""
        return self._return_annotation

    def output_schema(self) -> dict[str, Any] | None:
        """Return the schema of the result, wrapped if it is not an object."""
        if self._output is msgspec.UNSET:
            self._output = output_schema_of(self._return_annotation)
        return self._output  # type: ignore[no-any-return]


def _texts_of(function: Any) -> tuple[str | None, dict[str, str]]:
    """Return the description of a callable and those of its parameters.

    A partial is described by its own docstring, if it has one, otherwise by its function; an object by its class, and
    its parameters by ``__call__``.
    """
    from trunkline.server.docstrings import read_docstring

    target = function
    while isinstance(target, functools.partial):
        if "__doc__" in vars(target):
            return read_docstring(target.__doc__)
        target = target.func
    description, texts = read_docstring(getattr(target, "__doc__", None))
    if not inspect.isroutine(target):
        inner, texts = read_docstring(type(target).__call__.__doc__)
        description = description or inner
    return description, texts


# --- results ---------------------------------------------------------------------------------------------------------


def output_schema_of(annotation: Any) -> dict[str, Any] | None:
    """Return the schema of a return annotation, or None if results of it have no structured value."""
    annotation = _without_input_required(annotation)
    if annotation in (None, type(None), Any, ..., inspect.Parameter.empty) or _is_undescribed(annotation):
        return None
    try:
        schema = _schema_of(annotation)
        root = resolve_root_ref(schema)
        if root.get("type") == "object" or "properties" in root:
            return compress_schema(root, prune_titles=True) or None
        definitions = schema.pop("$defs", None)
        wrapped: dict[str, Any] = {"properties": {"result": schema}, "required": ["result"], "type": "object"}
        if definitions:
            wrapped["$defs"] = definitions
        return {**compress_schema(wrapped, prune_titles=True), "x-fastmcp-wrap-result": True}
    except _NO_SCHEMA:
        return None


class _OutputSchema(GenerateJsonSchema):
    """Names the members of each model as that model is serialized."""

    def model_schema(self, schema: Any) -> Any:
        """Return the schema of a model."""
        before, self.by_alias = self.by_alias, bool(schema["cls"].model_config.get("serialize_by_alias"))
        try:
            return super().model_schema(schema)
        finally:
            self.by_alias = before

    def dataclass_schema(self, schema: Any) -> Any:
        """Return the schema of a dataclass."""
        before, self.by_alias = self.by_alias, bool((schema.get("config") or {}).get("serialize_by_alias"))
        try:
            return super().dataclass_schema(schema)
        finally:
            self.by_alias = before


def _schema_of(annotation: Any) -> dict[str, Any]:
    from trunkline.compat.metadata import readable_typed_dict

    adapter: TypeAdapter[Any] = TypeAdapter(readable_typed_dict(annotation))
    return adapter.json_schema(mode="serialization", by_alias=False, schema_generator=_OutputSchema)


def _value_of(annotation: Any) -> Any:
    """Return what a ``type X = ...`` alias stands for."""
    while hasattr(annotation, "__value__") and not isinstance(annotation, type):
        annotation = annotation.__value__
    return annotation


def _without_input_required(annotation: Any) -> Any:
    """Return a union without the results that ask the client for more, at any depth."""
    signal = model_class("InputRequiredResult")
    inner = _value_of(annotation)
    if get_origin(inner) is Annotated:
        first, *notes = get_args(inner)
        kept = _without_input_required(first)
        return annotation if kept is first else Annotated[(kept, *notes)]
    if get_origin(inner) not in _UNIONS:
        return inner if isinstance(inner, type) and issubclass(inner, signal) else annotation
    parts = [_without_input_required(part) for part in get_args(inner)]
    left = [part for part in parts if not _is_kind(part, (signal,))]
    if not left or (len(left) == len(parts) and all(a is b for a, b in zip(parts, get_args(inner), strict=True))):
        return annotation
    return left[0] if len(left) == 1 else Union[tuple(left)]  # noqa: UP007 - made of parts known only now


def _is_kind(annotation: Any, kinds: tuple[type, ...]) -> bool:
    inner = _value_of(annotation)
    if get_origin(inner) is Annotated:
        return _is_kind(get_args(inner)[0], kinds)
    return isinstance(inner, type) and get_origin(inner) is None and issubclass(inner, kinds)


def _is_undescribed(annotation: Any) -> bool:
    """Return whether results are content, bytes, whole results or lists of anything: no schema describes them."""
    inner = _value_of(annotation)
    origin = get_origin(inner)
    if origin is Annotated:
        return _is_undescribed(get_args(inner)[0])
    if inner in _SEQUENCES:
        return True
    if origin in (list, Sequence) and all(part is Any for part in get_args(inner)):
        return True
    if origin is tuple and get_args(inner) == (Any, ...):
        return True
    return inner is bytes or _mentions_content(inner)


def _mentions_content(annotation: Any) -> bool:
    inner = _value_of(annotation)
    parts = get_args(inner)
    if parts:
        unions = get_origin(inner) in _UNIONS
        return any((unions and part is bytes) or _mentions_content(part) for part in parts if part is not ...)
    if not isinstance(inner, type):
        return False
    whole = (Image, Audio, File, OwnToolResult, model_class("CallToolResult"), model_class("InputRequiredResult"))
    return issubclass(inner, whole) or (issubclass(inner, Model) and "type" in inner.model_fields)


def is_block(value: Any) -> bool:
    """Return whether a value is content rather than data."""
    return isinstance(value, Image | Audio | File) or (isinstance(value, Model) and hasattr(value, "type"))


def fast_content(value: Any, serializer: Callable[[Any], str] | None = None) -> list[Any]:
    """Return a value as content: a list with content item by item, any other value as one text."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        if not value:
            return []
        if any(is_block(item) for item in value):
            return [block for item in value for block in _block(item, serializer)]
    return _block(value, serializer)


def _block(value: Any, serializer: Callable[[Any], str] | None) -> list[Any]:
    if is_block(value) or isinstance(value, str):
        return to_blocks(value)
    if isinstance(value, bytes) and serializer is None:
        return to_blocks(File(data=value))
    text = _json_text(value) if serializer is None else serializer(value)
    return [model_class("TextContent")(type="text", text=text)]


def _json_text(value: Any) -> str:
    return _ANYTHING.dump_json(value, fallback=str).decode()


class WholeResult(ToolResult):
    """A result that was made as the protocol's, and stays it."""

    __slots__ = ("raw",)

    @classmethod
    def of(cls, result: Any) -> WholeResult:
        """Keep the protocol's result."""
        made: Any = cls.from_mcp_result(result)
        made.raw = result
        return made  # type: ignore[no-any-return]

    def to_mcp_result(self) -> Any:
        """Return the result as it was made."""
        return self.raw


def _writer_of(return_type: Any) -> TypeAdapter[Any] | None:
    """Return what writes values of a return annotation, where the values themselves do not say how."""
    if get_origin(return_type) not in (list, dict, tuple, set):
        return None
    try:
        return TypeAdapter(return_type)
    except _NO_SCHEMA:
        return None


def _text_by(writer: TypeAdapter[Any]) -> Callable[[Any], str]:
    def text(value: Any) -> str:
        try:
            return writer.dump_json(value, warnings=False).decode()
        except (pydantic_core.PydanticSerializationError, ValueError):
            return _json_text(value)

    return text


def _written(writer: TypeAdapter[Any] | None, value: Any) -> Any:
    """Return a value as JSON.

    Raises:
        ValueError: it has no JSON form.
    """
    if writer is not None:
        with suppress(pydantic_core.PydanticSerializationError, ValueError):
            return writer.dump_python(value, mode="json", warnings=False)
    try:
        return _ANYTHING.dump_python(value, mode="json")
    except pydantic_core.PydanticSerializationError as error:
        raise ValueError(f"Could not serialize the result: {error}") from error


def to_fast_result(
    value: Any,
    schema: dict[str, Any] | None,
    serializer: Callable[[Any], str] | None = None,
    return_type: Any = None,
) -> ToolResult:
    """Return what a function returned as a result; ``return_type`` says how its parts are written.

    Raises:
        ValueError: the schema describes an object and the value is none.
    """
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, OwnToolResult):
        return ToolResult(
            value.content, None if value.structured_content is msgspec.UNSET else value.structured_content
        )
    if isinstance(value, model_class("CallToolResult")):
        return WholeResult.of(value)
    writer = _writer_of(return_type)
    content = fast_content(value, serializer or (None if writer is None else _text_by(writer)))
    if schema is not None:
        plain = _written(writer, value)
        if schema.get("x-fastmcp-wrap-result"):
            return ToolResult(content, {"result": plain}, meta={"fastmcp": {"wrap_result": True}})
        return ToolResult(content, plain)
    if value is None or is_block(value) or isinstance(value, list | tuple | str | bytes | int | float):
        return ToolResult(content)
    try:
        plain = _ANYTHING.dump_python(value, mode="json")
    except (pydantic_core.PydanticSerializationError, ValueError):
        plain = None
    return ToolResult(content, plain if isinstance(plain, dict) else None)
