"""The tests beside the weather app, run with the others, and its page, run with a host of stand-ins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from examples.weather_app.server import make_server
from examples.weather_app.test_weather_app import *  # noqa: F403
from tests.extensions.apps.page_host import needs_node, shown
from trunkline import Client

EXAMPLES = Path(__file__).parents[2] / "examples"
HTML = EXAMPLES / "weather_app" / "panel.html"


async def call(client: Client, name: str) -> dict[str, Any]:
    """Call a tool of the server, and return the result as a host passes it to a page."""
    result = await client.call_tool(name, {"city": "Oslo"})
    return {"content": [{"type": "text", "text": result.text}], "structuredContent": result.structured_content}


@needs_node
async def test_the_page_shows_a_result_and_refreshes_it_with_the_tool_of_pages() -> None:
    async with Client(make_server(), apps=True) as client, shown(HTML) as page:
        await page.start(theme="dark")
        page.drive(theme=True)
        assert await page.sent() == {"theme": "dark"}
        page.tell(method="ui/notifications/tool-input", params={"arguments": {"city": "Oslo"}})
        assert await page.text("status") == "Asking for the weather in Oslo."
        result = await call(client, "show_weather")
        page.tell(method="ui/notifications/tool-result", params=result)
        assert await page.text("title") == "Weather in Oslo"
        assert result["structuredContent"]["days"][0]["sky"] in await page.text("days")
        page.drive(click="refresh")
        asked = await page.sent()
        assert asked["params"] == {"name": "refresh_weather", "arguments": {"city": "Oslo"}}
        page.tell(id=asked["id"], result=await call(client, asked["params"]["name"]))
        assert (await page.text("status")).startswith("As of ")


@needs_node
async def test_the_page_answers_its_host_and_ignores_strangers() -> None:
    async with shown(HTML) as page:
        await page.start()
        page.tell(id=7, method="ping")
        assert await page.sent() == {"jsonrpc": "2.0", "id": 7, "result": {}}
        page.tell(id=8, method="ui/resource-teardown", params={"reason": "closed"})
        assert await page.sent() == {"jsonrpc": "2.0", "id": 8, "result": {}}
        page.tell(id=9, method="other")
        assert (await page.sent())["error"]["code"] == -32601
        forged = {"method": "ui/notifications/tool-result", "params": {"structuredContent": {"city": "X", "days": []}}}
        page.drive(stranger=True, data={"jsonrpc": "2.0", **forged})
        assert await page.text("title") == ""


@needs_node
async def test_the_page_says_what_went_wrong() -> None:
    async with Client(make_server(), apps=True) as client, shown(HTML) as page:
        await page.start()
        failed = {"isError": True, "content": [{"type": "text", "text": "<b>There is no such city.</b>"}]}
        page.tell(method="ui/notifications/tool-result", params=failed)
        assert await page.text("status") == "<b>There is no such city.</b>"
        page.tell(method="ui/notifications/tool-result", params=await call(client, "show_weather"))
        page.drive(click="refresh")
        asked = await page.sent()
        page.tell(id=asked["id"], error={"code": -32000, "message": "not allowed"})
        assert await page.text("status") == "The forecast was not refreshed: not allowed."


def test_the_page_is_one_file_that_loads_nothing_from_elsewhere() -> None:
    html = HTML.read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]|\bsrc=|\bhref=|@import|url\(|innerHTML|eval\(", html.replace("// ", ""))
    assert '<html lang="en">' in html
    assert 'role="status"' in html
