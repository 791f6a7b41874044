"""A large catalog is shown as two tools that find and call the rest, under the same rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.support import NEW, OLD, PAIRS, allow, fronted, on_stage, server
from tests.host.supervised import scripted
from trunkline import Client, Context, Server
from trunkline.errors import InvalidParams
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


@PAIRS
async def test_two_tools_stand_for_all_and_find_and_call_them(channel: str, upstream: str, tmp_path: Path) -> None:
    async with fronted(
        {"m": toolbox(upstream)}, tmp_path, channel, gateway=SEARCHED, elicitation=lambda _: "Ada"
    ) as client:
        assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool"]
        assert (await _found(client, "make a picture smaller"))[0] == "m__resize_image"
        called = await client.call_tool(
            "call_tool", {"name": "m__resize_image", "arguments": {"path": "a.png", "width": 5}}
        )
        asked = await client.call_tool("call_tool", {"name": "m__ask_name"})
        by_name = await client.call_tool("m__send_mail", {"to": "ada"})
        assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool"]
    assert (called.text, asked.text, by_name.text) == ("a.png 5", "Ada", "sent to ada")


@PAIRS
async def test_what_the_policy_denies_is_neither_found_nor_called(channel: str, upstream: str, tmp_path: Path) -> None:
    done: list[str] = []
    policy = allow("m", more=DENY)
    async with fronted({"m": toolbox(upstream, done)}, tmp_path, channel, policy=policy, gateway=SEARCHED) as client:
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


async def test_a_call_without_a_tool_name_or_with_arguments_that_are_no_object_is_rejected(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {},
        {"name": 5},
        {"name": "m__send_mail", "arguments": [1]},
        {"name": "m__send_mail", "arguments": "nonsense"},
    ]
    async with fronted({"m": toolbox(NEW)}, tmp_path, gateway=SEARCHED) as client:
        for arguments in wrong:
            with pytest.raises(InvalidParams, match="call_tool takes"):
                await client.call_tool("call_tool", arguments)


async def test_servers_that_are_always_loaded_stay_listed(tmp_path: Path) -> None:
    always = scripted("k", toolbox(OLD), always_load=True)
    servers = {"m": toolbox(NEW), "k": always}
    async with fronted(servers, tmp_path, NEW, gateway=SEARCHED) as client:
        names = [tool.name for tool in await client.list_tools()]
    assert names == ["search_tools", "call_tool", "k__ask_name", "k__resize_image", "k__send_mail"]


@pytest.mark.parametrize(
    ("search", "window", "expected"),
    [("auto", 200_000, 3), ("auto", 400, 2), ("off", 400, 3), ("on", 200_000, 2)],
)
async def test_the_share_of_the_window_decides(search: str, window: int, expected: int, tmp_path: Path) -> None:
    options = GatewayOptions(search=search, window_tokens=window)
    async with fronted({"m": toolbox(NEW)}, tmp_path, gateway=options) as client:
        assert len(await client.list_tools()) == expected


async def test_the_tools_of_one_server_with_long_descriptions_are_listed(tmp_path: Path) -> None:
    made = server("notes", NEW)
    for number in range(24):
        made.add_tool(wordy, name=f"tool_{number}", description="word " * 750)
    async with on_stage({"n": made}, tmp_path) as stage, stage.client() as client:
        # More than a tenth of a window of 200,000 tokens.
        assert sum(item.tokens for item in stage.host.catalog.tools.values()) > 24_000
        assert len(await client.list_tools()) == 24


async def test_more_tools_than_clients_handle_are_searched_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = server("many", NEW)
    for number in range(129):
        made.add_tool(wordy, name=f"tool_{number}")
    async with fronted({"m": made}, tmp_path) as client:
        assert len(await client.list_tools()) == 2
    (record,) = [record for record in caplog.records if "129 tools" in record.message]
    assert "because there are more than 128 tools; --search off lists all" in record.message


async def test_a_catalog_that_grows_past_its_share_is_searched_from_then_on(tmp_path: Path) -> None:
    made = toolbox(NEW)
    changes: asyncio.Queue[object] = asyncio.Queue()
    options = GatewayOptions(window_tokens=5000)
    async with fronted({"m": made}, tmp_path, gateway=options, on_change=changes.put_nowait) as client:
        assert len(await client.list_tools()) == 3
        await client.ping()
        made.add_tool(wordy, description="word " * 2000)
        await changes.get()
        assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool"]


async def wordy() -> str:
    return ""
