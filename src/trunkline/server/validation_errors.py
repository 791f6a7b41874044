"""Validation errors, and the coercion of what models send.

An error says where a value does not match its type, what was expected and what was found: the value itself in what a
caller sent, for it knows it, and its JSON type elsewhere. It knows neither functions nor requests. msgspec and pydantic
have their own messages; `explain_msgspec_error` and the pydantic module rewrite them. The message of an error raised by
user code (a `__post_init__`, a validator) is kept: its author wrote it for the caller.

Coercion converts values towards the expected type: "3" to 3, "[1, 2]" to a list, 3.0 to 3, null to the default, and the
forms of dates and times that pydantic reads. It runs only after strict reading failed, on decoded JSON and msgspec's
description of the type, and its result is read strictly again. Where text is allowed, text stays unchanged.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect as mi

__all__ = [
    "KEY",
    "KINDS",
    "MOST_PROBLEMS",
    "RECORDS",
    "InvalidArguments",
    "InvalidResult",
    "InvalidValue",
    "alternatives",
    "check_names",
    "choices_at",
    "choices_of",
    "coerce",
    "describe_choices",
    "did_you_mean",
    "explain_msgspec_error",
    "join_path",
    "json_kind",
    "name_problems",
    "quote",
    "step_into",
]

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from trunkline.types.json_values import JsonValue


#: The step of a path for a key of an object rather than a member.
KEY = "(key)"

#: How many characters of an unknown name are repeated in an error.
_NAME_LIMIT = 64
_CHOICES_SHOWN = 20  # More do not help a model to correct an argument.
#: How many errors of one call are told at once.
MOST_PROBLEMS = 10
_QUOTED = 60  # Characters of a value that are repeated in an error.

#: The words for types of msgspec, JSON and Python in errors. Text of a fixed form is named with the form, for the
#: model that corrects its call.
KINDS = MappingProxyType(
    {
        **dict.fromkeys(("array", "list"), "an array"),
        "bool": "a boolean",
        "bytes": "base64 text",
        "date": "a date (YYYY-MM-DD)",
        "datetime": "a date and time (YYYY-MM-DDTHH:MM:SS)",
        "decimal": "a decimal number",
        "float": "a number",
        "int": "an integer",
        **dict.fromkeys(("null", "NoneType"), "null"),
        **dict.fromkeys(("object", "dict"), "an object"),
        **dict.fromkeys(("Path", "PathLike", "PurePath"), "a path"),
        "str": "a string",
        "time": "a time (HH:MM:SS)",
        "timedelta": "an ISO 8601 duration such as PT5M",
        "uuid": "a UUID",
    }
)

_INVALID = MappingProxyType(
    {
        "Invalid RFC3339 encoded date": "date",
        "Invalid RFC3339 encoded datetime": "datetime",
        "Invalid RFC3339 encoded time": "time",
        "Invalid ISO8601 duration": "timedelta",
        "Invalid UUID": "uuid",
        "Invalid base64 encoded string": "bytes",
        "Invalid decimal string": "decimal",
    }
)

# Compiled on first use: starting a server needs none of them.
_LOCATED = r"(?s) - at (`key` in )?`\$(.*)`$"
_STEP = r"\.([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]"
_EXPECTED = r"(?s)Expected `([^`]*)`(?:, got `([^`]*)`)?(.*)"
_MISSING = r"(?s)Object missing required field `(.*)`"
_UNKNOWN = r"(?s)Object contains unknown field `(.*)`"


class InvalidValue(ValueError):
    """A value does not match its type; ``path`` is where (dotted, empty for the whole value), ``message`` why."""

    def __init__(self, message: str, *, path: str = "") -> None:
        """Create the error; its text is the path and the message."""
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class InvalidArguments(InvalidValue):
    """The arguments of a call do not match the function; the message is for the caller, who may try again."""

    @classmethod
    def of(cls, problems: Sequence[tuple[str, str]]) -> InvalidArguments:
        """Create the error for all problems of a call; each is a path and a message."""
        if len(problems) == 1:
            [(path, message)] = problems
            return cls(message, path=path)
        lines = [f"- {path}: {message}" if path else f"- {message}" for path, message in problems]
        return cls("\n".join((f"{len(problems)} errors:", *lines)))


class InvalidResult(InvalidValue):
    """A function returned a value that does not match its return annotation: a bug in the function."""


def json_kind(value: object, name: object = None) -> str:
    """Return the name of a decoded value's JSON type, with its article, whatever the name of the value."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "a string"
        case dict():
            return "an object"
        case list() | tuple():
            return "an array"
        case _:
            return f"a {type(value).__name__}"


