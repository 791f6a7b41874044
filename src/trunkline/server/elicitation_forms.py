"""Elicitation forms: the flat schema of a type, and the reader of the user's answer.

It knows types only. A record (dataclass, struct, TypedDict, attrs class, pydantic model) becomes a form with one field
per member; a single value (text, number, boolean, a choice, several choices) becomes a form with the one field
``value``; None becomes a form without fields, a plain confirmation; a given JSON Schema is sent unchanged. Nothing may
be nested: clients show forms as simple widgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, is_typeddict

import msgspec

from trunkline.server.annotations import survey
from trunkline.server.msgspec_types import MsgspecArguments, MsgspecReader, adapt, find_unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.types.json_values import JsonObject

__all__ = ["form_schema"]

Schema = dict[str, Any]

_VALUE = "value"
#: Forms of classes that are remembered; a program has fewer that it asks for.
_FORMS = 256
_TEXTS = ("title", "description")
#: The keywords that a field of each type may have, by the specification's PrimitiveSchemaDefinition.
_ALLOWED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "boolean": ("default",),
        "integer": ("minimum", "maximum", "default"),
        "number": ("minimum", "maximum", "default"),
        "string": ("minLength", "maxLength", "format", "default"),
    }
)
_FORMATS = frozenset({"date", "date-time", "email", "uri"})


def form_schema(kind: object) -> tuple[Schema, Callable[[JsonObject], Any]]:
    """Return the form of a type, and a function that converts accepted content to a value of it.

    The function raises `InvalidArguments` for content that does not fit.

    Args:
        kind: a type, None, a list of strings to choose one from, or the form's JSON Schema.

    Raises:
        TypeError: the type has a part that a form cannot have; the message names it.
    """
    if kind is None or kind is type(None):
        return {"type": "object", "properties": {}}, lambda content: None
    if isinstance(kind, Mapping):
        return _given_form(dict(kind))
    if isinstance(kind, (list, tuple)):
        kind = _choice_of(kind)
    # Other annotations may be equal although their forms differ: two choices in another order.
    return _class_form(kind) if isinstance(kind, type) else _type_form(kind)


@lru_cache(maxsize=_FORMS)
def _class_form(kind: type) -> tuple[Schema, Callable[[JsonObject], Any]]:
    """Return the form of a class, which is made once: a handler asks with it again in each round."""
    return _type_form(kind)


def _type_form(kind: object) -> tuple[Schema, Callable[[JsonObject], Any]]:
    types = survey((kind,))
    if not types.from_pydantic and (other := find_unsupported(types)) is not None:
        raise TypeError(f"{kind!r} cannot be used in a form: {other.__qualname__} cannot be read from JSON")
    if _is_record(kind):
        return _record_form(kind)
    arguments = _one_value(kind)
    schema = _flat(arguments.arguments_schema({}), named=False)
    return schema, lambda content: arguments.bind(msgspec.json.encode(content))[_VALUE]


def _given_form(schema: Schema) -> tuple[Schema, Callable[[JsonObject], Any]]:
    """Return a given JSON Schema as the form, and a function that validates content against it."""
    from trunkline.protocol.json_schema import SchemaError, compile_schema
    from trunkline.server.validation_errors import InvalidArguments

    fields = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(fields, dict):
        raise TypeError('the schema of a form must be {"type": "object", "properties": {...}}')
    for name, field in fields.items():
        if not isinstance(field, dict) or field.get("type") not in (*_ALLOWED, "array"):
            raise TypeError(
                f"field {name!r} cannot be used in a form: its type must be one of {', '.join(_ALLOWED)}, array"
            )
    try:
        validator = compile_schema(schema)
    except SchemaError as error:
        raise TypeError(f"the schema of a form is not valid: {error}") from error

    def read(content: JsonObject) -> dict[str, Any]:
        problem = validator.first_violation(content)
        if problem is not None:
            raise InvalidArguments(problem.message, path=problem.path)
        return content

    return schema, read


def _choice_of(choices: list[object] | tuple[object, ...]) -> Any:
    if not choices or not all(isinstance(choice, str) for choice in choices):
        raise TypeError("a list of choices must have one or more strings")
    return Literal[tuple(choices)]


def _is_record(kind: object) -> bool:
    marks = ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "model_fields")
    return is_typeddict(kind) or (isinstance(kind, type) and any(hasattr(kind, mark) for mark in marks))


def _one_value(kind: object) -> Any:
    fields = [(_VALUE, adapt(kind), msgspec.UNSET)]
    try:
        if survey((kind,)).from_pydantic:
            from trunkline.server.pydantic_types import PydanticArguments

            reader: Any = PydanticArguments(fields)
        else:
            reader = MsgspecArguments(fields)
    except (TypeError, RuntimeError) as error:
        raise TypeError(f"{kind!r} cannot be used in a form: {error}") from error
    # What a person entered is not repeated in errors, which a model may read.
    reader.shows_values = False
    return reader


def _record_form(kind: object) -> tuple[Schema, Callable[[JsonObject], Any]]:
    reader: Any
    if survey((kind,)).from_pydantic:
        from trunkline.server.pydantic_types import PydanticReader

        reader = PydanticReader(kind)
    else:
        reader = MsgspecReader(kind)
    described = reader.schema()
    optional = [name for name, field in described.get("properties", {}).items() if _is_nullable(field)]
    schema = _flat(described)

    def read(content: JsonObject) -> Any:
        # Clients leave out fields that were not filled in, where the type has None.
        required = described.get("required", ())
        missing = {name: None for name in optional if name in required and name not in content}
        return reader.read(msgspec.json.encode({**content, **missing}))

    return schema, read


def _is_nullable(field: Schema) -> bool:
    kind = field.get("type")
    return isinstance(kind, list) or {"type": "null"} in field.get("anyOf", ())


def _flat(schema: Schema, *, named: bool = True) -> Schema:
    """Return an object schema reduced to what a form can have."""
    fields: Schema = {}
    for name, field in schema.get("properties", {}).items():
        where = f"field {name!r}" if named else "the type"
        fields[name] = _field(field, where)
    required = [name for name in schema.get("required", ()) if not _is_nullable(schema["properties"][name])]
    return {"type": "object", "properties": fields, **({"required": required} if required else {})}


def _field(field: Schema, where: str) -> Schema:
    field = _without_null(field)
    texts = {key: field[key] for key in _TEXTS if key in field}
    choices = _choices(field)
    if choices is not None:
        default = {"default": str(field["default"])} if "default" in field else {}
        return {"type": "string", **texts, "enum": choices, **default}
    if field.get("type") == "array":
        return _several(field, where) | texts
    allowed = _ALLOWED.get(str(field.get("type")))
    if allowed is None:
        raise TypeError(
            f"{where} cannot be used in a form: use text, a number, a boolean, a choice, or a list of choices"
        )
    kept = {key: field[key] for key in allowed if key in field}
    if kept.get("format", "date") not in _FORMATS:
        del kept["format"]
    return {"type": field["type"], **texts, **kept}


def _several(field: Schema, where: str) -> Schema:
    items = field.get("items")
    choices = _choices(items) if isinstance(items, dict) else None
    if choices is None:
        raise TypeError(f"{where} cannot be used in a form: a list must have choices (an Enum or Literal) as items")
    kept: Schema = {key: field[key] for key in ("minItems", "maxItems") if key in field}
    if "default" in field:
        kept["default"] = [str(each) for each in field["default"]]
    return {"type": "array", "items": {"type": "string", "enum": choices}, **kept}


def _choices(field: Schema) -> list[str] | None:
    # Clients only support choices of strings; numbers are converted back from their text.
    if "const" in field:
        return [str(field["const"])]
    return [str(choice) for choice in field["enum"]] if "enum" in field else None


def _without_null(field: Schema) -> Schema:
    if isinstance(field.get("type"), list):
        field = {**field, "type": next(kind for kind in field["type"] if kind != "null")}
    if "enum" in field:
        field = {**field, "enum": [choice for choice in field["enum"] if choice is not None]}
    inner = [part for part in field.get("anyOf", ()) if part != {"type": "null"}]
    if len(inner) == 1:
        return {**inner[0], **{key: value for key, value in field.items() if key != "anyOf"}}
    return field
