"""How arguments are bound: what is accepted, what is refused, and in which words."""

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from tests.support import case_id
from trunkline.server.signatures import InvalidArguments, Signature


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Filter:
    name: str
    limit: int = 10


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


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: int


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 0


class Pair(NamedTuple):
    a: int
    b: str


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


def test_the_last_of_duplicate_members_counts() -> None:
    assert Signature.of(forecast).bind(b'{"city": "a", "city": "b"}')["city"] == "b"


@pytest.mark.parametrize(
    ("annotation", "raw", "value"),
    [
        (Color, b'"red"', Color.RED),
        (Filter, b'{"name": "a"}', Filter("a")),
        (datetime, b'"2025-01-31T12:00:00"', datetime(2025, 1, 31, 12)),
        (date, b'"2025-01-31"', date(2025, 1, 31)),
        (UUID, b'"00000000-0000-0000-0000-000000000001"', UUID(int=1)),
        (Decimal, b'"1.5"', Decimal("1.5")),
        (Path, b'"/tmp"', Path("/tmp")),
        (Path | None, b"null", None),
        (Pair, b'[1, "a"]', Pair(1, "a")),
        (Cat | Dog, b'{"type": "dog", "tricks": 2}', Dog(2)),
        (object, b"[1]", [1]),
        (set[int], b"[1, 1]", {1}),
    ],
    ids=case_id,
)
def test_values_arrive_as_the_annotated_type(annotation: Any, raw: bytes, value: Any) -> None:
    assert bind(annotation, raw) == value


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"citty": "x"}', "unknown argument 'citty'; did you mean 'city'?"),
        (b'{"city": "x", "CITY": "y"}', "unknown argument 'CITY'; did you mean 'city'?"),
        (b'{"city": "x", "zzz": 1}', "unknown argument 'zzz'; the arguments are 'city', 'days', 'unit'"),
        (b'{"city": "x", "dayz": 1, "units": 1}',
         "unknown argument 'dayz'; did you mean 'days'?; unknown argument 'units'; did you mean 'unit'?"),
        (b"{}", "missing argument 'city'"),
        (b'{"city": 3}', "city: expected a string, got an integer"),
        (b'{"city": null}', "city: expected a string, got null"),
        (b'{"city": "x", "days": "soon"}', "days: expected an integer, got a string"),
        (b'{"city": "x", "days": 1.5}', "days: expected an integer, got a number"),
        (b'{"city": "x", "days": true}', "days: expected an integer, got a boolean"),
        (b'{"city": "x", "days": [1]}', "days: expected an integer, got an array"),
        (b'{"city": "x", "days": {}}', "days: expected an integer, got an object"),
        (b'{"city": "x", "unit": 1}', "unit: expected a string or null, got an integer"),
        (b"[]", "expected an object, got an array"),
        (b"3", "expected an object, got an integer"),
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


def test_all_missing_arguments_are_named_together() -> None:
    def tool(a: int, b: int, c: int = 0) -> None: ...

    with pytest.raises(InvalidArguments, match=r"^missing arguments 'a', 'b'$"):
        Signature.of(tool).bind(None)


def test_an_unknown_argument_of_a_function_without_any_is_rejected() -> None:
    with pytest.raises(InvalidArguments, match=r"^unknown argument 'a'; there are no arguments$"):
        Signature.of(lambda: None).bind(b'{"a": 1}')


def test_a_long_unknown_name_is_shortened() -> None:
    with pytest.raises(InvalidArguments) as caught:
        Signature.of(forecast).bind(b'{"%s": 1}' % (b"x" * 10_000))

    assert len(str(caught.value)) < 200


def test_the_error_has_the_path_and_the_message_apart() -> None:
    with pytest.raises(InvalidArguments) as caught:
        Signature.of(forecast).bind(b'{"city": "x", "days": "soon"}')

    assert (caught.value.path, caught.value.message) == ("days", "expected an integer, got a string")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("annotation", "raw", "text"),
    [
        (list[Filter], b'[{"name": "a"}, {"name": 5}]', "value.1.name: expected a string, got an integer"),
        (list[Filter], b"[{}]", "value.0: missing member 'name'"),
        (dict[str, int], b'{"a": "secret"}', "value.*: expected an integer, got a string"),
        (dict[int, int], b'{"secret": 1}', "value.(key): expected an integer, got a string"),
        (dict[Color, int], b'{"secret": 1}', "value.(key): expected one of 'red', 'blue'"),
        (Strict, b'{"b": 1}', "value: unknown member 'b'"),
        (Color, b'"secret"', "value: expected one of 'red', 'blue'"),
        (list[Color | None], b'["secret"]', "value.0: expected one of 'red', 'blue'"),
        (list[Color] | None, b'["secret"]', "value.0: expected one of 'red', 'blue'"),
        (tuple[int, Color], b'[1, "secret"]', "value.1: expected one of 'red', 'blue'"),
        (Pair, b"[1, 2]", "value.1: expected a string, got an integer"),
        (Literal["a", "b"], b'"secret"', "value: expected one of 'a', 'b'"),
        (Cat | Dog, b'{"type": "secret"}', "value.type: expected one of 'cat', 'dog'"),
        (Cat | Dog, b"{}", "value: missing member 'type'"),
        (date, b'"secret"', "value: expected an RFC 3339 date, got a string"),
        (datetime, b'"secret"', "value: expected an RFC 3339 date and time, got a string"),
        (time, b'"secret"', "value: expected a time such as 12:00:00, got a string"),
        (timedelta, b'"secret"', "value: expected an ISO 8601 duration such as PT5M, got a string"),
        (UUID, b'"secret"', "value: expected a UUID, got a string"),
        (Decimal, b'"secret"', "value: expected a decimal number, got a string"),
        (bytes, b'"?"', "value: expected base64 text, got a string"),
        (float, b"1e400", "value: expected a number that a double can hold"),
        (Annotated[int, Meta(ge=0)], b"-5", "value: expected an integer >= 0"),
        (Annotated[str, Meta(max_length=3)], b'"secret"', "value: expected a string of length <= 3"),
        (int | list[int], b'"secret"', "value: expected an integer or an array, got a string"),
        (Positive, b'{"n": -1}', "value: n must be positive"),
        (Path, b"3", "value: expected Path, got an integer"),
    ],
    ids=case_id,
)  # fmt: skip
def test_a_bad_value_is_named_by_its_path_and_never_shown(annotation: Any, raw: bytes, text: str) -> None:
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


@dataclass
class Holder:
    items: list[Filter] = field(default_factory=list)


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
