"""The token, and the page without a mouse."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from playwright.async_api import expect

from tests.browser.support import asking_about, journey, needs_chromium, showing, surfing

pytestmark = needs_chromium

TIME = f"{sys.executable} -m trunkline_servers.time"


@journey()
async def test_a_page_without_a_token_asks_for_it_and_says_when_it_is_wrong(tmp_path: Path) -> None:
    async with showing("inspect", TIME, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(api.origin + "/tools")
        token = window.page.get_by_label("Address or token")
        await token.wait_for()
        await window.shot("login")
        await token.fill("not-the-token")
        await window.action("login").click()
        await expect(window.page.get_by_role("alert")).to_contain_text("token")
        # Nothing of the host was shown so far.
        assert "get_current_time" not in await window.page.content()
        await token.fill(api.url)
        await window.action("login").click()
        await window.shown("[data-item$='/get_current_time']")
        await expect(window.page).not_to_have_url(re.compile(re.escape(api.token)))
        # The token is that of this tab: it survives a reload, and no other tab has it.
        await window.page.reload()
        await window.shown("[data-item$='/get_current_time']")
        other = await window.context.new_page()
        await other.goto(api.origin)
        await other.get_by_label("Address or token").wait_for()
        await other.close()
        assert await window.context.cookies() == []
        window.tabs.clear()
        await window.check(api.origin, errors=("401",))


@journey()
async def test_a_wrong_token_in_the_address_is_said_too(tmp_path: Path) -> None:
    async with showing("inspect", TIME, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(f"{api.origin}/#token=wrong")
        await expect(window.page.get_by_role("alert")).to_contain_text("token")
        await window.check(api.origin, errors=("401",))


@journey()
async def test_a_login_file_opens_the_console_once(tmp_path: Path) -> None:
    async with showing("inspect", TIME, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        file = (await api.request("POST", "/login-file"))["file"]
        copy = tmp_path / "copy.html"
        shutil.copy(file, copy)
        window = await surfer.open(f"file://{file}")
        await window.shown("[data-item$='/get_current_time']")
        await expect(window.page).not_to_have_url(re.compile("code="))
        await window.page.reload()
        await window.shown("[data-item$='/get_current_time']")
        # What another user could do with the code, had it been seen.
        other = await window.context.new_page()
        await other.goto(f"file://{copy}")
        await expect(other.get_by_role("alert")).to_contain_text("opened twice")
        await other.close()
        window.tabs.clear()
        await window.check(api.origin, "file://", errors=("401",))


@journey()
async def test_a_tool_is_found_run_and_approved_by_keys_alone(tmp_path: Path) -> None:
    async with asking_about("create_directory", tmp_path) as (api, surfer, folder):
        window = await surfer.open(api.url)
        keys = window.page.keyboard
        await window.shown('[data-item="filesystem/create_directory"]')
        await keys.press("/")
        await expect(window.find("#search")).to_be_focused()
        await keys.type("directory")
        await window.shown("[data-hit]")
        # Down to the right one, and open it.
        names = await window.find("[data-hit]").evaluate_all("(hits) => hits.map((hit) => hit.dataset.hit)")
        for _ in range(names.index("filesystem/create_directory")):
            await keys.press("ArrowDown")
        await keys.press("Enter")
        await window.shown(".head h1", "create_directory")
        # Tab leads into the form.
        field = window.field("/path")
        for _ in range(80):
            if await field.evaluate("(node) => node === document.activeElement"):
                break
            await keys.press("Tab")
        await expect(field).to_be_focused()
        await keys.type(str(folder / "new"))
        await keys.press("Control+Enter")
        await window.shown("[data-inbox]")
        # "g", then "i": the inbox. The focus is on the request, and "a" allows it.
        await window.page.evaluate("document.activeElement.blur()")
        await keys.type("gi")
        card = await window.shown('[data-view="inbox"] [data-inbox]')
        await expect(card).to_be_focused()
        await expect(card.locator('[data-action="allow"]')).to_be_enabled()
        await keys.press("a")
        await window.shown('[data-inbox][data-outcome="allowed"]')
        await keys.type("gh")
        await window.shown('[data-view="calls"] [data-item]', "filesystem/create_directory")
        await api.until("/state", lambda state: state["calls"][0]["state"] == "done")
        assert (folder / "new").is_dir()
        await keys.press("?")
        await window.shown("dialog", "Keyboard")
        await keys.press("Escape")
        await expect(window.find("dialog")).to_have_count(0)
        await window.check(api.origin)


@journey()
async def test_arrow_keys_move_in_the_list_of_tools(tmp_path: Path) -> None:
    async with showing("inspect", TIME, "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(api.url)
        first = await window.shown("[data-item]")
        await first.focus()
        await window.page.keyboard.press("ArrowDown")
        await expect(window.find("[data-item]").nth(1)).to_be_focused()
        await window.page.keyboard.press("ArrowUp")
        await expect(first).to_be_focused()
        await window.page.keyboard.press("Enter")
        await window.shown(".head h1", "convert_time")
        await window.check(api.origin)
