"""How arguments are bound: what models send and what is made of it, what is refused, and in which words."""

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from tests.server.kinds import Cat, Dog, Filter, Level, Options, Pair
from tests.support import case_id
from trunkline.server.signatures import InvalidArguments, Signature


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n must be positive")


@dataclass
class Node:
    child: "Node | None" = None
    n: int = 0


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 0


def bind(annotation: Any, raw: bytes) -> Any:
    def tool(value): ...  # type: ignore[no-untyped-def]

    tool.__annotations__ = {"value": annotation}
    return Signature.of(tool).bind(b'{"value": ' + raw + b"}")["value"]


def forecast(city: str, days: int = 3, unit: str | None = None) -> None: ...


@pytest.mark.parametrize(
    "raw",
    [b'{"city": "Oslo", "days": 2}', msgspec.Raw(b'{"city": "Oslo", "days": 2}')],
    ids=["bytes", "raw"],
)
def test_arguments_become_keyword_arguments_with_defaults(raw: bytes | msgspec.Raw) -> None:
    assert Signature.of(forecast).bind(raw) == {"city": "Oslo", "days": 2, "unit": None}


@pytest.mark.parametrize("raw", [None, b"{}", b"null", msgspec.Raw(b"null")], ids=case_id)
def test_absent_arguments_are_an_empty_object(raw: bytes | None) -> None:
    def tool(days: int = 3) -> None: ...

    assert Signature.of(tool).bind(raw) == {"days": 3}


def test_a_mutable_default_is_the_functions_own_object() -> None:
    shared = [1]

    def tool(items: list[int] = shared) -> None: ...

    assert Signature.of(tool).bind(None)["items"] is shared


@pytest.mark.parametrize(
    ("annotation", "sent", "read"),
    [
        (Color, "red", Color.RED),
        (Filter, {"name": "a"}, Filter("a")),
        (datetime, "2025-01-31T12:00:00", datetime(2025, 1, 31, 12)),
        (date, "2025-01-31", date(2025, 1, 31)),
        (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
        (Decimal, "1.5", Decimal("1.5")),
        (Path, "/tmp", Path("/tmp")),
        (Path | None, None, None),
        (object, [1], [1]),
        (int, "3", 3),
        (int, " -3 ", -3),
        (int, "3.0", 3),
        (int, 3.0, 3),
        (float, "3", 3.0),
        (float, "-1.5e3", -1500.0),
        (bool, "true", True),
        (bool, "False", False),
        (int | None, "3", 3),
        (int | None, "null", None),
        (int | float, "1.5", 1.5),
        (int | bool, "true", True),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], '["1", 2.0]', [1, 2]),
        (list[int], ["1", 2.0], [1, 2]),
        (tuple[int, float], ["1", "2"], (1, 2.0)),
        (tuple[int, ...], "[1]", (1,)),
        (set[int], "[1]", {1}),
        (Pair, '["1", "2"]', Pair(1, "2")),
        (dict[str, int], '{"a": "1"}', {"a": 1}),
        (dict[str, int], {"a": "1"}, {"a": 1}),
        (Filter, '{"name": "1", "limit": "5"}', Filter("1", 5)),
        (Filter, {"name": "1", "limit": "5"}, Filter("1", 5)),
        (list[Filter], '[{"name": "[1]"}]', [Filter("[1]")]),
        (list[Filter], ['{"name": "a"}'], [Filter("a")]),
        (Options, '{"depth": "1", "other": "1"}', {"depth": 1}),
        (Cat | Dog, {"type": "dog", "tricks": "2"}, Dog(2)),
        (list[int] | int, "5", 5),
        (list[int] | int, "[5]", [5]),
        (list[int] | int, ["5"], [5]),
        (Level, "2", Level.HIGH),
        (Level, 2.0, Level.HIGH),
        (Literal[1, 2], "2", 2),
        (Literal["2", 2], "2", "2"),
    ],
    ids=case_id,
)
def test_a_value_arrives_as_the_annotated_type(annotation: Any, sent: Any, read: Any) -> None:
    value = bind(annotation, msgspec.json.encode(sent))

    assert (type(value), value) == (type(read), read)


@pytest.mark.parametrize(
    ("annotation", "sent"),
    [
        (float, "nan"),
        (float, "inf"),
        (float, "-Infinity"),
        (float, "1_000"),
        (float, "1e999"),
        (int, "1_000"),
        (int, "0x10"),
        (int, "007"),
        (int, ""),
        (int, 1e300),
        (int, 3.5),
        (int, True),
        (bool, "yes"),
        (bool, 2),
        (str, 3),
        (str, True),
        (str, ["a"]),
        (list[int], "1, 2"),
        (list[int], "[1, 2"),
        (list[int], '{"a": 1}'),
        (list[int], {"a": "1"}),
        (Filter, "[1]"),
        (Filter, ["a"]),
        (int, "[1]"),
        (list[str], "[1]"),
        (date, "[1]"),
        (tuple[int, int], ["1", "2", "3"]),
        (Cat | Dog, {"type": "fish", "lives": "1"}),
        (Literal[1, 2], "3"),
        (list[int], "[" * 5000),
    ],
    ids=case_id,
)
def test_a_value_that_cannot_be_coerced_is_rejected(annotation: Any, sent: Any) -> None:
    with pytest.raises(InvalidArguments):
        bind(annotation, msgspec.json.encode(sent))


