"""State, events and the catalog of a console, over HTTP."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.console.support import library, on_console, policy, refused
from trunkline import Server, __version__
from trunkline.host.events import DefinitionInspected
from trunkline.protocol.revisions import NEWEST


async def test_state_names_the_version_and_counts_what_there_is(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        state = await stage.client().get("/state")
    assert state["version"] == __version__
    assert (state["mode"], state["title"]) == ("console", "test")
    assert state["counts"] == {"tools": 2, "resources": 1, "templates": 1, "prompts": 1, "skills": 0}
    assert state["inbox"] == []
    assert (state["configuration"], state["policy"]) == ({"files": []}, {"file": None})


async def test_an_event_stream_begins_with_hello_and_reports_catalog_changes(tmp_path: Path) -> None:
    made = library()
    async with on_console({"lib": made}, tmp_path) as stage, stage.client().listen() as page:
        assert page.events[0] == {"type": "hello"}
        await stage.host.add_server("more", Server("more", capabilities=["tools"]))
        made.add_tool(_nothing, name="burn")
        event = await page.event("catalog", lambda each: each["counts"]["tools"] == 3)
        assert event["counter"] == stage.host.catalog.counter


async def test_a_console_that_missed_events_reports_the_catalog_again(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        bus, other = stage.host._open.core.events, DefinitionInspected("lib", "tool", "lend", "new", "test")
        # More than a subscriber may be behind, in one go.
        for _ in range(2000):
            bus.publish(other)
        event = await page.event("catalog", lambda each: each["counts"]["tools"] == 2)
        assert event["counter"] == stage.host.catalog.counter


async def _nothing() -> str:
    """Do nothing."""
    return ""


async def test_the_catalog_has_a_row_for_each_item(tmp_path: Path) -> None:
    rules = policy('[[rule]]\neffect = "deny"\nserver = "lib"\ntool = "lend"\n')
    async with on_console({"lib": library()}, tmp_path, policy=rules) as stage:
        catalog = await stage.client().get("/catalog")
    tools = {row["name"]: row for row in catalog["tools"]}
    assert tools["lend"]["arguments"] == ["title*", "days"]
    assert (tools["lend"]["id"], tools["lend"]["effect"], tools["lend"]["decision"]) == ("lib/lend", "unknown", "deny")
    assert (tools["find"]["effect"], tools["find"]["changed"], tools["find"]["app"]) == ("reads", False, None)
    [book] = catalog["resources"]
    assert (book["id"], book["uri"], book["mime_type"]) == ("lib/book://1", "book://1", "text/plain")
    [shelf] = catalog["templates"]
    assert shelf["uri_template"] == "shelf://{number}"
    [prompt] = catalog["prompts"]
    assert prompt["arguments"] == [{"name": "genre", "description": None, "required": True}]
    assert (catalog["skills"], catalog["hidden"]) == ([], [])


@pytest.mark.parametrize(
    ("kind", "id"),
    [
        ("tool", "lib/lend"),
        ("resource", "lib/book://1"),
        ("template", "lib/shelf://{number}"),
        ("prompt", "lib/recommend"),
    ],
)
async def test_an_item_has_its_whole_definition(kind: str, id: str, tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        item = await stage.client().get(f"/items/{kind}/{quote(id, safe='')}")
    assert item["id"] == id
    assert item["definition"]["name"]
    assert item["decision"]["effect"] in ("allow", "ask")
    absent = {"url": None, "command": None, "config": None}
    assert item["connection"] == {"transport": "memory", **absent, "revision": NEWEST.name, "handshake": False}
    assert (item["findings"], item["changes"], item["pin"]) == ([], [], None)


async def test_an_unknown_item_is_not_found(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        for path in ("/items/tool/lib%2Fburn", "/items/thing/lib%2Flend", "/items/skill/lib%2Fnone"):
            failure = await refused(stage.client().get(path))
            assert failure.status in (400, 404)
