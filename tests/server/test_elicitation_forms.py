"""Types as forms a person fills in."""

import enum
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from msgspec import Meta

from tests.server.kinds import Level, Opaque
from tests.support import case_id
from trunkline.server.elicitation_forms import form_schema
from trunkline.server.validation_errors import InvalidArguments


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Person:
    """Somebody."""

    name: Annotated[str, Meta(min_length=1, description="The full name.", title="Name")]
    age: Annotated[int, Meta(ge=0, le=150)]
    height: float = 1.7
    member: bool = False
    size: Size = Size.SMALL
    level: Level = Level.LOW
    nick: str | None = None
    born: date | None = None
    tags: list[Literal["a", "b"]] = field(default_factory=list)


class Struct(msgspec.Struct):
    n: int


class Dict(TypedDict):
    n: int
    m: NotRequired[int]


@attrs.define
class Attrs:
    n: int


class Model(pydantic.BaseModel):
    n: int = pydantic.Field(ge=0)
    email: str = pydantic.Field(default="", json_schema_extra={"format": "email"})
    many: list[Size] = pydantic.Field(default=[Size.SMALL], max_length=2)
    maybe: int | None = None


@dataclass
class NeedsAnswer:
    n: int | None
    only: Literal["one"] | None = None


@dataclass
class Nested:
    person: Struct


@dataclass
class HoldsOpaque:
    thing: Opaque


@dataclass
class NestedList:
    names: list[str]


class NestedModel(pydantic.BaseModel):
    inner: Model


def test_a_record_gives_a_flat_form() -> None:
    schema, _ = form_schema(Person)

    assert schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "description": "The full name.", "minLength": 1},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "height": {"type": "number", "default": 1.7},
            "member": {"type": "boolean", "default": False},
            "size": {"type": "string", "enum": ["small", "large"], "default": "small"},
            "level": {"type": "string", "enum": ["1", "2"], "default": "1"},
            "nick": {"type": "string"},
            "born": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        },
        "required": ["name", "age"],
    }


def test_a_record_is_read_from_the_accepted_content() -> None:
    _, read = form_schema(Person)

    person = read({"name": "Ada", "age": 36, "level": "2", "size": "large", "born": "1815-12-10", "tags": ["b"]})

    assert person == Person("Ada", 36, level=Level.HIGH, size=Size.LARGE, born=date(1815, 12, 10), tags=["b"])


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Struct, Struct(1)), (Dict, {"n": 1}), (Attrs, Attrs(1)), (Model, Model(n=1)), (NeedsAnswer, NeedsAnswer(1))],
    ids=["struct", "typed dict", "attrs", "pydantic", "dataclass"],
)
def test_every_kind_of_record_is_read(kind: Any, value: Any) -> None:
    schema, read = form_schema(kind)

    assert schema["properties"]["n"]["type"] == "integer"
    assert read({"n": 1}) == value


def test_a_pydantic_model_gives_a_flat_form() -> None:
    schema, _ = form_schema(Model)

    assert schema == {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0},
            "email": {"type": "string", "format": "email", "default": ""},
            "many": {
                "type": "array",
                "items": {"type": "string", "enum": ["small", "large"]},
                "maxItems": 2,
                "default": ["small"],
            },
            "maybe": {"type": "integer"},
        },
        "required": ["n"],
    }


def test_an_optional_field_left_empty_is_none() -> None:
    schema, read = form_schema(NeedsAnswer)

    assert "required" not in schema
    assert schema["properties"]["only"] == {"type": "string", "enum": ["one"]}
    assert read({}) == NeedsAnswer(None)


