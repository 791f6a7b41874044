"""The schema of a function's arguments."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import attrs
import jsonschema_rs
import pytest
from msgspec import Meta

from tests.server.kinds import Cat, Dog, Level, Options, Pair
from tests.support import case_id
from trunkline.server.signatures import Signature


class Size(enum.Enum):
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


@dataclass
class Point:
    """A point."""

    x: float
    y: float = 0.0


@dataclass
class Line:
    start: Point
    end: Point | None = None


@dataclass
class Tree:
    name: str
    children: list["Tree"] = field(default_factory=list)
    leaf: Point | None = None


@attrs.define
class Box:
    width: int


UserId = NewType("UserId", int)

POINT = {
    "description": "A point.",
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "number", "default": 0.0}},
    "required": ["x"],
}


def schema_of(annotation: Any, *default: Any) -> dict[str, Any]:
    def tool(value, *, more=None): ...  # type: ignore[no-untyped-def]

    tool.__annotations__ = {"value": annotation}
    tool.__defaults__ = default or None
    schema = Signature.of(tool, exclude=["more"]).input_schema()
    jsonschema_rs.Draft202012Validator(schema)
    found: dict[str, Any] = schema["properties"]["value"]
    return found


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (object, {}),
        (list[object], {"type": "array", "items": {}}),
        (dict, {"type": "object"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"type": ["integer", "null"]}),
        (None | int, {"type": ["integer", "null"]}),
        (int | str | None, {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
        (Size, {"type": "string", "enum": ["small", "medium", "large"]}),
        (Size | None, {"type": ["string", "null"], "enum": ["small", "medium", "large", None]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Literal["small", "large", "huge"], {"type": "string", "enum": ["small", "large", "huge"]}),
        (Literal["one"], {"type": "string", "const": "one"}),
        (Literal["one"] | None, {"anyOf": [{"type": "string", "const": "one"}, {"type": "null"}]}),
        (
            Annotated[bool | str, Meta(description="D")] | None,
            {"description": "D", "anyOf": [{"type": "boolean"}, {"type": "string"}, {"type": "null"}]},
        ),
        (Literal["b", 1], {"enum": ["b", 1]}),
        (datetime, {"type": "string", "format": "date-time"}),
        (datetime | None, {"type": ["string", "null"], "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (Path, {"type": "string", "format": "path"}),
        (UserId, {"type": "integer"}),
        (Point, POINT),
        (Line, {
            "type": "object",
            "properties": {"start": POINT, "end": {**POINT, "type": ["object", "null"]}},
            "required": ["start"],
        }),
        (Options, {"type": "object", "properties": {"depth": {"type": "integer"}}}),
        (Pair, {
            "type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2,
        }),
        (Box, {"type": "object", "properties": {"width": {"type": "integer"}}, "required": ["width"]}),
        (Cat | Dog, {"anyOf": [
            {
                "type": "object",
                "properties": {"type": {"type": "string", "const": "cat"}, "lives": {"type": "integer"}},
                "required": ["type", "lives"],
            },
            {
                "type": "object",
                "properties": {"type": {"type": "string", "const": "dog"}, "tricks": {"type": "integer"}},
                "required": ["type", "tricks"],
            },
        ]}),
        (Annotated[int, Meta(ge=0, title="Days")], {"type": "integer", "minimum": 0, "title": "Days"}),
        (Annotated[int | None, Meta(ge=0)], {"type": ["integer", "null"], "minimum": 0}),
    ],
    ids=case_id,
)  # fmt: skip
def test_a_type_is_described_without_noise(annotation: Any, schema: dict[str, Any]) -> None:
    assert schema_of(annotation) == schema


def test_the_whole_schema_is_a_closed_object() -> None:
    def tool(city: str, days: int = 3) -> None: ...

    assert Signature.of(tool).input_schema() == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
    }


def test_a_recursive_type_stays_a_definition_with_others_in_place() -> None:
    def tool(tree: Tree, other: Tree | None = None) -> None: ...

    schema = Signature.of(tool).input_schema()

    assert schema["properties"] == {
        "tree": {"$ref": "#/$defs/Tree"},
        "other": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]},
    }
    assert schema["$defs"] == {
        "Tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
                "leaf": {**POINT, "type": ["object", "null"]},
            },
            "required": ["name"],
        }
    }
    jsonschema_rs.Draft202012Validator(schema)


@pytest.mark.parametrize(
    ("annotation", "default", "shown"),
    [
        (str, "a", "a"),
        (list[int], [1, 2], [1, 2]),
        (list[int], [], []),
        (Size, Size.LARGE, "large"),
        (Point, Point(1.0), {"x": 1.0, "y": 0.0}),
        (Path, Path("/tmp"), "/tmp"),
        (tuple[int, int], (1, 2), [1, 2]),
    ],
    ids=case_id,
)
def test_a_default_is_shown_as_json(annotation: Any, default: Any, shown: Any) -> None:
    assert schema_of(annotation, default)["default"] == shown


@pytest.mark.parametrize("default", [None, object(), float("nan")], ids=["none", "object", "nan"])
def test_a_default_of_none_or_without_a_json_form_is_left_out(default: Any) -> None:
    assert "default" not in schema_of(Any, default)


def test_a_default_of_none_allows_null_whatever_the_annotation() -> None:
    assert schema_of(int, None) == {"type": ["integer", "null"]}
    assert schema_of(Point, None) == {**POINT, "type": ["object", "null"]}


def text_in_docstring(city: str) -> None:
    """Do.

    Args:
        city: The city.
    """


def text_in_annotation(city: Annotated[str, "The city."]) -> None:
    """Do.

    Args:
        city: Not this.
    """


def text_in_meta(city: Annotated[str, Meta(description="The city.")]) -> None: ...
def text_in_optional(city: Annotated[str, Meta(description="The city.")] | None = None) -> None: ...
def text_on_optional(city: Annotated[str | None, Meta(description="The city.")] = None) -> None: ...
def text_over_a_class(city: Point) -> None:
    """Do.

    Args:
        city: The city.
    """


@pytest.mark.parametrize(
    "function",
    [
        text_in_docstring, text_in_annotation, text_in_meta, text_in_optional, text_on_optional, text_over_a_class,
    ],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_a_parameter_is_described_where_its_author_wrote_it(function: Callable[..., Any]) -> None:
    signature = Signature.of(function)

    assert signature.input_schema()["properties"]["city"]["description"] == "The city."
    assert signature.parameters[0].description == "The city."


def test_a_mirrored_parameter_keeps_one_primitive_type() -> None:
    header = Meta(extra_json_schema={"x-mcp-header": "Region"})

    assert schema_of(Annotated[str | None, header], None) == {"type": "string", "x-mcp-header": "Region"}
