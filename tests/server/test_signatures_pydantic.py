"""Functions whose annotations or defaults come from pydantic."""

import sys
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

import annotated_types
import jsonschema_rs
import msgspec
import pydantic
import pytest
from msgspec import Meta
from pydantic import BaseModel, Field

from trunkline.server.signatures import InvalidArguments, Signature


class Place(BaseModel):
    """A place."""

    name: str
    height: int = Field(default=0, title="Height over sea", description="In metres.")


class Tree(BaseModel):
    children: list["Tree"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]


class Choice(BaseModel):
    choice: Literal[2, 3]


class Span(BaseModel):
    start: int
    end: int


class Checked(BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("n must be even")
        return n


@dataclass
class Holder:
    place: Place


@pydantic.dataclasses.dataclass
class Point:
    x: int


class Plain(msgspec.Struct):
    a: int


PLACE = {
    "type": "object",
    "description": "A place.",
    "properties": {
        "name": {"type": "string"},
        "height": {"type": "integer", "default": 0, "title": "Height over sea", "description": "In metres."},
    },
    "required": ["name"],
}


def tool(
    city: str,
    place: Place,
    days: Annotated[int, Field(ge=0, description="How many.")] = 3,
    hours: int = Field(default=4, le=24),
    note: str = Field(description="A note."),
    items: list[int] = [],  # noqa: B006
    unit: str | None = None,
) -> None:
    """Do.

    :param city: The city.
    """


GOOD: dict[str, Any] = {"city": "Oslo", "place": {"name": "Home"}, "note": "x"}


def bind(**arguments: Any) -> dict[str, Any]:
    return Signature.of(tool).bind(msgspec.json.encode({**GOOD, **arguments}))


def test_the_schema_is_as_short_as_that_of_msgspec() -> None:
    schema = Signature.of(tool).input_schema()

    assert schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city."},
            "place": PLACE,
            "days": {"type": "integer", "minimum": 0, "default": 3, "description": "How many."},
            "hours": {"type": "integer", "maximum": 24, "default": 4},
            "note": {"type": "string", "description": "A note."},
            "items": {"type": "array", "items": {"type": "integer"}, "default": []},
            "unit": {"type": ["string", "null"]},
        },
        "required": ["city", "place", "note"],
    }
    jsonschema_rs.Draft202012Validator(schema)


def test_parameters_know_the_defaults_of_fields() -> None:
    found = [(each.name, each.required, each.default) for each in Signature.of(tool).parameters]

    assert found[2:5] == [("days", False, 3), ("hours", False, 4), ("note", True, msgspec.UNSET)]


def test_a_recursive_model_stays_a_definition() -> None:
    def recursive(tree: Tree) -> None: ...

    schema = Signature.of(recursive).input_schema()

    assert schema["properties"] == {"tree": {"$ref": "#/$defs/Tree"}}
    assert list(schema["$defs"]) == ["Tree"]


