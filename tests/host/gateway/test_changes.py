"""Changes behind the gateway are told in front: of lists, once and filtered; of resources, to those who listen."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.support import (
    CELLS,
    FRONTS,
    NEW,
    OLD,
    PAIRS,
    UPSTREAMS,
    Stage,
    allow,
    fronted,
    on_stage,
    quiet,
    server,
    until,
)
from tests.host.supervised import program, scripted
from trunkline import Client, RequestFailed, Server
from trunkline.host.config.model import Filters


def board(revision: str) -> Server:
    """Make a server whose offer changes."""
    made = server("board", revision)
    notes = {"1": "one", "2": "two"}

    @made.tool
    async def write(number: str, text: str) -> str:
        """Write a note."""
        notes[number] = text
        made.changed(f"note://{number}")
        return text

    @made.resource("note://1")
    async def first() -> str:
        return notes["1"]

    @made.resource("note://2")
    async def second() -> str:
        return notes["2"]

    @made.prompt
    async def read() -> str:
        return "read"

    return made


async def _nothing() -> str:
    """Do nothing."""
    return ""


@CELLS
async def test_a_change_of_a_subscribed_resource_reaches_the_client(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    made = board(upstream)
    async with fronted({"b": made}, tmp_path, channel) as client:
        async with client.listen(uris=["note://b/1"]) as changes:
            await until(lambda: _wanted(made) == {"note://1"})
            await client.call_tool("b__write", {"number": "2", "text": "other"})
            await client.call_tool("b__write", {"number": "1", "text": "new"})
            change = await anext(changes)
        (read,) = await client.read_resource("note://b/1")
    assert change.uri == "note://b/1"
    assert read.text == "new"


def _wanted(made: Server) -> set[str]:
    """Give the resources of a server that somebody wants to hear of."""
    return {uri for sink in made.subscribers() for uri in getattr(sink, "uris", None) or _subscribed(sink)}


def _subscribed(sink: Any) -> Any:
    return () if getattr(sink, "session", None) is None else sink.session.subscriptions


SAME_CONNECTION = pytest.mark.parametrize(
    ("settings", "client_options"),
    [
        ({"roots": ("file:///srv",)}, {"elicitation": lambda question: None}),
        ({"share": "session"}, {"apps": True}),
        ({"per_user": True}, {}),
        ({"per_user": True, "roots": ("file:///srv",)}, {"elicitation": lambda question: None}),
    ],
    ids=["own-roots", "apps", "per-user", "per-user-with-own-roots"],
)


@SAME_CONNECTION
async def test_a_subscription_is_made_on_the_connection_of_the_calls(
    settings: dict[str, Any], client_options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    entry = program("n", "slow_notes", str(tmp_path / "go"), **settings)
    async with (
        on_stage({"n": entry}, tmp_path) as stage,
        stage.client(OLD, **client_options) as client,
        client.listen(uris=["note://n/one"]) as changes,
    ):
        await client.call_tool("n__pid")
        assert (await asyncio.wait_for(anext(changes), 120)).uri == "note://n/one"
        assert sum(len(session.connections) for session in stage.gateway.core.sessions) == 1


async def test_a_subscription_follows_the_calls_to_the_connection_for_log_messages(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    entry = program("n", "slow_notes", str(tmp_path / "go"))
    async with (
        on_stage({"n": entry}, tmp_path) as stage,
        stage.client(OLD) as client,
        client.listen(uris=["note://n/one"]) as changes,
    ):
        await client.set_logging_level("debug")
        await client.call_tool("n__pid")
        assert (await asyncio.wait_for(anext(changes), 120)).uri == "note://n/one"


@UPSTREAMS
async def test_a_handshake_client_subscribes_and_unsubscribes(upstream: str, tmp_path: Path) -> None:
    heard: list[Any] = []
    made = board(upstream)
    async with fronted(
        {"b": made}, tmp_path, OLD, on_notification=lambda method, params: heard.append((method, params.get("uri")))
    ) as client:
        await client.subscribe("note://b/1")
        await until(lambda: _wanted(made) == {"note://1"})
        made.changed("note://1")
        await until(lambda: heard)
        await client.unsubscribe("note://b/1")
        await until(lambda: not _wanted(made))
        made.changed("note://1")
        await client.ping()
    assert heard == [("notifications/resources/updated", "note://b/1")]


async def test_a_server_subscription_ends_with_its_last_subscriber(tmp_path: Path) -> None:
    one, two = board(NEW), board(OLD)
    async with fronted({"b": one, "c": two}, tmp_path, NEW) as client:
        async with client.listen(uris=["note://b/1", "note://c/2"]):
            await until(lambda: (_wanted(one), _wanted(two)) == ({"note://1"}, {"note://2"}))
        await until(lambda: not _wanted(one) and not _wanted(two))


@PAIRS
async def test_a_subscription_outlives_a_restart_of_the_server(channel: str, upstream: str, tmp_path: Path) -> None:
    made = board(upstream)
    async with (
        on_stage({"b": made}, tmp_path) as stage,
        stage.client(channel) as client,
        client.listen(uris=["note://b/1"]) as changes,
    ):
        await until(lambda: _wanted(made))
        await stage.host.restart("b")
        # What was changed meanwhile is not known: it is told as if it had been.
        assert (await anext(changes)).uri == "note://b/1"
        await until(lambda: _wanted(made))
        made.changed("note://1")
        assert (await anext(changes)).uri == "note://b/1"


HIDDEN = pytest.mark.parametrize("uri", ["note://b/2", "note://other/1", "nonsense"])
NO_SECOND = '[[rule]]\neffect = "deny"\nserver = "b"\nuri = "note://2"\n'


@HIDDEN
async def test_a_stateless_client_does_not_hear_of_what_it_may_not_see(uri: str, tmp_path: Path) -> None:
    made = board(NEW)
    async with (
        fronted({"b": made}, tmp_path, policy=allow("b", more=NO_SECOND)) as client,
        client.listen(uris=[uri, "note://b/1"]) as changes,
    ):
        await until(lambda: _wanted(made) == {"note://1"})
        made.changed("note://2")
        made.changed("note://1")
        assert (await anext(changes)).uri == "note://b/1"


@HIDDEN
async def test_a_handshake_client_cannot_subscribe_to_what_it_may_not_see(uri: str, tmp_path: Path) -> None:
    policy = allow("b", more=NO_SECOND)
    async with fronted({"b": board(NEW)}, tmp_path, OLD, policy=policy) as client:
        with pytest.raises(RequestFailed, match="Resource not found"):
            await client.subscribe(uri)


@PAIRS
@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_list_that_changes_is_told_once(channel: str, upstream: str, kind: str, tmp_path: Path) -> None:
    heard: list[str] = []
    made = board(upstream)
    async with (
        on_stage({"b": made}, tmp_path) as stage,
        stage.client(channel, on_change=lambda change: heard.append(change.kind)) as client,
    ):
        await _listening(stage, client)
        _add(made, kind)
        await until(lambda: heard)
        await quiet()
        listed = [item.name for item in await getattr(client, f"list_{kind}")()]
    assert heard == [kind]
    assert any("late" in name for name in listed)


async def _listening(stage: Stage, client: Client) -> None:
    """Wait until a client would hear of a change."""
    await until(stage.gateway.hub.listeners)
    await client.ping()


def _add(made: Server, kind: str) -> None:
    if kind == "tools":
        made.add_tool(_nothing, name="late_one")
        made.add_tool(_nothing, name="late_two")
    elif kind == "prompts":
        made.prompt(_nothing, name="late_one")
        made.prompt(_nothing, name="late_two")
    else:
        made.resource("late://1", name="late_one")(_nothing)
        made.resource("late://2", name="late_two")(_nothing)


async def test_filtered_items_are_not_reported(tmp_path: Path) -> None:
    heard: list[str] = []
    made = board(NEW)
    entry = scripted("b", made, tools=Filters(deny=("secret_*",)))
    async with (
        on_stage({"b": entry}, tmp_path) as stage,
        stage.client(OLD, on_change=lambda change: heard.append(change.kind)) as client,
    ):
        await _listening(stage, client)
        made.add_tool(_nothing, name="secret_one")
        await until(lambda: stage.host.status()[0].unusable == 1)
        await quiet()
        assert heard == []
        assert [tool.name for tool in await client.list_tools()] == ["b__write"]


@FRONTS
async def test_a_server_that_comes_and_goes_changes_the_lists(channel: str, tmp_path: Path) -> None:
    heard: list[str] = []
    async with (
        on_stage({"b": board(NEW)}, tmp_path, policy=allow("b", "c")) as stage,
        stage.client(channel, on_change=lambda change: heard.append(change.kind)) as client,
    ):
        await _listening(stage, client)
        await stage.host.add_server("c", board(OLD))
        await until(lambda: set(heard) == {"tools", "prompts", "resources"})
        assert (await client.call_tool("c__write", {"number": "1", "text": "x"})).data == "x"
        heard.clear()
        await stage.host.remove_server("c")
        await until(lambda: set(heard) == {"tools", "prompts", "resources"})
        assert [tool.name for tool in await client.list_tools()] == ["b__write"]
        with pytest.raises(RequestFailed, match="Unknown tool"):
            await client.call_tool("c__write", {"number": "1", "text": "x"})
