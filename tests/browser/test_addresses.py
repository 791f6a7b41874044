"""The addresses of the console's views: each one that the documentation lists opens what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.async_api import expect

from tests.browser.support import ROOT, journey, needs_chromium, surfing
from tests.console.support import library, on_console, policy
from tests.console.test_chat import ended, script
from tests.extensions.skills.made import add_skill
from trunkline import Server

pytestmark = needs_chromium

GUIDE = ROOT / "docs" / "how-to" / "use-the-console.md"
RULES = policy('[[rule]]\neffect = "ask"\nserver = "library"\ntool = "lend"\n')


def addresses() -> list[str]:
    """Return the addresses that the documentation lists, with their placeholders."""
    table = GUIDE.read_text().partition("## The address of each view")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `/")]
    return [address for row in rows for address in re.findall(r"`([^`]+)`", row)]


def served(folder: Path) -> Server:
    """Make a server with one of everything."""
    made = library()
    add_skill(folder, "lending")
    made.add_skills(folder)
    made.add_app("ui://library/desk", "<!doctype html><title>Desk</title><p>The desk is open.</p>")
    made.add_tool(lambda: "open", name="desk", app="ui://library/desk")
    return made


@journey(300.0)
async def test_each_address_in_the_documentation_opens_its_view(tmp_path: Path) -> None:
    environ = {"TRUNKLINE_MODEL": script(tmp_path, [{"says": "Hello."}])}
    servers, options = {"library": served(tmp_path / "skills")}, dict[str, Any](apps=True, environ=environ)
    async with on_console(servers, tmp_path, policy=RULES, **options) as console, surfing() as surfer:
        api = console.client()
        async with api.listen():
            call = (await api.call("tool", "library/find", {"title": "Emma"}))["id"]
            waiting = await api.post("/calls", {"kind": "tool", "id": "library/lend", "arguments": {"title": "Emma"}})
            question = (await api.item("approval"))["id"]
            chat = (await api.post("/chats"))["chat"]["id"]
            await api.post(f"/chats/{chat}/messages", {"text": "Good morning."})
            await ended(api, chat)
            window = await surfer.open(f"{console.address.origin}/servers#token={console.address.token}")
            page = window.page
            # By address: the names in it, and a text that only this address shows. The question is answered in between.
            shown: dict[str, tuple[dict[str, Any], str]] = {
                "/inbox": ({}, "Allow once"),
                "/inbox/QUESTION": ({"QUESTION": question}, "Allow once"),
                "/servers": ({}, "1 of 1 ready"),
                "/servers/SERVER": ({}, "Implementation"),
                "/servers?add": ({}, "Add a server"),
                "/servers?import": ({}, "Import from other applications"),
                "/tools": ({}, "Choose one to see what it"),
                "/tools/SERVER/TOOL": ({"TOOL": "find"}, "Arguments"),
                "/tools/SERVER/TOOL?call=CALL": ({"TOOL": "find", "CALL": call}, "shelf 7: Emma"),
                "/resources": ({}, "Choose one to read it"),
                "/resources/SERVER/URI": ({"URI": "book://1"}, "The first book."),
                "/prompts": ({}, "Choose one to fill it in"),
                "/prompts/SERVER/PROMPT": ({"PROMPT": "recommend"}, "Arguments"),
                "/skills": ({}, "Choose one to read its instructions"),
                "/skills/SERVER/URI": ({"URI": "skill://lending/SKILL.md"}, "skill://lending/SKILL.md"),
                "/apps": ({}, "library/desk"),
                "/apps/SERVER/TOOL": ({"TOOL": "desk"}, "page of library"),
                "/chat": ({}, "What should be done?"),
                "/chat/CHAT": ({"CHAT": chat}, "Hello."),
                "/calls": ({}, "Choose one to see its arguments"),
                "/calls/CALL": ({"CALL": call}, "shelf 7: Emma"),
                "/traffic": ({}, "tools/call"),
                "/traffic/NUMBER": ({"NUMBER": 1}, "#1"),
                "/dashboard": ({}, "Slowest server"),
                "/audit": ({}, "Verify the trail"),
                "/policy": ({}, "Check a call against the policy"),
            }
            assert sorted(addresses()) == sorted(shown)
            for address, (names, text) in shown.items():
                if address == "/servers":
                    await api.post(f"/inbox/{question}", {"allow": False})
                    await api.finished(waiting["call"]["id"])
                path = address
                for name, value in {"SERVER": "library", **names}.items():
                    path = path.replace(name, str(value))
                await page.goto(console.address.origin + path)
                await expect(page.locator("main")).to_have_attribute("data-view", path.split("/")[1].split("?")[0])
                await expect(page.locator("main"), f"{address} shows {text!r}").to_contain_text(text)
