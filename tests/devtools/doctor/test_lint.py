"""What is said of a server's definitions: each fault by its own check, and nothing of what is well."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from trunkline.devtools.doctor.checks import Check, CheckRecorder, lint, token_cost
from trunkline.host.upstreams.catalog.items import Offering

GOOD: dict[str, Any] = {
    "name": "read_note",
    "description": "Read a note.",
    "input_schema": {"type": "object", "properties": {"id": {"type": "string", "description": "Which note."}}},
    "annotations": t.ToolAnnotations(read_only_hint=True),
}


def linted(*tools: t.Tool, **more: Any) -> dict[str, Check]:
    """Give the last check of each id for these tools."""
    recorder = CheckRecorder()
    lint(recorder, Offering(revision="", capabilities={}, tools=tools, **more))
    return {check.id: check for check in recorder.checks}


def tool(**changed: Any) -> t.Tool:
    """Make a good tool with something changed."""
    return t.Tool(**{**GOOD, **changed})


def test_a_good_tool_has_no_finding() -> None:
    assert {check.status for check in linted(tool()).values()} == {"ok"}


@pytest.mark.parametrize(
    ("changed", "id", "words"),
    [
        pytest.param({"input_schema": {"type": "array"}}, "schemas", '"type": "object"', id="not-an-object"),
        pytest.param({"input_schema": {"type": "object", "properties": {"a": {"type": "strnig"}}}}, "schemas",
                     "input schema cannot be used", id="bad-input"),
        pytest.param({"output_schema": {"$ref": "https://example.com/x"}}, "schemas", "output schema", id="bad-output"),
        pytest.param({"input_schema": {"type": "object", "properties": {"a": {
            "type": "object", "x-mcp-header": "A", "description": "x"}}}}, "headers", "read_note", id="bad-header"),
        pytest.param({"name": "n" * 65}, "names", "too long", id="long-name"),
        pytest.param({"name": "notes/read"}, "names", "unusual", id="odd-name"),
        pytest.param({"description": None}, "descriptions", "no description: read_note", id="no-description"),
        pytest.param({"description": "x" * 4001}, "descriptions", "very long", id="huge-description"),
        pytest.param({"input_schema": {"type": "object", "properties": {"id": {"type": "string"}}}}, "descriptions",
                     "read_note(id)", id="mute-argument"),
        pytest.param({"input_schema": {"type": "object", "properties": {"id": {"title": "Id", "type": "string"}}}},
                     "descriptions", "read_note(id)", id="argument-with-a-title-only"),
        pytest.param({"annotations": None}, "annotations", "1 of 1 tools", id="no-annotations"),
        pytest.param({"description": "x" * 40_000}, "cost", "tokens in each request", id="dear"),
    ],
)  # fmt: skip
def test_a_fault_is_a_warning_with_a_fix(changed: dict[str, Any], id: str, words: str) -> None:
    found = linted(tool(**changed))[id]
    assert (found.status, words in found.detail, bool(found.fix)) == ("warn", True, True)


def test_a_name_given_twice_is_told() -> None:
    assert linted(tool(), tool())["names"].detail == "duplicate: read_note"


def test_what_cannot_be_read_at_all_is_told() -> None:
    found = linted(tool(), unreadable=("tools/list: item 1: no name",))["schemas"]
    assert (found.status, "item 1" in found.detail) == ("warn", True)


def test_of_many_only_the_first_few_are_named() -> None:
    found = linted(*(tool(name=f"t{number}", annotations=None) for number in range(9)))["annotations"]
    assert found.detail.endswith("t0, t1, t2, t3, t4 and 4 more")


def test_long_instructions_are_a_warning() -> None:
    assert linted(tool(), instructions="word " * 3000)["instructions"].status == "warn"


def test_a_server_without_tools_costs_its_instructions() -> None:
    assert token_cost(Offering(revision="", capabilities={}, instructions="x" * 36)) > 9