def quote(value: object, name: object) -> str:
    """Return a rejected value as JSON, shortened; of objects, arrays and what looks like a secret only the kind."""
    from trunkline.protocol.secret_patterns import looks_secret

    is_secret = isinstance(value, str) and looks_secret(str(name), value)
    if is_secret or isinstance(value, dict | list | tuple):
        return json_kind(value)
    if isinstance(value, str) and len(value) > _QUOTED:
        return msgspec.json.encode(value[:_QUOTED] + "…").decode()
    return msgspec.json.encode(value).decode()


def join_path(steps: Sequence[str | int]) -> str:
    """Return a path as errors show it: ``filters.0.name``."""
    return ".".join(str(step)[:_NAME_LIMIT] for step in steps)


def describe_choices(choices: Collection[object]) -> str:
    """Return the allowed values as text, shortened if there are many."""
    shown = [repr(choice) for choice in list(choices)[:_CHOICES_SHOWN]]
    more = len(choices) - len(shown)
    return f"one of {', '.join(shown)}" + (f" and {more} more" if more else "")


def check_names(given: Collection[str], known: Collection[str], *, required: Collection[str]) -> None:
    """Check the names of arguments.

    Raises:
        InvalidArguments: names are unknown or missing; the message suggests the closest known names.
    """
    problems = name_problems(given, known, required=required)
    if problems:
        raise InvalidArguments.of([("", problem) for problem in problems])


