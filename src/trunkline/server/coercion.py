"""What models send, bent towards the type that was asked for: "3" for 3, "[1, 2]" for a list, 3.0 for 3.

It runs only after a strict reading failed, over decoded JSON and msgspec's description of the type, and decides
nothing: whatever it returns is read strictly again. Where text is allowed, text stays what was sent.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect as mi

from trunkline.server.mismatch import KEY

if TYPE_CHECKING:
    from trunkline.types.json_values import JsonValue

__all__ = ["choices_at", "coerce"]

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.0{1,30})?")
# JSON's own grammar for numbers, so that "nan", "inf" and "1_000" stay text.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,307})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?")
_BOOLEANS = MappingProxyType({"true": True, "True": True, "false": False, "False": False})
#: Above this a double no longer holds every integer, so a fraction of zero proves nothing.
_EXACT = 2**53

_TEXTS = (
    mi.StrType,
    mi.BytesType,
    mi.ByteArrayType,
    mi.MemoryViewType,
    mi.DateTimeType,
    mi.DateType,
    mi.TimeType,
    mi.TimeDeltaType,
    mi.UUIDType,
    mi.DecimalType,
    mi.CustomType,
    mi.AnyType,
    mi.RawType,
)
_ARRAYS = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType)
_RECORDS = (mi.StructType, mi.DataclassType, mi.TypedDictType)
_OBJECTS = (*_RECORDS, mi.DictType)


def coerce(value: JsonValue, kind: mi.Type) -> Any:
    """Give the value as the type would have it, or as it is where nothing fits."""
    kinds = _alternatives(kind)
    if isinstance(value, str):
        return _from_text(value, kinds)
    if isinstance(value, float):
        return _from_float(value, kinds)
    if isinstance(value, dict):
        return _inside_object(value, kinds)
    if isinstance(value, list):
        return _inside_array(value, kinds)
    return value


def choices_at(kind: mi.Type, steps: list[str | int]) -> list[Any]:
    """List the values allowed at a path, if the type there is an enum, literals or tagged records."""
    kinds = _alternatives(kind)
    for step in steps:
        tags = [each.tag for each in kinds if isinstance(each, mi.StructType) and each.tag_field == step]
        if tags:
            return tags
        kinds = [inner for each in kinds for part in _step_into(each, step) for inner in _alternatives(part)]
    return [choice for each in kinds for choice in _choices(each)]


def _alternatives(kind: mi.Type) -> list[mi.Type]:
    if isinstance(kind, mi.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, mi.UnionType):
        return [inner for part in kind.types for inner in _alternatives(part)]
    return [kind]


def _step_into(kind: mi.Type, step: str | int) -> list[mi.Type]:
    if isinstance(kind, _RECORDS):
        return [field.type for field in kind.fields if field.encode_name == step]
    if isinstance(kind, mi.DictType):
        return [kind.key_type if step == KEY else kind.value_type]
    if isinstance(kind, _ARRAYS):
        return [kind.item_type]
    if isinstance(kind, mi.TupleType) and isinstance(step, int):
        return list(kind.item_types[step : step + 1])
    if isinstance(kind, mi.NamedTupleType) and isinstance(step, int):
        return [field.type for field in kind.fields[step : step + 1]]
    return []


def _choices(kind: mi.Type) -> list[Any]:
    if isinstance(kind, mi.LiteralType):
        return list(kind.values)
    if isinstance(kind, mi.EnumType):
        return [member.value for member in kind.cls]
    return []


def _from_text(text: str, kinds: list[mi.Type]) -> Any:
    if any(isinstance(kind, _TEXTS) or text in _choices(kind) for kind in kinds):
        return text
    for kind in kinds:
        found = _read_scalar(text.strip(), kind)
        if found is not None:
            return found
    if any(isinstance(kind, mi.NoneType) for kind in kinds) and text.strip() == "null":
        return None
    return _from_json(text, kinds)


def _read_scalar(text: str, kind: mi.Type) -> Any:
    if isinstance(kind, mi.BoolType):
        return _BOOLEANS.get(text)
    if isinstance(kind, mi.IntType):
        return int(text.partition(".")[0]) if _INTEGER.fullmatch(text) else None
    if isinstance(kind, mi.FloatType):
        return float(text) if _NUMBER.fullmatch(text) else None
    for choice in _choices(kind):
        if isinstance(choice, int) and text == str(choice):
            return choice
    return None


def _from_json(text: str, kinds: list[mi.Type]) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    fits = _OBJECTS if isinstance(value, dict) else (*_ARRAYS, mi.TupleType, mi.NamedTupleType)
    if not any(isinstance(kind, fits) for kind in kinds):
        return text
    return _inside_object(value, kinds) if isinstance(value, dict) else _inside_array(value, kinds)


def _from_float(value: float, kinds: list[mi.Type]) -> Any:
    if any(isinstance(kind, mi.FloatType) for kind in kinds) or not value.is_integer() or abs(value) > _EXACT:
        return value
    wants_integer = any(isinstance(kind, mi.IntType) or int(value) in _choices(kind) for kind in kinds)
    return int(value) if wants_integer else value


def _inside_object(value: dict[str, JsonValue], kinds: list[mi.Type]) -> Any:
    for kind in kinds:
        if isinstance(kind, mi.StructType) and kind.tag_field and value.get(kind.tag_field) != kind.tag:
            continue
        if isinstance(kind, _OBJECTS):
            return {name: _at_step(item, kind, name) for name, item in value.items()}
    return value


def _inside_array(value: list[JsonValue], kinds: list[mi.Type]) -> Any:
    for kind in kinds:
        if isinstance(kind, (*_ARRAYS, mi.TupleType, mi.NamedTupleType)):
            return [_at_step(item, kind, index) for index, item in enumerate(value)]
    return value


def _at_step(item: JsonValue, kind: mi.Type, step: str | int) -> Any:
    inner = _step_into(kind, step)
    return coerce(item, inner[0]) if inner else item
