"""The keys that tables of a policy file may have, and a parser for each: one row per key, for all tables.

A parser converts a TOML value to what a rule needs, or says what to write instead. It knows neither files nor lines;
``loader`` adds the place to the message.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from trunkline.host.config.spelling import nearest
from trunkline.host.policy.acts import ActKind, Annotations
from trunkline.host.policy.globs import compile_glob
from trunkline.host.policy.predicates import Predicate
from trunkline.host.policy.rules import KINDS, TIERS, WITH_ARGUMENTS

__all__ = ["CALLERS", "TARGETS", "Reader", "Wrong", "kinds_and_names", "read_members", "readers"]

CALLERS = ("gateway", "model", "server", "user")
#: The keys that name what a rule is about, and the kind of each.
TARGETS: Mapping[str, ActKind] = MappingProxyType({"tool": "tool", "prompt": "prompt", "uri": "resource"})

Reader: TypeAlias = Callable[[Any], Any]

_TESTS = ("absent", "equals", "glob", "host_in", "max", "min", "one_of", "present", "regex", "type", "within")
_HINTS = Annotations.__struct_fields__


class Wrong(ValueError):
    """A key or its value is invalid; the message says why and what to write."""

    def __init__(self, message: str, key: str | None = None) -> None:
        """Set the message, and the key if it is known."""
        super().__init__(message)
        self.key = key


def read_members(table: Mapping[str, Any], known: Mapping[str, Reader]) -> tuple[dict[str, Any], list[Wrong]]:
    """Parse all keys of a table; return the valid ones, and the errors of the others."""
    found: dict[str, Any] = {}
    faults: list[Wrong] = []
    for key, value in table.items():
        try:
            if key not in known:
                raise Wrong(f"unknown key {key!r}{_meant(key, known)}")
            found[key] = known[key](value)
        except ValueError as error:
            faults.append(Wrong(str(error) if key not in known else f"{key}: {error}", key))
    return found, faults


def kinds_and_names(members: Mapping[str, Any]) -> tuple[tuple[ActKind, ...], tuple[str, ...]]:
    """Return what a table is about: the kinds (tools by default), and globs over names.

    Raises:
        InvalidKey: two keys contradict each other.
    """
    targets = [key for key in TARGETS if key in members]
    if len(targets) > 1:
        raise Wrong(f"it has both {targets[0]} and {targets[1]}: write a rule for each", targets[1])
    if not targets:
        return members.get("kind", ("tool",)), ()
    kind = TARGETS[targets[0]]
    kinds: tuple[ActKind, ...] = members.get("kind", (kind,))
    if kinds != (kind,):
        raise Wrong(f"{targets[0]} implies the kind {kind!r}: leave kind out", targets[0])
    return kinds, members[targets[0]]


def _meant(name: str, known: Collection[str]) -> str:
    near = nearest(name, known)
    return f": did you mean {near!r}?" if near else f"; the keys are {', '.join(sorted(known))}"


# --- values ----------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise Wrong(f"write a string in quotes, not {value!r}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    texts = tuple(_text(each) for each in (value if isinstance(value, list) else [value]))
    if not texts:
        raise Wrong("an empty list matches nothing: leave the key out to match anything")
    return texts


def _globs(value: Any) -> tuple[str, ...]:
    for pattern in (patterns := _texts(value)):
        compile_glob(pattern)
    return patterns


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"write true or false, not {value!r}")
    return value


def _only_true(value: Any) -> bool:
    if value is not True:
        raise Wrong(f"write true, or leave it out, not {value!r}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise Wrong(f"write a number, not {value!r}")
    return value


def _choice(choices: Collection[str]) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            near = nearest(value, choices) if isinstance(value, str) else None
            hint = f": did you mean {near!r}?" if near else f": write one of {', '.join(choices)}"
            raise Wrong(f"{value!r} is not valid{hint}")
        return value

    return read


def _choices(choices: Collection[str]) -> Reader:
    read = _choice(choices)
    return lambda value: tuple(read(each) for each in _texts(value))


def _kinds(value: Any) -> tuple[ActKind, ...]:
    kinds: tuple[ActKind, ...] = KINDS if value == "*" else _choices(KINDS)(value)
    return kinds


def _tier(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return TIERS[_choice(tuple(TIERS))(value)]


def _moment(value: Any) -> float:
    """Parse a date or a time, in UTC unless it has an offset, as seconds since the epoch."""
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            raise Wrong(f"write a date as YYYY-MM-DD, not {value!r}") from None
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime.datetime):
        raise Wrong(f"write a date as YYYY-MM-DD, not {value!r}")
    return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp()


def _hints(value: Any) -> Annotations:
    found, faults = read_members(_table(value), dict.fromkeys(_HINTS, _truth))
    _first(faults)
    if not found:
        raise Wrong("it has no hint: leave it out, or write { read_only = true }")
    return Annotations(**found)


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Wrong(f"write a table {{ ... }}, not {value!r}")
    return value


def _first(faults: list[Wrong]) -> None:
    if faults:
        raise faults[0]


# --- predicates ------------------------------------------------------------------------------------------------------


def _json(value: Any) -> Any:
    """Return a TOML value that JSON also has."""
    for inner in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        _json(inner)
    if not isinstance(value, str | bool | int | float | list | dict):
        raise Wrong(f"{value!r} is not a JSON value: write it in quotes")
    return value


def _json_list(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise Wrong(f"write a list [ ... ] of values, not {value!r}")
    return [_json(each) for each in value]


def _list_of(read: Callable[[Any], tuple[str, ...]]) -> Reader:
    return lambda value: list(read(value))


def _pointer(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong(f"write a JSON pointer such as '/path', not {value!r}")
    return value


_PREDICATE: Mapping[str, Reader] = MappingProxyType(
    {
        "arg": _pointer,
        "not": _truth,
        "absent": _only_true,
        "equals": _json,
        "glob": _list_of(_globs),
        "host_in": _list_of(_texts),
        "max": _number,
        "min": _number,
        "one_of": _json_list,
        "present": _only_true,
        "regex": _text,
        "type": _list_of(_texts),
        "within": _list_of(_texts),
    }
)


def _when(value: Any) -> tuple[Predicate, ...]:
    if not isinstance(value, list) or not value:
        raise Wrong(f"write a list of predicates [{{ arg = ... }}], not {value!r}")
    return tuple(_predicate(_table(each)) for each in value)


def _predicate(table: Mapping[str, Any]) -> Predicate:
    found, faults = read_members(table, _PREDICATE)
    _first(faults)
    if "arg" not in found:
        raise Wrong("a predicate needs the argument it is about: add arg = '/...'")
    tests = [name for name in _TESTS if name in found]
    if not tests:
        raise Wrong(f"the predicate on {found['arg']!r} tests nothing: add one of {', '.join(_TESTS)}")
    negated = found.get("not", False)
    if set(tests) <= {"min", "max"}:
        return Predicate(found["arg"], "range", (found.get("min"), found.get("max")), negated)
    if len(tests) > 1:
        raise Wrong(f"the predicate on {found['arg']!r} has two tests, {tests[0]} and {tests[1]}: write two predicates")
    return Predicate(found["arg"], tests[0], found[tests[0]], negated)


# --- tables ----------------------------------------------------------------------------------------------------------

_ABOUT: Mapping[str, Reader] = MappingProxyType(
    {"kind": _kinds, "server": _globs, **dict.fromkeys(TARGETS, _globs)},
)
_READERS: Mapping[str, Mapping[str, Reader]] = MappingProxyType(
    {
        "rule": {
            **_ABOUT,
            "name": _text,
            "effect": _choice(("allow", "ask", "deny")),
            "tier": _tier,
            "when": _when,
            "annotations": _hints,
            "caller": _choices(CALLERS),
            "principal": _globs,
            "profile": _globs,
            "tainted": _truth,
            "trusted": _truth,
            "message": _text,
            "expires": _moment,
        },
        "redact": {**_ABOUT, "kind": _choices(sorted(WITH_ARGUMENTS)), "arg": _texts},
        "test": {
            "kind": _choice(KINDS),
            "server": _text,
            **dict.fromkeys(TARGETS, _text),
            "name": _text,
            "args": lambda value: _json(_table(value)),
            "annotations": _hints,
            "trusted": _truth,
            "tainted": _truth,
            "caller": _choice(CALLERS),
            "principal": _text,
            "profile": _text,
            "now": _moment,
            "expect": _choice(("allow", "ask", "deny")),
            "rule": _text,
            "listed": _truth,
        },
    }
)


def readers(table: str) -> Mapping[str, Reader]:
    """Return the keys that a table of this name may have, with their parsers."""
    return _READERS[table]
