"""Completion and subscriptions in the console."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console.support import library, on_console, policy, refused
from tests.host.gateway.support import NEW, OLD, revisions_of
from tests.host.supervised import program
from trunkline import Server


async def test_arguments_are_completed(tmp_path: Path) -> None:
    async with on_console({"lib": library(), "bare": Server("bare")}, tmp_path) as stage:
        page = stage.client()
        body = {"kind": "prompt", "id": "lib/recommend", "argument": "genre", "value": "n", "context": {}}
        found = await page.post("/complete", body)
        assert (found["values"], found["has_more"]) == (["novel"], False)
        template = {"kind": "template", "id": "lib/shelf://{number}", "argument": "number", "value": ""}
        assert (await page.post("/complete", template))["values"] == []
        failure = await refused(page.post("/complete", {**body, "id": "lib/none"}))
        assert failure.status == 400


@pytest.mark.parametrize("revision", [OLD, NEW], ids=["handshake", "stateless"])
async def test_updates_of_a_subscribed_resource_are_reported(revision: str, tmp_path: Path) -> None:
    made = Server("lib", revisions=revisions_of(revision))

    @made.resource("book://1")
    async def book() -> str:
        return "Emma"

    async with on_console({"lib": made}, tmp_path) as stage, stage.client().listen() as page:
        assert (await page.post("/subscriptions", {"id": "lib/book://1"}))["subscriptions"] == ["lib/book://1"]
        made.changed("book://1")
        assert (await page.event("resource_updated"))["id"] == "lib/book://1"
        assert (await page.get("/subscriptions"))["subscriptions"] == ["lib/book://1"]
        assert (await page.delete("/subscriptions/lib%2Fbook%3A%2F%2F1"))["subscriptions"] == []


async def test_an_update_by_a_call_is_reported_for_a_server_with_roots_in_its_entry(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    entry = program("n", "slow_notes", str(tmp_path / "go"), roots=("file:///srv",))
    rules = policy('[[rule]]\neffect = "allow"\nserver = "n"\ntool = "*"\n')
    async with on_console({"n": entry}, tmp_path, policy=rules) as stage, stage.client().listen() as page:
        await page.post("/subscriptions", {"id": "n/note://one"})
        await page.call("tool", "n/pid")
        assert (await page.event("resource_updated"))["id"] == "n/note://one"


async def test_what_may_not_be_read_is_not_watched(tmp_path: Path) -> None:
    rules = policy('[[rule]]\neffect = "deny"\nserver = "lib"\nkind = "resource"\n')
    async with on_console({"lib": library()}, tmp_path, policy=rules) as stage:
        for id, status in (("lib/book://1", 403), ("none/book://1", 404)):
            failure = await refused(stage.client().post("/subscriptions", {"id": id}))
            assert failure.status == status
