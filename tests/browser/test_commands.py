"""The commands that show a page: ``dev``, a gateway that a console attaches to, and two browsers at one console."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.async_api import Route, expect

from tests.browser.support import (
    Window,
    address,
    asking_about,
    journey,
    needs_chromium,
    running,
    server_entry,
    showing,
    surfing,
    until,
    write_config,
)

pytestmark = needs_chromium

SERVER = '''
from trunkline import Server

server = Server("books")

@server.tool
def find(title: str) -> str:
    """Find a book."""
    return f"shelf 7: {title}"
'''
MORE = '''
@server.tool
def lend(title: str) -> str:
    """Lend a book."""
    return f"lent: {title}"
'''
FAILING = '''
@server.resource("book://burnt")
def burnt() -> str:
    """A burnt book."""
    return {}["paper"]
'''


def save(file: Path, text: str) -> None:
    """Replace a file as editors do: a command that watches it never finds half of it."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(file)


@journey()
async def test_dev_shows_each_saved_change_and_keeps_what_was_there_when_it_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "books.py"
    file.write_text(SERVER)
    async with showing("dev", str(file), "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(api.url)
        await (await window.shown('[data-item="books/find"]')).click()
        await window.field("/title").fill("Emma")
        await window.action("run").click()
        await window.shown("[data-result]", "shelf 7: Emma")
        save(file, SERVER.replace("shelf 7", "shelf 8") + MORE)
        await window.shown('[data-item="books/lend"]')
        # The page is where it was, with what was filled in.
        await expect(window.field("/title")).to_have_value("Emma")
        await window.action("run").click()
        await window.shown("[data-result]", "shelf 8: Emma")
        save(file, SERVER + "def broken(:\n")
        await window.shown("#main > [role=alert]", "books.py, line")
        await window.shown("#main > [role=alert] pre", "def broken(:")
        await window.shot("dev-error")
        # On every view, also of a page that is opened later.
        await window.page.goto(f"{api.origin}/servers")
        await window.shown("#main > [role=alert]", "SyntaxError")
        await window.page.goto(f"{api.origin}/tools/books%2Ffind")
        await window.field("/title").fill("Emma")
        await expect(window.item("books/lend")).to_be_visible()
        await window.action("run").click()
        await expect(window.find("[data-result]").first).to_contain_text("shelf 8: Emma")
        save(file, SERVER + FAILING)
        await expect(window.item("books/lend")).to_have_count(0)
        await expect(window.find("#main > [role=alert]")).to_have_count(0)
        # A resource that raises shows where and why.
        await window.page.goto(f"{api.origin}/resources/books%2Fbook%3A%2F%2Fburnt")
        await window.action("run").click()
        await window.shown("[role=alert]", "KeyError: 'paper'")
        await window.shown("[role=alert] pre", 'return {}["paper"]')
        await window.check(api.origin)


async def write_hello(window: Window, folder: Path) -> None:
    """Run the tool that writes a file."""
    await (await window.shown('[data-item="filesystem/write_file"]')).click()
    await window.field("/path").fill(str(folder / "a.txt"))
    await window.field("/content").fill("hello")
    await window.action("run").click()


@journey()
async def test_an_approval_that_is_answered_in_one_browser_closes_in_the_other(tmp_path: Path) -> None:
    async with asking_about("write_file", tmp_path) as (api, surfer, folder):
        first, second = await surfer.open(api.url), await surfer.open(api.url)
        await write_hello(first, folder)
        await second.view("inbox")
        asked = await second.shown("[data-inbox]:not([data-outcome])")
        name = await asked.get_attribute("data-inbox")
        await first.approve("allow")
        await first.shown('[data-call][data-state="done"]')
        closed = await second.shown(f'[data-inbox="{name}"][data-outcome="allowed"]')
        await expect(closed).to_contain_text("in another window")
        await expect(closed).to_contain_text("write_file")
        await expect(second.find("[data-inbox]:not([data-outcome])")).to_have_count(0)
        # What was shown in both is one list of calls, too.
        await second.view("calls")
        await second.shown('[data-view="calls"] [data-item]', "filesystem/write_file")
        assert (folder / "a.txt").read_text() == "hello"
        await first.check(api.origin)
        await second.check(api.origin)


@journey()
async def test_an_answer_that_comes_second_is_told_so(tmp_path: Path) -> None:
    async with asking_about("write_file", tmp_path) as (api, surfer, folder):
        window = await surfer.open(api.url)
        await write_hello(window, folder)
        card = await window.shown("[data-inbox]")
        name = await card.get_attribute("data-inbox")

        async def answer_first(route: Route) -> None:
            # Another page answers between this click and its arrival.
            await api.request("POST", f"/inbox/{name}", {"allow": False})
            await route.continue_()

        await window.page.route(re.compile(r"/api/inbox/"), answer_first)
        async with window.glimpse(".toast", "filesystem/write_file was denied."):
            await window.approve("allow")
        outcome = await window.shown('[data-call][data-state="denied"]')
        await expect(outcome.locator("h2")).to_contain_text("Denied")
        assert not (folder / "a.txt").exists()
        await window.check(api.origin, errors=("409",))


@journey()
async def test_a_console_attaches_to_a_gateway_that_runs_already(tmp_path: Path) -> None:
    config = write_config(tmp_path, time=server_entry("trunkline_servers.time", "--local-timezone", "Europe/Oslo"))
    home = tmp_path / "home"
    async with running("serve", "-c", config, "--http", "0", "--no-auth", home=home) as gateway, surfing() as surfer:
        # A console that finds no gateway would be one of its own.
        await until(lambda: [*home.rglob("*.sock")], "the gateway listens for a console")
        async with running("console", "-c", config, "--no-open", home=home) as console:
            api = await address(console, home)
            assert await console.wait() == 0
        state = await api.request("GET", "/state")
        assert state["mode"] == "gateway"
        window = await surfer.open(api.url)
        await (await window.shown('[data-item="time/get_current_time"]')).click()
        await window.field("/timezone").fill("Asia/Tokyo")
        await window.action("run").click()
        await window.shown('[data-call][data-state="done"]')
        await window.view("audit")
        await window.shown('[data-view="audit"]', "get_current_time")
        await window.view("servers")
        await window.shown('[data-view="servers"]', "1 of 1 ready")
        assert gateway.returncode is None
        await window.check(api.origin)
    audited = "".join(file.read_text() for file in home.rglob("*.jsonl"))
    assert "get_current_time" in audited


@journey()
async def test_inspect_shows_a_command_as_a_server(tmp_path: Path) -> None:
    target = f"{sys.executable} -m trunkline_servers.time"
    async with showing("inspect", target, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(api.url)
        await (await window.shown("[data-item$='/get_current_time']")).click()
        await window.field("/timezone").fill("Asia/Tokyo")
        await window.action("run").click()
        await window.shown('[data-call][data-state="done"]')
        await window.view("traffic")
        await window.shown("[data-row]", "tools/call")
        await window.check(api.origin)
