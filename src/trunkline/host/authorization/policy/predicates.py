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

from trunkline.host.authorization.policy.decisions import Act, ToolHints
from trunkline.host.authorization.policy.locations import (
    PathReader,
    compile_hosts,
    compile_within,
    file_uri_forms,
    host_of,
    is_file_uri,
    uri_matcher,
)
from trunkline.host.authorization.policy.patterns import (
    MISSING,
    UNJUDGED,
    any_glob,
    escape_glob,
    parse_pointer,
    resolve_pointer,
)

__all__ = ["TESTS", "ConditionTest", "InvalidPredicate", "Predicate", "compile_predicate", "type_of"]

#: Takes an act, the effective hints and the time; returns True, False, or None for unknown.
ConditionTest: TypeAlias = Callable[[Act, ToolHints, "float | None"], "bool | None"]
#: Takes a value and its act; returns True, False, or None if the value cannot be judged.
_ValueTest: TypeAlias = Callable[[Any, Act], "bool | None"]

# Longer texts are not matched: that would block the event loop.
_MOST_TEXT = 1_000_000
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


class InvalidPredicate(ValueError):
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


class _TestContext(NamedTuple):
    paths: PathReader
    #: Passing the test restricts the act, so one matching form is enough.
    lenient: bool


class _TestKind(NamedTuple):
    """A row: how a test is compiled from its operand, and how it is described."""

    make: Callable[[Any, _TestContext], _ValueTest]
    say: Callable[[Any], str]


def compile_predicate(predicate: Predicate, *, for_allow: bool, paths: PathReader) -> ConditionTest:
    """Return a function that checks if a predicate holds; it returns None while the arguments are unknown.

    ``for_allow`` is True for a rule that allows.

    Raises:
        ValueError: the pointer or the operand is invalid; the message says what to write.
    """
    parts = parse_pointer(predicate.arg)
    check = TESTS[predicate.test].make(predicate.value, _TestContext(paths, lenient=for_allow is predicate.negated))
    if predicate.negated:
        check = _negation(check)

    if len(parts) == 1 and parts[0] != "*":
        return _of_one(parts[0], check, for_allow)
    return _of_many(parts, check, for_allow)


def _of_one(name: str, check: _ValueTest, for_allow: bool) -> ConditionTest:
    otherwise = not for_allow

    def holds(act: Act, hints: object, now: object) -> bool | None:
        arguments = act.arguments
        if arguments is None:
            return None
        verdict = check(arguments.get(name, MISSING), act)
        return otherwise if verdict is None else verdict

    return holds


def _of_many(parts: tuple[str, ...], check: _ValueTest, for_allow: bool) -> ConditionTest:
    def holds(act: Act, hints: object, now: object) -> bool | None:
        if act.arguments is None:
            return None
        verdicts = [check(value, act) for value in resolve_pointer(act.arguments, parts)]
        if for_allow:
            return all(verdict is True for verdict in verdicts)
        return any(verdict is not False for verdict in verdicts)

    return holds


def _negation(check: _ValueTest) -> _ValueTest:
    def negated(value: Any, act: Act) -> bool | None:
        verdict = check(value, act)
        # A missing value cannot fail a test; ``absent`` and ``present`` are about it, so they are negated as they are.
        if verdict is None or (value is MISSING and check not in (_absent, _present)):
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
            raise InvalidPredicate(f"{value!r} is not a JSON value")


def _of_text(test: Callable[[str], bool | None]) -> _ValueTest:
    """Return a value test for a test of strings."""

    def check(value: Any, act: Act) -> bool | None:
        if type(value) is str and len(value) <= _MOST_TEXT:
            return test(value)
        return False if value is MISSING else None

    return check


def _within(folders: list[str], given: _TestContext) -> _ValueTest:
    inside = compile_within(folders, paths=given.paths, lenient=given.lenient)

    def check(value: Any, act: Act) -> bool | None:
        if type(value) is str:
            return inside(value, act.server)
        return False if value is MISSING else None

    return check


def _glob(patterns: list[str], given: _TestContext) -> _ValueTest:
    fits, fits_uri = any_glob(patterns), uri_matcher(patterns, for_allow=not given.lenient)
    return _of_text(lambda value: fits_uri(value) if is_file_uri(value) else bool(fits(value)))


