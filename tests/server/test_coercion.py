"""What models send instead of the asked type, and what is made of it."""

import enum
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from tests.support import case_id
from trunkline.server.signatures import InvalidArguments, Signature


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Filter:
    name: str
    limit: int = 10


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: int


class Pair(NamedTuple):
    a: int
    b: str


class Options(TypedDict, total=False):
    depth: int


def bind(annotation: Any, value: Any) -> Any:
    def tool(value): ...  # type: ignore[no-untyped-def]

    tool.__annotations__ = {"value": annotation}
    return Signature.of(tool).bind(msgspec.json.encode({"value": value}))["value"]


@pytest.mark.parametrize(
    ("annotation", "sent", "read"),
    [
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
def test_a_convertible_value_is_coerced(annotation: Any, sent: Any, read: Any) -> None:
    found = bind(annotation, sent)

    assert (type(found), found) == (type(read), read)


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
        bind(annotation, sent)


def test_json_text_stays_text_for_an_optional_string() -> None:
    def tool(n: int, text: str | None) -> None: ...

    found = Signature.of(tool).bind(b'{"n": "1", "text": "[1, 2]"}')

    assert found == {"n": 1, "text": "[1, 2]"}


def test_a_value_for_any_stays_unchanged() -> None:
    def tool(n: int, anything: Any) -> None: ...

    found = Signature.of(tool).bind(b'{"n": "1", "anything": {"a": "1", "b": [2.0]}}')

    assert found == {"n": 1, "anything": {"a": "1", "b": [2.0]}}


def test_arguments_sent_as_one_json_string_are_parsed() -> None:
    def tool(n: int) -> None: ...

    assert Signature.of(tool).bind(b'"{\\"n\\": 1}"') == {"n": 1}
