"""What a client declared is what a server is told, and what the server lists and changes for it is what it sees."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.support import CELLS, FRONTS, NEW, OLD, Stage, allow, fronted, on_stage, served, server, until
from trunkline import Client, Server
from trunkline.errors import InvalidParams
from trunkline.host.host import Host
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.routing.session_views import extras_of, merged

_ROOT = str(Path(__file__).parents[3])
_CAPABLE: dict[str, dict[str, Any]] = {
    "elicitation": {"elicitation": lambda _: "x"},
    "sampling": {"sampling": lambda _: "x"},
    "roots": {"roots": ["/tmp"]},
}


def started_by(*arguments: str, **settings: Any) -> dict[str, Any]:
    """Return the entry of a server that Python runs with these arguments."""
    return {"command": sys.executable, "args": ["-S", *arguments], "env": {"PYTHONPATH": _ROOT}, **settings}


def growing(*how: str, **settings: Any) -> dict[str, Any]:
    """Return the entry of a server whose lists depend on its client and its process."""
    return started_by("-m", "tests.host.servers.growing", *how, **settings)


async def _names(client: Client) -> set[str]:
    return {tool.name.removeprefix("g__") for tool in await client.list_tools()}


async def _declared(client: Client) -> list[str]:
    declared: list[str] = json.loads((await client.call_tool("g__declared")).text)
    # The extensions are the host's own.
    return [name for name in declared if name != "extensions"]


def _lanes(stage: Stage) -> int:
    return sum(len(session.connections) for session in stage.gateway.core.sessions)


# --- what is declared ------------------------------------------------------------------------------------------------


@FRONTS
async def test_for_a_client_without_capabilities_none_are_declared(channel: str, tmp_path: Path) -> None:
    async with on_stage({"g": growing()}, tmp_path) as stage, stage.client(channel) as client:
        assert await _declared(client) == []
        # Servers fall back to what they know where there are no roots, and fail where they ask for them in vain.
        assert (await client.call_tool("g__folders")).text == "folders"
        assert not {name for name in await _names(client) if name.startswith("only_")}
        assert _lanes(stage) == 0


@pytest.mark.parametrize(("channel", "capability"), [(OLD, "elicitation"), (NEW, "sampling"), (OLD, "roots")])
async def test_a_server_is_told_what_the_one_client_can_answer(channel: str, capability: str, tmp_path: Path) -> None:
    async with (
        on_stage({"g": growing()}, tmp_path) as stage,
        stage.client(channel, **_CAPABLE[capability]) as able,
        stage.client(channel) as other,
    ):
        assert await _declared(able) == [capability]
        assert await _declared(other) == []


async def test_configured_roots_are_declared_for_every_client(tmp_path: Path) -> None:
    async with on_stage({"g": growing(roots=[str(tmp_path)])}, tmp_path) as stage, stage.client(OLD) as client:
        assert await _declared(client) == ["roots"]
        assert json.loads((await client.call_tool("g__folders")).text) == [tmp_path.as_uri()]
        assert _lanes(stage) == 0


@pytest.mark.parametrize("settings", [{"asks": []}, {"share": "shared"}], ids=["asks nothing", "shared"])
async def test_a_server_that_may_not_ask_is_told_so(settings: dict[str, Any], tmp_path: Path) -> None:
    async with fronted({"g": growing(**settings)}, tmp_path, OLD, **_CAPABLE["elicitation"]) as client:
        assert await _declared(client) == []
        assert "only_elicitation" not in await _names(client)


async def test_a_program_declares_what_it_can_answer_itself(tmp_path: Path) -> None:
    table = {"g": growing()}
    async with Host.open(table, folder=tmp_path, policy=allow("g"), audit=False, **_CAPABLE["elicitation"]) as host:
        assert {"g/only_elicitation", "g/declared"} <= set(host.catalog.tools)
        assert "g/only_roots" not in host.catalog.tools
        assert json.loads((await host.call_tool("g/declared")).text) == ["elicitation", "extensions"]
        # A client of its gateway that cannot be asked does not use a connection that says it can.
        async with Client(host.gateway(), revision=OLD) as client:
            assert await _declared(client) == []


# --- what is listed to whom ------------------------------------------------------------------------------------------


def conditional(revision: str) -> Server:
    """Make a server that shows a tool only to clients that can elicit."""
    made = server(
        "conditional", revision, visible=lambda caller, tool: tool.name != "form" or caller.supports("elicitation")
    )

    @made.tool
    async def form() -> str:
        """Need an answer."""
        return "filled"

    @made.tool
    async def plain() -> str:
        """Need nothing."""
        return "plain"

    return made


@CELLS
async def test_a_client_sees_and_calls_what_a_server_lists_only_to_such_clients(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    async with (
        on_stage({"g": conditional(upstream)}, tmp_path) as stage,
        stage.client(channel, **_CAPABLE["elicitation"]) as able,
        stage.client(channel) as other,
        stage.client(channel, **_CAPABLE["roots"]) as third,
    ):
        assert await _names(able) == {"form", "plain"}
        assert (await able.call_tool("g__form")).data == "filled"
        for client in (other, third):
            assert await _names(client) == {"plain"}
            with pytest.raises(InvalidParams, match="Unknown tool"):
                await client.call_tool("g__form")


async def test_what_is_listed_to_such_clients_is_known_in_the_next_run(tmp_path: Path) -> None:
    for run in (1, 2):
        async with (
            on_stage({"g": growing()}, tmp_path) as stage,
            stage.client(OLD, **_CAPABLE["elicitation"]) as client,
        ):
            assert "only_elicitation" in await _names(client)
            # The first time it takes a connection to find out, which is then used for calls; then it is known.
            assert _lanes(stage) == (1 if run == 1 else 0)
            assert (await client.call_tool("g__only_elicitation")).text == "only_elicitation"


def _late(go: Path) -> dict[str, Any]:
    """Give the entry of a growing server that begins to serve once a file is there."""
    script = (
        f"import runpy\nfrom tests.host.servers.plain import wait_for_file\nwait_for_file({str(go)!r})\n"
        "runpy.run_module('tests.host.servers.growing', run_name='__main__')\n"
    )
    return started_by("-c", script)


async def _known(folder: Path) -> Path:
    """List the late server for clients without capabilities, which is kept; return the file that it waits for."""
    go = folder / "go"
    go.touch()
    async with on_stage({"g": _late(go)}, folder):
        pass
    go.unlink()
    return go


async def test_what_is_kept_of_such_lists_is_listed_while_the_server_starts(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    for _ in (1, 2):
        async with (
            on_stage({"g": _late(go)}, tmp_path, wait="kept") as stage,
            stage.client(NEW, **_CAPABLE["roots"]) as client,
        ):
            assert "only_roots" in await _names(client)
            assert go.exists() or stage.host.status()[0].state == "starting"
        go.unlink(missing_ok=True)


async def test_a_list_for_a_capable_client_waits_for_a_server_that_starts(tmp_path: Path) -> None:
    """What the server lists to other clients is kept; that is not all that this one may see."""
    go = await _known(tmp_path)
    async with (
        on_stage({"g": _late(go)}, tmp_path, wait="kept") as stage,
        stage.client(OLD, **_CAPABLE["roots"]) as client,
        stage.client(OLD) as plain,
    ):
        listing = asyncio.ensure_future(_names(client))
        # What is kept is there at once for a client to whom the server lists no more than that.
        assert "declared" in await _names(plain)
        assert not listing.done()
        assert stage.host.status()[0].state == "starting"
        go.touch()
        assert "only_roots" in await listing


async def test_a_list_for_a_capable_client_waits_no_longer_than_a_first_list_may(tmp_path: Path) -> None:
    go = await _known(tmp_path)
    async with (
        fronted({"g": _late(go)}, tmp_path, OLD, wait="kept", list_seconds=0.0, **_CAPABLE["roots"]) as client,
        client.listen(tools=True) as changes,
    ):
        assert "only_roots" not in await _names(client)
        go.touch()
        await _sees(changes, client, "only_roots")


async def test_what_is_listed_only_to_such_clients_can_be_called_without_listing(tmp_path: Path) -> None:
    async with fronted({"g": growing()}, tmp_path, NEW, **_CAPABLE["elicitation"]) as client:
        assert (await client.call_tool("g__only_elicitation")).text == "only_elicitation"


async def test_two_clients_with_the_same_capabilities_cost_one_connection_to_list(tmp_path: Path) -> None:
    async with on_stage({"g": growing()}, tmp_path) as stage, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(stage.client(OLD, **_CAPABLE["roots"])) for _ in range(3)]
        for client in clients:
            assert "only_roots" in await _names(client)
        assert _lanes(stage) == 1


async def test_a_server_that_cannot_be_started_again_costs_the_list_nothing(tmp_path: Path) -> None:
    # Its second process ends at once.
    marker = tmp_path / "started"
    script = (
        f"import os, sys, runpy\nif os.path.exists({str(marker)!r}): sys.exit(3)\n"
        f"open({str(marker)!r}, 'w').close()\nrunpy.run_module('tests.host.servers.growing', run_name='__main__')\n"
    )
    async with fronted({"g": started_by("-c", script)}, tmp_path / "state", OLD, **_CAPABLE["elicitation"]) as client:
        assert "declared" in await _names(client)
        assert "only_elicitation" not in await _names(client)


async def test_a_slow_second_process_does_not_make_the_first_list_longer_than_it_may_be(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    script = (
        f"import os, sys, runpy\nif os.path.exists({str(marker)!r}): sys.exit(sys.stdin.read())\n"
        f"open({str(marker)!r}, 'w').close()\nrunpy.run_module('tests.host.servers.growing', run_name='__main__')\n"
    )
    servers, options = {"g": started_by("-c", script, startTimeout=3600)}, _CAPABLE["elicitation"]
    async with fronted(servers, tmp_path / "state", OLD, list_seconds=0.2, **options) as client:
        async with asyncio.timeout(120):
            assert "declared" in await _names(client)


# --- changes ---------------------------------------------------------------------------------------------------------


async def _sees(changes: AsyncIterator[Any], client: Client, name: str) -> None:
    """List after each change that is told until a tool is there."""
    async for _ in changes:
        if name in await _names(client):
            return


@pytest.mark.parametrize(
    ("channel", "able", "how"),
    [
        pytest.param(OLD, True, (), id="own connection, handshake-front"),
        pytest.param(NEW, True, ("undeclared",), id="own connection, stateless-front, undeclared"),
        pytest.param(OLD, False, ("undeclared",), id="shared connection, handshake-front, undeclared"),
        pytest.param(NEW, False, (), id="shared connection, stateless-front"),
    ],
)
async def test_a_change_on_the_connection_of_a_call_reaches_its_client(
    channel: str, able: bool, how: tuple[str, ...], tmp_path: Path
) -> None:
    options = _CAPABLE["elicitation"] if able else {}
    async with (
        fronted({"g": growing(*how)}, tmp_path, channel, **options) as client,
        client.listen(tools=True, resources=True) as changes,
    ):
        assert "grown" not in await _names(client)
        await client.call_tool("g__grow")
        await _sees(changes, client, "grown")
        async for change in changes:
            if change.kind == "resources":
                break
        assert "note://g/2" in {resource.uri for resource in await client.list_resources()}
        assert (await client.call_tool("g__grown")).text == "grown"


async def test_a_change_on_one_session_s_connection_is_not_for_others(tmp_path: Path) -> None:
    async with (
        on_stage({"g": growing()}, tmp_path) as stage,
        stage.client(OLD, **_CAPABLE["elicitation"]) as able,
        stage.client(OLD) as plain,
        stage.client(OLD, **_CAPABLE["elicitation"]) as twin,
        able.listen(tools=True) as changes,
    ):
        await twin.call_tool("g__declared")
        await able.call_tool("g__grow")
        await _sees(changes, able, "grown")
        for client in (plain, twin):
            assert "grown" not in await _names(client)


async def test_clients_with_one_token_see_what_the_connection_of_their_own_capabilities_lists(tmp_path: Path) -> None:
    async with (
        served({"g": growing()}, tmp_path) as web,
        web.client(**_CAPABLE["elicitation"]) as able,
        web.client(**_CAPABLE["sampling"]) as other,
        web.client() as plain,
        able.listen(tools=True) as changes,
    ):
        await able.call_tool("g__grow")
        await _sees(changes, able, "grown")
        assert {name for name in await _names(plain) if name.startswith(("only_", "grown"))} == set()
        assert {name for name in await _names(other) if name.startswith(("only_", "grown"))} == {"only_sampling"}


@pytest.mark.parametrize(
    ("channel", "tool", "gone_or_new"),
    [(OLD, "shrink", None), (NEW, "reword", "Another description.")],
    ids=["removed", "reworded"],
)
async def test_what_is_removed_or_reworded_on_a_connection_is_so_for_its_client(
    channel: str, tool: str, gone_or_new: str | None, tmp_path: Path
) -> None:
    async with (
        fronted({"g": growing()}, tmp_path, channel, pins=False, **_CAPABLE["elicitation"]) as client,
        client.listen(tools=True) as changes,
    ):
        await client.list_tools()
        await client.call_tool(f"g__{tool}")
        async for _ in changes:
            described = {each.name: each.description for each in await client.list_tools()}
            if described.get("g__touch") == gone_or_new:
                break


async def test_what_a_connection_alone_listed_goes_with_it(tmp_path: Path) -> None:
    async with (
        on_stage({"g": growing(dedicatedIdle=0.2)}, tmp_path) as stage,
        stage.client(OLD, **_CAPABLE["elicitation"]) as client,
        client.listen(tools=True) as changes,
    ):
        await client.call_tool("g__grow")
        await _sees(changes, client, "grown")
        await until(lambda: _lanes(stage) == 0)
        await until(lambda: "g/grown" not in stage.host.catalog.tools)
        assert "grown" not in await _names(client)
        assert "only_elicitation" in await _names(client)


async def test_a_change_on_the_shared_connection_reaches_clients_with_their_own(tmp_path: Path) -> None:
    heard: set[str] = set()
    async with (
        on_stage({"g": growing("undeclared")}, tmp_path) as stage,
        stage.client(OLD, on_change=lambda change: heard.add(change.kind), **_CAPABLE["elicitation"]) as able,
        stage.client(OLD) as plain,
    ):
        await able.list_tools()
        await plain.call_tool("g__grow")
        await until(lambda: {"tools", "resources"} <= heard)


@pytest.mark.parametrize(("channel", "able"), [(OLD, True), (NEW, False)], ids=["own connection", "shared connection"])
async def test_a_resource_that_cannot_be_subscribed_to_is_told_of_all_the_same(
    channel: str, able: bool, tmp_path: Path
) -> None:
    options = _CAPABLE["elicitation"] if able else {}
    async with (
        fronted({"g": growing()}, tmp_path, channel, **options) as client,
        client.listen(uris=["note://g/1"]) as changes,
    ):
        await client.call_tool("g__touch")
        assert (await anext(changes)).uri == "note://g/1"


# --- the parts -------------------------------------------------------------------------------------------------------


def _offering(**tools: str) -> Offering:
    made = tuple(t.Tool(name=name, description=text, input_schema={"type": "object"}) for name, text in tools.items())
    return Offering(revision=OLD, capabilities={}, tools=made)


def test_an_offering_is_the_same_object_if_others_add_nothing() -> None:
    shared = _offering(a="1", b="2")
    assert merged(shared, [_offering(b="2")]) is shared


def test_others_add_and_only_those_named_replace() -> None:
    shared, other = _offering(a="1"), _offering(a="other", b="2")
    assert [tool.description for tool in merged(shared, [other]).tools] == ["1", "2"]
    assert [tool.description for tool in merged(shared, [other], override=[other]).tools] == ["other", "2"]


def test_extras_are_what_the_shared_connection_does_not_list() -> None:
    assert [tool.name for tool in extras_of(_offering(a="1", b="2"), _offering(a="other")).tools] == ["b"]