@pytest.mark.parametrize(
    ("kind", "field_schema", "content", "value"),
    [
        (str, {"type": "string"}, "a", "a"),
        (int, {"type": "integer"}, 3, 3),
        (float, {"type": "number"}, 3, 3.0),
        (bool, {"type": "boolean"}, True, True),
        (Size, {"type": "string", "enum": ["small", "large"]}, "large", Size.LARGE),
        (Level, {"type": "string", "enum": ["1", "2"]}, "2", Level.HIGH),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}, "a", "a"),
        (Literal["only"], {"type": "string", "enum": ["only"]}, "only", "only"),
        (["b", "a"], {"type": "string", "enum": ["b", "a"]}, "a", "a"),
        (list[Size], {"type": "array", "items": {"type": "string", "enum": ["small", "large"]}}, ["small"],
         [Size.SMALL]),
        (list[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, [], []),
        (datetime, {"type": "string", "format": "date-time"}, "2025-01-02T03:04:05", datetime(2025, 1, 2, 3, 4, 5)),
        (Annotated[int, Meta(ge=1)], {"type": "integer", "minimum": 1}, 1, 1),
        (pydantic.PositiveInt, {"type": "integer"}, 1, 1),
        (pydantic.SecretStr, {"type": "string"}, "a", pydantic.SecretStr("a")),
    ],
    ids=case_id,
)  # fmt: skip
def test_a_single_value_becomes_a_form_with_one_field(
    kind: Any, field_schema: dict[str, Any], content: Any, value: Any
) -> None:
    schema, read = form_schema(kind)

    assert schema == {"type": "object", "properties": {"value": field_schema}, "required": ["value"]}
    assert read({"value": content}) == value


@pytest.mark.parametrize("kind", [None, type(None)], ids=["None", "NoneType"])
def test_none_is_a_plain_confirmation(kind: Any) -> None:
    schema, read = form_schema(kind)

    assert schema == {"type": "object", "properties": {}}
    assert read({}) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Nested, "field 'person' cannot be used in a form"),
        (NestedList, "field 'names' cannot be used in a form: a list must have choices"),
        (NestedModel, "field 'inner' cannot be used in a form"),
        (list[int], "the type cannot be used in a form: a list must have choices"),
        (list, "a list must have choices"),
        (dict[str, int], "the type cannot be used in a form"),
        (Any, "the type cannot be used in a form"),
        (int | str, "the type cannot be used in a form"),
        (Struct | Attrs, "cannot be used in a form"),
        (Opaque, "Opaque cannot be read from JSON"),
        (HoldsOpaque, "Opaque cannot be read from JSON"),
        ([], "must have one or more strings"),
        ([1, 2], "must have one or more strings"),
    ],
    ids=case_id,
)
def test_a_type_that_a_form_cannot_have_is_rejected_by_name(kind: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        form_schema(kind)


@pytest.mark.parametrize(
    ("kind", "content", "text"),
    [
        (Person, {"name": "Ada", "age": "old"}, "^age: expected an integer, got a string$"),
        (Person, {"name": "Ada"}, "^missing member 'age'$"),
        (Model, {"n": "x"}, "^n: expected an integer, got a string$"),
        (Size, {"value": "huge"}, "^value: expected one of 'small', 'large', got a string$"),
        (bool, {}, "^missing argument 'value'$"),
        (["a"], {"value": "b"}, "^value: expected one of 'a', got a string$"),
    ],
    ids=["type", "missing", "pydantic", "choice", "no value", "text choice"],
)
def test_content_that_does_not_fit_is_rejected(kind: Any, content: dict[str, Any], text: str) -> None:
    _, read = form_schema(kind)

    with pytest.raises(InvalidArguments, match=text):
        read(content)


# --- a schema written by hand ----------------------------------------------------------------------------------------

BY_HAND = {"type": "object", "properties": {"pick": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}}}


def test_a_given_form_schema_is_sent_unchanged_and_checked() -> None:
    schema, read = form_schema(BY_HAND)
    assert (schema, read({"pick": "a"})) == (BY_HAND, {"pick": "a"})
    with pytest.raises(InvalidArguments):
        read({"pick": "b"})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "string"}, '"type": "object"'),
        ({"type": "object"}, '"properties"'),
        ({"type": "object", "properties": {"x": {"type": "object"}}}, "field 'x' cannot be used in a form"),
        (
            {"type": "object", "properties": {"x": {"type": "string", "pattern": "("}}},
            "the schema of a form is not valid: ",
        ),
    ],
    ids=case_id,
)
def test_a_given_schema_that_is_not_a_form_is_rejected(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        form_schema(schema)


def test_the_form_of_a_class_is_made_once_and_equal_choices_keep_their_order() -> None:
    @dataclass
    class Order:
        size: Literal["small", "large"]

    assert form_schema(Order)[0] is form_schema(Order)[0]
    one, other = (form_schema(kind)[0] for kind in (Literal["a", "b"], Literal["b", "a"]))
    assert [form["properties"]["value"]["enum"] for form in (one, other)] == [["a", "b"], ["b", "a"]]
