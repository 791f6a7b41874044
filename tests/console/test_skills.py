"""Skills in the console: listed, shown, and loaded as calls."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.console.support import ApiFailure, on_console, policy
from tests.extensions.skills.made import add_skill
from trunkline import Server


async def test_a_skill_is_listed_and_loaded(tmp_path: Path) -> None:
    add_skill(tmp_path / "skills", "pdf", description="Work with PDF", references__FORMS_md="# Forms")
    made = Server("office", skills=tmp_path / "skills")
    async with on_console({"office": made}, tmp_path) as stage, stage.client().listen() as page:
        [row] = (await page.get("/catalog"))["skills"]
        assert (row["id"], row["name"], row["description"]) == ("office/skill://pdf/SKILL.md", "pdf", "Work with PDF")
        assert (await page.get("/state"))["counts"]["skills"] == 1
        item = await page.get(f"/items/skill/{quote(row['id'], safe='')}")
        assert item["definition"]["frontmatter"]["name"] == "pdf"
        view = await page.call("skill", row["id"])
    assert (view["state"], view["target"]) == ("done", row["id"])
    assert "Do it." in view["result"]["text"]
    assert "references/FORMS.md" in view["result"]["files"]


async def test_the_files_of_a_skill_are_items_although_they_are_not_listed(tmp_path: Path) -> None:
    add_skill(tmp_path / "skills", "pdf", references__FORMS_md="# Forms")
    made = Server("office", skills=tmp_path / "skills")
    async with on_console({"office": made}, tmp_path) as stage, stage.client().listen() as page:
        [row] = (await page.get("/catalog"))["skills"]
        id = "office/skill://pdf/references/FORMS.md"
        item = await page.get(f"/items/resource/{quote(id, safe='')}")
        assert (item["id"], item["name"], item["size"]) == (id, "references/FORMS.md", 7)
        assert item["description"] == f"A file of the skill {row['title']}."
        assert (await page.call("resource", id))["result"]["contents"][0]["text"] == "# Forms"
        with pytest.raises(ApiFailure, match="No server has a resource"):
            await page.get(f"/items/resource/{quote('office/skill://pdf/other.md', safe='')}")


async def test_a_skill_is_allowed_with_the_tools_that_it_requests(tmp_path: Path) -> None:
    home = add_skill(tmp_path / "skills", "pdf")
    (home / "SKILL.md").write_text("---\nname: pdf\ndescription: D\nallowed-tools: wipe\n---\n\nUse wipe.\n")
    rules = policy(
        '[[rule]]\neffect = "ask"\nserver = "office"\nskill = "*"\n'
        '[[rule]]\neffect = "ask"\nserver = "office"\ntool = "*"\n'
    )
    made = Server("office", skills=tmp_path / "skills")
    made.add_tool(lambda: "wiped", name="wipe", description="Wipe.")
    async with on_console({"office": made}, tmp_path, policy=rules) as stage, stage.client().listen() as page:
        [row] = (await page.get("/catalog"))["skills"]
        call = (await page.post("/calls", {"kind": "skill", "id": row["id"]}))["call"]["id"]
        item = await page.item("approval")
        [choice] = [each for each in item["remember"] if each["scope"] == "tools"]
        assert choice["label"] == "Allow in this session, with its tools of office"
        assert "office/wipe" in choice["detail"]
        await page.post(f"/inbox/{item['id']}", {"allow": True, "remember": "tools"})
        assert (await page.finished(call))["state"] == "done"
        assert (await page.call("tool", "office/wipe"))["state"] == "done"
