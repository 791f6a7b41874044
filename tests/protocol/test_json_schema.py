"""JSON Schema: which schemas are accepted, what a violation says, and how schemas are transformed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.protocol.json_schema import (
    SchemaError,
    SchemaViolation,
    apply_defaults,
    check_form_schema,
    compile_schema,
    inline_references,
)


def nested(depth: int, leaf: Any) -> Any:
    value = leaf
    for _ in range(depth):
        value = {"not": value}
    return value


def doubling(levels: int) -> dict[str, Any]:
    """Return a small schema that expands to two to the power of its levels."""
    definitions: dict[str, Any] = {"d0": {"type": "integer"}}
    for level in range(1, levels + 1):
        reference = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"allOf": [reference, dict(reference)]}
    return {"$defs": definitions, "$ref": f"#/$defs/d{levels}"}


# Which schemas are accepted

#: A keyword whose meaning differs between the dialects: 2020-12 has prefixItems, all before it have items as a list.
DIALECTS = [
    (None, "prefixItems"),
    ("https://json-schema.org/draft/2020-12/schema", "prefixItems"),
    ("https://json-schema.org/draft/2020-12/schema#", "prefixItems"),
    ("https://json-schema.org/draft/2019-09/schema", "items"),
    ("http://json-schema.org/draft-07/schema#", "items"),
    ("https://json-schema.org/draft-07/schema", "items"),
    ("http://json-schema.org/draft-06/schema#", "items"),
    ("http://json-schema.org/draft-04/schema#", "items"),
]


@pytest.mark.parametrize(("dialect", "keyword"), DIALECTS, ids=[str(dialect) for dialect, _ in DIALECTS])
def test_a_schema_is_read_in_the_dialect_it_declares(dialect: str | None, keyword: str) -> None:
    declared = {} if dialect is None else {"$schema": dialect}
    problem = compile_schema({**declared, keyword: [{"type": "string"}]}).first_violation([1])
    assert problem == SchemaViolation("/0", "expected string, found integer")


@pytest.mark.parametrize(
    "dialect", ["https://example.com/mine", "", 7, "http://json-schema.org/draft-03/schema#"], ids=repr
)
def test_an_unknown_dialect_is_rejected_by_name(dialect: Any) -> None:
    with pytest.raises(SchemaError, match=r"Dialect .* is not supported; use JSON Schema 2020-12") as caught:
        compile_schema({"$schema": dialect})
    assert str(dialect) in str(caught.value)


def test_an_unknown_dialect_deep_in_a_schema_is_rejected_too() -> None:
    with pytest.raises(SchemaError, match="urn:x"):
        compile_schema({"properties": {"a": {"$id": "a", "$schema": "urn:x"}}})


LOCAL: dict[str, dict[str, Any]] = {
    "pointer": {"$defs": {"a": {"type": "string"}}, "$ref": "#/$defs/a"},
    "escaped-pointer": {"$defs": {"a/b c": {"type": "string"}}, "$ref": "#/$defs/a~1b%20c"},
    "pointer-into-a-list": {"allOf": [{"type": "string"}], "$ref": "#/allOf/0"},
    "unknown-keyword": {"x-more": {"a": {"$ref": "#/x-more/b"}, "b": {"type": "string"}}, "$ref": "#/x-more/a"},
    "anchor": {"$defs": {"a": {"$anchor": "here", "type": "string"}}, "$ref": "#here"},
    "dynamic-anchor": {"$defs": {"a": {"$dynamicAnchor": "here", "type": "string"}}, "$dynamicRef": "#here"},
    "relative-id": {"$defs": {"a": {"$id": "item", "type": "string"}}, "$ref": "item"},
    "absolute-id": {
        "$id": "https://example.com/root",
        "$defs": {"a": {"$id": "item", "type": "string"}},
        "$ref": "https://example.com/item",
    },
    "urn-id": {"$id": "urn:x", "$defs": {"a": {"$anchor": "here", "type": "string"}}, "$ref": "urn:x#here"},
    "old-anchor": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"$id": "#here", "type": "string"}},
        "allOf": [{"$ref": "#here"}],
    },
    "draft-04-id": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "id": "http://example.com/root",
        "definitions": {"a": {"id": "item", "type": "string"}},
        "allOf": [{"$ref": "item"}],
    },
}


@pytest.mark.parametrize("schema", LOCAL.values(), ids=LOCAL.keys())
def test_a_reference_into_the_schema_itself_is_followed(schema: dict[str, Any]) -> None:
    assert compile_schema(schema).first_violation(1) == SchemaViolation("", "expected string, found integer")


def test_a_recursive_schema_is_followed_as_deep_as_the_value() -> None:
    tree = compile_schema({"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}})
    assert tree.first_violation({"next": {"next": {"n": "x"}}}) == SchemaViolation(
        "/next/next/n", "expected integer, found string"
    )


FOREIGN: dict[str, dict[str, Any]] = {
    "http": {"$ref": "http://127.0.0.1:9/schema"},
    "https": {"properties": {"a": {"items": {"$ref": "https://example.com/a#/b"}}}},
    "file": {"$ref": "file:///etc/hostname"},
    "relative": {"$ref": "other.json"},
    "relative-to-id": {"$id": "https://example.com/a", "$ref": "b"},
    "dynamic": {"$dynamicRef": "https://example.com/a#b"},
    "recursive": {"$recursiveRef": "https://example.com/a"},
    "meta-schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    "behind-an-unknown-keyword": {"x-more": {"a": {"$ref": "http://example.com/a"}}, "$ref": "#/x-more/a"},
}


@pytest.mark.parametrize("schema", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_reference_that_leaves_the_schema_is_rejected_and_never_fetched(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match='leaves the schema; put its target under "\\$defs"'):
        compile_schema(schema)


def test_a_reference_in_data_is_data() -> None:
    validator = compile_schema({"const": {"$ref": "http://example.com/a"}})
    assert validator.first_violation({"$ref": "http://example.com/a"}) is None


MISSING = ["#/nope", "#/$defs/a/b", "#/allOf/7", "#/allOf/x", "#nope", "#/$defs/a/type/x"]


@pytest.mark.parametrize("reference", MISSING)
def test_a_reference_to_nothing_is_rejected(reference: str) -> None:
    schema = {"$defs": {"a": {"type": "string"}}, "allOf": [{}], "properties": {"p": {"$ref": reference}}}
    with pytest.raises(SchemaError, match="The schema is invalid"):
        compile_schema(schema)


INVALID: dict[str, dict[str, Any]] = {
    "type": {"type": "strin"},
    "properties": {"properties": []},
    "required": {"required": "a"},
    "reference": {"$ref": 3},
    "uri": {"$id": "http://example.com/a", "$ref": "http://[x"},
    "not-json": {"const": object()},
}


@pytest.mark.parametrize("schema", INVALID.values(), ids=INVALID.keys())
def test_an_invalid_schema_is_rejected(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="The schema is invalid"):
        compile_schema(schema)


def test_the_error_for_an_invalid_schema_has_its_path_and_a_bounded_length() -> None:
    with pytest.raises(SchemaError, match='invalid at "/properties/a/type"') as caught:
        compile_schema({"properties": {"a": {"type": "x" * 10_000}}})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(a", "(?:a{1,1000}){1,1000}"])
@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_a_pattern_that_could_take_for_ever_is_rejected(keyword: str, pattern: str) -> None:
    schema: dict[str, Any] = {"pattern": pattern} if keyword == "pattern" else {"patternProperties": {pattern: {}}}
    with pytest.raises(SchemaError, match="look-around or back-references"):
        compile_schema(schema)


def test_a_pattern_made_to_backtrack_costs_no_more_than_the_text() -> None:
    validator = compile_schema({"pattern": "^(a+)+$"})
    assert validator.first_violation("a" * 200_000 + "b") is not None


def test_a_schema_may_be_as_deep_as_the_limit_and_no_deeper() -> None:
    assert compile_schema(nested(63, {"type": "string"})).first_violation("x") is not None
    with pytest.raises(SchemaError, match="nested deeper than 64 levels"):
        compile_schema(nested(64, {"type": "string"}))


def test_depth_is_bounded_also_where_no_schema_stands() -> None:
    with pytest.raises(SchemaError, match="nested deeper than 3 levels"):
        compile_schema({"default": [[[1]]]}, max_depth=3)


def test_a_schema_of_very_many_parts_is_rejected() -> None:
    with pytest.raises(SchemaError, match="more than 100 objects and arrays"):
        compile_schema({"anyOf": [{"minimum": n} for n in range(100)]}, max_subschemas=100)


def test_a_value_shared_a_billion_times_is_rejected_without_being_visited() -> None:
    shared: dict[str, Any] = {}
    for _ in range(30):
        shared = {"allOf": [shared, shared]}
    with pytest.raises(SchemaError, match="more than 5000"):
        compile_schema(shared)


def test_a_part_that_stands_in_two_places_is_fine() -> None:
    shared = {"type": "string"}
    validator = compile_schema({"properties": {"a": shared, "b": shared}})
    assert [problem.path for problem in validator.check({"a": 1, "b": 1})] == ["/a", "/b"]


def test_references_that_multiply_are_rejected() -> None:
    with pytest.raises(SchemaError, match="With references written out there are more than 100000 schemas"):
        compile_schema(doubling(40))


def test_references_that_multiply_a_little_are_fine() -> None:
    assert compile_schema(doubling(8)).first_violation(1) is None


def test_a_format_is_not_checked() -> None:
    assert compile_schema({"format": "email"}).first_violation("no address") is None


# What a violation says

SECRET = "hunter2"

PROBLEMS: dict[str, tuple[dict[str, Any], Any, str, str]] = {
    "type": ({"type": "integer"}, SECRET, "", "expected integer, found string"),
    "types": ({"type": ["integer", "null"]}, SECRET, "", "expected integer or null, found string"),
    "null": ({"type": "string"}, None, "", "expected string, found null"),
    "boolean": ({"type": "string"}, True, "", "expected string, found boolean"),
    "number": ({"type": "string"}, 1.5, "", "expected string, found number"),
    "decimal": ({"type": "string"}, Decimal("1.5"), "", "expected string, found number"),
    "array": ({"type": "string"}, [SECRET], "", "expected string, found array"),
    "tuple": ({"type": "string"}, (SECRET,), "", "expected string, found array"),
    "object": ({"type": "string"}, {"a": SECRET}, "", "expected string, found object"),
    "place": (
        {"properties": {"a/b~": {"items": {"type": "null"}}}},
        {"a/b~": [None, SECRET]},
        "/a~1b~0/1",
        "expected null, found string",
    ),
    "required": ({"required": ["city"]}, {}, "", 'expected the property "city", which is missing'),
    "additional": (
        {"properties": {"a": {}}, "additionalProperties": False},
        {"b": SECRET},
        "",
        'expected only known properties, found "b"',
    ),
    "unevaluated": (
        {"unevaluatedProperties": False},
        {"b": SECRET, "c": 1, "d": 2},
        "",
        'expected only known properties, found "b" and 2 more',
    ),
    "unevaluated-items": (
        {"unevaluatedItems": False},
        [SECRET],
        "",
        "expected what unevaluatedItems requires, found array",
    ),
    "enum": ({"enum": ["a", 1, None]}, SECRET, "", 'expected one of "a", 1, null, found string'),
    "const": ({"const": {"a": 1}}, SECRET, "", 'expected the value {"a": 1}, found string'),
    "minimum": ({"minimum": 3}, 1, "", "expected a number of at least 3, found integer"),
    "maxLength": ({"maxLength": 3}, SECRET, "", "expected at most 3 characters, found string"),
    "pattern": ({"pattern": "^[{]a[}]$"}, SECRET, "", 'expected a string that matches "^[{]a[}]$", found string'),
    "not": ({"not": {"type": "string"}}, SECRET, "", "expected something other than what is excluded, found string"),
    "names": (
        {"propertyNames": {"maxLength": 2}},
        {SECRET: 1},
        "",
        "expected what propertyNames requires, found object",
    ),
    "false": ({"properties": {"a": False}}, {"a": SECRET}, "/a", "expected what falseSchema requires, found string"),
    "optional": (
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        SECRET,
        "",
        "expected integer or null, found string",
    ),
    "right-type": (
        {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"b": {"type": "integer"}}}]},
        {"b": SECRET},
        "/b",
        "expected integer, found string",
    ),
    "forms": (
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {},
        "",
        "expected one of 2 forms, found object",
    ),
    "several": (
        {"oneOf": [{"type": "string"}, {"minLength": 1}]},
        SECRET,
        "",
        "expected exactly one of 2 forms, not several, found string",
    ),
}


@pytest.mark.parametrize(("schema", "value", "path", "message"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_problem_tells_its_place_what_was_expected_and_what_type_was_found_and_never_the_value(
    schema: dict[str, Any], value: Any, path: str, message: str
) -> None:
    validator = compile_schema(schema)
    assert validator.first_violation(value) == SchemaViolation(path, message)
    problems = validator.check(value)
    assert SchemaViolation(path, message) in problems
    assert SECRET not in str(problems)


def test_a_value_that_fits_has_no_problem() -> None:
    validator = compile_schema({"type": "string"})
    assert (validator.first_violation("x"), validator.check("x")) == (None, [])


def test_every_problem_is_listed_up_to_the_limit() -> None:
    validator = compile_schema({"items": {"type": "string"}})
    assert [problem.path for problem in validator.check([1, "x", 2, 3], limit=2)] == ["/0", "/2"]


@pytest.mark.parametrize("value", [object(), {"a": object()}, "\ud800"], ids=["object", "member", "surrogate"])
def test_a_value_that_is_not_json_is_a_problem_and_no_exception(value: Any) -> None:
    validator = compile_schema({"type": "string", "properties": {"a": {"type": "string"}}})
    assert [problem.path for problem in validator.check(value)] == [""]


def test_a_large_value_with_many_violations_reports_the_first() -> None:
    validator = compile_schema({"items": {"type": "string"}})
    assert validator.check([1] * 500_000) == [SchemaViolation("/0", "expected string, found integer")]


def test_a_violation_in_a_large_value_with_alternatives_has_no_path() -> None:
    validator = compile_schema({"anyOf": [{"items": {"type": "string"}}, {"type": "null"}]})
    (problem,) = validator.check([1] * 500_000)
    assert problem == SchemaViolation(
        "", "expected what the schema requires; the value is too large to say where it differs"
    )


def test_a_long_expectation_is_cut() -> None:
    problem = compile_schema({"enum": ["x" * 1000]}).first_violation(1)
    assert problem is not None
    assert len(problem.message) < 250


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)


@given(value=json_values)
def test_the_first_problem_exists_exactly_if_the_list_is_not_empty(value: Any) -> None:
    validator = compile_schema({"anyOf": [{"type": "string"}, {"items": {"type": ["integer", "null"]}, "minItems": 1}]})
    assert (validator.first_violation(value) is None) == (validator.check(value) == [])


# Inlining references


def test_references_are_inlined_and_definitions_dropped() -> None:
    schema = {
        "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/b"}}, "b": {"type": "string"}, "c": {}},
        "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"anyOf": [{"$ref": "#/$defs/b"}, True]}, "z": False},
    }
    assert inline_references(schema) == {
        "properties": {
            "x": {"type": "array", "items": {"type": "string"}},
            "y": {"anyOf": [{"type": "string"}, True]},
            "z": False,
        }
    }


def test_older_definitions_with_escaped_names_are_inlined() -> None:
    schema = {"definitions": {"a/b~c": {"type": "string"}}, "items": {"$ref": "#/definitions/a~1b~0c"}}
    assert inline_references(schema) == {"items": {"type": "string"}}


def test_notes_beside_a_reference_win_over_those_of_the_definition() -> None:
    schema = {
        "$defs": {"a": {"type": "string", "description": "any"}},
        "properties": {"x": {"$ref": "#/$defs/a", "description": "this", "default": "d"}},
    }
    assert inline_references(schema) == {"properties": {"x": {"type": "string", "description": "this", "default": "d"}}}


def test_a_constraint_beside_a_reference_is_kept() -> None:
    schema = {
        "$defs": {"a": {"properties": {"p": {}}}},
        "items": {"$ref": "#/$defs/a", "allOf": [{"minProperties": 1}], "additionalProperties": False},
    }
    assert inline_references(schema) == {
        "items": {"allOf": [{"minProperties": 1}, {"properties": {"p": {}}}], "additionalProperties": False}
    }


def test_a_constraint_that_the_definition_repeats_is_written_once() -> None:
    schema = {"$ref": "#/$defs/a", "type": "object", "$defs": {"a": {"type": "object", "minProperties": 1}}}
    assert inline_references(schema) == {"type": "object", "minProperties": 1}


def test_a_reference_at_the_root_is_inlined() -> None:
    schema = {"$schema": "s", "$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}
    assert inline_references(schema) == {"$schema": "s", "type": "object"}


def test_a_recursive_reference_is_inlined_twice_and_then_allows_anything() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/a~1b", "description": "Next."}}}
    innermost = {"description": "Next. (nested in the same way)"}
    assert inline_references({"$ref": "#/$defs/a~1b", "$defs": {"a/b": node}}) == {
        "type": "object",
        "properties": {
            "next": {"type": "object", "description": "Next.", "properties": {"next": innermost}},
        },
    }


def test_a_recursive_definition_without_a_use_is_dropped() -> None:
    assert inline_references({"type": "object", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}) == {"type": "object"}


NESTED = "(nested in the same way)"
FOLLOWED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "anchor": ({"$defs": {"a": {"$anchor": "x"}}, "$ref": "#x"}, {}),
    "another-document": ({"items": {"$ref": "https://example.com/a"}}, {"items": {}}),
    "no-target": ({"items": {"$ref": "#/$defs/a", "title": "T"}}, {"items": {"title": "T"}}),
    "deep-pointer": (
        {"$defs": {"a": {"items": {"type": "null"}}}, "items": {"$ref": "#/$defs/a/items"}},
        {"items": {"type": "null"}},
    ),
    "boolean-definition": ({"$defs": {"a": True}, "items": {"$ref": "#/$defs/a"}}, {"items": {}}),
    "nested-definitions": ({"items": {"$defs": {"a": {}}}, "$defs": {"b": {}}}, {"items": {}}),
    "no-text": ({"items": {"$ref": 1}}, {"items": {"$ref": 1}}),
    "to-the-root": (
        {"properties": {"next": {"$ref": "#"}}},
        {"properties": {"next": {"properties": {"next": {"properties": {"next": {"description": NESTED}}}}}}},
    ),
}


@pytest.mark.parametrize(("schema", "expected"), FOLLOWED.values(), ids=FOLLOWED.keys())
def test_only_pointers_into_the_schema_are_followed(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert inline_references(schema) == expected


def test_data_that_looks_like_a_reference_stays() -> None:
    schema = {"type": "object", "properties": {"$ref": {"const": {"$ref": "#/$defs/x"}}}}
    assert inline_references(schema) == schema


def test_a_schema_that_would_grow_too_large_is_rejected() -> None:
    with pytest.raises(SchemaError, match="too large"):
        inline_references(doubling(12))


def test_a_recursive_schema_that_is_too_large_twice_is_inlined_once() -> None:
    names = [f"p{number}" for number in range(20)]
    schema = {"properties": {name: {"$ref": "#"} for name in names}}
    assert inline_references(schema)["properties"]["p0"]["properties"]["p0"] == {"description": NESTED}


def test_below_the_depth_limit_only_plain_members_stay() -> None:
    schema: dict[str, Any] = {"type": "array"}
    for _ in range(3):
        schema = {"type": "array", "items": schema}
    assert inline_references(schema, max_depth=1) == {
        "type": "array",
        "items": {"type": "array", "items": {"type": "array"}},
    }


def test_inlining_does_not_change_the_schema_it_was_given() -> None:
    schema = {"$defs": {"A": {"title": "A", "type": "string"}}, "properties": {"x": {"$ref": "#/$defs/A"}}}
    inline_references(schema)
    assert schema == {"$defs": {"A": {"title": "A", "type": "string"}}, "properties": {"x": {"$ref": "#/$defs/A"}}}


@given(value=json_values)
def test_an_inlined_schema_accepts_what_the_original_does(value: Any) -> None:
    schema = {
        "$defs": {
            "leaf": {"type": ["integer", "string"]},
            "list": {"items": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]}, "type": "array"},
        },
        "anyOf": [{"$ref": "#/$defs/leaf", "minLength": 1}, {"$ref": "#/$defs/list", "description": "t"}],
    }
    assert compile_schema(schema).check(value) == compile_schema(inline_references(schema)).check(value)


# Elicitation forms


def form(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


TITLED = [{"const": "#F00", "title": "Red"}, {"const": "#0F0", "title": "Green"}]

FLAT: dict[str, dict[str, Any]] = {
    "empty": form(),
    "text": form(
        a={"type": "string", "title": "T", "description": "D", "minLength": 3, "maxLength": 50, "default": "abc"}
    ),
    "formats": form(
        a={"type": "string", "format": "email"},
        b={"type": "string", "format": "uri"},
        c={"type": "string", "format": "date"},
        d={"type": "string", "format": "date-time"},
    ),
    "pattern": form(a={"type": "string", "pattern": "^[A-Za-z]+$"}),
    "number": form(a={"type": "number", "minimum": 0, "maximum": 100, "default": 50}),
    "fraction": form(a={"type": "number", "default": 0.5}),
    "integer": form(a={"type": "integer", "default": 1}),
    "boolean": form(a={"type": "boolean", "default": False}),
    "choice": form(a={"type": "string", "enum": ["Red", "Green"], "default": "Red"}),
    "choice-with-names": form(a={"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}),
    "titled-choice": form(a={"type": "string", "oneOf": TITLED, "default": "#F00"}),
    "choices": form(
        a={"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["r"]}, "default": ["r"]}
    ),
    "titled-choices": form(a={"type": "array", "items": {"anyOf": TITLED}, "default": ["#F00", "#0F0"]}),
    "whole": {**form(a={"type": "string", "x-hint": 1}), "$schema": "s", "title": "T", "required": ["a"]},
    "closed": {**form(), "additionalProperties": False, "description": "D"},
}


@pytest.mark.parametrize("schema", FLAT.values(), ids=FLAT.keys())
def test_every_form_of_the_specification_is_flat(schema: dict[str, Any]) -> None:
    check_form_schema(schema)


TYPE = 'Property "a" needs one "type"'
CHOICES = 'Property "a" must list its choices as strings'
DEFAULT = 'Property "a" has a default that the property itself does not allow'

NOT_FLAT: dict[str, tuple[dict[str, Any], str]] = {
    "no-object": ({"type": "string"}, 'A form needs "type": "object"'),
    "no-properties": ({"type": "object"}, 'A form needs "type": "object"'),
    "additional": ({**form(), "additionalProperties": {"type": "string"}}, "no schema for additional properties"),
    "definitions": ({**form(), "$defs": {}}, 'A form may not have "\\$defs"; only'),
    "composition": ({**form(), "allOf": []}, 'A form may not have "allOf"'),
    "required-unknown": ({**form(), "required": ["b"]}, '"required" must be a list of names'),
    "required-no-list": ({**form(), "required": "a"}, '"required" must be a list of names'),
    "boolean-schema": (form(a=True), TYPE),
    "nested": (form(a=form()), TYPE),
    "nullable": (form(a={"type": ["string", "null"]}), TYPE),
    "union": (form(a={"anyOf": [{"type": "string"}]}), TYPE),
    "reference": (form(a={"$ref": "#/$defs/a"}), TYPE),
    "untyped-choice": (form(a={"enum": ["x"]}), TYPE),
    "keyword": (form(a={"type": "integer", "multipleOf": 2}), 'of type integer, may not have "multipleOf"'),
    "const": (form(a={"type": "string", "const": "x"}), 'may not have "const"'),
    "format": (form(a={"type": "string", "format": "ipv4"}), "a format that is none of date, date-time, email, uri"),
    "list-of-texts": (form(a={"type": "array", "items": {"type": "string"}}), CHOICES),
    "list-of-anything": (form(a={"type": "array"}), CHOICES),
    "list-of-objects": (form(a={"type": "array", "items": form()}), CHOICES),
    "untyped-items": (form(a={"type": "array", "items": {"enum": ["x"]}}), CHOICES),
    "more-in-items": (form(a={"type": "array", "items": {"type": "string", "enum": ["x"], "not": {}}}), CHOICES),
    "numbers-as-choices": (form(a={"type": "string", "enum": [1]}), CHOICES),
    "no-choices": (form(a={"type": "string", "enum": []}), CHOICES),
    "no-titled-choices": (form(a={"type": "string", "oneOf": []}), CHOICES),
    "choices-no-list": (form(a={"type": "string", "oneOf": "x"}), CHOICES),
    "untitled-const": (form(a={"type": "string", "oneOf": [{"const": "x"}]}), CHOICES),
    "boolean-option": (form(a={"type": "string", "oneOf": [True]}), CHOICES),
    "both": (form(a={"type": "string", "enum": ["x"], "oneOf": TITLED}), CHOICES),
    "names-alone": (form(a={"type": "string", "enumNames": ["x"]}), CHOICES),
    "too-few-names": (form(a={"type": "string", "enum": ["x", "y"], "enumNames": ["X"]}), CHOICES),
    "default-type": (form(a={"type": "string", "default": 1}), DEFAULT),
    "default-null": (form(a={"type": "string", "default": None}), DEFAULT),
    "default-boolean": (form(a={"type": "number", "default": True}), DEFAULT),
    "default-fraction": (form(a={"type": "integer", "default": 1.5}), DEFAULT),
    "default-choice": (form(a={"type": "string", "enum": ["x"], "default": "y"}), DEFAULT),
    "default-choices": (form(a={"type": "array", "items": {"anyOf": TITLED}, "default": ["y"]}), DEFAULT),
    "default-no-list": (form(a={"type": "array", "items": {"anyOf": TITLED}, "default": "#F00"}), DEFAULT),
}


@pytest.mark.parametrize(("schema", "reason"), NOT_FLAT.values(), ids=NOT_FLAT.keys())
def test_anything_else_is_rejected_with_the_property_and_the_reason(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        check_form_schema(schema)


def test_defaults_fill_what_the_answer_leaves_out_and_nothing_else() -> None:
    schema = form(
        a={"type": "string", "default": "x"}, b={"type": "integer", "default": 1}, c={"type": "string"}, d=True
    )
    content = {"b": 2}
    assert apply_defaults(schema, content) == {"a": "x", "b": 2}
    assert content == {"b": 2}


def test_a_schema_without_properties_fills_nothing() -> None:
    assert apply_defaults({"type": "object"}, {"b": 2}) == {"b": 2}
