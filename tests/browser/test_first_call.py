"""From the first start to the first approved call: the model of a chat wants to write a file."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import expect

from tests.browser.support import (
    journey,
    needs_chromium,
    server_entry,
    showing,
    surfing,
    write_config,
    write_script,
)

pytestmark = needs_chromium


@journey()
async def test_first_start_to_first_approved_call(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    note = folder / "trip.md"
    turn = {
        "says": "I write the note.",
        "calls": [{"tool": "write_file", "arguments": {"path": str(note), "content": "# Weekend in Paris\n"}}],
    }
    model = write_script(tmp_path, turn, {"says": "It is written: {result}"})
    config = write_config(tmp_path, filesystem=server_entry("trunkline_servers.filesystem", str(folder)))
    home = tmp_path / "home"
    async with (
        showing("console", "-c", config, "--no-open", home=home, TRUNKLINE_MODEL=model) as api,
        surfing() as surfer,
    ):
        window = await surfer.open(api.url)
        await window.shown('[data-view="tools"] [data-item="filesystem/write_file"]')
        await expect(window.page).not_to_have_url(re.compile(re.escape(api.token)))
        await window.view("chat")
        await window.field("/text").fill("Write a note about the weekend.")
        await window.action("send").click()
        card = await window.shown("[data-inbox]")
        await expect(card).to_contain_text("filesystem/write_file")
        await expect(card).to_contain_text("# Weekend in Paris")
        assert not note.exists()
        await window.shot("approval")
        # The badge of the inbox and the title count it.
        await expect(window.find('nav a[href="/inbox"] [data-count]')).to_have_attribute("data-count", "1")
        await expect(window.page).to_have_title(re.compile(r"^\(1\)"))
        await window.approve("allow")
        await window.shown(".turn.model", "It is written")
        call = window.find("[data-call]").first
        await call.locator("summary").click()
        await expect(call.locator("[data-result]")).to_contain_text("trip.md")
        assert note.read_text() == "# Weekend in Paris\n"
        await window.view("audit")
        await window.shown('[data-view="audit"]', "write_file")
        await window.check(api.origin)
