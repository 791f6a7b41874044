"""Every view in light and dark, wide and narrow: pictures, and nothing serious for axe-core."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import TimeoutError

from tests.browser.axe import needs_axe, serious_findings
from tests.browser.sample import sample_console
from tests.browser.support import WIDE, Api, Surfer, Window, journey, needs_chromium, surfing

pytestmark = [needs_chromium, needs_axe]

NARROW = (390, 844)
_SETTLED = 20_000.0  # Milliseconds until a page has its new layout.


@asynccontextmanager
async def used_console(folder: Path) -> AsyncIterator[tuple[Api, Surfer]]:
    """Show the sample, after some use."""
    async with sample_console(folder) as api, surfing() as surfer:
        await api.call("time/get_current_time", {"timezone": "Europe/Oslo"})
        await api.call("git/git_log", {"repo_path": str(folder / "workspace" / "project")})
        await api.call("weather/show_weather", {"city": "Oslo"})
        await api.call("everything/get-tiny-image")
        await api.call("everything/echo", {"message": "ahoy"})
        await api.call("sqlite/write_query", {"query": "delete from products"})
        query = {"query": "select * from products limit 5"}
        read = await api.call("sqlite/read_query", query)
        saved = {"name": "Products", "kind": "tool", "id": "sqlite/read_query", "arguments": query, "call": read["id"]}
        await api.request("POST", "/saved", saved)
        chat = (await api.request("POST", "/chats"))["chat"]["id"]
        await api.request("POST", f"/chats/{chat}/messages", {"text": "What does the clock say?"})
        await api.until(f"/chats/{chat}", lambda found: not found["running"])
        yield api, surfer


async def ask(api: Api) -> None:
    """Create three waiting questions: of the model, a form, and a sampling request."""
    chat = (await api.request("POST", "/chats"))["chat"]["id"]
    await api.request("POST", f"/chats/{chat}/messages", {"text": "Write a note about the weekend."})
    for tool, arguments in {"ask-twice": {}, "trigger-sampling-request": {"prompt": "What to pack?"}}.items():
        await api.request("POST", "/calls", {"kind": "tool", "id": f"everything/{tool}", "arguments": arguments})
    await api.until("/state", lambda state: len(state["inbox"]) == 3)


async def _tool(window: Window) -> None:
    await window.page.goto(_at(window, "/tools/weather%2Fshow_weather"))
    await window.field("/city").fill("Oslo")
    await window.action("run").click()
    await window.shown('[data-call][data-state="done"] [data-result] table')


async def _picture(window: Window) -> None:
    await window.page.goto(_at(window, "/tools/everything%2Fget-tiny-image"))
    await window.action("run").click()
    await window.shown("[data-result] img")


async def _app(window: Window) -> None:
    await window.page.goto(_at(window, "/tools/weather%2Fshow_weather"))
    await window.find('[data-tab="app"]').click()
    await window.shown("[data-app-frame]")


async def _definition(window: Window) -> None:
    await window.page.goto(_at(window, "/tools/git%2Fgit_log"))
    await window.find('[data-tab="definition"]').click()
    await window.shown("[data-view=tools] pre")


async def _resource(window: Window) -> None:
    await window.page.goto(_at(window, "/resources"))
    await (await window.shown("[data-item]", "numbered-001")).click()
    await window.action("run").click()
    await window.shown("[data-result]")


async def _prompt(window: Window) -> None:
    await window.page.goto(_at(window, "/prompts"))
    await (await window.shown("[data-item]")).click()
    await window.shown(".head h1")


async def _call(window: Window) -> None:
    await window.page.goto(_at(window, "/calls"))
    await (await window.shown("a[data-item]")).click()
    await window.shown("[data-result]")


async def _chat(window: Window) -> None:
    await window.page.goto(_at(window, "/chat"))
    await (await window.shown(".conversations a")).click()
    await window.shown(".turn.model table")


async def _message(window: Window) -> None:
    await window.page.goto(_at(window, "/traffic"))
    await (await window.shown("[data-row]", "tools/call")).click()
    await window.shown(".detail .card")


async def _add(window: Window) -> None:
    await window.page.goto(_at(window, "/servers?add"))
    await window.shown("dialog input:focus")


async def _keys(window: Window) -> None:
    await window.page.goto(_at(window, "/tools"))
    await window.shown("[data-item]")
    await window.page.keyboard.press("?")
    await window.shown("dialog")


async def _search(window: Window) -> None:
    await window.page.goto(_at(window, "/tools"))
    await window.shown("[data-item]")
    await window.page.keyboard.press("/")
    await window.page.keyboard.type("file")
    await window.shown("[data-hit]")


def _at(window: Window, path: str) -> str:
    return window.page.url.split("/", 3)[0] + "//" + window.page.url.split("/", 3)[2] + path


def _path(path: str, ready: str) -> Callable[[Window], Awaitable[Any]]:
    async def go(window: Window) -> None:
        await window.page.goto(_at(window, path))
        await window.shown(ready)

    return go


#: How each picture is reached.
VIEWS: dict[str, Callable[[Window], Awaitable[Any]]] = {
    "tools": _path("/tools", "[data-item]"),
    "tool": _tool,
    "picture": _picture,
    "app": _app,
    "form": _path("/tools/git%2Fgit_log", "[data-field='/start_timestamp']"),
    "definition": _definition,
    "resource": _resource,
    "prompt": _prompt,
    "skills": _path("/skills", "[data-view=skills] h1"),
    "calls": _path("/calls", "[data-item]"),
    "call": _call,
    "chat": _chat,
    "traffic": _path("/traffic", "[data-row]"),
    "message": _message,
    "dashboard": _path("/dashboard", "[data-view=dashboard] svg"),
    "audit": _path("/audit", "[data-view=audit] h1"),
    "policy": _path("/policy", "[data-view=policy] h1"),
    "servers": _path("/servers", "[data-view=servers] [data-action=add]"),
    "server": _path("/servers/filesystem", "[data-view=servers] h1"),
    "server-broken": _path("/servers/archive", "[data-view=servers] h1"),
    "add-server": _add,
    "keys": _keys,
    "search": _search,
}


@journey(1800)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_view_can_be_used_by_everybody(tmp_path: Path, dark: bool) -> None:
    async with used_console(tmp_path) as (api, surfer):
        # Only for axe-core, which is evaluated in the page.
        window = await surfer.open(api.url, dark=dark, bypass_csp=True)
        await window.shown("[data-item]")
        found: dict[str, Any] = {}
        for name, go in VIEWS.items():
            for size, word in ((WIDE, "wide"), (NARROW, "narrow")):
                await window.page.set_viewport_size({"width": size[0], "height": size[1]})
                if word == "wide":
                    await go(window)
                    found[name] = await serious_findings(window)
                await window.shot(f"{name}-{word}-{'dark' if dark else 'light'}")
                if word == "narrow":
                    await _fits(window, name, found)
        await ask(api)
        for name, path in {"inbox": "/inbox", "attention": "/tools"}.items():
            await window.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
            await window.page.goto(api.origin + path)
            await window.shown("[data-inbox]" if name == "inbox" else "[data-attention]")
            found[name] = await serious_findings(window)
            await window.shot(f"{name}-wide-{'dark' if dark else 'light'}")
            await window.page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
            await window.shot(f"{name}-narrow-{'dark' if dark else 'light'}")
            await _fits(window, name, found)
        assert {name: rules for name, rules in found.items() if rules} == {}


async def _fits(window: Window, name: str, found: dict[str, Any]) -> None:
    """Note a page that scrolls sideways where it is narrow."""
    try:
        # Charts and lists measure themselves after the window has changed.
        await window.page.wait_for_function("document.scrollingElement.scrollWidth <= innerWidth", timeout=_SETTLED)
    except TimeoutError:
        found[name] = [*found[name], "it scrolls sideways"]
