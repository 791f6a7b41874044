"""Reading JSON with pydantic, for functions whose annotations or defaults come from it.

pydantic is never imported here, only used if the program has imported it. Arguments are read through one `TypeAdapter`
over a `TypedDict` made of the parameters, so that any parameter name works and the result is the keyword arguments.
Its errors are rewritten: without links, and without the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from trunkline.server.annotations import optional_of, pydantic_module, strip_annotated, survey
from trunkline.server.msgspec_types import json_default
from trunkline.server.validation_errors import InvalidArguments, check_names, join_path, json_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["PydanticArguments", "PydanticReader", "explain_pydantic_error", "is_field", "merge_field"]

_META = (
    "gt",
    "ge",
    "lt",
    "le",
    "multiple_of",
    "pattern",
    "min_length",
    "max_length",
    "title",
    "description",
    "examples",
)
#: Errors whose message is complete; for the others the JSON type of the value is added.
_CONSTRAINTS = ("greater_than", "less_than", "multiple_of", "too_short", "too_long", "pattern_mismatch")


class PydanticReader:
    """Reads JSON into one type with pydantic's lenient rules; also accepts JSON inside strings."""

    __slots__ = ("_adapter",)

    def __init__(self, kind: object) -> None:
        """Create the adapter; pydantic raises an error here for types that it does not support."""
        self._adapter = pydantic_module().TypeAdapter(kind)

    def read(self, raw: bytes | msgspec.Raw) -> Any:
        """Read bytes.

        Raises:
            InvalidArguments: they do not match the type.
        """
        raw = bytes(raw)
        try:
            return self._adapter.validate_json(raw)
        except ValueError as refusal:
            return self._read_again(raw, refusal)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the type."""
        return self._tidy(self._generate("validation"))

    def result_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the encoded type."""
        return self._tidy(self._generate("serialization"))

    def write(self, value: object) -> bytes:
        """Check a value against the type and encode it as JSON."""
        written: bytes = self._adapter.dump_json(self._adapter.validate_python(value), by_alias=True)
        return written

    def plain(self, value: object) -> Any:
        """Return the value as plain Python objects, with numbers unchanged."""
        return self._adapter.dump_python(self._adapter.validate_python(value), by_alias=True)

    def _generate(self, mode: str) -> dict[str, Any]:
        generator = pydantic_module().json_schema.GenerateJsonSchema
        untitled = type("Untitled", (generator,), {"field_title_should_be_set": lambda self, schema: False})
        schema: dict[str, Any] = self._adapter.json_schema(mode=mode, schema_generator=untitled)
        return schema

    def _tidy(self, schema: dict[str, Any]) -> dict[str, Any]:
        from trunkline.server.schemas import tidy

        definitions = schema.pop("$defs", {})
        # `tidy` drops a title that equals the name of its definition; the root of a schema has no name to compare.
        schema.pop("title", None)
        return tidy(schema, definitions)

    def _read_again(self, raw: bytes, refusal: Any) -> Any:
        """Read again, with rejected strings that contain JSON replaced by their contents."""
        try:
            value = msgspec.json.decode(raw)
            again = _unpacked(value, [error["loc"] for error in refusal.errors(include_url=False)])
            if again:
                return self._adapter.validate_json(msgspec.json.encode(value))
        except msgspec.DecodeError:
            raise InvalidArguments("not JSON") from None
        except RecursionError:
            raise InvalidArguments("nested too deeply") from None
        except ValueError as second:
            refusal = second
        self._reject(refusal)

    def _reject(self, refusal: Any) -> None:
        path, sentence = explain_pydantic_error(refusal)
        raise InvalidArguments(sentence, path=path) from None


class PydanticArguments(PydanticReader):
    """Reads the arguments of a call into keyword arguments; absent ones are left to the function's defaults."""

    __slots__ = ("_fields", "_required")

    def __init__(self, fields: Iterable[tuple[str, object, object]]) -> None:
        """Create the reader from (name, annotation, default); without a default, it is `msgspec.UNSET`.

        Raises:
            TypeError: pydantic does not support the type of a parameter.
        """
        self._fields = tuple(fields)
        super().__init__(_typed_dict(self._fields))

    def bind(self, raw: bytes | msgspec.Raw | None) -> dict[str, Any]:
        """Read arguments into keyword arguments.

        Raises:
            InvalidArguments: they do not match the type.
        """
        found: dict[str, Any] = self.read(b"{}" if raw is None or bytes(raw) == b"null" else raw)
        return found

    def arguments_schema(self, descriptions: dict[str, str]) -> dict[str, Any]:
        """Return the schema of the arguments, with a description for each parameter."""
        schema = self._generate("validation")
        schema.setdefault("properties", {})
        schema.pop("additionalProperties", None)
        for name, _, default in self._fields:
            # A field with an alias is listed under the alias.
            field = schema["properties"].get(name, {})
            if name in descriptions:
                field["description"] = descriptions[name]
            if default is not msgspec.UNSET and "default" not in field and (known := json_default(default)) is not None:
                field["default"] = known
        return self._tidy(schema)

    def _reject(self, refusal: Any) -> None:
        errors = refusal.errors(include_url=False, include_context=False)
        names = {error["type"]: True for error in errors if len(error["loc"]) == 1}
        if "extra_forbidden" in names or "missing" in names:
            schema = self._generate("validation")
            unknown = [
                error["loc"][0] for error in errors if error["type"] == "extra_forbidden" and len(error["loc"]) == 1
            ]
            missing = [error["loc"][0] for error in errors if error["type"] == "missing" and len(error["loc"]) == 1]
            check_names(unknown, schema["properties"], required=missing)
        super()._reject(refusal)