def test_values_arrive_as_models() -> None:
    assert bind(items=["1", 2.0]) == {
        "city": "Oslo", "place": Place(name="Home"), "hours": 4, "note": "x", "items": [1, 2],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ({"place": '{"name": "Home", "height": "5"}'}, "place", Place(name="Home", height=5)),
        ({"items": "[1, 2]"}, "items", [1, 2]),
        ({"days": "5"}, "days", 5),
        ({"unit": "[1, 2]"}, "unit", "[1, 2]"),
        ({"city": '{"a": 1}'}, "city", '{"a": 1}'),
    ],
    ids=["object", "array", "number", "optional text", "text"],
)
def test_convertible_values_are_coerced_and_text_stays_text(arguments: dict[str, Any], name: str, value: Any) -> None:
    assert bind(**arguments)[name] == value


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"citty": 1}, "unknown argument 'citty'; did you mean 'city'?"),
        ({"city": 3}, "city: expected a string, got 3"),
        ({"city": None}, "city: expected a string, got null"),
        ({"city": True}, "city: expected a string, got true"),
        ({"city": {}}, "city: expected a string, got an object"),
        ({"city": [1]}, "city: expected a string, got an array"),
        ({"days": -1}, "days: expected a value greater than or equal to 0, got -1"),
        ({"days": "soon"}, 'days: expected an integer, got "soon"'),
        ({"days": 1.5}, "days: expected an integer, got 1.5"),
        ({"place": {"height": 1}}, "place.name: missing"),
        ({"place": "home"}, 'place: expected an object, got "home"'),
        ({"place": "{home"}, 'place: expected an object, got "{home"'),
        ({"place": "[1]"}, "place: expected an object, got an array"),
        ({"items": [1, "x"]}, 'items.1: expected an integer, got "x"'),
    ],
    ids=[
        "unknown", "text", "null", "boolean", "object", "array",
        "limit", "number", "fraction", "missing member", "no object", "broken json", "other json",
        "item",
    ],
)  # fmt: skip
def test_bad_arguments_are_rejected_in_the_same_words(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        bind(**arguments)

    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (None, "missing arguments 'city', 'place', 'note'"),
        (b"null", "missing arguments 'city', 'place', 'note'"),
        (b"[]", "expected an object, got an array"),
        (b"nonsense", "not JSON"),
        (b'{"place": ' + b"[" * 5000 + b"]" * 5000 + b"}", "not JSON"),
    ],
    ids=["none", "null", "array", "not json", "deep"],
)
def test_arguments_that_are_not_an_object_are_rejected(raw: bytes | None, text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        Signature.of(tool).bind(raw)

    assert str(caught.value) in (text, "nested too deeply")


class Strict(BaseModel, extra="forbid"):
    a: int = 0


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        pytest.param(
            Annotated[float, Field(description="n")],
            "nan",
            'value: expected a finite number, got "nan"',
            id="not finite",
        ),
        pytest.param(
            Annotated[Cat | Dog, Field(discriminator="kind")],
            {"kind": "secret"},
            "value.kind: expected one of 'cat', 'dog', got \"secret\"",
            id="tag",
        ),
        pytest.param(
            Annotated[Literal["air", "sea"], Field(description="how")],
            "land",
            "value: expected 'air' or 'sea', got \"land\"",
            id="choice",
        ),
        pytest.param(
            Cat | Dog,
            {"kind": "cat", "lives": "x"},
            'value.lives: expected an integer, got "x"',
            id="branch by literal",
        ),
        pytest.param(
            Cat | Dog,
            {"kind": "cow", "lives": "x"},
            "value.kind: expected 'cat' or 'dog', got \"cow\"",
            id="no branch has the literal",
        ),
        pytest.param(
            Annotated[int | bool | None, Field(description="n")],
            "x",
            'value: expected an integer or a boolean or null, got "x"',
            id="scalars",
        ),
        pytest.param(
            Annotated[int | list[str], Field(description="n")],
            None,
            "value: expected an integer or an array, got null",
            id="null in a union",
        ),
        pytest.param(Place | None, 3, "value: expected an object or null, got 3", id="optional"),
        pytest.param(
            Place | Point | Checked, {"x": "a"}, 'value.x: expected an integer, got "a"', id="branch by its members"
        ),
        pytest.param(
            Place | Choice,
            {"choice": 7},
            "value.choice: expected 2 or 3, got 7",
            id="branch by its members, which have literals",
        ),
        pytest.param(
            Place | Point | Span,
            {},
            "value: expected an object with 'name', or with 'x', or with 'start' and 'end'",
            id="no branch has the members",
        ),
        pytest.param(
            Annotated[date, Field(description="d")],
            "2026-01-02T10:00",
            'value: expected a date (YYYY-MM-DD), got "2026-01-02T10:00"',
            id="date",
        ),
        pytest.param(
            Annotated[time | None, Field(description="t")],
            "noon",
            'value: expected a time (HH:MM:SS) or null, got "noon"',
            id="time",
        ),
        pytest.param(Annotated[Path, Field(description="p")], 3, "value: expected a path, got 3", id="path"),
        pytest.param(Checked, {"n": 1}, "value.n: n must be even", id="text of a validator"),
        pytest.param(Strict, {"b": 1}, "value.b: unknown member", id="member of a strict model"),
    ],
)
def test_a_bad_value_is_answered_with_what_is_right(annotation: Any, value: Any, text: str) -> None:
    def checked(value) -> None: ...  # type: ignore[no-untyped-def]

    checked.__annotations__["value"] = annotation
    with pytest.raises(InvalidArguments) as caught:
        Signature.of(checked).bind(msgspec.json.encode({"value": value}))

    assert str(caught.value) == text


def from_dataclass(holder: Holder) -> None: ...
def from_pydantic_dataclass(point: Point) -> None: ...
def from_url(url: pydantic.HttpUrl) -> None: ...
def from_constraint(n: Annotated[int, annotated_types.Gt(0)]) -> None: ...
def from_nested(places: dict[str, list[Place]]) -> None: ...
def from_default(n: int = Field(3)) -> None: ...
def from_text(places: list[Place]) -> None: ...


