"""Predicates on arguments: a pointer, a test and its operand; each test is a row of one table.

A test returns True, False, or None if it cannot judge the value: it has another type than the test is for, or it is too
long or too odd to be read with certainty. What follows depends on the effect of the rule, so that doubt never allows
anything:

====================  ===========  ================
the value             allow rule   ask, deny rule
====================  ===========  ================
passes the test       holds        holds
fails the test        no           no
cannot be judged      no           holds
is missing            no           no
several, by ``*``     all of them  any of them
====================  ===========  ================

``not`` swaps the first two rows, and leaves the other two as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

from trunkline.host.policy.acts import Act, Annotations
from trunkline.host.policy.addresses import compile_hosts, file_uri_forms, host_of, is_file_uri, uri_matcher
from trunkline.host.policy.globs import any_glob, escape_glob
from trunkline.host.policy.paths import Paths, compile_within
from trunkline.host.policy.pointers import MISSING, UNJUDGED, follow, parse_pointer

__all__ = ["TESTS", "Predicate", "PredicateError", "Test", "compile_predicate", "type_of"]

#: Takes an act, the effective hints and the time; returns True, False, or None for unknown.
Test: TypeAlias = Callable[[Act, Annotations, "float | None"], "bool | None"]
#: Takes a value and its act; returns True, False, or None if the value cannot be judged.
_Judge: TypeAlias = Callable[[Any, Act], "bool | None"]

# Longer texts are not matched: that would block the event loop.
_MOST_TEXT = 1_000_000
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


class PredicateError(ValueError):
    """The operand of a test is invalid; the message says why and what to write."""


class Predicate(Struct, frozen=True):
    """One condition on the arguments of an act."""

    #: The JSON pointer; ``*`` as a part stands for every element.
    arg: str
    #: The name of a row of ``TESTS``.
    test: str
    #: The operand; for ``range`` the minimum and the maximum, None where there is no bound.
    value: Any = None
    negated: bool = False

    def __str__(self) -> str:
        """Describe the predicate for people."""
        said = TESTS[self.test].say(self.value)
        return f"{self.arg or 'all arguments'} {'not ' if self.negated else ''}{said}"


class _Circumstances(NamedTuple):
    paths: Paths
    #: Passing the test restricts the act, so one matching form is enough.
    loose: bool


class _Test(NamedTuple):
    """A row: how a test is compiled from its operand, and how it is described."""

    make: Callable[[Any, _Circumstances], _Judge]
    say: Callable[[Any], str]


def compile_predicate(predicate: Predicate, *, opens: bool, paths: Paths) -> Test:
    """Return a function that checks if a predicate holds; it returns None while the arguments are unknown.

    ``for_allow`` is True for a rule that allows.

    Raises:
        ValueError: the pointer or the operand is invalid; the message says what to write.
    """
    parts = parse_pointer(predicate.arg)
    judge = TESTS[predicate.test].make(predicate.value, _Circumstances(paths, loose=opens is predicate.negated))
    if predicate.negated:
        judge = _negation(judge)

    if len(parts) == 1 and parts[0] != "*":
        return _of_one(parts[0], judge, opens)
    return _of_many(parts, judge, opens)


def _of_one(name: str, judge: _Judge, opens: bool) -> Test:
    otherwise = not opens

    def holds(act: Act, hints: object, now: object) -> bool | None:
        arguments = act.arguments
        if arguments is None:
            return None
        verdict = judge(arguments.get(name, MISSING), act)
        return otherwise if verdict is None else verdict

    return holds


def _of_many(parts: tuple[str, ...], judge: _Judge, opens: bool) -> Test:
    def holds(act: Act, hints: object, now: object) -> bool | None:
        if act.arguments is None:
            return None
        verdicts = [judge(value, act) for value in follow(act.arguments, parts)]
        if opens:
            return all(verdict is True for verdict in verdicts)
        return any(verdict is not False for verdict in verdicts)

    return holds


def _negation(judge: _Judge) -> _Judge:
    def negated(value: Any, act: Act) -> bool | None:
        verdict = judge(value, act)
        # A missing value cannot fail a test; ``absent`` and ``present`` are about it, so they are negated as they are.
        if verdict is None or (value is MISSING and judge not in (_absent, _present)):
            return verdict
        return not verdict

    return negated


# --- the tests -------------------------------------------------------------------------------------------------------


def type_of(value: Any) -> str:
    """Return the JSON type of a value; a boolean is not a number."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list() | tuple():
            return "array"
        case Mapping():
            return "object"
        case _:
            raise PredicateError(f"{value!r} is not a JSON value")


def _of_text(test: Callable[[str], bool | None]) -> _Judge:
    """Return a value test for a test of strings."""

    def judge(value: Any, act: Act) -> bool | None:
        if type(value) is str and len(value) <= _MOST_TEXT:
            return test(value)
        return False if value is MISSING else None

    return judge


def _within(folders: list[str], given: _Circumstances) -> _Judge:
    inside = compile_within(folders, paths=given.paths, loose=given.loose)

    def judge(value: Any, act: Act) -> bool | None:
        if type(value) is str:
            return inside(value, act.server)
        return False if value is MISSING else None

    return judge