def is_field(value: object) -> bool:
    """Return whether a parameter's default is a pydantic ``Field``."""
    pydantic = pydantic_module()
    return pydantic is not None and isinstance(value, pydantic.fields.FieldInfo)


def merge_field(annotation: Any, default: Any) -> tuple[Any, Any]:
    """Return a parameter's annotation and default in the form that pydantic needs, with all metadata as ``Field``.

    Raises:
        TypeError: msgspec metadata is inside the type, where pydantic would ignore it.
    """
    inner, metadata = strip_annotated(annotation)
    optional = optional_of(inner)
    for note in (inner,) if optional is None else ():
        if any(isinstance(item, msgspec.Meta) for item in survey((note,)).metadata):
            raise TypeError(
                "msgspec.Meta inside a type cannot be used together with pydantic: use pydantic.Field there"
            )
    for item in metadata:
        inner = Annotated[inner, _as_field(item) if isinstance(item, msgspec.Meta) else item]
    if is_field(default):
        return Annotated[inner, default], msgspec.UNSET if default.is_required() else default
    return (inner | None if default is None else inner), default


def _as_field(meta: msgspec.Meta) -> Any:
    known = {name: value for name in _META if (value := getattr(meta, name)) is not None}
    return pydantic_module().Field(json_schema_extra=meta.extra_json_schema, **known)


def _typed_dict(fields: Sequence[tuple[str, object, object]]) -> Any:
    # pydantic rejects `typing.TypedDict` before Python 3.12, and depends on typing_extensions itself.
    import typing_extensions

    pydantic = pydantic_module()
    members: dict[str, Any] = {
        name: note if default is msgspec.UNSET else typing_extensions.NotRequired[note]
        for name, note, default in fields
    }
    make: Any = typing_extensions.TypedDict
    kind = make("Arguments", members)
    kind.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)
    return kind


def _unpacked(value: Any, locations: Iterable[Sequence[str | int]]) -> bool:
    """Replace, in place, each string at the locations that contains a JSON array or object; return whether any did."""
    changed = False
    for location in locations:
        holder: Any = None
        key: Any = None
        here = value
        for step in location:
            # Steps that name a member of a union are not part of the value.
            fits = step in here if isinstance(here, dict) else isinstance(here, list) and isinstance(step, int)
            if fits:
                holder, key, here = here, step, here[step]
        if holder is not None and isinstance(here, str) and here.lstrip().startswith(("[", "{")):
            try:
                holder[key] = msgspec.json.decode(here)
                changed = True
            except msgspec.DecodeError:
                continue
    return changed


def explain_pydantic_error(refusal: Any) -> tuple[str, str]:
    """Return the path and the message for the first error of pydantic."""
    error = refusal.errors(include_url=False)[0]
    return join_path(error["loc"]), _sentence(error)


def _sentence(error: dict[str, Any]) -> str:
    kind, message = error["type"], error["msg"]
    if kind == "json_invalid":
        return "not JSON"
    if kind == "missing":
        return "missing"
    if kind == "extra_forbidden":
        return "unknown member"
    if kind == "union_tag_invalid":
        return f"expected one of the tags {error['ctx']['expected_tags']}"
    if not message.startswith("Input should "):
        return str(message.removeprefix("Value error, ").removeprefix("Assertion failed, "))
    wanted = message.removeprefix("Input should be ").removeprefix("Input should ").replace("a valid ", "a ")
    wanted = wanted.replace("a integer", "an integer").replace("a array", "an array").replace("a object", "an object")
    if any(part in kind for part in _CONSTRAINTS):
        return f"expected something {wanted}"
    if kind in ("enum", "literal_error"):
        # A wrong choice is mostly of the right type.
        return f"expected {wanted}"
    if kind.endswith(("_type", "_parsing")) or kind == "int_from_float":
        wanted = wanted.partition(", ")[0]
    return f"expected {wanted}, got {json_kind(error['input'])}"
