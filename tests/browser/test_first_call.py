"""From the first start to the first approved call: the model of a chat wants to write a file."""

from __future__ import annotations

from pathlib import Path

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
        assert api.token not in window.page.url
        await window.view("chat")
        await window.field("/text").fill("Write a note about the weekend.")
        await window.action("send").click()
        card = await window.shown("[data-inbox]")
        assert "filesystem/write_file" in await card.inner_text()
        assert "# Weekend in Paris" in await card.inner_text()
        assert not note.exists()
        await window.shot("approval")
        # The badge of the inbox and the title count it.
        assert await window.find('nav a[href="/inbox"] [data-count]').get_attribute("data-count") == "1"
        assert (await window.page.title()).startswith("(1)")
        await window.approve("allow")
        await window.shown(".turn.model", "It is written")
        call = window.find("[data-call]").first
        await call.locator("summary").click()
        assert "trip.md" in await call.locator("[data-result]").inner_text()
        assert note.read_text() == "# Weekend in Paris\n"
        await window.view("audit")
        await window.shown('[data-view="audit"]', "write_file")
        window.check(api.origin)
