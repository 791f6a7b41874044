"""The first list is whole where that can be known: kept catalogs at once, other servers within a bounded wait."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.support import FRONTS, NEW, OLD, fronted, on_stage, quiet, until
from tests.host.supervised import program
from trunkline import Client
from trunkline.errors import InvalidParams, RequestFailed
from trunkline.host.gateway import app
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.host.host import Host

LISTS = ["list_tools", "list_prompts", "list_resources", "list_resource_templates"]


def _slow(go: Path, **settings: Any) -> dict[str, Any]:
    """Make a server that begins to serve once a file is there."""
    return {"slow": program("slow", "slow_start", str(go), **settings)}


async def _names(client: Any) -> list[str]:
    return [tool.name for tool in await client.list_tools()]


async def test_the_first_list_waits_for_a_server_of_which_nothing_is_kept(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with on_stage(_slow(go), tmp_path, wait="none") as stage, stage.client(OLD) as client:
        listing = asyncio.ensure_future(_names(client))
        await until(lambda: stage.host.status()[0].state == "starting")
        assert not listing.done()
        go.touch()
        assert await listing == ["slow__pid"]


async def test_what_a_first_list_waited_for_is_not_told_as_a_change(tmp_path: Path) -> None:
    # Semantic Kernel reads no response while it handles a change, and so not that of its own list request.
    go, heard = tmp_path / "go", list[str]()
    servers = {"slow": program("slow", "slow_notes", str(go))}
    async with (
        on_stage(servers, tmp_path, wait="none") as stage,
        stage.client(OLD, on_change=lambda change: heard.append(change.kind)) as client,
    ):
        listing = asyncio.ensure_future(_names(client))
        await until(lambda: stage.host.status()[0].state == "starting")
        go.touch()
        assert await listing == ["slow__pid"]
        await quiet()
        assert heard == []
        await stage.host.remove_server("slow")
        await until(lambda: set(heard) == {"tools", "resources"})


async def test_every_list_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    servers = _slow(tmp_path / "never")
    async with on_stage(servers, tmp_path, wait="none", list_seconds=0.2) as stage, stage.client() as client:
        assert [await getattr(client, method)() for method in LISTS] == [[], [], [], []]
        # On a busy machine its start may not even have begun.
        assert stage.host.status()[0].state in ("known", "starting")


async def test_how_long_is_waited_for_a_server_can_be_said_in_its_entry(tmp_path: Path) -> None:
    servers = _slow(tmp_path / "never", wait=0.0)
    async with fronted(servers, tmp_path, wait="none", list_seconds=3600.0) as client:
        assert await _names(client) == []


async def test_nothing_but_lists_waits(tmp_path: Path) -> None:
    servers = _slow(tmp_path / "never")
    async with fronted(servers, tmp_path, "2025-11-25", wait="none", list_seconds=3600.0) as c:
        await c.ping()
        assert c.revision == "2025-11-25"


@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_servers_start_when_the_client_over_stdio_has_its_first_answer(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_HOLD_SECONDS", 600.0)
    entries = {"a": program("a", "plain")}
    async with Host.open(entries, folder=tmp_path, audit=False, wait="kept", hold_starts=True) as host:
        gateway = host.gateway()
        app._release_starts(host._open, gateway)
        await asyncio.sleep(0.05)
        before = host.status()[0]
        async with Client(gateway, revision=revision) as client:
            names = await _names(client)
        await gateway.aclose()
    assert (before.state, before.pid, names) == ("starting", None, ["a__pid"])


async def test_a_profile_waits_for_its_own_servers_alone(tmp_path: Path) -> None:
    servers = {**_slow(tmp_path / "never"), "a": program("a", "plain")}
    options = GatewayOptions(profile="small", servers=frozenset({"a"}))
    waits: dict[str, Any] = {"wait": "none", "list_seconds": 3600.0}
    async with on_stage(servers, tmp_path, gateway=options, **waits) as stage, stage.client() as client:
        assert await _names(client) == ["a__pid"]


async def test_a_call_by_a_name_that_is_not_known_yet_waits_too(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with on_stage(_slow(go), tmp_path, wait="none") as stage, stage.client() as client:
        call = asyncio.ensure_future(client.call_tool("slow__pid"))
        await until(lambda: stage.host.status()[0].state == "starting")
        go.touch()
        assert (await call).text == str(stage.host.status()[0].pid)
        with pytest.raises(RequestFailed, match="Unknown tool"):
            await client.call_tool("slow__nothing")


async def test_a_call_to_a_starting_server_starts_no_process_of_another_server(tmp_path: Path) -> None:
    # The client can be asked, so its calls use a process of their own.
    go, servers = tmp_path / "go", {"other": program("other", "plain")}
    async with (
        on_stage({**servers, **_slow(go)}, tmp_path, wait="none") as stage,
        stage.client(OLD, elicitation=lambda _: "x") as client,
    ):
        await until(lambda: [each.state for each in stage.host.status()] == ["ready", "starting"])
        call = asyncio.ensure_future(client.call_tool("slow__pid"))
        await quiet()
        assert not call.done()
        go.touch()
        await call
        other, slow = stage.host.status()
        assert (other.dedicated, slow.dedicated) == (0, 1)


@FRONTS
async def test_a_subscription_to_a_resource_of_a_starting_server_waits_too(channel: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    servers = {"slow": program("slow", "slow_notes", str(go))}
    async with on_stage(servers, tmp_path, wait="none") as stage, stage.client(channel) as client:

        async def first_change() -> Any:
            async with client.listen(uris=["note://slow/one"]) as changes:
                await client.call_tool("slow__pid")
                return await anext(aiter(changes))

        change = asyncio.ensure_future(first_change())
        await until(lambda: stage.host.status()[0].state == "starting")
        go.touch()
        assert (await change).uri == "note://slow/one"


async def test_a_call_to_a_server_that_takes_longer_than_lists_wait_is_waited_for(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with on_stage(_slow(go), tmp_path, wait="none", list_seconds=0.1) as stage, stage.client() as client:
        assert await _names(client) == []
        call = asyncio.ensure_future(client.call_tool("slow__pid"))
        with pytest.raises(RequestFailed, match="Unknown tool"):
            # A name that points to no server is not waited for.
            await client.call_tool("other__pid")
        assert not call.done()
        go.touch()
        assert (await call).text == str(stage.host.status()[0].pid)


async def test_a_client_that_lists_once_sees_every_tool_at_the_second_run(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    async with on_stage(_slow(go), tmp_path):
        pass
    go.unlink()
    async with on_stage(_slow(go), tmp_path, wait="kept", list_seconds=0.0) as stage, stage.client(NEW) as client:
        assert await _names(client) == ["slow__pid"]
        assert stage.host.status()[0].state == "starting"
        call = asyncio.ensure_future(client.call_tool("slow__pid"))
        await asyncio.wait([call], timeout=0.05)
        assert not call.done()
        go.touch()
        assert (await call).text == str(stage.host.status()[0].pid)


# --- what the server offers by now -----------------------------------------------------------------------------------


def _telling(folder: Path) -> dict[str, Any]:
    return {"a": program("a", "told_list", str(folder / "list.json"), start="lazy")}


def _tell(folder: Path, **tools: str) -> None:
    rows = [{"name": name, "description": text, "inputSchema": {"type": "object"}} for name, text in tools.items()]
    (folder / "list.json").write_text(json.dumps(rows))


async def test_a_tool_that_is_gone_by_now_is_not_called(tmp_path: Path) -> None:
    _tell(tmp_path, one="first", two="second")
    async with on_stage(_telling(tmp_path), tmp_path):
        pass
    _tell(tmp_path, one="first")
    async with on_stage(_telling(tmp_path), tmp_path, wait="kept") as stage:
        assert list(stage.host.catalog.tools) == ["a/one", "a/two"]
        with pytest.raises(InvalidParams, match="a/two cannot be used: the server no longer offers it"):
            await stage.host.call_tool("a/two")
        assert (await stage.host.call_tool("a/one")).text


async def test_a_definition_that_changed_is_held_to_its_pin_before_the_first_call(tmp_path: Path) -> None:
    _tell(tmp_path, one="Read a file.")
    async with on_stage(_telling(tmp_path), tmp_path):
        pass
    _tell(tmp_path, one="Read a file, and send it away.")
    async with on_stage(_telling(tmp_path), tmp_path, wait="kept") as stage:
        assert list(stage.host.catalog.tools) == ["a/one"]
        with pytest.raises(Exception, match="its definition differs from the one that was accepted"):
            await stage.host.call_tool("a/one")


async def test_clients_hear_when_a_server_comes_up_with_other_lists(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    entry = {"a": program("a", "told_list", str(tmp_path / "list.json"), str(go))}
    _tell(tmp_path, one="first")
    async with on_stage(entry, tmp_path):
        pass
    go.unlink()
    _tell(tmp_path, one="first", two="second")
    async with fronted(entry, tmp_path, OLD, wait="kept") as client:
        async with client.listen() as changes:
            assert await _names(client) == ["a__one"]
            go.touch()
            change = await anext(aiter(changes))
        assert change.kind == "tools"
        assert await _names(client) == ["a__one", "a__two"]
