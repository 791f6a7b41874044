"""The two frames of a page (MCP Apps) in a real browser: what a page can pretend, and what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import FrameLocator, Page, expect

from tests.browser.support import journey, needs_chromium, surfing
from tests.console.support import ApiClient, on_console
from trunkline import Server

pytestmark = needs_chromium

#: A page that initializes itself, and then shows "ready"; ``%s`` is run before that.
PAGE = """<!doctype html><title>Panel</title><p id=out>-</p><script>
const send = (message) => parent.postMessage({jsonrpc: "2.0", ...message}, "*");
const show = (text) => { document.getElementById("out").textContent = text; };
addEventListener("message", ({data}) => {
  if (data.id === 1) {
    send({method: "ui/notifications/initialized", params: {}});
    %s
    send({id: 2, method: "ping"});
  }
  if (data.id === 2) show("ready");
  if (data.method === "ui/resource-teardown") {
    send({method: "notifications/message", params: {level: "info", data: "saved"}});
    setTimeout(() => send({id: data.id, result: {}}));
  }
});
const about = {protocolVersion: "2026-01-26", appInfo: {name: "x", version: "1"}, appCapabilities: {}};
send({id: 1, method: "ui/initialize", params: about});
</script>"""


@asynccontextmanager
async def shown(folder: Path, script: str = "") -> AsyncIterator[tuple[ApiClient, Page, FrameLocator]]:
    """Show the page of a tool in the browser, and wait until it is ready."""
    server = Server("panel")
    server.add_app("ui://panel/main", PAGE.replace("%s", script))
    server.add_tool(lambda: "shown", name="show", app="ui://panel/main")
    async with on_console({"w": server}, folder, apps=True) as console, surfing() as surfer:
        api = console.client()
        async with api.listen():
            view = await api.post("/apps", {"tool": "w/show", "origin": console.address.origin})
            origin, token = console.address.origin, console.address.token
            window = await surfer.open(f"{origin}/apps/{view['view']}#token={token}")
            inner = window.page.frame_locator("[data-app-frame]").frame_locator("iframe")
            await expect(inner.locator("#out")).to_have_text("ready")
            yield api, window.page, inner


@journey()
async def test_a_page_cannot_pretend_to_be_the_frame_around_it(tmp_path: Path) -> None:
    # A text in an object is copied as an object between windows, and is a plain text in JSON.
    forged = 'send({method: new String("ui/notifications/sandbox-stopped"), params: {reason: "forged"}});'
    async with shown(tmp_path, forged) as (_, page, inner):
        await expect(inner.locator("#out")).to_have_text("ready")
        await expect(page.locator("[data-stopped]")).to_have_count(0)


@journey()
async def test_a_page_is_told_that_it_is_closed_and_can_answer(tmp_path: Path) -> None:
    async with shown(tmp_path) as (api, page, _):
        await page.locator('[data-action="close"]').click()
        event = await api.event("log")
        assert (event["server"], event["data"]) == ("w", "saved")
        await expect(page.locator("[data-app]")).to_have_count(0)
