"""Predicates: each test on each sort of value, for rules that open and rules that close."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.authorization.policy.support import make_act
from trunkline.host.authorization.policy import PathContext, Predicate
from trunkline.host.authorization.policy.decisions import ToolHints
from trunkline.host.authorization.policy.locations import PathReader
from trunkline.host.authorization.policy.predicates import InvalidPredicate, compile_predicate

PATHS = PathReader(PathContext(home="/home/me"))
NONE = ToolHints()
#: What stands for an argument that is not given.
NOTHING = object()


def _holds(predicate: Predicate, arguments: dict[str, Any], *, for_allow: bool) -> bool | None:
    return compile_predicate(predicate, for_allow=for_allow, paths=PATHS)(make_act(arguments=arguments), NONE, None)


def _both(predicate: Predicate, value: Any) -> tuple[bool | None, bool | None]:
    """Say whether it holds in a rule that allows, and in one that asks or denies."""
    arguments = {} if value is NOTHING else {"x": value}
    return _holds(predicate, arguments, for_allow=True), _holds(predicate, arguments, for_allow=False)


#: Of each test: what it is compared with, a value that passes, one that fails, and some that cannot be judged.
ROWS: dict[str, tuple[Any, Any, Any, list[Any]]] = {
    "within": (["~/work"], "/home/me/work/a", "/etc/a", [5, None, True, ["/etc"], {}, "~/work/a", "a\x00b", "rel"]),
    "glob": (["a*"], "ab", "b", [5, None, True, ["ab"], "a" * 1_000_001]),
    "regex": ("a+", "aa", "aab", [5, None, False, ["a"], "\ud800", "a" * 1_000_001]),
    "host_in": (["a.com"], "https://a.com/x", "https://b.com/", [5, None, "a.com", "https://a.com@b.com/", []]),
    "range": ((1, 5), 5, 6, ["5", True, None, [3], {}]),
    "equals": ("main", "main", "dev", [5, None, True, ["main"]]),
    "one_of": (["a", 1], 1.0, "b", [None, True, ["a"], {}]),
}

CELLS = [
    pytest.param(test, wanted, value, expected, id=f"{test}-{row}")
    for test, (wanted, passing, failing, odd) in ROWS.items()
    for row, value, expected in [
        ("passes", passing, (True, True)),
        ("fails", failing, (False, False)),
        ("missing", NOTHING, (False, False)),
        *((f"unjudged{at}", each, (False, True)) for at, each in enumerate(odd)),
    ]
]


@pytest.mark.parametrize(("test", "wanted", "value", "expected"), CELLS)
def test_doubt_never_opens_a_door(test: str, wanted: Any, value: Any, expected: tuple[bool, bool]) -> None:
    assert _both(Predicate("/x", test, wanted), value) == expected


@pytest.mark.parametrize(("test", "wanted", "value", "expected"), CELLS)
def test_not_turns_yes_and_no_round_and_nothing_else(
    test: str, wanted: Any, value: Any, expected: tuple[bool, bool]
) -> None:
    turned = {(True, True): (False, False), (False, False): (True, True)}.get(expected, expected)
    assert _both(Predicate("/x", test, wanted, True), value) == (expected if value is NOTHING else turned)


@pytest.mark.parametrize(
    ("wanted", "values", "others"),
    [
        ("string", ["x"], [1, None]),
        ("integer", [1, 1.0], [1.5, True]),
        ("number", [1, 1.5], [True]),
        ("boolean", [True], [1]),
        ("null", [None], [NOTHING]),
        ("array", [[]], [{}]),
        ("object", [{}], [[]]),
    ],
)
def test_a_type_is_that_of_json(wanted: str, values: list[Any], others: list[Any]) -> None:
    is_one = [_both(Predicate("/x", "type", [wanted]), value) for value in (*values, *others)]
    assert is_one == [(True, True)] * len(values) + [(False, False)] * len(others)


@pytest.mark.parametrize(
    ("test", "value", "expected"),
    [
        ("absent", NOTHING, (True, True)),
        ("absent", "x", (False, False)),
        ("absent", None, (False, True)),
        ("present", NOTHING, (False, False)),
        ("present", "", (True, True)),
        ("present", None, (False, True)),
    ],
)
def test_null_counts_as_there_or_not_there_whichever_is_worse(
    test: str, value: Any, expected: tuple[bool, bool]
) -> None:
    assert _both(Predicate("/x", test), value) == expected


@pytest.mark.parametrize("test", ["absent", "present", "type"])
def test_what_may_be_inside_a_text_is_neither_there_nor_not(test: str) -> None:
    predicate = Predicate("/x/y", test, ["string"])
    assert _both(predicate, '{"y": "in a text"}') == (False, True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", "a"], (True, True)),
        (["a", "b"], (False, True)),
        (["b", "b"], (False, False)),
        (["a", 5], (False, True)),
        (["b", 5], (False, True)),
        ([], (False, False)),
        ("a", (False, True)),
        ({"k": "a"}, (True, True)),
    ],
)
def test_of_several_values_all_must_pass_to_open_and_one_to_close(values: Any, expected: tuple[bool, bool]) -> None:
    assert _both(Predicate("/x/*", "equals", "a"), values) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [([1], [True]), ([1], [1, 2]), ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": "1"}), ([[]], [{}])],
)
def test_values_are_equal_only_if_they_are_equal_json(one: Any, other: Any) -> None:
    assert _both(Predicate("/x", "equals", one), other) == (False, False)


@pytest.mark.parametrize("arg", ["/x", "/x/*", ""], ids=["one", "many", "all"])
@pytest.mark.parametrize("for_allow", [True, False], ids=["opens", "closes"])
def test_nothing_is_said_while_the_arguments_are_not_known(arg: str, for_allow: bool) -> None:
    from msgspec.structs import replace

    holds = compile_predicate(Predicate(arg, "present"), for_allow=for_allow, paths=PATHS)
    assert holds(replace(make_act(), arguments=None), NONE, None) is None


@pytest.mark.parametrize(
    ("bounds", "value", "holds"),
    [((None, 5), -1e9, True), ((None, 5), 5.5, False), ((1, None), 10**30, True), ((1, None), 0, False)],
)
def test_a_range_may_have_one_end(bounds: tuple[float | None, float | None], value: float, holds: bool) -> None:
    assert _both(Predicate("/x", "range", bounds), value) == (holds, holds)


@pytest.mark.parametrize(
    ("test", "value", "said"),
    [
        ("range", (5, 1), "no number is at least 5 and at most 1"),
        ("type", ["text"], "is not a JSON type"),
        ("regex", "(a", "is not a valid RE2 pattern: missing \\)"),
        ("regex", "(?=a)", "is not a valid RE2 pattern"),
        ("regex", "(a)\\1", "is not a valid RE2 pattern"),
        ("one_of", [b"x"], "is not a JSON value"),
    ],
)
def test_what_a_test_cannot_be_made_of_is_refused(test: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidPredicate, match=said):
        compile_predicate(Predicate("/x", test, value), for_allow=True, paths=PATHS)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a.c", "abc", True),
        ("b", "abc", False),
        ("(?i)ABC", "abc", True),
        ("a$", "a\n", False),
        ("\u00fc+", "\u00fc", True),
    ],
)
def test_a_regex_fits_the_whole_text(pattern: str, text: str, fits: bool) -> None:
    assert _both(Predicate("/x", "regex", pattern), text) == (fits, fits)


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        (Predicate("/x", "within", ["~/a", "/b"]), "/x within '~/a', '/b'"),
        (Predicate("/x", "range", (1, None), True), "/x not at least 1"),
        (Predicate("/x", "range", (1, 2)), "/x at least 1 and at most 2"),
        (Predicate("/x", "host_in", ["a.com"]), "/x a URL at 'a.com'"),
        (Predicate("/x", "one_of", [1, 2]), "/x one of 1, 2"),
        (Predicate("/x", "type", ["null"]), "/x of type 'null'"),
        (Predicate("/x", "absent"), "/x absent"),
        (Predicate("", "present"), "all arguments present"),
    ],
)
def test_a_predicate_says_what_it_wants(predicate: Predicate, said: str) -> None:
    assert str(predicate) == said


@pytest.mark.parametrize(
    "value",
    [
        "file:///etc/passwd",
        "file:/etc/passwd",
        "file://127.0.0.1/etc/passwd",
        "FILE:///etc/x/../passwd",
        "file:///%65tc/passwd",
        " file:/etc/passwd",
    ],
)
def test_a_file_uri_in_an_argument_is_closed_in_every_spelling(value: str) -> None:
    tests: list[tuple[str, Any]] = [
        ("glob", ["file:///etc/*"]),
        ("glob", ["file:/etc/*"]),
        ("equals", "file:///etc/passwd"),
        ("one_of", ["file://localhost/etc/passwd", 7]),
        ("regex", "file:///etc/.*"),
    ]
    open_ones = [test for test in tests if not _holds(Predicate("/x", *test), {"x": value}, for_allow=False)]
    # Turned round in a rule that allows, fitting closes as well.
    open_ones += [test for test in tests if _holds(Predicate("/x", *test, True), {"x": value}, for_allow=True)]
    assert open_ones == []


@pytest.mark.parametrize(
    ("test", "wanted"),
    [("glob", ["file:///srv/*"]), ("equals", "file:///srv/a*"), ("regex", "file:///srv/.*")],
)
def test_a_file_uri_in_an_argument_is_opened_in_every_certain_spelling_and_no_other(test: str, wanted: Any) -> None:
    predicate = Predicate("/x", test, wanted)
    for value in ("file:///srv/a*", "file:/srv/a*", "file://localhost/srv/a*"):
        assert _holds(predicate, {"x": value}, for_allow=True) is True
    for value in ("file:///srv/../etc/passwd", "file:/srv/%2e%2e/etc/passwd", "file://nas/etc/passwd"):
        assert _holds(predicate, {"x": value}, for_allow=True) is False