@pytest.mark.parametrize(
    ("function", "raw", "bad"),
    [
        (from_dataclass, b'{"holder": {"place": {"name": "a"}}}', b'{"holder": {"place": {}}}'),
        (from_pydantic_dataclass, b'{"point": {"x": 1}}', b'{"point": {"x": "a"}}'),
        (from_url, b'{"url": "https://example.com"}', b'{"url": "no"}'),
        (from_constraint, b'{"n": 1}', b'{"n": 0}'),
        (from_nested, b'{"places": {"a": [{"name": "a"}]}}', b'{"places": {"a": [{}]}}'),
        (from_default, b"{}", b'{"n": "x"}'),
        (from_text, b'{"places": ["{\\"name\\": \\"a\\"}"]}', b'{"places": ["{}"]}'),
    ],
    ids=["in a dataclass", "dataclass", "url", "annotated_types", "in a dict", "default", "in a nested text"],
)
def test_pydantic_types_are_found_at_any_depth(function: Any, raw: bytes, bad: bytes) -> None:
    signature = Signature.of(function)

    assert signature.bind(raw)
    with pytest.raises(InvalidArguments):
        signature.bind(bad)


def test_any_parameter_name_works() -> None:
    def odd(json: int, copy: int, model_config: int, _private: int, place: Place | None = None) -> None: ...

    found = Signature.of(odd).bind(b'{"json": 1, "copy": 2, "model_config": 3, "_private": 4}')

    assert found == {"json": 1, "copy": 2, "model_config": 3, "_private": 4}


def test_a_field_with_an_alias_is_sent_under_it() -> None:
    def aliased(start: int = Field(alias="from")) -> None: ...

    signature = Signature.of(aliased)

    assert signature.bind(b'{"from": 1}') == {"start": 1}
    assert list(signature.input_schema()["properties"]) == ["from"]


def test_msgspec_metadata_on_a_parameter_holds_beside_pydantic() -> None:
    header = Meta(description="Where.", min_length=2, extra_json_schema={"x-mcp-header": "Region"})

    def mixed(place: Place, region: Annotated[str | None, header] = None) -> None: ...

    signature = Signature.of(mixed)

    assert signature.input_schema()["properties"]["region"] == {
        "type": "string", "minLength": 2, "description": "Where.", "x-mcp-header": "Region",
    }  # fmt: skip
    with pytest.raises(InvalidArguments, match=r"^region: "):
        signature.bind(b'{"place": {"name": "a"}, "region": "x"}')


def test_a_default_of_none_allows_null() -> None:
    def sloppy(place: Place = None) -> None: ...  # type: ignore[assignment]

    assert Signature.of(sloppy).bind(b'{"place": null}') == {"place": None}


def mixed_with_struct(place: Place, plain: Plain) -> None: ...
def mixed_with_inner_meta(place: Place, n: list[Annotated[int, Meta(ge=0)]]) -> None: ...


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (mixed_with_struct, ["mixed_with_struct", "'plain'", "Plain", "pydantic supports"]),
        (mixed_with_inner_meta, ["mixed_with_inner_meta", "'n'", "pydantic.Field"]),
    ],
    ids=["struct", "meta"],
)
def test_types_that_neither_msgspec_nor_pydantic_supports_are_rejected_at_registration(
    function: Any, parts: list[str]
) -> None:
    with pytest.raises(TypeError) as caught:
        Signature.of(function)

    assert [part for part in parts if part not in str(caught.value)] == []


def test_constraints_that_need_pydantic_are_rejected_while_it_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pydantic")

    with pytest.raises(TypeError, match=r"import pydantic, or use msgspec\.Meta"):
        Signature.of(from_constraint)


class Stop(TypedDict):
    """A stop."""

    place: str
    minutes: NotRequired[int]


class Detour(TypedDict, total=False):
    stops: Required[list[Stop]]
    reason: Annotated[str, Field(min_length=1)]


class Loop(TypedDict):
    parts: "list[Loop]"


def route(place: Place, first: Stop, next: Stop | Detour, others: dict[str, Stop | None] | None = None) -> None: ...


def test_a_typed_dict_of_typing_works_beside_a_union_and_a_model() -> None:
    signature = Signature.of(route)
    given = {"place": {"name": "A"}, "first": {"place": "B"}, "next": {"stops": [{"place": "C", "minutes": "5"}]}}
    bound = signature.bind(msgspec.json.encode(given))
    assert (bound["first"], bound["next"]) == ({"place": "B"}, {"stops": [{"place": "C", "minutes": 5}]})
    properties = signature.input_schema()["properties"]
    assert (properties["first"]["description"], properties["first"]["required"]) == ("A stop.", ["place"])
    assert properties["next"]["anyOf"][1]["required"] == ["stops"]
    with pytest.raises(InvalidArguments, match=r'first\.minutes: expected an integer, got "x"'):
        signature.bind(b'{"place": {"name": "A"}, "first": {"place": "B", "minutes": "x"}, "next": {"place": "C"}}')


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads it")
def test_a_typed_dict_of_typing_that_contains_itself_is_told_the_remedy() -> None:
    def cyclic(place: Place, loop: Loop) -> None: ...

    with pytest.raises(TypeError, match=r"parameter 'loop': please use `typing_extensions.TypedDict` .* < 3\.12$"):
        Signature.of(cyclic)