def _glob(patterns: list[str], given: _Circumstances) -> _Judge:
    fits, fits_uri = any_glob(patterns), uri_matcher(patterns, opens=not given.loose)
    return _of_text(lambda value: fits_uri(value) if is_file_uri(value) else bool(fits(value)))


def _in_forms(test: Callable[[str], bool | None], *, loose: bool) -> Callable[[str], bool | None]:
    """Return a test that checks a ``file:`` URI in every form it may be read as, so that no spelling escapes it."""

    def of_forms(value: str) -> bool | None:
        if not is_file_uri(value):
            return test(value)
        forms = file_uri_forms(value)
        as_written = (value, forms.written) if loose else (forms.written,)
        verdicts = [test(each) for each in dict.fromkeys((*as_written, *forms.decoded))]
        if loose in verdicts:
            return loose
        return None if None in verdicts else not loose

    return of_forms


def _regex(pattern: str, given: _Circumstances) -> _Judge:
    from importlib import import_module

    try:
        re2: Any = import_module("re2")
    except ImportError:
        raise PredicateError("regex needs the linear-time engine RE2: pip install 'trunkline[host]'") from None
    options = re2.Options()
    options.log_errors, options.never_capture = False, True
    try:
        fits = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        why = error.args[0]
        raise PredicateError(f"{pattern!r} is not a valid RE2 pattern: {why.decode(errors='replace')}") from None

    def test(value: str) -> bool | None:
        try:
            return fits(value) is not None
        except UnicodeEncodeError:
            return None

    return _of_text(_in_forms(test, loose=given.loose))


def _host_in(patterns: list[str], given: _Circumstances) -> _Judge:
    known = compile_hosts(patterns)

    def test(value: str) -> bool | None:
        host = host_of(value)
        return None if host is None else known(host)

    return _of_text(test)


def _range(bounds: tuple[float | None, float | None], given: _Circumstances) -> _Judge:
    least, most = bounds
    if least is not None and most is not None and least > most:
        raise PredicateError(f"no number is at least {least} and at most {most}")

    def judge(value: Any, act: Act) -> bool | None:
        if type(value) is int or type(value) is float:
            return (least is None or value >= least) and (most is None or value <= most)
        return False if value is MISSING else None

    return judge


def _one_of(wanted: list[Any], given: _Circumstances) -> _Judge:
    types = frozenset(map(type_of, wanted))
    uris = [escape_glob(each) for each in wanted if type(each) is str and is_file_uri(each)]
    fits_uri = uri_matcher(uris, opens=not given.loose)

    def judge(value: Any, act: Act) -> bool | None:
        if value is MISSING:
            return False
        if value is UNJUDGED or type_of(value) not in types:
            return None
        if any(_same(value, each) for each in wanted):
            return True
        return bool(uris) and type(value) is str and is_file_uri(value) and fits_uri(value)

    return judge


def _same(one: Any, other: Any) -> bool:
    """Return True if two JSON values are equal; a boolean never equals a number."""
    kind = type_of(one)
    if kind != type_of(other):
        return False
    if kind == "array":
        return len(one) == len(other) and all(map(_same, one, other))
    if kind == "object":
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _type(wanted: list[str], given: _Circumstances) -> _Judge:
    if unknown := [each for each in wanted if each not in _TYPES]:
        raise PredicateError(f"{unknown[0]!r} is not a JSON type: write one of {', '.join(_TYPES)}")

    def judge(value: Any, act: Act) -> bool | None:
        if isinstance(value, type(MISSING)):
            return False if value is MISSING else None
        whole = type(value) is int or (type(value) is float and value.is_integer())
        return type_of(value) in wanted or (whole and "integer" in wanted)

    return judge


def _absent(value: Any, act: Act) -> bool | None:
    # Some servers treat null as missing and some do not, so null cannot be judged.
    return None if value is None or value is UNJUDGED else value is MISSING


def _present(value: Any, act: Act) -> bool | None:
    return None if value is None or value is UNJUDGED else value is not MISSING


def _listed(values: list[Any]) -> str:
    return ", ".join(map(repr, values))


def _say_range(bounds: tuple[float | None, float | None]) -> str:
    words = [
        f"{word} {bound}" for word, bound in zip(("at least", "at most"), bounds, strict=True) if bound is not None
    ]
    return " and ".join(words)


#: Every test by its name in a rule; ``range`` combines ``min`` and ``max``.
TESTS: Mapping[str, _Test] = MappingProxyType(
    {
        "absent": _Test(lambda _, given: _absent, lambda _: "absent"),
        "equals": _Test(lambda value, given: _one_of([value], given), lambda value: f"equal to {value!r}"),
        "glob": _Test(_glob, lambda value: f"like {_listed(value)}"),
        "host_in": _Test(_host_in, lambda value: f"a URL at {_listed(value)}"),
        "one_of": _Test(_one_of, lambda value: f"one of {_listed(value)}"),
        "present": _Test(lambda _, given: _present, lambda _: "present"),
        "range": _Test(_range, _say_range),
        "regex": _Test(_regex, lambda value: f"matching {value!r}"),
        "type": _Test(_type, lambda value: f"of type {_listed(value)}"),
        "within": _Test(_within, lambda value: f"within {_listed(value)}"),
    }
)