def test_a_value_for_any_stays_unchanged() -> None:
    def tool(n: int, anything: Any) -> None: ...

    found = Signature.of(tool).bind(b'{"n": "1", "anything": {"a": "1", "b": [2.0]}}')

    assert found == {"n": 1, "anything": {"a": "1", "b": [2.0]}}


def test_arguments_sent_as_one_json_string_are_parsed() -> None:
    def tool(n: int) -> None: ...

    assert Signature.of(tool).bind(b'"{\\"n\\": 1}"') == {"n": 1}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"citty": "x"}', "unknown argument 'citty'; did you mean 'city'?"),
        (b'{"city": "x", "CITY": "y"}', "unknown argument 'CITY'; did you mean 'city'?"),
        (b'{"city": "x", "zzz": 1}', "unknown argument 'zzz'; the arguments are 'city', 'days', 'unit'"),
        (b'{"city": "x", "dayz": 1, "units": 1}',
         "2 errors:\n- unknown argument 'dayz'; did you mean 'days'?\n"
         "- unknown argument 'units'; did you mean 'unit'?"),
        (b"{}", "missing argument 'city'"),
        (b'{"city": 3}', "city: expected a string, got 3"),
        (b'{"city": null}', "city: expected a string, got null"),
        (b'{"city": "x", "days": "soon"}', 'days: expected an integer, got "soon"'),
        (b'{"city": "x", "days": 1.5}', "days: expected an integer, got 1.5"),
        (b'{"city": "x", "days": true}', "days: expected an integer, got true"),
        (b'{"city": "x", "days": [1]}', "days: expected an integer, got an array"),
        (b'{"city": "x", "days": {}}', "days: expected an integer, got an object"),
        (b'{"city": "x", "unit": 1}', "unit: expected a string or null, got 1"),
        (b"[]", "expected an object, got an array"),
        (b"3", "expected an object, got 3"),
        (b"nonsense", "not JSON"),
        (b'{"city": "\xff"}', "not JSON"),
        (b'{"city": ' + b"[" * 5000 + b"]" * 5000 + b"}", "city: expected a string, got an array"),
    ],
    ids=[
        "misspelt", "wrong case", "far from all", "two", "missing", "number for text", "null for text", "text",
        "fraction", "boolean", "array", "object", "optional", "array of arguments", "number of arguments", "not json",
        "not utf-8", "deep",
    ],
)  # fmt: skip
def test_bad_arguments_are_rejected_in_plain_words(raw: bytes, text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        Signature.of(forecast).bind(raw)

    assert str(caught.value) == text
    assert text.removeprefix(f"{caught.value.path}: ") == caught.value.message


def pair(a: int, b: int, c: int = 0) -> None: ...
def nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "raw", "text"),
    [
        (pair, None, "^missing arguments 'a', 'b'$"),
        (nothing, b'{"a": 1}', "^unknown argument 'a'; there are no arguments$"),
        (nothing, b'{"%s": 1}' % (b"x" * 10_000), "^unknown argument '.{10,150}$"),
    ],
    ids=["several missing", "no arguments", "a long name is shortened"],
)
def test_missing_and_unknown_arguments_are_named(function: Any, raw: bytes | None, text: str) -> None:
    with pytest.raises(InvalidArguments, match=text):
        Signature.of(function).bind(raw)


