"""Every problem of a JSON value that does not match its type; msgspec stops at the first.

It is loaded when arguments are rejected. It walks a value along msgspec's description of the type: a union is entered
at the branch that fits the value, or that its tag names, and only what has no members is left to msgspec, whose words
are rewritten by `explain_msgspec_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union
from uuid import UUID

import msgspec
from msgspec import inspect as mi

from trunkline.server.schemas import declared_order
from trunkline.server.validation_errors import (
    KEY,
    MOST_PROBLEMS,
    RECORDS,
    alternatives,
    choices_of,
    describe_choices,
    did_you_mean,
    explain_msgspec_error,
    join_path,
    json_kind,
    quote,
    step_into,
)

if TYPE_CHECKING:
    from trunkline.server.schemas import Orders

__all__ = ["Problem", "find_problems"]

_DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, RecursionError)
_SEQUENCES = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType, mi.TupleType, mi.NamedTupleType)
_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
_CLASSES: MappingProxyType[type, Any] = MappingProxyType(
    {
        mi.NoneType: None,
        mi.BoolType: bool,
        mi.IntType: int,
        mi.FloatType: float,
        mi.StrType: str,
        mi.BytesType: bytes,
        mi.ByteArrayType: bytearray,
        mi.MemoryViewType: memoryview,
        mi.DateTimeType: datetime,
        mi.DateType: date,
        mi.TimeType: time,
        mi.TimeDeltaType: timedelta,
        mi.UUIDType: UUID,
        mi.DecimalType: Decimal,
        mi.DictType: dict,
        **dict.fromkeys(RECORDS, dict),
        **dict.fromkeys(_SEQUENCES, list),
    }
)


class Problem(NamedTuple):
    """What is wrong at one place of a value."""

    steps: tuple[str | int, ...]
    message: str
    #: The rejected value; UNSET if the message is complete without it.
    value: Any = msgspec.UNSET

    def explained(self, *, shows_value: bool) -> tuple[str, str]:
        """Return the path and the whole message, with the value or its kind."""
        if self.value is msgspec.UNSET:
            return join_path(self.steps), self.message
        name = self.steps[-1] if self.steps and self.steps[-1] != KEY else None
        found = quote(self.value, name) if shows_value else json_kind(self.value)
        return join_path(self.steps), f"{self.message}, got {found}"


def find_problems(
    value: Any, kind: mi.Type, *, hook: Callable[[Any, Any], Any], orders: Orders, are_arguments: bool
) -> list[Problem]:
    """Return the problems of a value, at most `MOST_PROBLEMS`.

    Args:
        value: the decoded JSON.
        kind: msgspec's description of its type.
        hook: decodes what msgspec does not know.
        orders: the declared order of choices.
        are_arguments: the names of the outermost members are not checked, since the caller has other words for them.
    """
    try:
        search = _Search(hook, orders, checks_root=not are_arguments)
        return list(islice(search.at(value, kind, ()), MOST_PROBLEMS))
    except RecursionError:
        return []


class _Search:
    """One search; it has the decoders of the types that it met."""

    def __init__(self, hook: Callable[[Any, Any], Any], orders: Orders, *, checks_root: bool) -> None:
        self._checks_root = checks_root
        self._hook = hook
        self._orders = orders
        self._decoders: dict[tuple[int, ...], msgspec.json.Decoder[Any]] = {}

    def at(self, value: Any, kind: mi.Type, steps: tuple[str | int, ...]) -> Iterator[Problem]:
        """Yield the problems of the value at a path."""
        kinds = alternatives(kind)
        fitting: Any
        if isinstance(value, dict):
            tagged = [each for each in kinds if isinstance(each, mi.StructType) and each.tag_field]
            if tagged:
                yield from self._tagged(value, tagged, steps)
                return
            fitting = next((each for each in kinds if isinstance(each, (*RECORDS, mi.DictType))), None)
        else:
            fitting = next((each for each in kinds if isinstance(value, list) and isinstance(each, _SEQUENCES)), None)
        if fitting is None:
            yield from self._leaf(value, kinds, steps)
        elif isinstance(value, list):
            yield from self._array(value, fitting, steps)
        elif isinstance(fitting, mi.DictType):
            yield from self._mapping(value, fitting, steps)
        else:
            yield from self._record(value, fitting, steps)

    def _tagged(
        self, value: dict[str, Any], kinds: list[mi.StructType], steps: tuple[str | int, ...]
    ) -> Iterator[Problem]:
        field = str(kinds[0].tag_field)
        chosen = next((kind for kind in kinds if field in value and kind.tag == value[field]), None)
        if chosen is not None:
            yield from self._record(value, chosen, steps)
            return
        tags = describe_choices([kind.tag for kind in kinds])
        if field in value:
            yield Problem((*steps, field), f"expected {tags}", value[field])
        else:
            yield Problem(steps, f"missing member {field!r}, {tags}")

    def _record(self, value: dict[str, Any], kind: Any, steps: tuple[str | int, ...]) -> Iterator[Problem]:
        fields = {field.encode_name: field for field in kind.fields}
        is_sound = True
        checks_names = bool(steps) or self._checks_root
        if checks_names and getattr(kind, "forbid_unknown_fields", False):
            for name in value.keys() - fields.keys() - {kind.tag_field}:
                is_sound = False
                yield Problem(steps, f"unknown member {name[:64]!r}{did_you_mean(name, fields)}")
        for name, field in fields.items():
            if name in value:
                for problem in self.at(value[name], field.type, (*steps, name)):
                    is_sound = False
                    yield problem
            elif field.required and checks_names:
                is_sound = False
                yield Problem(steps, f"missing member {name!r}")
        if is_sound and checks_names:
            # A `__post_init__` may reject what has only valid members.
            yield from self._whole(value, kind.cls, steps)

    def _mapping(self, value: dict[str, Any], kind: mi.DictType, steps: tuple[str | int, ...]) -> Iterator[Problem]:
        yield from self._whole(value, _constrained(kind, dict), steps)
        checks_keys = not all(type(key) is mi.StrType for key in alternatives(kind.key_type))
        for name, item in value.items():
            if checks_keys:
                yield from self._leaf(name, alternatives(kind.key_type), (*steps, KEY), is_key=True)
            yield from self.at(item, kind.value_type, (*steps, name))

    def _array(self, value: list[Any], kind: Any, steps: tuple[str | int, ...]) -> Iterator[Problem]:
        is_fixed = isinstance(kind, mi.TupleType | mi.NamedTupleType)
        shape: Any = tuple.__class_getitem__((Any,) * len(kind.item_types)) if isinstance(kind, mi.TupleType) else list
        yield from self._whole(value, shape if is_fixed else _constrained(kind, list), steps)
        for index, item in enumerate(value):
            for inner in step_into(kind, index):
                yield from self.at(item, inner, (*steps, index))

    def _leaf(
        self, value: Any, kinds: list[mi.Type], steps: tuple[str | int, ...], *, is_key: bool = False
    ) -> Iterator[Problem]:
        decoder = self._decoders.get(known := tuple(map(id, kinds)))
        if decoder is None:
            annotation: Any = Union[tuple(map(_annotation, kinds))]  # noqa: UP007 - made of parts known only now
            expected: Any = dict.__class_getitem__((annotation, None)) if is_key else annotation
            decoder = msgspec.json.Decoder(expected, dec_hook=self._hook)
            self._decoders[known] = decoder
        yield from self._decoded({value: None} if is_key else value, decoder, steps, value, kinds)

    def _whole(self, value: Any, annotation: Any, steps: tuple[str | int, ...]) -> Iterator[Problem]:
        if annotation not in (dict, list):
            yield from self._decoded(value, msgspec.json.Decoder(annotation, dec_hook=self._hook), steps, value, [])

    def _decoded(
        self, data: Any, decoder: Any, steps: tuple[str | int, ...], value: Any, kinds: list[mi.Type]
    ) -> Iterator[Problem]:
        try:
            decoder.decode(msgspec.json.encode(data))
        except _DECODE_ERRORS as error:
            inner, message = explain_msgspec_error(str(error))
            choices = [choice for kind in kinds for choice in choices_of(kind)]
            if not message or (choices and all(choices_of(kind) or isinstance(kind, mi.NoneType) for kind in kinds)):
                message = f"expected {describe_choices(declared_order(choices, self._orders))}"
            plain = message.removesuffix(f", got {json_kind(value)}")
            is_own_text = not message.startswith("expected ")
            place = (*steps, *(step for step in inner if step != KEY))
            yield Problem(place, plain, msgspec.UNSET if is_own_text else value)


def _annotation(kind: mi.Type) -> Any:
    """Return a type that msgspec reads as the described one; of containers only the kind."""
    if isinstance(kind, mi.LiteralType):
        return Literal[tuple(kind.values)]
    if isinstance(kind, mi.EnumType | mi.CustomType):
        return kind.cls
    base = _CLASSES.get(type(kind), Any)
    return base if base in (dict, list) else _constrained(kind, base)


def _constrained(kind: mi.Type, base: Any) -> Any:
    constraints = {name: limit for name in _CONSTRAINTS if (limit := getattr(kind, name, None)) is not None}
    return Annotated[base, msgspec.Meta(**constraints)] if constraints else base
