"""What is known of tools from their list."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.client.tool_cache import ToolCache
from trunkline.errors import RemoteProtocolError, ToolError
from trunkline.types import CallToolResult, TextContent, Tool

NUMBER = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}


def facts(schema: dict[str, Any] | None) -> ToolCache:
    found = ToolCache()
    found.add([Tool(name="n", input_schema={}, output_schema=schema)])
    return found


def answer(value: Any) -> CallToolResult:
    return CallToolResult(structured_content=value)


def test_each_answer_is_checked_by_the_same_compiled_schema() -> None:
    known = facts(NUMBER)
    assert known.read("n", answer({"result": 1}), validate=True).data == 1
    with pytest.raises(RemoteProtocolError, match="/result"):
        known.read("n", answer({"result": "x"}), validate=True)


def test_a_tool_without_an_output_schema_may_answer_anything() -> None:
    assert facts(None).read("n", answer({"result": 1}), validate=True).data == {"result": 1}


def test_a_value_with_more_members_than_the_wrapper_is_left_alone() -> None:
    assert facts(NUMBER).read("n", answer({"result": 1, "x": 2}), validate=True).data == {"result": 1, "x": 2}


def test_an_explicit_null_is_a_value() -> None:
    with pytest.raises(RemoteProtocolError, match="does not match"):
        facts(NUMBER).read("n", answer(None), validate=True)


def test_a_page_that_was_kept_teaches_nothing_new() -> None:
    known = ToolCache()
    tool = Tool(name="n", input_schema={}, output_schema=NUMBER)
    known.add([tool])
    known.add([tool])
    assert known.has("n")
    assert not known.has("m")


def test_forgetting_forgets_that_the_list_was_complete() -> None:
    known = facts(NUMBER)
    known.complete = True
    known.forget()
    assert not known.has("n")


def test_only_a_failed_result_raises() -> None:
    good = facts(None).read("n", answer(1), validate=True)
    assert good.raise_for_error() is good
    bad = facts(None).read("n", CallToolResult(content=[TextContent(text="no")], is_error=True), validate=True)
    with pytest.raises(ToolError, match="no"):
        bad.raise_for_error()
