"""Simplified schemas reject nothing because of what they lost; schemas of 3.0 and 3.1 keep their meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from servers.tests.openapi.fake_api import Answer
from servers.tests.openapi.support import call, document, operation, schema_of
from servers.tests.openapi.test_attacks import with_schema
from trunkline_servers.openapi import make_server

BASE = "https://api.example.com"
#: A pattern that our engine has not.
LOOKING = "^(?!x)y"


def ref(name: str) -> dict[str, str]:
    """Refer to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def large(member: str) -> dict[str, Any]:
    """Make a schema that is more than a tool may describe."""
    members = {f"m{number}": {"type": "string"} for number in range(2100)}
    return {"type": "object", "required": [member], "properties": {member: {"type": "string"}, **members}}


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [ref("A"), ref("B")]},
        {"not": ref("B")},
        {"allOf": [ref("A")], "unevaluatedProperties": False},
        {"if": ref("B"), "then": False},
        {"anyOf": [ref("A")], "oneOf": [ref("A"), ref("B")]},
    ],
    ids=["oneOf", "not", "unevaluated", "if", "both"],
)
def test_left_out_definitions_reject_nothing(schema: dict[str, Any]) -> None:
    source = with_schema({"type": "array", "items": schema}, A=large("a"), B=large("b"))
    assert schema_of(source, "it")["$defs"].popitem()[1] == {}
    result, double = call(source, "it", {"body": [{"a": "x"}]})
    assert not result.is_error, result.text
    assert double.last.body == b'[{"a":"x"}]'


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "string", "not": {"pattern": LOOKING}}}, ["q"]),
        ({"type": "object", "patternProperties": {LOOKING: {}}, "additionalProperties": False}, {"y": 1}),
        ({"type": "array", "items": {"oneOf": [{"pattern": LOOKING}, {"pattern": "^x"}]}}, ["y"]),
    ],
    ids=["not", "members", "oneOf"],
)
def test_a_pattern_that_is_left_out_refuses_nothing(schema: dict[str, Any], value: Any) -> None:
    result, double = call(with_schema(schema), "it", {"body": value})
    assert not result.is_error, result.text
    assert json.loads(double.last.body) == value


def test_forms_of_a_parent_that_are_made_of_it_are_usable() -> None:
    parent = {"oneOf": [ref("Cat"), ref("Dog")]}
    cat, dog = ({"allOf": [ref("Pet"), {"type": "object", "properties": {each: {}}}]} for each in ("cat", "dog"))
    result, _ = call(
        with_schema({"type": "array", "items": ref("Pet")}, Pet=parent, Cat=cat, Dog=dog), "it", {"body": [{}]}
    )
    assert not result.is_error, result.text


@pytest.mark.parametrize(
    "cat",
    [
        {"type": "object", "properties": {"kind": {"enum": ["cat"]}}},
        {"type": "object", "properties": {"kind": ref("Kind")}},
        {"allOf": [{"type": "object"}, {"properties": {"kind": {"const": "cat"}}}]},
    ],
    ids=["itself", "reference", "allOf"],
)
def test_an_alternative_that_lists_its_values_is_not_called_by_its_name(cat: dict[str, Any]) -> None:
    pets = {"type": "array", "items": {"oneOf": [ref("Cat")], "discriminator": {"propertyName": "kind"}}}
    result, _ = call(with_schema(pets, Cat=cat, Kind={"enum": ["cat"]}), "it", {"body": [{"kind": "cat"}]})
    assert not result.is_error, result.text


def test_keywords_beside_a_reference_in_3_1_are_kept() -> None:
    beside = {**ref("A"), "properties": {"b": {"type": "string"}}, "required": ["b"]}
    source = with_schema(beside, A={"type": "object", "properties": {"a": {"type": "string"}}})
    result, double = call(source, "it", {"body": {"a": "x"}})
    assert "/body" in result.text
    assert double.heard == []


def test_members_that_need_each_other_are_one_argument() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}}
    assert list(schema_of(with_schema(schema), "it")["properties"]) == ["body"]


@pytest.mark.parametrize(
    ("node", "schema"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"enum": ["a"], "nullable": True}, {"anyOf": [{"enum": ["a"]}, {"type": "null"}]}),
        ({"allOf": [ref("A")], "nullable": True}, {"anyOf": [{"allOf": [{"$ref": "#/$defs/A"}]}, {"type": "null"}]}),
        ({**ref("A"), "nullable": True}, {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": False}, {"type": "number", "minimum": 1}),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": True}, {"type": "number", "exclusiveMaximum": 1}),
        ({"type": "string", "example": "x", "xml": {}, "externalDocs": {}}, {"type": "string"}),
    ],
    ids=["type", "enum", "allOf", "ref", "bound", "exclusive", "words"],
)
def test_a_keyword_of_3_0_keeps_its_meaning(node: dict[str, Any], schema: dict[str, Any]) -> None:
    source = with_schema({"type": "object", "properties": {"it": node}}, A={"type": "string"}) | {"openapi": "3.0.3"}
    assert schema_of(source, "it")["properties"]["it"] == schema


def test_an_answer_that_may_be_null_promises_no_object() -> None:
    answer = {"200": {"description": "OK", "content": {"application/json": {"schema": {**ref("A"), "nullable": True}}}}}
    paths = {"/it": {"get": operation(responses=answer)}}
    source = document(paths, components={"schemas": {"A": {"type": "object"}}}) | {"openapi": "3.0.3"}
    result, _ = call(source, "it", {}, {"GET /it": Answer(b"null")})
    assert not result.is_error
    assert result.text == "null"


def test_keywords_that_exclude_are_left_out_of_output_schemas() -> None:
    schema = {"type": "object", "not": {"type": "object", "additionalProperties": False}}
    answer = {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}}
    source = document({"/it": {"get": operation(responses=answer)}})
    assert make_server(source, base_url=BASE).registry.tools["it"].listed().output_schema == {"type": "object"}