@pytest.mark.parametrize(
    ("annotation", "raw", "text"),
    [
        (list[Filter], b'[{"name": "a"}, {"name": 5}]', "value.1.name: expected a string, got 5"),
        (list[Filter], b"[{}]", "value.0: missing member 'name'"),
        (dict[str, int], b'{"a": "secret"}', 'value.a: expected an integer, got "secret"'),
        (dict[int, int], b'{"secret": 1}', 'value.(key): expected an integer, got "secret"'),
        (dict[Color, int], b'{"secret": 1}', "value.(key): expected one of 'red', 'blue', got \"secret\""),
        (Strict, b'{"b": 1}', "value: unknown member 'b'"),
        (Color, b'"secret"', "value: expected one of 'red', 'blue', got \"secret\""),
        (list[Color | None], b'["secret"]', "value.0: expected one of 'red', 'blue', got \"secret\""),
        (list[Color] | None, b'["secret"]', "value.0: expected one of 'red', 'blue', got \"secret\""),
        (tuple[int, Color], b'[1, "secret"]', "value.1: expected one of 'red', 'blue', got \"secret\""),
        (Pair, b"[1, 2]", "value.1: expected a string, got 2"),
        (Literal["a", "b"], b'"secret"', "value: expected one of 'a', 'b', got \"secret\""),
        (Cat | Dog, b'{"type": "secret"}', "value.type: expected one of 'cat', 'dog', got \"secret\""),
        (Cat | Dog, b"{}", "value: missing member 'type', one of 'cat', 'dog'"),
        (date, b'"secret"', 'value: expected a date (YYYY-MM-DD), got "secret"'),
        (datetime, b'"secret"', 'value: expected a date and time (YYYY-MM-DDTHH:MM:SS), got "secret"'),
        (time, b'"secret"', 'value: expected a time (HH:MM:SS), got "secret"'),
        (timedelta, b'"secret"', 'value: expected an ISO 8601 duration such as PT5M, got "secret"'),
        (UUID, b'"secret"', 'value: expected a UUID, got "secret"'),
        (Decimal, b'"secret"', 'value: expected a decimal number, got "secret"'),
        (bytes, b'"?"', 'value: expected base64 text, got "?"'),
        (float, b"1e400", "value: expected a number that a double can hold"),
        (Annotated[int, Meta(ge=0)], b"-5", "value: expected an integer >= 0, got -5"),
        (Annotated[str, Meta(max_length=3)], b'"secret"', 'value: expected a string of length <= 3, got "secret"'),
        (int | list[int], b'"secret"', 'value: expected an integer or an array, got "secret"'),
        (Positive, b'{"n": -1}', "value: n must be positive"),
        (Path, b"3", "value: expected a path, got 3"),
    ],
    ids=case_id,
)  # fmt: skip
def test_a_bad_value_is_named_by_its_path_and_shown(annotation: Any, raw: bytes, text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        bind(annotation, raw)

    assert str(caught.value) == text


def test_a_long_list_of_choices_is_shortened() -> None:
    with pytest.raises(InvalidArguments, match="'19' and 5 more"):
        bind(Literal[tuple(str(number) for number in range(25))], b'"x"')


@given(st.binary())
def test_any_bytes_raise_at_most_invalid_arguments(raw: bytes) -> None:
    def tool(node: Node, items: list[int]) -> None: ...

    with pytest.raises(InvalidArguments):
        Signature.of(tool).bind(raw)


def test_a_deep_recursive_value_is_rejected_or_read() -> None:
    deep = b'{"child": ' * 2000 + b'{"n": "1"}' + b"}" * 2000

    with pytest.raises(InvalidArguments, match="nested too deeply"):
        bind(Node, deep)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_text_for_a_text_parameter_stays_what_was_sent(value: Any) -> None:
    text = msgspec.json.encode(value).decode()

    def tool(n: int, plain: str, maybe: str | None, either: str | list[int]) -> None: ...

    sent = {"n": "3", "plain": text, "maybe": text, "either": text}
    assert Signature.of(tool).bind(msgspec.json.encode(sent)) == {**sent, "n": 3}


@dataclass(frozen=True)
class Shelf:
    place: str = "hall"
    filters: list[Filter] = field(default_factory=list)


@dataclass
class Backwards:
    """Refers to itself once it is read."""

    n: int
    depth: int = 1
    me: "Backwards | None" = None

    def __post_init__(self) -> None:
        self.me = self


class Crate(msgspec.Struct):
    shelves: dict[str, Shelf]


class TestDefaultsOfDataclasses:
    """An instance has all its members, so that a function can return it, or read its ``vars``."""

    def test_are_stored_in_the_instance(self) -> None:
        def search(filter: Filter) -> None: ...

        bind = Signature.of(search).bind
        assert vars(bind(b'{"filter": {"name": "a"}}')["filter"]) == {"name": "a", "limit": 10}
        assert vars(bind(b'{"filter": {"name": "a", "limit": "3"}}')["filter"]) == {"name": "a", "limit": 3}

    def test_are_stored_in_nested_and_frozen_ones(self) -> None:
        def fill(crates: list[Crate]) -> None: ...

        (crate,) = Signature.of(fill).bind(b'{"crates": [{"shelves": {"x": {"filters": [{"name": "a"}]}}}]}')["crates"]
        assert msgspec.to_builtins(crate.shelves["x"]) == {"place": "hall", "filters": [{"name": "a", "limit": 10}]}

    def test_are_stored_in_one_that_refers_to_itself(self) -> None:
        def turn(back: Backwards) -> None: ...

        assert vars(Signature.of(turn).bind(b'{"back": {"n": 2}}')["back"])["depth"] == 1

    def test_a_returned_argument_keeps_its_members(self) -> None:
        def search(filter: Filter) -> Filter:
            return filter

        signature = Signature.of(search)
        assert signature.encode_result(signature.bind(b'{"filter": {"name": "a"}}')["filter"]) == (
            b'{"name":"a","limit":10}'
        )