def _in_forms(test: Callable[[str], bool | None], *, lenient: bool) -> Callable[[str], bool | None]:
    """Return a test that checks a ``file:`` URI in every form it may be read as, so that no spelling escapes it."""

    def of_forms(value: str) -> bool | None:
        if not is_file_uri(value):
            return test(value)
        forms = file_uri_forms(value)
        as_written = (value, forms.written) if lenient else (forms.written,)
        verdicts = [test(each) for each in dict.fromkeys((*as_written, *forms.decoded))]
        if lenient in verdicts:
            return lenient
        return None if None in verdicts else not lenient

    return of_forms


def _regex(pattern: str, given: _TestContext) -> _ValueTest:
    from importlib import import_module

    try:
        re2: Any = import_module("re2")
    except ImportError:
        raise InvalidPredicate("regex needs the linear-time engine RE2: pip install 'trunkline[host]'") from None
    options = re2.Options()
    options.log_errors, options.never_capture = False, True
    try:
        fits = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        why = error.args[0]
        raise InvalidPredicate(f"{pattern!r} is not a valid RE2 pattern: {why.decode(errors='replace')}") from None

    def test(value: str) -> bool | None:
        try:
            return fits(value) is not None
        except UnicodeEncodeError:
            return None

    return _of_text(_in_forms(test, lenient=given.lenient))


def _host_in(patterns: list[str], given: _TestContext) -> _ValueTest:
    known = compile_hosts(patterns)

    def test(value: str) -> bool | None:
        host = host_of(value)
        return None if host is None else known(host)

    return _of_text(test)


def _range(bounds: tuple[float | None, float | None], given: _TestContext) -> _ValueTest:
    least, most = bounds
    if least is not None and most is not None and least > most:
        raise InvalidPredicate(f"no number is at least {least} and at most {most}")

    def check(value: Any, act: Act) -> bool | None:
        if type(value) is int or type(value) is float:
            return (least is None or value >= least) and (most is None or value <= most)
        return False if value is MISSING else None

    return check


def _one_of(wanted: list[Any], given: _TestContext) -> _ValueTest:
    types = frozenset(map(type_of, wanted))
    uris = [escape_glob(each) for each in wanted if type(each) is str and is_file_uri(each)]
    fits_uri = uri_matcher(uris, for_allow=not given.lenient)

    def check(value: Any, act: Act) -> bool | None:
        if value is MISSING:
            return False
        if value is UNJUDGED or type_of(value) not in types:
            return None
        if any(_same(value, each) for each in wanted):
            return True
        return bool(uris) and type(value) is str and is_file_uri(value) and fits_uri(value)

    return check


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


def _type(wanted: list[str], given: _TestContext) -> _ValueTest:
    if unknown := [each for each in wanted if each not in _TYPES]:
        raise InvalidPredicate(f"{unknown[0]!r} is not a JSON type: write one of {', '.join(_TYPES)}")

    def check(value: Any, act: Act) -> bool | None:
        if isinstance(value, type(MISSING)):
            return False if value is MISSING else None
        whole = type(value) is int or (type(value) is float and value.is_integer())
        return type_of(value) in wanted or (whole and "integer" in wanted)

    return check


def _absent(value: Any, act: Act) -> bool | None:
    # Some servers treat null as missing and some do not, so null cannot be judged.
    return None if value is None or value is UNJUDGED else value is MISSING


def _present(value: Any, act: Act) -> bool | None:
    return None if value is None or value is UNJUDGED else value is not MISSING


def _listed(values: list[Any]) -> str:
    return ", ".join(map(repr, values))


def _range_text(bounds: tuple[float | None, float | None]) -> str:
    words = [
        f"{word} {bound}" for word, bound in zip(("at least", "at most"), bounds, strict=True) if bound is not None
    ]
    return " and ".join(words)


#: Every test by its name in a rule; ``range`` combines ``min`` and ``max``.
TESTS: Mapping[str, _TestKind] = MappingProxyType(
    {
        "absent": _TestKind(lambda _, given: _absent, lambda _: "absent"),
        "equals": _TestKind(lambda value, given: _one_of([value], given), lambda value: f"equal to {value!r}"),
        "glob": _TestKind(_glob, lambda value: f"like {_listed(value)}"),
        "host_in": _TestKind(_host_in, lambda value: f"a URL at {_listed(value)}"),
        "one_of": _TestKind(_one_of, lambda value: f"one of {_listed(value)}"),
        "present": _TestKind(lambda _, given: _present, lambda _: "present"),
        "range": _TestKind(_range, _range_text),
        "regex": _TestKind(_regex, lambda value: f"matching {value!r}"),
        "type": _TestKind(_type, lambda value: f"of type {_listed(value)}"),
        "within": _TestKind(_within, lambda value: f"within {_listed(value)}"),
    }
)
