"""The console of a gateway that runs already: it is started late, and calls are asked about in its page."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from tests.cli.pages import address_in
from tests.console.support import ApiClient, library, policy
from trunkline import Client
from trunkline.cli.console_runner import LazyConsole
from trunkline.console.serve import ConsoleAddress
from trunkline.errors import ToolError
from trunkline.host.authorization.prompters import DeferredPrompter
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.host.host import Host

ASKS = policy('[[rule]]\neffect = "ask"\nserver = "lib"\ntool = "lend"\n')


async def test_a_call_of_a_client_that_cannot_be_asked_is_asked_about_in_the_page_once_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    prompter = DeferredPrompter()
    console = LazyConsole(prompter)
    async with (
        Host.open({"lib": library()}, policy=ASKS, folder=tmp_path / "state", consent=prompter) as host,
        console.beside(host),
        Client(gateway := host.gateway(GatewayOptions(approval="ask"))) as client,
        aiohttp.ClientSession() as http,
    ):
        with pytest.raises(ToolError, match="cannot be asked"):
            await client.call_tool("lib__lend", {"title": "Emma"})
        page = ApiClient(http, ConsoleAddress(*address_in(await console.address())), "one")
        assert (await page.get("/state"))["mode"] == "gateway"
        # Without an open page there is still no one to ask.
        with pytest.raises(ToolError, match="cannot be asked"):
            await client.call_tool("lib__lend", {"title": "Emma"})
        async with page.listen():
            asked = asyncio.create_task(client.call_tool("lib__lend", {"title": "Emma"}))
            item = await page.item("approval")
            assert (item["name"], item["caller"], item["arguments"]) == ("lend", "gateway", {"title": "Emma"})
            await page.post(f"/inbox/{item['id']}", {"allow": True})
            async with asyncio.timeout(120):
                assert (await asked).data == {"Emma": 7}
            rows = (await page.get("/traffic"))["rows"]
            assert "tools/call" in json.dumps(rows)
        await gateway.aclose()


async def test_the_console_of_a_host_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    console = LazyConsole(DeferredPrompter())
    async with Host.open({"lib": library()}, folder=tmp_path / "state") as host, console.beside(host):
        first, second = await asyncio.gather(console.address(), console.address())
    assert first == second
