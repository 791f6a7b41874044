"""Functions whose annotations or defaults come from pydantic."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal

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


def test_json_in_a_nested_string_is_read() -> None:
    def nested(places: list[Place]) -> None: ...

    found = Signature.of(nested).bind(b'{"places": ["{\\"name\\": \\"a\\"}"]}')

    assert found == {"places": [Place(name="a")]}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"citty": 1}, "unknown argument 'citty'; did you mean 'city'?"),
        ({"city": 3}, "city: expected a string, got an integer"),
        ({"city": None}, "city: expected a string, got null"),
        ({"city": True}, "city: expected a string, got a boolean"),
        ({"city": {}}, "city: expected a string, got an object"),
        ({"city": [1]}, "city: expected a string, got an array"),
        ({"days": -1}, "days: expected something greater than or equal to 0"),
        ({"days": "soon"}, "days: expected an integer, got a string"),
        ({"days": 1.5}, "days: expected an integer, got a number"),
        ({"place": {"height": 1}}, "place.name: missing"),
        ({"place": "home"}, "place: expected an object, got a string"),
        ({"place": "{home"}, "place: expected an object, got a string"),
        ({"place": "[1]"}, "place: expected an object, got an array"),
        ({"items": [1, "x"]}, "items.1: expected an integer, got a string"),
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


def test_a_number_that_is_not_finite_is_rejected() -> None:
    def number(n: Annotated[float, Field(description="n")]) -> None: ...

    with pytest.raises(InvalidArguments, match=r"^n: expected a finite number, got a string$"):
        Signature.of(number).bind(b'{"n": "nan"}')


def test_a_wrong_tag_is_answered_with_the_right_ones() -> None:
    def animals(animal: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...

    with pytest.raises(InvalidArguments, match=r"^animal: expected one of the tags 'cat', 'dog'$"):
        Signature.of(animals).bind(b'{"animal": {"kind": "secret"}}')


def test_a_wrong_choice_is_answered_with_the_right_ones() -> None:
    def ship(by: Annotated[Literal["air", "sea"], Field(description="how")]) -> None: ...

    with pytest.raises(InvalidArguments, match=r"^by: expected 'air' or 'sea'$"):
        Signature.of(ship).bind(b'{"by": "land"}')


def test_the_text_of_a_validator_is_passed_on() -> None:
    def checked(value: Checked) -> None: ...

    with pytest.raises(InvalidArguments, match=r"^value\.n: n must be even$"):
        Signature.of(checked).bind(b'{"value": {"n": 1}}')


def test_an_unknown_member_of_a_strict_model_is_rejected() -> None:
    class Strict(BaseModel, extra="forbid"):
        a: int = 0

    def strict(value: Strict) -> None: ...

    with pytest.raises(InvalidArguments, match=r"^value\.b: unknown member$"):
        Signature.of(strict).bind(b'{"value": {"b": 1}}')


def from_dataclass(holder: Holder) -> None: ...
def from_pydantic_dataclass(point: Point) -> None: ...
def from_url(url: pydantic.HttpUrl) -> None: ...
def from_constraint(n: Annotated[int, annotated_types.Gt(0)]) -> None: ...
def from_nested(places: dict[str, list[Place]]) -> None: ...
def from_default(n: int = Field(3)) -> None: ...


@pytest.mark.parametrize(
    ("function", "raw", "bad"),
    [
        (from_dataclass, b'{"holder": {"place": {"name": "a"}}}', b'{"holder": {"place": {}}}'),
        (from_pydantic_dataclass, b'{"point": {"x": 1}}', b'{"point": {"x": "a"}}'),
        (from_url, b'{"url": "https://example.com"}', b'{"url": "no"}'),
        (from_constraint, b'{"n": 1}', b'{"n": 0}'),
        (from_nested, b'{"places": {"a": [{"name": "a"}]}}', b'{"places": {"a": [{}]}}'),
        (from_default, b"{}", b'{"n": "x"}'),
    ],
    ids=["in a dataclass", "dataclass", "url", "annotated_types", "in a dict", "default"],
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
