"""Tools in a provider's terms: what it does not know is dropped or said, and one bad tool is left out alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import trunkline.types as t
from trunkline.host.chat.tool_schemas import (
    SCHEMA_DIALECTS,
    UnsupportedTool,
    flatten,
    to_tool_spec,
)
from trunkline.protocol.json_schema import inline_references


def projected(schema: dict[str, Any], dialect: str = "openai", **more: Any) -> dict[str, Any]:
    """Project the input schema of a tool."""
    tool = t.Tool(name="tool", input_schema={"type": "object", **schema}, **more)
    return to_tool_spec(tool, "server__tool", SCHEMA_DIALECTS[dialect]).input_schema


def described(schema: dict[str, Any], dialect: str = "openai", said: str = "Does it.") -> str:
    """Project a tool and give its description."""
    tool = t.Tool(name="tool", description=said, input_schema={"type": "object", **schema})
    return to_tool_spec(tool, "server__tool", SCHEMA_DIALECTS[dialect]).description


def of(name: str, schema: Any, dialect: str) -> Any:
    """Project a schema as that of one argument."""
    return projected({"properties": {name: schema}}, dialect)["properties"][name]


EVERYWHERE = sorted(SCHEMA_DIALECTS)


@pytest.mark.parametrize("dialect", EVERYWHERE)
def test_a_plain_schema_is_what_it_was(dialect: str) -> None:
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where."}, "count": {"type": "integer", "minimum": 1}},
        "required": ["path"],
    }
    assert projected(schema, dialect) == schema


@pytest.mark.parametrize("dialect", EVERYWHERE)
def test_a_tool_without_arguments_has_an_object_without_properties(dialect: str) -> None:
    assert projected({}, dialect) == {"type": "object", "properties": {}}


# --- references ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", EVERYWHERE)
def test_references_are_written_out(dialect: str) -> None:
    schema = {
        "properties": {
            "who": {"$ref": "#/$defs/Person", "description": "The one."},
            "raw": {"$ref": "#/definitions/a~1b"},
        },
        "$defs": {"Person": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "definitions": {"a/b": {"type": "boolean"}},
    }
    found = projected(schema, dialect)
    assert found["properties"]["who"]["properties"] == {"name": {"type": "string"}}
    assert found["properties"]["who"]["description"] == "The one."
    assert found["properties"]["raw"] == {"type": "boolean"}
    assert "$" not in str(found)
    assert "definitions" not in found


@pytest.mark.parametrize("dialect", EVERYWHERE)
def test_a_reference_into_itself_ends(dialect: str) -> None:
    schema = {
        "properties": {"tree": {"$ref": "#/$defs/Node"}},
        "$defs": {
            "Node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Node"}, "v": {"type": "integer"}}}
        },
    }
    found = projected(schema, dialect)
    assert "$ref" not in str(found)
    assert "nested in the same way" in str(found)
    assert found["properties"]["tree"]["properties"]["left"]["properties"]["v"] == {"type": "integer"}


def test_a_whole_schema_that_refers_to_itself_ends() -> None:
    assert "$ref" not in str(projected({"properties": {"child": {"$ref": "#"}}}))


def test_a_reference_that_leads_nowhere_allows_anything() -> None:
    assert "$ref" not in str(projected({"properties": {"a": {"$ref": "#/$defs/none"}, "b": {"$ref": "https://x/y"}}}))


def test_references_that_multiply_beyond_measure_make_a_tool_unfit() -> None:
    levels = {
        f"L{number}": {"properties": {name: {"$ref": f"#/$defs/L{number + 1}"} for name in "abcdef"}}
        for number in range(8)
    }
    schema = {"properties": {"a": {"$ref": "#/$defs/L0"}}, "$defs": {**levels, "L8": {"type": "string"}}}
    with pytest.raises(UnsupportedTool, match="too large"):
        projected(schema)


# --- the root --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", EVERYWHERE)
@pytest.mark.parametrize(("word", "how"), [("anyOf", "at least one"), ("oneOf", "exactly one")])
def test_alternatives_at_the_root_are_flattened_with_a_sentence(dialect: str, word: str, how: str) -> None:
    schema = {
        "properties": {"deep": {"type": "boolean"}},
        word: [
            {"properties": {"path": {"type": "string"}}, "required": ["path"]},
            {"properties": {"url": {"type": "string"}, "path": {"type": "integer"}}, "required": ["url"]},
        ],
    }
    found = projected(schema, dialect)
    assert set(found["properties"]) == {"deep", "path", "url"}
    assert found["properties"]["path"]["anyOf"] == [{"type": "string"}, {"type": "integer"}]
    assert "required" not in found
    assert word not in found
    assert described(schema, dialect) == f"Does it.\nGive {how} of these groups of arguments: (path) or (url)."


def test_what_all_alternatives_want_is_required() -> None:
    schema = {"anyOf": [{"required": ["a", "b"]}, {"required": ["a", "c"]}], "required": ["z"]}
    found = projected(schema)
    assert found["required"] == ["z", "a"]
    assert set(found["properties"]) == {"z", "a", "b", "c"}


def test_what_must_hold_together_at_the_root_is_merged() -> None:
    schema = {
        "allOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"$ref": "#/$defs/B"},
        ],
        "$defs": {"B": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}},
        "additionalProperties": False,
    }
    found = projected(schema)
    assert (set(found["properties"]), sorted(found["required"])) == ({"a", "b"}, ["a", "b"])
    assert "additionalProperties" not in found


@pytest.mark.parametrize("word", ["not", "if", "dependentRequired", "dependentSchemas"])
def test_conditions_at_the_root_are_said_in_general(word: str) -> None:
    schema = {"properties": {"a": {}}, word: {"required": ["a"]} if word in ("not", "if") else {"a": ["b"]}}
    assert word not in projected(schema)
    assert "Not every combination" in described(schema)


def test_a_schema_that_no_object_fits_makes_a_tool_unfit() -> None:
    with pytest.raises(UnsupportedTool, match="no object matches"):
        projected({"anyOf": [{"type": "string"}, {"type": "array"}]})


def test_an_alternative_that_is_no_object_does_not_count() -> None:
    found = projected({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {"type": "string"}}}]})
    assert found["properties"] == {"a": {"type": "string"}}


def test_flattening_leaves_the_servers_own_schema_alone() -> None:
    schema = {"type": "object", "allOf": [{"required": ["a"]}], "anyOf": [{"required": ["b"]}]}
    before = msgspec.json.encode(schema)
    flatten(inline_references(schema))
    assert msgspec.json.encode(schema) == before


# --- keywords --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "schema", "expected"),
    [
        pytest.param("anthropic", {"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}, id="draft-4"),
        pytest.param("anthropic", {"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}, id="draft-4-false"),
        pytest.param("openai", {"type": "array"}, {"type": "array", "items": {}}, id="array-without-items"),
        pytest.param(
            "gemini", {"type": "array"}, {"type": "array", "items": {"type": "string"}}, id="gemini-array-without-items"
        ),
        pytest.param(
            "openai",
            {"type": "array", "items": [{"type": "string"}, True]},
            {"type": "array", "prefixItems": [{"type": "string"}, {}]},
            id="tuple",
        ),
        pytest.param(
            "plain",
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
            id="plain-tuple",
        ),
        pytest.param("openai", {"type": "strange"}, {}, id="unknown-type"),
        pytest.param("openai", {"type": "string", "nullable": True}, {"type": ["string", "null"]}, id="nullable"),
        pytest.param("openai", {"enum": []}, {}, id="empty-enum"),
        pytest.param("openai", {"type": "string", "x-mcp-header": "A", "$comment": "b"}, {"type": "string"}, id="x"),
        pytest.param("plain", {"const": "a"}, {"enum": ["a"]}, id="const"),
        pytest.param("openai", {"const": "a"}, {"const": "a"}, id="const-is-known"),
        pytest.param(
            "plain",
            {"type": "string", "pattern": "^a", "description": "A word."},
            {"type": "string", "description": "A word. (matches ^a)"},
            id="pattern-is-said",
        ),
        pytest.param(
            "plain", {"type": "array", "items": {}, "maxItems": 100_000}, {"type": "array", "items": {}}, id="many"
        ),
        pytest.param(
            "plain",
            {"oneOf": [{"type": "string"}, {"type": "null"}]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            id="one-of",
        ),
        pytest.param(
            "plain",
            {"allOf": [{"properties": {"a": {"type": "string"}}}, {"description": "b"}]},
            {"properties": {"a": {"type": "string"}}, "description": "b"},
            id="all-of",
        ),
        pytest.param("gemini", {"type": ["string", "null"]}, {"type": "string", "nullable": True}, id="gemini-null"),
        pytest.param(
            "gemini",
            {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "n"},
            {"type": "integer", "description": "n", "nullable": True},
            id="gemini-optional",
        ),
        pytest.param(
            "gemini",
            {"type": ["string", "integer"]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            id="gemini-two-types",
        ),
        pytest.param(
            "gemini",
            {"type": "integer", "enum": [1, 2]},
            {"type": "integer", "description": "always [1,2]"},
            id="gemini-enum",
        ),
        pytest.param(
            "gemini",
            {"type": "string", "format": "uri", "maxLength": 9},
            {"type": "string", "description": "format uri; characters, at most 9"},
            id="gemini-said",
        ),
        pytest.param(
            "gemini",
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"type": "object"},
            id="gemini-map",
        ),
    ],
)
def test_what_a_provider_does_not_know_is_put_otherwise(
    dialect: str, schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert of("a", schema, dialect) == expected


def test_a_property_that_nothing_fits_is_left_out() -> None:
    assert projected({"properties": {"a": True, "b": False}})["properties"] == {"a": {}}


def test_arguments_named_like_keywords_are_kept() -> None:
    properties = {"id": {"type": "string"}, "$ref": {"type": "string"}, "x-y": {"type": "string"}}
    assert projected({"properties": properties})["properties"] == properties


def test_a_name_of_an_argument_that_a_provider_refuses_makes_one_tool_unfit() -> None:
    schema = {"properties": {"with space": {"type": "string"}}}
    with pytest.raises(UnsupportedTool, match="'with space'"):
        projected(schema, "anthropic")
    assert "with space" in projected(schema, "openai")["properties"]


# --- size ------------------------------------------------------------------------------------------------------------


def test_a_description_is_clipped_to_what_a_provider_takes_and_keeps_its_sentence() -> None:
    schema = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    said = described(schema, "openai", said="x" * 5000)
    assert len(said) <= 1024
    assert said.endswith("(a) or (b).")


def test_a_large_schema_loses_its_nested_descriptions_first() -> None:
    inner = {f"p{number}": {"type": "string", "description": "d" * 200} for number in range(100)}
    schema = {"properties": {"a": {"type": "object", "description": "A.", "properties": inner}}}
    found = projected(schema)
    assert found["properties"]["a"]["description"] == "A."
    assert "ddd" not in str(found)


def test_a_schema_that_is_too_large_makes_a_tool_unfit() -> None:
    schema = {"properties": {f"p{number}": {"enum": ["v" * 500]} for number in range(200)}}
    with pytest.raises(UnsupportedTool, match="KB"):
        projected(schema)
