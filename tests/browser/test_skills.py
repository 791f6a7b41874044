"""The view of a skill in a real browser: its files can be inspected before a model gets them."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.browser.support import journey, needs_chromium, surfing
from tests.console.support import on_console
from tests.extensions.skills.made import add_skill
from trunkline import Server

pytestmark = needs_chromium


@journey()
async def test_all_files_of_a_skill_are_listed_and_can_be_read(tmp_path: Path) -> None:
    add_skill(tmp_path / "skills", "pdf", references__FORMS_md="Fill in every field.")
    made = Server("office", skills=tmp_path / "skills")
    async with on_console({"office": made}, tmp_path) as console, surfing() as surfer:
        origin, token = console.address.origin, console.address.token
        window = await surfer.open(f"{origin}/skills/office/skill://pdf/SKILL.md#token={token}")
        main = window.page.locator("main")
        await expect(main.locator(".reslink")).to_have_count(2)
        await main.locator(".reslink", has_text="references/FORMS.md").click()
        await main.locator('[data-action="run"]').click()
        await expect(main).to_contain_text("Fill in every field.")
