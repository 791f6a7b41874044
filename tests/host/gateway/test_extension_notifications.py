"""Notifications of an extension through the gateway: who gets them, what judges them, and how many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from tests.host.gateway.poll_program import CLOSED, OPENED, POLLS, SEEN, polls, server
from tests.host.gateway.support import CELLS, NEW, OLD, allow, fronted, on_stage, revisions_of, served, until
from tests.host.supervised import scripted
from trunkline import Client, Context, Server
from trunkline.auth import StaticTokens
from trunkline.host.audit.reader import query
from trunkline.host.upstreams.catalog.names import outer_uri

DENY = '[[rule]]\neffect = "deny"\nserver = "v"\nkind = "resource"\nuri = "notifications/*"\n'


def listener() -> tuple[list[tuple[str, dict[str, Any]]], Callable[[str, dict[str, Any]], None]]:
    """Make a list, and a callback that adds the notifications of the extension to it."""
    heard: list[tuple[str, dict[str, Any]]] = []

    def on_notification(method: str, params: dict[str, Any]) -> None:
        if method.startswith("notifications/polls/"):
            heard.append((method, params))

    return heard, on_notification


def polling(
    folder: Path, revision: str = NEW, upstream: str | None = None, **options: Any
) -> AbstractAsyncContextManager[Client]:
    """Open a client with the extension in front of a gateway whose host and server have it too."""
    revisions = None if upstream is None else revisions_of(upstream)
    options = {"hosted": {"extensions": [polls()]}, "extensions": [polls()], **options}
    return fronted({"v": server(revisions=revisions)}, folder, revision, **options)


async def seen_by_server(client: Client) -> list[str]:
    """Wait until the server has received notifications of clients, and return the questions in them."""
    questions: list[str] = []
    while not questions:
        questions = (await client.request("polls/seen"))["seen"]
    return questions


@CELLS
async def test_a_notification_during_a_method_or_a_tool_reaches_its_caller(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    heard, on_notification = listener()
    async with polling(tmp_path, channel, upstream, on_notification=on_notification) as client:
        await client.request("polls/vote", {"question": "Tea?"})
        await until(lambda: heard)
        await client.call_tool("v__announce")
        await until(lambda: len(heard) > 1)
    # The second notification of the tool has no act.
    assert heard == [(OPENED, {"question": "Tea?"}), (OPENED, {"question": "Lunch?"})]


async def test_a_client_that_did_not_declare_the_extension_gets_none(tmp_path: Path) -> None:
    plain, on_plain = listener()
    heard, on_notification = listener()
    async with (
        on_stage({"v": server()}, tmp_path, extensions=[polls()]) as stage,
        stage.client(OLD, extensions=[polls()], on_notification=on_notification) as other,
        stage.client(NEW, on_notification=on_plain) as client,
    ):
        await other.list_tools()
        await client.call_tool("v__announce")
        await other.request("polls/about", {"uri": "polls://1"})
        await until(lambda: heard)
        await client.list_tools()
    assert plain == []
    assert [method for method, _ in heard] == [CLOSED]


async def test_a_notification_for_all_reaches_every_handshake_client_with_the_gateways_uri(tmp_path: Path) -> None:
    heard, on_notification = listener()
    others, on_others = listener()
    async with (
        on_stage({"v": server()}, tmp_path, extensions=[polls()]) as stage,
        stage.client(OLD, extensions=[polls()], on_notification=on_notification) as client,
        stage.client(OLD, extensions=[polls()], on_notification=on_others) as other,
    ):
        await other.list_tools()
        await client.request("polls/about", {"uri": "polls://1"})
        await until(lambda: heard and others)
    assert heard == others == [(CLOSED, {"uri": outer_uri("v", "polls://1")})]


async def test_what_may_belong_to_two_callers_reaches_none_of_them(tmp_path: Path) -> None:
    made = server()
    going = asyncio.Event()

    @made.tool
    async def wait() -> str:
        """Wait until the test goes on."""
        await going.wait()
        return "waited"

    heard, on_notification = listener()
    async with (
        on_stage({"v": made}, tmp_path, extensions=[polls()]) as stage,
        stage.client(extensions=[polls()], on_notification=on_notification) as client,
        stage.client(OLD, extensions=[polls()], on_notification=on_notification) as other,
    ):
        waiting = asyncio.create_task(other.call_tool("v__wait"))
        await until(lambda: len(stage.gateway.core.router.on_shared(stage.gateway.core.upstream("v"))) == 1)
        await client.request("polls/vote", {"question": "Tea?"})
        going.set()
        await waiting
        await client.request("polls/vote", {"question": "Coffee?"})
        await until(lambda: heard)
    assert heard == [(OPENED, {"question": "Coffee?"})]


async def test_the_policy_denies_a_notification_and_the_trail_has_it(tmp_path: Path) -> None:
    heard, on_notification = listener()
    trail = tmp_path / "audit.jsonl"
    policy = allow("v", more=DENY)
    async with polling(tmp_path, policy=policy, audit=trail, on_notification=on_notification) as client:
        await client.request("polls/vote", {"question": "Tea?"})
        await client.list_tools()
    assert heard == []
    entries = [each for each in query(trail) if each["name"] == OPENED]
    assert [(each["stage"], each["outcome"]) for each in entries] == [("denied", "denied")]


async def test_too_many_and_too_long_notifications_are_dropped(tmp_path: Path) -> None:
    heard, on_notification = listener()
    async with polling(tmp_path, on_notification=on_notification) as client:
        await client.request("polls/flood", {"times": 1, "size": 70_000})
        assert heard == []
        await client.request("polls/flood", {"times": 2000, "size": 1})
    # A burst of 200, and 50 for each second that the test takes on a busy machine.
    assert 150 < len(heard) < 1900


@CELLS
async def test_a_notification_of_a_client_reaches_the_server(channel: str, upstream: str, tmp_path: Path) -> None:
    async with polling(tmp_path, channel, upstream) as client:
        await client.list_tools()
        await client.notify(SEEN, {"question": "Tea?"})
        seen = await seen_by_server(client)
    assert seen == ["Tea?"]


async def test_a_notification_of_a_client_that_would_need_approval_is_not_sent(tmp_path: Path) -> None:
    trail = tmp_path / "audit.jsonl"
    ask = '[[rule]]\neffect = "ask"\nserver = "v"\ntool = "notifications/*"\n'
    async with polling(tmp_path, OLD, policy=allow("v", more=ask), audit=trail) as client:
        await client.notify(SEEN, {"question": "Tea?"})
        await until(lambda: any(each["name"] == SEEN for each in query(trail)))
        assert (await client.request("polls/seen"))["seen"] == []
    assert [each["stage"] for each in query(trail) if each["name"] == SEEN] == ["denied"]


async def test_a_notification_of_a_client_without_the_extension_is_ignored(tmp_path: Path) -> None:
    async with (
        on_stage({"v": server()}, tmp_path, extensions=[polls()]) as stage,
        stage.client(OLD) as plain,
        stage.client(OLD, extensions=[polls()]) as client,
    ):
        await plain.notify(SEEN, {"question": "Tea?"})
        await plain.list_tools()
        await client.notify(SEEN, {"question": "Coffee?"})
        seen = await seen_by_server(client)
    assert seen == ["Coffee?"]


async def test_an_entry_lists_notifications_beside_methods(tmp_path: Path) -> None:
    heard, on_notification = listener()
    names = ("polls/vote", "polls/seen", OPENED, SEEN)
    entry = scripted("v", server(), extensions={POLLS: names})
    async with fronted({"v": entry}, tmp_path, OLD, extensions={POLLS: {}}, on_notification=on_notification) as client:
        await client.request("polls/vote", {"question": "Tea?"})
        await until(lambda: heard)
        await client.notify(SEEN, {"question": "Tea?"})
        seen = await seen_by_server(client)
    assert (heard, seen) == ([(OPENED, {"question": "Tea?"})], ["Tea?"])


async def test_a_server_that_did_not_declare_the_extension_cannot_notify(tmp_path: Path) -> None:
    heard, on_notification = listener()
    other = Server("other")

    @other.tool
    async def intrude(ctx: Context) -> str:
        """Send a notification of an extension that this server does not have."""
        await ctx.notify(OPENED, {"question": "Mine?"})
        return "sent"

    async with fronted(
        {"v": server(), "other": other},
        tmp_path,
        hosted={"extensions": [polls()]},
        extensions=[polls()],
        on_notification=on_notification,
    ) as client:
        await client.call_tool("other__intrude")
        await client.request("polls/vote", {"question": "Tea?"})
        await until(lambda: heard)
    assert heard == [(OPENED, {"question": "Tea?"})]


async def test_messages_to_a_server_that_is_each_users_own_use_the_connection_of_that_user(tmp_path: Path) -> None:
    extension, connections = polls(), set[int]()

    @extension.method("polls/mine", act="tool")
    async def mine(ctx: Context) -> dict[str, Any]:
        connections.add(id(ctx._exchange.connection))
        return {}

    made = Server("mine", extensions=[extension], revisions=revisions_of(OLD))
    entry = scripted("v", made, per_user=True)
    users = StaticTokens({"ada-" * 8: "ada", "bea-" * 8: "bea"})
    async with (
        served({"v": entry}, tmp_path, extensions=[extension], auth=users) as web,
        web.client(OLD, token="ada-" * 8, extensions=[extension]) as ada,
        web.client(OLD, token="bea-" * 8, extensions=[extension]) as bea,
    ):
        await ada.request("polls/mine")
        await ada.request("polls/mine")
        one = len(connections)
        await bea.request("polls/mine")
    assert (one, len(connections)) == (1, 2)