def name_problems(given: Collection[str], known: Collection[str], *, required: Collection[str]) -> list[str]:
    """Return the errors for unknown and missing arguments; a missing one that was only misspelt has one."""
    unknown = [name for name in given if name not in known][:5]
    meant = {_closest(name, known) for name in unknown}
    missing = [repr(name) for name in required if name not in given and name not in meant]
    problems = [_unknown_argument(name, known) for name in unknown]
    return (
        [*problems, f"missing argument{'s' if len(missing) > 1 else ''} {', '.join(missing)}"] if missing else problems
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the closest known name, to be appended to an error; empty if there is none."""
    near = _closest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def _closest(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    name, names = name[:_NAME_LIMIT], list(known)
    return next(iter(get_close_matches(name, names, n=1) or get_close_matches(name.lower(), names, n=1)), None)


def _unknown_argument(name: str, known: Collection[str]) -> str:
    name = name[:_NAME_LIMIT]
    if hint := did_you_mean(name, known):
        return f"unknown argument {name!r}{hint}"
    if not known:
        return f"unknown argument {name!r}; there are no arguments"
    return (
        f"unknown argument {name!r}; the arguments are {', '.join(repr(each) for each in list(known)[:_CHOICES_SHOWN])}"
    )


def explain_msgspec_error(text: str) -> tuple[list[str | int], str]:
    """Split a msgspec error into the path (names, indexes, "*" for any element, `KEY` for a key) and our own message.

    msgspec's message for an enum contains the value, so ours is empty then: the caller, which knows the type, fills it.
    """
    steps: list[str | int] = []
    located = re.search(_LOCATED, text)
    if located is not None:
        text = text[: located.start()]
        for name, index, _ in re.findall(_STEP, located[2]):
            steps.append(name or (int(index) if index else "*"))
        if located[1]:
            steps.append(KEY)
    return steps, _rewrite(text)


def _rewrite(text: str) -> str:
    if text in _INVALID:
        return f"expected {KINDS[_INVALID[text]]}, got a string"
    if text.startswith(("Invalid enum value", "Invalid value")):
        return ""
    if found := re.fullmatch(_EXPECTED, text):
        wanted, got, rest = found.groups()
        expected = " or ".join(KINDS.get(word, word) for word in wanted.split(" | "))
        return f"expected {expected}{rest}" + (f", got {KINDS.get(got, got)}" if got else "")
    if found := re.fullmatch(_MISSING, text):
        return f"missing member {found[1]!r}"
    if found := re.fullmatch(_UNKNOWN, text):
        return f"unknown member {found[1][:_NAME_LIMIT]!r}"
    if text.endswith("out of range"):
        return "expected a number that a double can hold"
    return text


_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.0{1,30})?")
# JSON's grammar for numbers, so that "nan", "inf" and "1_000" stay text.
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,307})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?")
#: Seconds; longer ones no duration can hold.
_LONGEST_DURATION = 1e12
_BOOLEANS = MappingProxyType({"true": True, "True": True, "false": False, "False": False})
#: Above this a double cannot represent every integer, so a fraction of zero proves nothing.
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
_MOMENTS = (mi.DateTimeType, mi.DateType, mi.TimeType)
_MOST_SECONDS = 2e10  # The border between seconds and milliseconds, as in pydantic.
_SECONDS_OF_A_DAY = 86_400  # A time given in seconds is one of a day.
_ARRAYS = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType)
RECORDS = (mi.StructType, mi.DataclassType, mi.TypedDictType)
_OBJECTS = (*RECORDS, mi.DictType)
_WITH_NULL = (mi.NoneType, mi.AnyType, mi.RawType, mi.CustomType)


def coerce(value: JsonValue, kind: mi.Type) -> Any:
    """Return the value converted towards the type, or unchanged if nothing fits."""
    kinds = alternatives(kind)
    if isinstance(value, str):
        return _from_text(value, kinds)
    if isinstance(value, int | float):
        return _from_number(value, kinds)
    if isinstance(value, dict):
        return _inside_object(value, kinds)
    if isinstance(value, list):
        return _inside_array(value, kinds)
    return value


def _from_number(value: int | float, kinds: list[mi.Type]) -> Any:
    """Read 0 and 1 as booleans and numbers of seconds as durations, where nothing else fits; both are common."""
    if isinstance(value, float) and any(isinstance(kind, mi.IntType | mi.FloatType) for kind in kinds):
        return _from_float(value, kinds)
    if isinstance(value, bool) or any(isinstance(kind, mi.IntType | mi.FloatType) for kind in kinds):
        return value
    if value in (0, 1) and any(isinstance(kind, mi.BoolType) for kind in kinds):
        return bool(value)
    if moment := next((kind for kind in kinds if isinstance(kind, _MOMENTS)), None):
        return _from_timestamp(value, moment)
    if any(isinstance(kind, mi.TimeDeltaType) for kind in kinds) and abs(value) < _LONGEST_DURATION:
        return f"{'-' if value < 0 else ''}PT{abs(value):.6f}S"
    return _from_float(value, kinds) if isinstance(value, float) else value


def _from_moment_text(text: str, kind: mi.Type) -> str:
    """Rewrite an ISO 8601 date or time, such as ``2026-01-02 10:00``, as RFC 3339 has it; unchanged if it is none."""
    from datetime import datetime, time

    try:
        if isinstance(kind, mi.TimeType):
            return time.fromisoformat(text).isoformat()
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if isinstance(kind, mi.DateTimeType):
        return moment.isoformat()
    return text if moment.time() != time() else moment.date().isoformat()


def _from_timestamp(value: int | float, kind: mi.Type) -> Any:
    """Read seconds since 1970, or milliseconds if there are so many, as a date or time, like pydantic."""
    from datetime import UTC, datetime, timedelta

    seconds = value if abs(value) <= _MOST_SECONDS else value / 1000
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return value
    if isinstance(kind, mi.TimeType):
        return moment.timetz().isoformat() if 0 <= value < _SECONDS_OF_A_DAY else value
    text = _from_moment_text(moment.replace(tzinfo=None).isoformat(), kind)
    return moment.isoformat() if isinstance(kind, mi.DateTimeType) else text


def choices_at(kind: mi.Type, steps: list[str | int]) -> list[Any]:
    """Return the values allowed at a path, if the type there is an enum, literals or tagged records."""
    kinds = alternatives(kind)
    for step in steps:
        tags = [each.tag for each in kinds if isinstance(each, mi.StructType) and each.tag_field == step]
        if tags:
            return tags
        kinds = [inner for each in kinds for part in step_into(each, step) for inner in alternatives(part)]
    return [choice for each in kinds for choice in choices_of(each)]


def alternatives(kind: mi.Type) -> list[mi.Type]:
    """Return the members of a union, or the type itself, without metadata."""
    if isinstance(kind, mi.Metadata):
        return alternatives(kind.type)
    if isinstance(kind, mi.UnionType):
        return [inner for part in kind.types for inner in alternatives(part)]
    return [kind]


def step_into(kind: mi.Type, step: str | int) -> list[mi.Type]:
    """Return the type of a member or item; empty if there is none."""
    if isinstance(kind, RECORDS):
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


def choices_of(kind: mi.Type) -> list[Any]:
    """Return the values of an enum or of literals."""
    if isinstance(kind, mi.LiteralType):
        return list(kind.values)
    if isinstance(kind, mi.EnumType):
        return [member.value for member in kind.cls]
    return []


def _from_text(text: str, kinds: list[mi.Type]) -> Any:
    # msgspec allows no other kind of text beside a date or time.
    if moment := next((kind for kind in kinds if isinstance(kind, _MOMENTS)), None):
        return _from_timestamp(float(text), moment) if _NUMBER.fullmatch(text) else _from_moment_text(text, moment)
    if any(isinstance(kind, _TEXTS) or text in choices_of(kind) for kind in kinds):
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
    for choice in choices_of(kind):
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
    wants_integer = any(isinstance(kind, mi.IntType) or int(value) in choices_of(kind) for kind in kinds)
    return int(value) if wants_integer else value


def _inside_object(value: dict[str, JsonValue], kinds: list[mi.Type]) -> Any:
    for kind in kinds:
        if isinstance(kind, mi.StructType) and kind.tag_field and value.get(kind.tag_field) != kind.tag:
            continue
        if isinstance(kind, _OBJECTS):
            members = {name: item for name, item in value.items() if item is not None or not _has_default(kind, name)}
            return {name: _at_step(item, kind, name) for name, item in members.items()}
    return value


def _has_default(kind: mi.Type, name: str) -> bool:
    """Return whether a record has a default for a member that may not be null: null then means that it was left out.

    CrewAI and others send null for every optional argument that the model left out.
    """
    if not isinstance(kind, RECORDS):
        return False
    field = next((field for field in kind.fields if field.encode_name == name), None)
    return field is not None and not field.required and not any(map(_accepts_null, alternatives(field.type)))


def _accepts_null(kind: mi.Type) -> bool:
    return isinstance(kind, _WITH_NULL) or None in choices_of(kind)


def _inside_array(value: list[JsonValue], kinds: list[mi.Type]) -> Any:
    for kind in kinds:
        if isinstance(kind, (*_ARRAYS, mi.TupleType, mi.NamedTupleType)):
            return [_at_step(item, kind, index) for index, item in enumerate(value)]
    return value


def _at_step(item: JsonValue, kind: mi.Type, step: str | int) -> Any:
    inner = step_into(kind, step)
    return coerce(item, inner[0]) if inner else item
