"""Much of everything: a result of 10 MB, 20,000 messages, 5,000 tools. The page has only what is in sight."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from playwright.async_api import expect

import trunkline.types as t
from tests.browser.search_speed import large_console
from tests.browser.support import Api, journey, needs_chromium, showing, surfing
from tests.console.support import on_console
from trunkline import Server
from trunkline.console.api.traffic import TrafficPart

pytestmark = needs_chromium

LARGE = '''
from trunkline import Server

server = Server("large")

@server.tool(annotations={"readOnlyHint": True})
def book() -> str:
    """Return 10 MB of text."""
    return "\\n".join(f"line {number}: the quick brown fox jumps over the lazy dog" for number in range(170_000))

@server.tool(annotations={"readOnlyHint": True})
def table() -> list[dict[str, int]]:
    """Return 100,000 rows."""
    return [{"number": number, "square": number * number} for number in range(100_000)]
'''
MOST_NODES = 4000


@journey()
async def test_a_result_of_ten_megabytes_is_cut_and_can_be_downloaded(tmp_path: Path) -> None:
    file = tmp_path / "large.py"
    file.write_text(LARGE)
    async with showing("inspect", str(file), "--no-open", home=tmp_path / "home") as api, surfing() as surfer:
        window = await surfer.open(api.url)
        for tool, said in {"book": "Cut:", "table": "Cut:"}.items():
            await window.pick(tool)
            await window.action("run").click()
            result = await window.shown("[data-result]")
            await expect(result).to_contain_text(said)
            # The page answers: a tab of the result is shown, and the search works.
            for tab in await result.locator("> .row [role=tab]").all():
                await tab.click()
                await expect(tab).to_have_attribute("aria-selected", "true")
            await window.find("#search").fill("book")
            await window.shown("[data-hit]")
            await window.page.keyboard.press("Escape")
            nodes = await window.page.evaluate("document.querySelectorAll('*').length")
            assert nodes < MOST_NODES, nodes
            async with window.page.expect_download() as downloading:
                await result.locator('[data-action="download"]').click()
            saved = tmp_path / f"{tool}.json"
            await (await downloading.value).save_as(saved)
            whole = json.loads(saved.read_text())
            assert len(json.dumps(whole)) > 3_000_000
            if tool == "book":
                assert len(whole["content"][0]["text"]) > 10_000_000 or len(str(whole)) > 10_000_000
        await window.shot("large-result")
        await window.check(api.origin)


@journey()
async def test_twenty_thousand_messages_are_a_list_that_can_be_filtered(tmp_path: Path) -> None:
    made = Server("chatty")

    @made.tool(annotations=t.ToolAnnotations(read_only_hint=True))
    async def echo(text: str) -> str:
        """Return a text."""
        return text

    async with on_console({"chatty": made}, tmp_path, typed=True) as console, surfing() as surfer:
        limit = asyncio.Semaphore(200)

        async def call(number: int) -> None:
            async with limit:
                await console.host.call_tool("chatty/echo", {"text": f"number {number}"})

        await asyncio.gather(*(call(number) for number in range(10_050)))
        assert len(console.console.part(TrafficPart).store.snapshot()) == 20_000
        api = Api(console.address.origin, console.address.token)
        window = await surfer.open(api.url)
        await window.view("traffic")
        await expect(window.find('[data-view="traffic"] .list-head')).to_contain_text("20,000 messages")
        rows = window.find("[data-row]")
        assert 0 < await rows.count() <= 500
        # The newest are in sight; the oldest are one key away.
        await window.shown("[data-row]", "number 10049")
        await window.find(".messages").evaluate("(list) => list.scrollTop = 0")
        await expect(rows.first).not_to_contain_text("number 10049")
        assert await rows.count() <= 500
        await window.page.get_by_label("Filter messages").fill("number 7777")
        await expect(rows.first).to_contain_text("number 7777")
        await expect(rows).to_have_count(2)
        await rows.first.click()
        await (await window.shown(".detail summary", "arguments")).click()
        await window.shown(".detail", "number 7777")
        await window.page.get_by_label("Filter messages").fill("")
        await expect(rows).not_to_have_count(2)
        assert await rows.count() <= 500
        await window.shot("large-traffic")
        await window.check(api.origin)


@journey()
async def test_five_thousand_tools_are_searched_with_few_rows_in_the_document(tmp_path: Path) -> None:
    async with large_console(tmp_path, 5000) as api, surfing() as surfer:
        window = await surfer.open(api.url)
        await window.shown("[data-item]")
        assert await window.find("[data-item]").count() <= 500
        await window.find("#search").fill("tool")
        await window.shown("[data-hit]")
        assert await window.find("[data-hit]").count() <= 500
        await expect(window.find(".hits-foot")).to_contain_text("5,000 matches")
        await window.find("#search").fill("tool_4711")
        await expect(window.find("[data-hit]")).to_have_count(1)
        await window.page.keyboard.press("Enter")
        await window.shown(".head h1", "tool_4711")
        await expect(window.find('[data-item="many/tool_4711"]')).to_be_visible()
        assert await window.find("[data-item]").count() <= 500
        await window.check(api.origin)
