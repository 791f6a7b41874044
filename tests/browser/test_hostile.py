"""A hostile server: nothing that it sends runs, navigates, opens, frames or fetches anything."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Error, Frame, Locator, Request, expect

from tests.browser.canary import Canary, canary
from tests.browser.support import Api, Window, journey, needs_chromium, showing, surfing, until, write_script

pytestmark = needs_chromium

INERT = Path(__file__).with_name("inert.js").read_text()
TARGET = f"{sys.executable} -m tests.browser.hostile_server"
#: What a call has returned, or why it failed; it is loaded once the call has ended.
OUTCOME = "[data-result], [role=alert]"
#: Messages of the app that reach the console; the frame around it drops those that imitate the frame.
APP_MESSAGES = 7
#: What the browser must have stopped the app from doing.
STOPPED_DIRECTIVES = {"img-src", "connect-src", "frame-src", "script-src", "style-src", "default-src"}
STOPPED_WORDS = {"top-level window is sandboxed", "Blocked opening", "Blocked form submission"}


@asynccontextmanager
async def hostile_console(folder: Path, **env: str) -> AsyncIterator[tuple[Canary, Api]]:
    """Inspect the hostile server."""
    async with canary() as bird:
        arguments = ("inspect", f"{TARGET} {bird.origin}", "--no-open")
        async with showing(*arguments, home=folder / "h", cwd=None, **env) as api:
            yield bird, api


async def _looks_inert(window: Window) -> None:
    """Check the document as it is now."""
    found: dict[str, Any] = await window.page.evaluate(INERT)
    assert found == {"bad": [], "scripts": 1, "frames": 0, "handlers": [], "ran": False}


async def _results(window: Window, api: Api, tool: str) -> None:
    await window.page.goto(f"{api.origin}/tools/{await _name(window)}%2F{tool}")
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
    await box.locator(OUTCOME).first.wait_for()
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
    async with hostile_console(tmp_path) as (bird, api), surfing() as surfer:
        window = await surfer.open(api.url)
        await window.shown("[data-item]")
        await _looks_inert(window)
        for tool in ("show", "media", "data", "fails", "breaks", "form"):
            await _results(window, api, tool)
        await window.shot("hostile")
        await _results(window, api, "links")
        await _click_links(window, api)
        for view in ("resources", "prompts"):
            await window.view(view)
            await _each_item(window, api, view)
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
        await window.check(api.origin, errors=("Failed to load resource",))
        assert bird.lines == []


async def _each_item(window: Window, api: Api, view: str) -> None:
    rows = window.find(f'[data-view="{view}"] [data-item]')
    await rows.first.wait_for()
    for number in range(await rows.count()):
        await rows.nth(number).click()
        await window.shown(f'[data-view="{view}"] .head h1')
        await _looks_inert(window)
        await window.action("run").click()
        await window.shown("[data-call], .problem")
        await _looks_inert(window)
    await _allow_all(window, api)


async def _allow_all(window: Window, api: Api) -> None:
    """Answer everything that waits, and look at what it was about."""

    def all_ask(state: Any) -> object:
        running = {call["id"] for call in state["calls"] if call["state"] == "running"}
        return running and running == {item["call"] for item in state["inbox"]}

    # No card may come while others are answered: the cards move, and then none of them accepts an answer for a moment.
    waiting = len((await api.until("/state", all_ask))["inbox"])
    await window.view("inbox")
    cards = window.find("[data-inbox]:not([data-outcome])")
    await expect(cards).to_have_count(waiting)
    for left in reversed(range(waiting)):
        await _looks_inert(window)
        await window.approve("allow")
        await expect(cards).to_have_count(left)
    await window.view("calls")
    rows = window.find("a[data-item]")
    await rows.first.wait_for()
    for name in await rows.evaluate_all("(rows) => rows.map((row) => row.dataset.item)"):
        await window.item(name).click()
        await window.find(f'[data-call="{name}"]:not([data-state=running])').locator(OUTCOME).first.wait_for()
        await _looks_inert(window)


async def _click_links(window: Window, api: Api) -> None:
    """Follow the links to resources that a result has; addresses are only read by their own server."""
    await window.find('[data-result] [data-tab="content"]').click()
    links = window.find('[data-action="read"]')
    await links.first.wait_for()
    for link in await links.all():
        async with window.page.expect_response(re.compile("/api/calls$")):
            await link.click()
    for dead in await window.find(".dead").all():
        await dead.click()
    await _looks_inert(window)
    await _allow_all(window, api)


async def _traffic(window: Window) -> None:
    await window.view("traffic")
    row = await window.shown("[data-row]")
    await row.click()
    await window.shown(".detail .card")
    await _looks_inert(window)


@journey()
async def test_questions_are_text_and_no_page_is_opened(tmp_path: Path) -> None:
    async with hostile_console(tmp_path) as (bird, api), surfing() as surfer:
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
        await window.check(api.origin)
        assert bird.lines == []


@journey()
async def test_what_a_model_says_is_text(tmp_path: Path) -> None:
    from tests.browser.hostile_server import HTML, MARKDOWN

    model = write_script(tmp_path, {"says": MARKDOWN}, {"says": HTML, "again": True})
    async with hostile_console(tmp_path, TRUNKLINE_MODEL=model) as (bird, api), surfing() as surfer:
        window = await surfer.open(api.url)
        await window.view("chat")
        for number in (1, 2):
            await window.field("/text").fill(HTML)
            await window.action("send").click()
            # The first message opens a page of its own, with an empty field.
            await expect(window.find(".turn.model")).to_have_count(number)
            await window.shown('[data-action="send"]')
            await _looks_inert(window)
        await window.check(api.origin)
        assert bird.lines == []


@journey()
async def test_an_app_reaches_nothing_but_its_frames(tmp_path: Path) -> None:
    async with hostile_console(tmp_path) as (bird, api), surfing() as surfer:
        window = await surfer.open(api.url)
        frame = await _open_app(window, api)
        await expect(frame.locator("#out")).to_have_text("worked: []")
        await window.shot("hostile-app")
        await _all_sent(window)
        # Asked: its call, a link, a message. Not: the address that is a script, and the tool that is not for it.
        state = await api.until("/state", lambda found: len(found["inbox"]) >= 3)
        assert sorted(item["kind"] for item in state["inbox"]) == ["approval", "page", "url"]
        assert not [call for call in state["calls"] if call["target"].endswith("/secret")]
        await expect(window.find("[data-app] [data-inbox]")).to_have_count(3)
        await _looks_inert(window)
        height = await window.find("[data-app-frame]").evaluate("(frame) => frame.clientHeight")
        assert height <= 900
        for left in (2, 1, 0):
            await window.approve("deny")
            await expect(window.find("[data-inbox]:not([data-outcome])")).to_have_count(left)
        # Its own frame cannot be led elsewhere either.
        with contextlib.suppress(Error):
            await frame.evaluate(f"void (location.href = '{bird.origin}/app-navigation')")
        await frame.wait_for_url(re.compile("^chrome-error:"), wait_until="commit")
        await _looks_inert(window)
        apps = state["apps"]["origin"]
        await _all_stopped(window)
        assert all(report["at"].startswith(("about:srcdoc", apps)) for report in window.violations)
        # It was loaded once: no message of its own made the console load it again.
        opened = [request.url for request in window.requests if request.is_navigation_request()]
        assert len([url for url in opened if url.startswith(apps)]) == 1, opened
        await window.check(api.origin, apps, violations=None, errors=(".",))
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


async def _all_sent(window: Window) -> None:
    """Wait until the console has answered each message of the app, also those that it rejects."""

    def sent() -> list[Request]:
        return [request for request in window.requests if request.url.endswith("/message")]

    await until(lambda: len(sent()) >= APP_MESSAGES, "the app sends all its messages")
    for request in sent():
        assert await request.response() is not None


async def _all_stopped(window: Window) -> None:
    """Wait for the browser's own log, which has everything that was stopped; events are lost while a frame starts."""

    def missing() -> set[str]:
        said = "\n".join(window.errors)
        directives = set(re.findall(r'Content Security Policy directive: "([\w-]+)', said))
        return (STOPPED_DIRECTIVES - directives) | {words for words in STOPPED_WORDS if words not in said}

    await until(lambda: not missing(), f"the log has all of {STOPPED_DIRECTIVES | STOPPED_WORDS}")
