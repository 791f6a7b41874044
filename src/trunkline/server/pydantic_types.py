"""Reading JSON with pydantic, for functions whose annotations or defaults come from it.

pydantic is never imported here, only used if the program has imported it. Arguments are read through one `TypeAdapter`
over a `TypedDict` made of the parameters, so that any parameter name works and the result is the keyword arguments.
Its errors are rewritten by `pydantic_errors`.
"""

from __future__ import annotations

import sys
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from trunkline.server.annotations import optional_of, pydantic_module, strip_annotated, survey
from trunkline.server.msgspec_types import json_default
from trunkline.server.pydantic_errors import explain_errors, steps_and_branches
from trunkline.server.validation_errors import MOST_PROBLEMS, InvalidArguments, name_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "PydanticArguments",
    "PydanticReader",
    "is_field",
    "make_arguments",
    "merge_field",
]

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
#: By location: the object that had a null there, and the errors.
_Nulls: TypeAlias = "dict[tuple[Any, ...], tuple[dict[Any, Any], list[dict[str, Any]]]]"
_NAMES = ("extra_forbidden", "missing")


class PydanticReader:
    """Reads JSON into one type with pydantic's lenient rules; also accepts JSON inside strings."""

    __slots__ = ("_adapter", "_shape", "shows_values", "strict")

    def __init__(self, kind: object) -> None:
        """Create the adapter; pydantic raises an error here for types that it does not support."""
        self._adapter = pydantic_module().TypeAdapter(_with_known_typed_dicts(kind))
        #: The schema, once an error was explained by it.
        self._shape: dict[str, Any] | None = None
        #: Whether values are read by pydantic's strict rules for JSON.
        self.strict = False
        #: Whether errors repeat rejected values.
        self.shows_values = False

    def read(self, raw: bytes | msgspec.Raw) -> Any:
        """Read bytes.

        Raises:
            InvalidArguments: they do not match the type.
        """
        raw = bytes(raw)
        try:
            return self._adapter.validate_json(raw, strict=self.strict or None)
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
        """Read again, with rejected strings that contain JSON replaced by their contents, and without rejected nulls.

        CrewAI and others send null for every optional argument that the model left out: the default is taken then.
        """
        try:
            value = msgspec.json.decode(raw)
            errors = refusal.errors(include_url=False)
            nulls = {} if self.strict else _drop_nulls(value, errors)
            if not self.strict and (_unpacked(value, [error["loc"] for error in errors]) or nulls):
                return self._adapter.validate_json(msgspec.json.encode(value))
        except msgspec.DecodeError:
            raise InvalidArguments("not JSON") from None
        except RecursionError:
            raise InvalidArguments("nested too deeply") from None
        except ValueError as second:
            again = cast("Any", second).errors(include_url=False)
            errors = [restored for error in again for restored in _restore_nulls(error, nulls, value)]
        raise InvalidArguments.of(self._problems(errors, value)) from None

    def _problems(self, errors: list[dict[str, Any]], value: Any) -> list[tuple[str, str]]:
        """Return the path and the message of each error."""
        if self._shape is None:
            self._shape = self._generate("validation")
        return explain_errors(errors, value, self._shape, shows_values=self.shows_values)[:MOST_PROBLEMS]


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
        self.shows_values = True

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

    def _problems(self, errors: list[dict[str, Any]], value: Any) -> list[tuple[str, str]]:
        names = {
            kind: [error["loc"][0] for error in errors if error["type"] == kind and len(error["loc"]) == 1]
            for kind in _NAMES
        }
        if not any(names.values()):
            return super()._problems(errors, value)
        unknown, missing = names.values()
        problems = name_problems(unknown, self._generate("validation")["properties"], required=missing)
        others = [error for error in errors if error["type"] not in _NAMES or len(error["loc"]) > 1]
        return [("", problem) for problem in problems] + super()._problems(others, value)


def make_arguments(given: Iterable[tuple[str, object, object]], label: str) -> PydanticArguments:
    """Return the reader of a function's arguments from (name, annotation, default) of each parameter.

    Raises:
        TypeError: pydantic does not support the type of a parameter; the message names it.
    """
    fields: list[tuple[str, Any, Any]] = []
    for name, annotation, default in given:
        try:
            adapted, default = merge_field(annotation, default)
            fields.append((name, adapted, default))
            PydanticArguments(fields[-1:])
        except (TypeError, RuntimeError) as error:
            reason = str(error).partition(". ")[0].partition("\n")[0].rstrip(".")
            if "typing_extensions." in reason:
                # pydantic names the fix itself.
                raise TypeError(f"{label}: parameter {name!r}: {reason[0].lower()}{reason[1:]}") from error
            raise TypeError(
                f"{label}: parameter {name!r}: {reason}; the function also uses pydantic, so use a type that "
                "pydantic supports, such as a dataclass or a pydantic model"
            ) from error
    return PydanticArguments(fields)


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
    # A union that has None already would have its schema doubled by another one.
    is_nullable = optional is not None or NoneType in get_args(strip_annotated(inner)[0])
    return (inner | None if default is None and not is_nullable else inner), default


