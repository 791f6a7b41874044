"""What counts as equal in two runs of a server, and what the table says of it."""

from __future__ import annotations

from typing import Any

import pytest

from compat.tests.catalog import SERVERS, WITH_US_ONLY
from compat.tests.comparison import Snapshot, challenge_shape, compare, literally_different
from compat.tests.servers import BARS, Cost, Report, format_table, summarize


def _tool(name: str, **parts: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}, **parts}


def _text_result(text: str, **parts: Any) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}], **parts}}


def _parts(theirs: Snapshot, ours: Snapshot, *volatile: str) -> list[str]:
    return [difference.part for difference in compare(theirs, ours, volatile)]


def test_schemas_that_differ_in_titles_alone_are_equal_and_counted_as_written_otherwise() -> None:
    theirs = Snapshot(tools=[_tool("add")])
    ours = Snapshot(tools=[_tool("add", inputSchema={**_tool("add")["inputSchema"], "title": "addArguments"})])

    assert _parts(theirs, ours) == []
    assert literally_different(theirs, ours) == ["add input"]


def test_a_missing_tool_another_type_and_another_view_are_differences_of_three_parts() -> None:
    view = {"_meta": {"ui": {"resourceUri": "ui://a/view.html"}, "fastmcp": {"tags": []}}}
    theirs = Snapshot(tools=[_tool("add"), _tool("sub"), _tool("show", **view)])
    ours = Snapshot(
        tools=[_tool("add", inputSchema={"type": "object", "properties": {"a": {"type": "string"}}}), _tool("show")]
    )

    assert sorted(_parts(theirs, ours)) == ["apps", "schemas", "tools"]


def test_results_are_compared_without_nulls_defaults_and_marks_of_a_framework() -> None:
    theirs = _text_result("42", isError=False, _meta={"fastmcp": {"wrap_result": True}})
    ours = {"result": {"content": [{"type": "text", "text": "42", "annotations": None}]}}

    assert _parts(Snapshot(call=theirs), Snapshot(call=ours)) == []
    assert _parts(Snapshot(call=theirs), Snapshot(call=_text_result("42", isError=True))) == ["call"]
    assert _parts(Snapshot(call=theirs), Snapshot(call=_text_result("42", structuredContent={"n": 1}))) == ["call"]


def test_what_a_volatile_pattern_matches_is_not_compared() -> None:
    first, second = Snapshot(call=_text_result("took 12 ms")), Snapshot(call=_text_result("took 34 ms"))

    assert _parts(first, second) == ["call"]
    assert _parts(first, second, r"\d+ ms") == []


def test_resources_and_prompts_are_compared_by_what_a_client_acts_on() -> None:
    theirs = Snapshot(
        resources=[{"uri": "a://b", "name": "b", "mimeType": "text/plain", "description": "one"}],
        prompts=[{"name": "ask", "arguments": [{"name": "topic", "required": True}]}],
    )
    ours = Snapshot(
        resources=[{"uri": "a://b", "name": "b", "mimeType": "text/plain", "description": "another"}],
        prompts=[{"name": "ask", "arguments": [{"name": "topic"}]}],
    )

    assert _parts(theirs, ours) == ["prompts"]


@pytest.mark.parametrize(
    ("header", "is_equal"),
    [
        ('bearer error="invalid_token", error_description="Another sentence"', True),
        ('Bearer error="invalid_token"', False),
        ("Bearer", False),
    ],
)
def test_challenges_are_equal_if_scheme_and_parameters_are(header: str, is_equal: bool) -> None:
    theirs = 'Bearer error="invalid_token", error_description="A sentence"'

    assert (challenge_shape(header) == challenge_shape(theirs)) is is_equal
    assert _parts(Snapshot(auth=[(401, theirs)]), Snapshot(auth=[(401, header)])) == ([] if is_equal else ["auth"])
    assert _parts(Snapshot(auth=[(401, theirs)]), Snapshot(auth=[(403, theirs)])) == ["auth"]


def test_the_summary_counts_servers_that_their_own_framework_starts_and_takes_medians_of_ratios() -> None:
    cheap, dear = Cost(1.0, 100.0, 90.0, 50.0), Cost(5.0, 300.0, 280.0, 60.0)
    reports = [
        Report("a", "SDK 1 low-level", "equal", theirs=dear, ours=cheap),
        Report("b", "FastMCP 4", "differs", theirs=cheap, ours=cheap),
        Report("c", "FastMCP 4", "fails", theirs=dear, note="no such name"),
        Report("d", "SDK 1 FastMCP", "only ours", ours=cheap),
        Report("e", "SDK 1 FastMCP", "unusable"),
    ]

    summary = summarize(reports)

    assert (summary.compared, summary.equal) == (3, 1)
    assert (summary.cpu, summary.cold_start) == (3.0, 2.0)
    assert summary.reached() == {"equal": False, "cpu": False, "cold start": True}
    table = format_table(reports)
    assert "1 of 3 start and answer equally; bar: 38: missed" in table
    assert "c: does not run: no such name" in table
    assert table.index("run with us only") < table.index("  d ")


def test_the_catalog_has_forty_servers_with_exact_versions_over_all_generations() -> None:
    assert len(SERVERS) == 40 >= BARS["equal"]
    assert len({server.name for server in (*SERVERS, *WITH_US_ONLY)}) == len(SERVERS) + len(WITH_US_ONLY)
    assert all("==" in requirement for server in SERVERS for requirement in server.requirements)
    generations = {server.generation.partition(",")[0] for server in SERVERS}
    assert generations >= {"SDK 1 low-level", "SDK 1 FastMCP", "SDK 2 MCPServer", "FastMCP 2", "FastMCP 3", "FastMCP 4"}
    assert sum(server.http is not None for server in SERVERS) >= 2
    assert sum("Apps" in server.generation for server in SERVERS) >= 2
