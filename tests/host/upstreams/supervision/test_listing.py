"""What a server offers, listed: each list by itself, bounded, and not too often."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.client.scripted_server import Fail, Scripted, handshake_server, settle, stateless
from tests.support import run_async
from trunkline.client.client import Client
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.supervision.clients import (
    Debounce,
    ListBounds,
    failed_kinds,
    list_offering,
    offerings_differ,
)
from trunkline.testing.clock import FakeClock
from trunkline.timers import Timers

TOOL = {"name": "add", "inputSchema": {"type": "object"}}
TABLE: Mapping[str, Any] = {
    "tools/list": {"tools": [TOOL]},
    "prompts/list": {"prompts": [{"name": "ask"}]},
    "resources/list": {"resources": [{"uri": "a:1", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "a:{n}", "name": "all"}]},
}


def listed(server: Scripted, before: Offering | None = None, **options: Any) -> Offering:
    async def main() -> Offering:
        async with Client(server, cache=False) as client:
            return await list_offering(client, before, **options)

    return run_async(main())


@pytest.mark.parametrize("make", [stateless, handshake_server], ids=["stateless", "handshake"])
def test_all_lists_are_read(make: Any) -> None:
    found = listed(make(TABLE), listed_at=3.0)
    assert [tool.name for tool in found.tools] == ["add"]
    assert [prompt.name for prompt in found.prompts] == ["ask"]
    assert [resource.uri for resource in found.resources] == ["a:1"]
    assert [template.uri_template for template in found.templates] == ["a:{n}"]
    assert (found.failures, found.unreadable, found.listed_at) == ({}, (), 3.0)
    assert found.instructions == "Be kind."


def test_a_list_whose_capability_is_not_declared_is_not_asked_for() -> None:
    server = stateless(TABLE, prompts={})
    found = listed(server)
    assert (found.tools, len(found.prompts)) == ((), 1)
    assert server.methods == ["server/discover", "prompts/list"]


def test_a_repeated_cursor_fails_that_list_alone() -> None:
    found = listed(stateless({**TABLE, "tools/list": {"tools": [TOOL], "nextCursor": "x"}}))
    assert found.tools == ()
    assert list(found.failures) == ["tools/list"]
    assert "repeated the cursor 'x'" in found.failures["tools/list"]
    assert len(found.prompts) == 1


def test_a_list_that_fails_keeps_what_was_known_of_it() -> None:
    before = listed(stateless(TABLE))
    found = listed(stateless({**TABLE, "tools/list": Fail(-32603, "out of order")}), before)
    assert found.tools == before.tools
    assert found.failures == {"tools/list": "out of order (-32603)"}


def test_only_the_kinds_that_changed_are_listed_again() -> None:
    before = replace(listed(stateless(TABLE)), failures={"prompts/list": "no"})
    server = stateless({**TABLE, "tools/list": {"tools": []}})
    found = listed(server, before, kinds={"tools"})
    assert server.methods == ["server/discover", "tools/list"]
    assert (found.tools, found.resources) == ((), before.resources)
    assert found.failures == {"prompts/list": "no"}


def test_a_change_of_the_resources_concerns_the_templates_too() -> None:
    server = stateless(TABLE)
    listed(server, kinds={"resources"})
    assert server.methods == ["server/discover", "resources/list", "resources/templates/list"]


@pytest.mark.parametrize("method", ["prompts/list", "resources/list", "resources/templates/list"])
def test_a_server_without_the_method_has_none_of_it(method: str) -> None:
    table = {name: answer for name, answer in TABLE.items() if name != method}
    assert listed(stateless(table)).failures == {}


def test_a_server_that_declares_tools_and_cannot_list_them_failed() -> None:
    assert list(listed(stateless({}, tools={})).failures) == ["tools/list"]


@pytest.mark.parametrize(
    "bad",
    [{"name": "bad"}, {"name": 3, "inputSchema": {}}, "text", None, {"name": "x", "inputSchema": None}],
    ids=["no-schema", "name-is-a-number", "text", "null", "schema-is-null"],
)
def test_one_tool_that_makes_no_sense_costs_only_itself(bad: Any) -> None:
    found = listed(stateless({"tools/list": {"tools": [TOOL, bad, {**TOOL, "name": "sub"}]}}, tools={}))
    assert [tool.name for tool in found.tools] == ["add", "sub"]
    assert found.failures == {}
    (note,) = found.unreadable
    assert note.startswith("tools/list: item 1 (")


def test_what_could_not_be_read_is_remembered_while_others_are_listed_again() -> None:
    before = listed(stateless({**TABLE, "tools/list": {"tools": [None]}}))
    again = listed(stateless(TABLE), before, kinds={"prompts"})
    assert again.unreadable == before.unreadable != ()


@pytest.mark.parametrize("answer", [{"tools": 3}, {"tools": [], "nextCursor": 3}, {}], ids=str)
def test_a_page_that_makes_no_sense_fails_its_list(answer: Any) -> None:
    assert list(listed(stateless({"tools/list": answer}, tools={})).failures) == ["tools/list"]


@pytest.mark.parametrize("bounds", [ListBounds(items=1), ListBounds(bytes=60)], ids=["items", "bytes"])
def test_a_list_that_is_too_long_is_not_taken(bounds: ListBounds) -> None:
    pages: dict[Any, Any] = {None: {"tools": [TOOL], "nextCursor": "2"}, "2": {"tools": [TOOL]}}
    server = stateless({"tools/list": lambda params: pages[params.get("cursor")]}, tools={})
    assert "more than" in listed(server, bounds=bounds).failures["tools/list"]


async def test_a_list_that_never_comes_costs_its_time_and_not_the_others() -> None:
    clock = FakeClock()
    server = stateless({**TABLE, "tools/list": None})
    async with Client(server, cache=False) as client:
        work = list_offering(client, bounds=ListBounds(seconds=5.0), timers=Timers(clock))
        task = asyncio.ensure_future(work)
        await server.until(lambda: "resources/templates/list" in server.methods)
        await settle()
        clock.advance(5.0)
        found = await task
    assert found.failures == {"tools/list": "not listed after 5 s"}
    assert len(found.prompts) == 1


def test_an_offering_differs_by_what_it_holds_and_not_by_when() -> None:
    one = Offering(revision="r", capabilities={}, listed_at=1.0)
    assert offerings_differ(one, replace(one, listed_at=2.0)) is False
    assert offerings_differ(one, replace(one, instructions="x")) is True
    assert offerings_differ(None, one) is True
    assert offerings_differ(None, None) is False


def test_the_kinds_that_failed_are_named() -> None:
    one = Offering(revision="r", capabilities={}, failures={"resources/templates/list": "x", "tools/list": "y"})
    assert failed_kinds(one) == {"resources", "tools"}
    assert failed_kinds(None) == frozenset()


# --- changes


def test_a_change_is_due_after_a_moment_of_quiet() -> None:
    debounce = Debounce()
    debounce.note({"tools"}, 10.0)
    assert debounce.due_at() == pytest.approx(10.1)
    debounce.note({"prompts"}, 10.05)
    assert debounce.due_at() == pytest.approx(10.15)
    assert debounce.take(10.2) == {"tools", "prompts"}
    assert debounce.due_at() is None


def test_changes_without_end_are_due_a_second_after_the_first() -> None:
    debounce = Debounce()
    for tenth in range(100):
        debounce.note({"tools"}, 10.0 + tenth / 20)
    assert debounce.due_at() == pytest.approx(11.0)


@given(st.lists(st.floats(0, 0.3), min_size=1, max_size=300))
def test_a_storm_is_never_listed_more_often_than_once_a_second(gaps: list[float]) -> None:
    debounce, now, taken = Debounce(), 0.0, [-1.0]
    for gap in gaps:
        now += gap
        debounce.note({"tools"}, now)
        due = debounce.due_at()
        assert due is not None
        taken += [now] if due <= now and debounce.take(now) else []
    assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(taken))