def _as_field(meta: msgspec.Meta) -> Any:
    known = {name: value for name in _META if (value := getattr(meta, name)) is not None}
    return pydantic_module().Field(json_schema_extra=meta.extra_json_schema, **known)


def _typed_dict(fields: Sequence[tuple[str, object, object]]) -> Any:
    # pydantic rejects `typing.TypedDict` before Python 3.12, and depends on typing_extensions itself.
    import typing_extensions

    pydantic = pydantic_module()
    members: dict[str, Any] = {
        name: known if default is msgspec.UNSET else typing_extensions.NotRequired[known]
        for name, note, default in fields
        for known in (_with_known_typed_dicts(note),)
    }
    make: Any = typing_extensions.TypedDict
    kind = make("Arguments", members)
    kind.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)
    return kind


def _with_known_typed_dicts(annotation: Any, replaced: dict[Any, Any] | None = None) -> Any:
    """Return a type with each `typing.TypedDict` in it, which pydantic rejects before Python 3.12, made again.

    One that contains itself, or is a member of another class, is left to pydantic, whose error names the remedy.
    """
    if sys.version_info >= (3, 12):
        return annotation
    replaced = {} if replaced is None else replaced
    origin = get_origin(annotation)
    if is_typeddict(annotation) and type(annotation).__module__ == "typing":
        if annotation not in replaced:
            replaced[annotation] = annotation
            replaced[annotation] = _known_typed_dict(annotation, replaced)
        return replaced[annotation]
    if origin is Annotated:
        known = _with_known_typed_dicts(annotation.__origin__, replaced)
        return annotation if known is annotation.__origin__ else Annotated[known, *annotation.__metadata__]
    if origin is None or origin is Literal:
        return annotation
    parts = get_args(annotation)
    known_parts = tuple(_with_known_typed_dicts(part, replaced) for part in parts)
    if all(known is part for known, part in zip(known_parts, parts, strict=True)):
        return annotation
    made: Any = Union if origin is UnionType else origin
    return made[known_parts]


def _known_typed_dict(kind: Any, replaced: dict[Any, Any]) -> Any:
    import typing_extensions

    members: dict[str, Any] = {}
    for name, note in get_type_hints(kind, include_extras=True).items():
        origin = get_origin(note)
        is_optional = name in kind.__optional_keys__ and origin is not Required
        member = _with_known_typed_dicts(get_args(note)[0] if origin in (Required, NotRequired) else note, replaced)
        members[name] = NotRequired[member] if is_optional or origin is NotRequired else member
    make: Any = typing_extensions.TypedDict
    known = make(kind.__name__, members)
    known.__doc__, known.__module__ = kind.__doc__, kind.__module__
    if hasattr(kind, "__pydantic_config__"):
        known.__pydantic_config__ = kind.__pydantic_config__
    return known


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


def _drop_nulls(value: Any, errors: list[dict[str, Any]]) -> _Nulls:
    """Remove, in place, the members of objects that were rejected as null; return them by location."""
    rejected: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for error in errors:
        if error["input"] is None:
            rejected.setdefault(tuple(steps_and_branches(error, value)[0]), []).append(error)
    dropped: _Nulls = {}
    for steps, reasons in rejected.items():
        holder = value
        for step in steps[:-1]:
            holder = holder[step]
        if steps and isinstance(holder, dict) and holder.get(steps[-1], ...) is None:
            del holder[steps[-1]]
            dropped[steps] = (holder, reasons)
    return dropped


def _restore_nulls(error: dict[str, Any], dropped: _Nulls, value: Any) -> list[dict[str, Any]]:
    """Return the errors that the null at this place had, if there is no default for it; otherwise the given one."""
    steps = tuple(steps_and_branches(error, value)[0])
    if error["type"] != "missing" or steps not in dropped:
        return [error]
    holder, reasons = dropped[steps]
    holder[steps[-1]] = None
    return reasons
