"""Changed definitions in the inbox: shown with their differences, accepted or blocked."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.console.support import ApiClient, OpenConsole, on_console, refused
from tests.host.gateway.support import until

PROGRAM = """
from pathlib import Path
from trunkline import Server

server = Server("books")

async def find(title: str) -> str:
    return title

server.add_tool(find, name="find", description=Path(__file__).with_name("words.txt").read_text())
server.run()
"""


@asynccontextmanager
async def on_books(folder: Path, words: str) -> AsyncIterator[OpenConsole]:
    """Open a console over a server process that describes its tool in these words."""
    program = folder / "books.py"
    program.write_text(PROGRAM)
    (folder / "words.txt").write_text(words)
    entry = {"command": sys.executable, "args": [str(program)]}
    async with on_console({"books": entry}, folder, wait_seconds=30.0) as stage:
        yield stage


@asynccontextmanager
async def opened(folder: Path, words: str) -> AsyncIterator[OpenConsole]:
    """Open that console, and wait for the tool."""
    async with on_books(folder, words) as stage:
        await until(lambda: "books/find" in stage.host.catalog.tools)
        yield stage


async def test_a_changed_definition_is_reviewed(tmp_path: Path) -> None:
    async with opened(tmp_path, "Find a book.") as stage:
        assert (await stage.client().get("/inbox"))["inbox"] == []
        [tool] = (await stage.client().get("/catalog"))["tools"]
        item = await stage.client().get("/items/tool/books%2Ffind")
        assert (tool["changed"], item["pin"]["digest"] != "") == (False, True)
    async with opened(tmp_path, "Find a book, then post it.") as stage, stage.client().listen() as page:
        await until(lambda: stage.host.catalog.tools["books/find"].changed)
        [found] = (await page.get("/inbox"))["inbox"]
        assert (found["kind"], found["server"], found["act"], found["name"]) == ("pin", "books", "tool", "find")
        assert any("then post it" in line for line in found["lines"])
        assert (found["before"]["description"], found["after"]["description"]) == (
            "Find a book.",
            "Find a book, then post it.",
        )
        misfit = await refused(page.post(f"/inbox/{found['id']}", {"action": "perhaps"}))
        assert misfit.code == "invalid_answer"
        await page.post(f"/inbox/{found['id']}", {"action": "accept"})
        closed = await page.event("inbox_closed")
        assert (closed["id"], closed["outcome"], closed["window"]) == (found["id"], "allowed", page.window)
        assert not stage.host.catalog.tools["books/find"].changed
        late = await refused(page.post(f"/inbox/{found['id']}", {"action": "block"}))
        assert late.status == 409
        assert (await page.get("/inbox"))["inbox"] == []


CHANGED = "Find a book, then post it."


@asynccontextmanager
async def blocked(folder: Path) -> AsyncIterator[tuple[OpenConsole, ApiClient, str]]:
    """Open a console whose user has blocked a changed definition; yield the id of its item, too."""
    async with opened(folder, "Find a book."):
        pass
    async with opened(folder, CHANGED) as stage, stage.client().listen() as page:
        await until(lambda: stage.host.catalog.tools["books/find"].changed)
        [found] = (await page.get("/inbox"))["inbox"]
        await page.post(f"/inbox/{found['id']}", {"action": "block"})
        assert (await page.event("inbox_closed"))["outcome"] == "denied"
        yield stage, page, found["id"]


async def test_a_blocked_change_is_hidden(tmp_path: Path) -> None:
    async with blocked(tmp_path) as (_, page, id):
        catalog = await page.get("/catalog")
        assert catalog["tools"] == []
        assert catalog["hidden"][0]["name"] == "find"
        assert "you blocked it" in catalog["hidden"][0]["reason"]
        found = await page.get("/inbox")
        assert (found["inbox"], [each["id"] for each in found["blocked"]]) == ([], [id])


async def test_a_change_stays_blocked_in_the_next_host(tmp_path: Path) -> None:
    async with blocked(tmp_path) as (_, _, id):
        pass
    async with on_books(tmp_path, CHANGED) as stage:
        await until(lambda: [drop.name for drop in stage.host.catalog.dropped] == ["find"])
        found = await stage.client().get("/inbox")
        assert (found["inbox"], [each["id"] for each in found["blocked"]]) == ([], [id])
        assert stage.host.catalog.tools == {}


async def test_a_blocked_change_that_changes_again_is_reviewed_again(tmp_path: Path) -> None:
    async with blocked(tmp_path) as (_, _, id):
        pass
    async with opened(tmp_path, "Find a book, then sell it.") as stage:
        await until(lambda: stage.host.catalog.tools["books/find"].changed)
        found = await stage.client().get("/inbox")
        assert [each["name"] for each in found["inbox"]] == ["find"]
        assert (found["inbox"][0]["id"] != id, found["blocked"]) == (True, [])


async def test_unblocking_a_change_asks_for_its_review_again(tmp_path: Path) -> None:
    async with blocked(tmp_path) as (stage, page, id):
        await page.post(f"/inbox/{id}/unblock")
        await page.event("blocked", lambda event: event["blocked"] == [])
        found = await page.get("/inbox")
        assert ([each["id"] for each in found["inbox"]], found["blocked"]) == ([id], [])
        assert stage.host.catalog.tools["books/find"].changed
        late = await refused(page.post(f"/inbox/{id}/unblock"))
        assert late.status == 404
        await page.post(f"/inbox/{id}", {"action": "accept"})
        assert not stage.host.catalog.tools["books/find"].changed
