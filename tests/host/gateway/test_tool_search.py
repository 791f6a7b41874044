"""A large catalog is shown as two tools that find and call the rest, under the same rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.support import CELLS, FRONTS, NEW, OLD, allow, on_stage, server
from trunkline import Client, Context, Server
from trunkline.errors import InvalidParams
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.gateway.sessions import GatewayOptions

SEARCHED = GatewayOptions(search="on")
DENY = '[[rule]]\nname = "no mail"\neffect = "deny"\nserver = "m"\ntool = "send_mail"\n'


def toolbox(revision: str, done: list[str] | None = None) -> Server:
    """Make a server with tools worth finding."""
    made = server("toolbox", revision)

    @made.tool
    async def resize_image(path: str, width: int) -> str:
        """Change the size of a picture."""
        return f"{path} {width}"

    @made.tool
    async def send_mail(to: str) -> str:
        """Send an email message."""
        if done is not None:
            done.append(to)
        return f"sent to {to}"

    @made.tool
    async def ask_name(ctx: Context) -> str:
        """Ask the user for a name."""
        return str((await ctx.elicit("Name?", str)).data)

    return made


async def _found(client: Client, query: str) -> list[str]:
    result = await client.call_tool("search_tools", {"query": query})
    tools: list[dict[str, Any]] = (result.structured_content or {})["tools"]
    return [tool["name"] for tool in tools]


@CELLS
async def test_two_tools_stand_for_all_and_find_and_call_them(channel: str, upstream: str, tmp_path: Path) -> None:
    async with (
        on_stage({"m": toolbox(upstream)}, tmp_path, gateway=SEARCHED) as stage,
        stage.client(channel, elicitation=lambda _: "Ada") as client,
    ):
        assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool"]
        assert (await _found(client, "make a picture smaller"))[0] == "m__resize_image"
        called = await client.call_tool(
            "call_tool", {"name": "m__resize_image", "arguments": {"path": "a.png", "width": 5}}
        )
        asked = await client.call_tool("call_tool", {"name": "m__ask_name"})
    assert (called.text, asked.text) == ("a.png 5", "Ada")


@CELLS
async def test_what_the_policy_denies_is_neither_found_nor_called(channel: str, upstream: str, tmp_path: Path) -> None:
    done: list[str] = []
    policy = allow("m", more=DENY)
    async with (
        on_stage({"m": toolbox(upstream, done)}, tmp_path, policy=policy, gateway=SEARCHED) as stage,
        stage.client(channel) as client,
    ):
        assert "mail" not in str([tool.description for tool in await client.list_tools()])
        assert "m__send_mail" not in await _found(client, "send an email message")
        denied = await client.call_tool(
            "call_tool", {"name": "m__send_mail", "arguments": {"to": "x"}}, raise_on_error=False
        )
        unknown = await client.call_tool(
            "call_tool", {"name": "m__send_nail", "arguments": {"to": "x"}}, raise_on_error=False
        )
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await client.call_tool("m__send_mail", {"to": "x"})
    assert denied.is_error
    assert denied.text == unknown.text.replace("nail", "mail")
    assert done == []


@FRONTS
async def test_what_was_found_may_be_called_by_its_name_too(channel: str, tmp_path: Path) -> None:
    async with (
        on_stage({"m": toolbox(NEW)}, tmp_path, gateway=SEARCHED) as stage,
        stage.client(channel) as client,
    ):
        assert (await client.call_tool("m__send_mail", {"to": "ada"})).text == "sent to ada"


@FRONTS
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"name": 5},
        {"name": "m__send_mail", "arguments": [1]},
        {"name": "m__send_mail", "arguments": "nonsense"},
    ],
)
async def test_a_call_without_a_tool_name_is_rejected(channel: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    async with (
        on_stage({"m": toolbox(NEW)}, tmp_path, gateway=SEARCHED) as stage,
        stage.client(channel) as client,
    ):
        with pytest.raises(InvalidParams, match="call_tool takes"):
            await client.call_tool("call_tool", arguments)


@FRONTS
async def test_servers_that_are_always_loaded_stay_listed(channel: str, tmp_path: Path) -> None:
    always = ServerEntry(
        name="k", source=Source("given"), target=toolbox(OLD), settings=ServerSettings(always_load=True)
    )
    servers = {"m": toolbox(NEW), "k": always}
    async with (
        on_stage(servers, tmp_path, gateway=SEARCHED) as stage,
        stage.client(channel) as client,
    ):
        names = [tool.name for tool in await client.list_tools()]
    assert names == ["search_tools", "call_tool", "k__ask_name", "k__resize_image", "k__send_mail"]


@pytest.mark.parametrize(
    ("search", "window", "expected"),
    [("auto", 200_000, 3), ("auto", 1000, 2), ("off", 1000, 3), ("on", 200_000, 2)],
)
async def test_the_share_of_the_window_decides(search: str, window: int, expected: int, tmp_path: Path) -> None:
    options = GatewayOptions(search=search, window_tokens=window)
    async with on_stage({"m": toolbox(NEW)}, tmp_path, gateway=options) as stage, stage.client() as client:
        assert len(await client.list_tools()) == expected


async def test_a_catalog_that_grows_past_its_share_is_searched_from_then_on(tmp_path: Path) -> None:
    made = toolbox(NEW)
    changes: asyncio.Queue[object] = asyncio.Queue()
    options = GatewayOptions(window_tokens=5000)
    async with (
        on_stage({"m": made}, tmp_path, gateway=options) as stage,
        stage.client(on_change=changes.put_nowait) as client,
    ):
        assert len(await client.list_tools()) == 3
        await client.ping()
        made.add_tool(_wordy, description="word " * 2000)
        await changes.get()
        assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool"]


async def wordy() -> str:
    return ""


_wordy = wordy
