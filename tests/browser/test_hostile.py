"""A hostile server: nothing that it sends runs, navigates, opens, frames or fetches anything."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

from playwright.async_api import Error, Frame, Locator, expect

from tests.browser.canary import canary
from tests.browser.support import Api, Window, journey, needs_chromium, showing, surfing, write_script

pytestmark = needs_chromium

INERT = Path(__file__).with_name("inert.js").read_text()
TARGET = f"{sys.executable} -m tests.browser.hostile_server"


async def _looks_inert(window: Window) -> None:
    """Check the document as it is now."""
    found: dict[str, Any] = await window.page.evaluate(INERT)
    assert found == {"bad": [], "scripts": 1, "frames": 0, "handlers": [], "ran": False}


async def _results(window: Window, tool: str) -> None:
    await window.page.goto(window.page.url.split("/tools")[0] + f"/tools/{await _name(window)}%2F{tool}")
    await window.shown('[data-view="tools"] .head h1')
    await _looks_inert(window)
    await window.find('[data-tab="definition"]').click()
    await _looks_inert(window)
    await window.find('[data-tab="try"]').click()
    await _run(window)
    await window.shown("[data-call]:not([data-state=running])")
    await _every_tab(window, window.find("[data-call]").first)


async def _run(window: Window) -> None:
    """Run a tool: its definition is suspicious, so that even what a person clicks is asked about."""
    await window.action("run").click()
    await window.shown("[data-inbox]:not([data-outcome])")
    await _looks_inert(window)
    await window.approve("allow")


async def _every_tab(window: Window, box: Locator) -> None:
    """Look at a result in every form that it can be shown in."""
    await _looks_inert(window)
    for tab in await box.locator("[data-result] > .row [role=tab]").all():
        await tab.click()
        await _looks_inert(window)
        for inner in await box.locator(".text [role=tab]").all():
            await inner.click()
            await _looks_inert(window)


async def _name(window: Window) -> str:
    name = await window.find("nav [data-server]").first.get_attribute("data-server")
    assert name is not None
    return name


@journey()
async def test_names_results_errors_and_messages_are_text(tmp_path: Path) -> None:
    async with canary() as bird, surfing() as surfer:
        arguments = ("inspect", f"{TARGET} {bird.origin}", "--no-open")
        async with showing(*arguments, home=tmp_path / "h") as api:
            window = await surfer.open(api.url)
            await window.shown("[data-item]")
            await _looks_inert(window)
            for tool in ("show", "media", "data", "fails", "breaks", "form"):
                await _results(window, tool)
            await window.shot("hostile")
            await _results(window, "links")
            await _click_links(window)
            for view in ("resources", "prompts"):
                await window.view(view)
                await _each_item(window, view)
            for view in ("calls", "audit", "policy", "dashboard", "skills", "servers"):
                await window.view(view)
                await window.shown(f'[data-view="{view}"] h1')
                await _looks_inert(window)
            await window.find("nav [data-server]").first.click()
            await window.shown('[data-view="servers"] [role=log]')
            await _looks_inert(window)
            await _traffic(window)
            await window.find("#search").fill("script")
            await window.shown("[data-hit]")
            await _looks_inert(window)
            window.check(api.origin, errors=("Failed to load resource",))
            assert bird.lines == []


async def _each_item(window: Window, view: str) -> None:
    rows = window.find(f'[data-view="{view}"] [data-item]')
    await rows.first.wait_for()
    for number in range(await rows.count()):
        await rows.nth(number).click()
        await window.shown(f'[data-view="{view}"] .head h1')
        await _looks_inert(window)
        await window.action("run").click()
        await _looks_inert(window)
    await _allow_all(window)


async def _allow_all(window: Window) -> None:
    """Answer everything that waits, and look at what it was about."""
    await window.view("inbox")
    cards = window.find("[data-inbox]:not([data-outcome])")
    await cards.first.wait_for()
    while await cards.count():
        await _looks_inert(window)
        name = await cards.first.get_attribute("data-inbox")
        await window.approve("allow")
        await window.shown(f'[data-inbox="{name}"][data-outcome]')
    await window.view("calls")
    for number in range(await window.find("a[data-item]").count()):
        await window.find("a[data-item]").nth(number).click()
        await window.shown("[data-call]:not([data-state=running])")
        await _looks_inert(window)


async def _click_links(window: Window) -> None:
    """Follow the links to resources that a result has; addresses are only read by their own server."""
    await window.find('[data-result] [data-tab="content"]').click()
    for link in await window.find('[data-action="read"]').all():
        await link.click()
    for dead in await window.find(".dead").all():
        await dead.click()
    await _looks_inert(window)
    await _allow_all(window)


async def _traffic(window: Window) -> None:
    await window.view("traffic")
    row = await window.shown("[data-row]")
    await row.click()
    await window.shown(".detail .card")
    await _looks_inert(window)


@journey()
async def test_questions_are_text_and_no_page_is_opened(tmp_path: Path) -> None:
    async with canary() as bird, surfing() as surfer:
        arguments = ("inspect", f"{TARGET} {bird.origin}", "--no-open")
        async with showing(*arguments, home=tmp_path / "h") as api:
            window = await surfer.open(api.url)
            await window.pick("asks")
            await _run(window)
            await window.view("inbox")
            card = await window.shown('[data-inbox][data-kind="form"]')
            await _looks_inert(window)
            await window.shot("hostile-form")
            await card.locator('[data-action="accept"]:not([disabled])').click()
            await window.shown("[data-outcome]")
            await _looks_inert(window)
            # A page that is no http page is not even asked about.
            await window.pick("asks_url")
            await _run(window)
            await window.shown("[data-call]:not([data-state=running])")
            await _looks_inert(window)
            await expect(window.find("[data-inbox]:not([data-outcome])")).to_have_count(0)
            window.check(api.origin)
            assert bird.lines == []


@journey()
async def test_what_a_model_says_is_text(tmp_path: Path) -> None:
    from tests.browser.hostile_server import HTML, MARKDOWN

    async with canary() as bird, surfing() as surfer:
        model = write_script(tmp_path, {"says": MARKDOWN}, {"says": HTML, "again": True})
        arguments = ("inspect", f"{TARGET} {bird.origin}", "--no-open")
        async with showing(*arguments, home=tmp_path / "h", TRUNKLINE_MODEL=model) as api:
            window = await surfer.open(api.url)
            await window.view("chat")
            for _ in range(2):
                await window.field("/text").fill(HTML)
                await window.action("send").click()
                await window.shown('[data-action="send"]')
                await _looks_inert(window)
            await expect(window.find(".turn.model")).to_have_count(2)
            window.check(api.origin)
            assert bird.lines == []


@journey()
async def test_an_app_reaches_nothing_but_its_frames(tmp_path: Path) -> None:
    async with canary() as bird, surfing() as surfer:
        arguments = ("inspect", f"{TARGET} {bird.origin}", "--no-open")
        async with showing(*arguments, home=tmp_path / "h") as api:
            window = await surfer.open(api.url)
            frame = await _open_app(window, api)
            await frame.locator("#out", has_text="worked").wait_for()
            assert await frame.locator("#out").inner_text() == "worked: []"
            await window.shot("hostile-app")
            # Asked: its call, a link, a message. Not: the address that is a script, and the tool that is not for it.
            state = await api.until("/state", lambda found: len(found["inbox"]) >= 3)
            assert sorted(item["kind"] for item in state["inbox"]) == ["approval", "page", "url"]
            assert not [call for call in state["calls"] if call["target"].endswith("/secret")]
            await expect(window.find("[data-app] [data-inbox]")).to_have_count(3)
            await _looks_inert(window)
            height = await window.find("[data-app-frame]").evaluate("(frame) => frame.clientHeight")
            assert height <= 900
            for _ in range(3):
                await window.approve("deny")
            await expect(window.find("[data-inbox]:not([data-outcome])")).to_have_count(0)
            # Its own frame cannot be led elsewhere either.
            with contextlib.suppress(Error):
                await frame.evaluate(f"void (location.href = '{bird.origin}/app-navigation')")
            await frame.wait_for_url(re.compile("^chrome-error:"))
            await _looks_inert(window)
            apps = state["apps"]["origin"]
            # Reports of scripts are lost while a frame starts; the browser's own log has all of them.
            said = "\n".join(window.errors)
            stopped = set(re.findall(r'Content Security Policy directive: "([\w-]+)', said))
            assert {"img-src", "connect-src", "frame-src", "script-src", "style-src", "default-src"} <= stopped
            assert all(report["at"].startswith(("about:srcdoc", apps)) for report in window.violations)
            for what in ("top-level window is sandboxed", "Blocked opening", "Blocked form submission"):
                assert what in said
            # It was loaded once: no message of its own made the console load it again.
            assert (
                sum(request.url.startswith(apps) and request.is_navigation_request() for request in window.requests)
                == 1
            )
            window.check(api.origin, apps, violations=None, errors=(".",))
            assert bird.lines == []


async def _open_app(window: Window, api: Api) -> Frame:
    """Open the page of the tool; return its own frame."""
    await window.shown("[data-item]")
    await window.page.goto(f"{api.origin}/tools/{await _name(window)}%2Fpanel")
    await window.find('[data-tab="app"]').click()
    outer = window.page.frame_locator("[data-app-frame]")
    handle = await outer.locator("iframe").element_handle()
    frame = await handle.content_frame()
    assert frame is not None
    return frame
