"""Calls of the console: what a person runs, watches, cancels and gets back."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.console.support import library, on_console, refused
from tests.host.gateway.support import NEW, OLD, revisions_of
from tests.support import BOUND
from trunkline import Context, Server, ToolError
from trunkline.console import calls
from trunkline.console.calls import cut_result


async def test_what_a_person_runs_counts_as_typed(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        view = await page.call("tool", "lib/lend", {"title": "Emma", "days": 3})
    assert (view["state"], view["by"], view["server"], view["target"]) == ("done", "you", "lib", "lib/lend")
    assert view["result"]["structuredContent"] == {"Emma": 3}
    assert view["validation"] == {"ok": True, "problem": None}
    assert view["arguments"] == {"title": "Emma", "days": 3}
    assert view["bytes"] > 0
    assert view["seconds"] >= 0
    assert "truncated" not in view
    assert not any(event["type"] == "inbox" for event in page.events)


async def test_resources_and_prompts_are_calls_too(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        book = await page.call("resource", "lib/book://1")
        shelf = await page.call("resource", "lib/shelf://9")
        prompt = await page.call("prompt", "lib/recommend", {"genre": "novel"})
        listed = (await page.get("/calls"))["calls"]
    assert book["result"]["contents"][0]["text"] == "Emma"
    assert shelf["result"]["contents"][0]["text"] == "shelf 9"
    assert prompt["result"]["messages"][0]["content"]["text"] == "Recommend a novel"
    assert [call["id"] for call in listed] == [prompt["id"], shelf["id"], book["id"]]
    assert all("result" not in call for call in listed)


async def test_a_tool_that_fails_is_done_with_an_error(tmp_path: Path) -> None:
    made = Server("s")

    @made.tool
    async def burn() -> str:
        raise ToolError("books do not burn")

    async with on_console({"s": made}, tmp_path) as stage, stage.client().listen() as page:
        view = await page.call("tool", "s/burn")
    assert (view["state"], view["is_error"], view["error"]) == ("done", True, None)
    assert view["result"]["content"][0]["text"] == "books do not burn"


async def test_what_does_not_exist_cannot_be_called(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        page = stage.client()
        for body, status in (
            ({"kind": "tool", "id": "lib/none"}, 404),
            ({"kind": "prompt", "id": "lib/none"}, 404),
            ({"kind": "resource", "id": "none/x://1"}, 404),
            ({"kind": "skill", "id": "lib/none"}, 400),
            ({"kind": "thing", "id": "lib/lend"}, 400),
            ({"kind": "tool"}, 400),
            ({"kind": "tool", "id": "lib/lend", "arguments": []}, 400),
        ):
            failure = await refused(page.post("/calls", body))
            assert failure.status == status, body
        failure = await refused(page.get("/calls/none"))
        assert failure.status == 404


async def test_progress_is_shown_and_a_call_can_be_cancelled(tmp_path: Path) -> None:
    made, stopped = Server("s"), asyncio.Event()

    @made.tool
    async def dig(ctx: Context) -> str:
        await ctx.report_progress(3, 10, "digging")
        try:
            await asyncio.sleep(BOUND)
        finally:
            stopped.set()
        return "done"

    async with on_console({"s": made}, tmp_path) as stage, stage.client().listen() as page:
        started = (await page.post("/calls", {"kind": "tool", "id": "s/dig"}))["call"]
        assert started["state"] == "running"
        event = await page.event("call", lambda each: each["call"]["progress"] is not None)
        assert event["call"]["progress"] == {"progress": 3, "total": 10, "message": "digging"}
        await page.post(f"/calls/{started['id']}/cancel")
        view = await page.finished(started["id"])
        async with asyncio.timeout(BOUND):
            await stopped.wait()
        failure = await refused(page.get(f"/calls/{started['id']}/result"))
    assert (view["state"], view["error"]) == ("cancelled", None)
    assert failure.code == "no_result"


@pytest.mark.parametrize("revision", [OLD, NEW], ids=["handshake", "stateless"])
async def test_log_messages_of_a_call_are_published(revision: str, tmp_path: Path) -> None:
    made = Server("s", revisions=revisions_of(revision))

    @made.tool
    async def work(ctx: Context) -> str:
        for number in range(300):
            await ctx.log("warning", f"step {number}")
        return "done"

    async with on_console({"s": made}, tmp_path) as stage, stage.client().listen() as page:
        view = await page.call("tool", "s/work")
        first = await page.event("log")
        logs = [event for event in page.events if event["type"] == "log"]
    assert (first["server"], first["call"], first["level"], first["data"]) == ("s", view["id"], "warning", "step 0")
    assert len(logs) < 300


async def test_fast_progress_does_not_flood_the_pages(tmp_path: Path) -> None:
    made = Server("s")

    @made.tool
    async def count(ctx: Context) -> str:
        for number in range(500):
            await ctx.report_progress(number, 500)
        return "done"

    async with on_console({"s": made}, tmp_path) as stage, stage.client().listen() as page:
        await page.call("tool", "s/count")
        events = [event for event in page.events if event["type"] == "call"]
    assert len(events) < 100


async def test_a_task_is_shown_while_it_runs(tmp_path: Path) -> None:
    made, proceed = Server("s"), asyncio.Event()

    @made.tool(task="required")
    async def brew(ctx: Context) -> str:
        await proceed.wait()
        return "tea"

    async with on_console({"s": made}, tmp_path) as stage, stage.client().listen() as page:
        started = (await page.post("/calls", {"kind": "tool", "id": "s/brew"}))["call"]
        event = await page.event("call", lambda each: each["call"]["task"] is not None)
        assert event["call"]["task"]["status"] == "working"
        proceed.set()
        view = await page.finished(started["id"])
    assert view["task"]["id"]
    assert view["task"]["status"] == "completed"
    assert view["result"]["content"][0]["text"] == "tea"


async def test_output_that_breaks_its_schema_is_shown_with_the_problem(tmp_path: Path) -> None:
    made = Server("s")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    @made.tool(output_schema=schema)
    async def wrong(structured: bool) -> t.CallToolResult:
        raise NotImplementedError

    async def answer(exchange: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
        """Answer as a server does that does not check its own results."""
        more: dict[str, Any] = {"structured_content": {"n": "one"}} if b"true" in bytes(params.arguments or b"") else {}
        return t.CallToolResult(content=[t.TextContent(text="one")], **more)

    made.table.handlers["tools/call"] = answer
    async with on_console({"s": made}, tmp_path) as stage, stage.client().listen() as page:
        broken = await page.call("tool", "s/wrong", {"structured": True})
        missing = await page.call("tool", "s/wrong", {"structured": False})
    assert broken["result"]["structuredContent"] == {"n": "one"}
    assert broken["validation"] == {"ok": False, "problem": "/n: expected integer, found string"}
    assert missing["validation"]["ok"] is False
    assert "has none" in missing["validation"]["problem"]


# --- large results ----------------------------------------------------------------------------------------------------


def large(size: int) -> Server:
    made = Server("big")

    @made.tool
    async def text(size: int = size) -> str:
        return "x" * size

    return made


async def test_a_result_of_10_mb_is_cut_for_the_page_and_downloaded_whole(tmp_path: Path) -> None:
    size = 10 * 1000 * 1000
    async with on_console({"big": large(size)}, tmp_path) as stage, stage.client().listen() as page:
        view = await page.call("tool", "big/text")
        content, kind = await page.download(f"/calls/{view['id']}/result")
    assert view["state"] == "done"
    assert len(view["result"]["content"][0]["text"]) == 256 * 1024
    assert view["truncated"]["bytes"] > size > view["truncated"]["shown"]
    assert kind == "application/json"
    assert len(json.loads(content)["content"][0]["text"]) == size


def test_a_result_is_cut_in_long_texts_and_many_members() -> None:
    def cut(value: Any) -> tuple[Any, int | None]:
        return cut_result(json.dumps(value).encode())

    assert cut({"content": [{"type": "text", "text": "short"}]})[1] is None
    image = {"type": "image", "data": "A" * 2_000_000, "mimeType": "image/png"}
    assert cut({"content": [image]}) == ({"content": [image]}, None)
    huge = {"type": "image", "data": "A" * 20_000_000, "mimeType": "image/png"}
    assert cut({"content": [huge]})[0]["content"][0]["data"] == ""
    rows, shown = cut({"structuredContent": {"rows": [{"n": number} for number in range(400_000)]}})
    assert 1000 < len(rows["structuredContent"]["rows"]) < 400_000
    assert shown is not None


async def test_old_results_are_dropped_when_there_are_too_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_MOST_BYTES", 3000)
    async with on_console({"big": large(1000)}, tmp_path) as stage, stage.client().listen() as page:
        made = [await page.call("tool", "big/text") for _ in range(4)]
        first = (await page.get(f"/calls/{made[0]['id']}"))["call"]
        last = (await page.get(f"/calls/{made[-1]['id']}"))["call"]
        failure = await refused(page.get(f"/calls/{made[0]['id']}/result"))
    assert "result" not in first
    assert (first["state"], first["truncated"]["shown"]) == ("done", 0)
    assert "result" in last
    assert failure.code == "no_result"


async def test_old_calls_are_dropped_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_MOST_CALLS", 3)
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        made = [await page.call("tool", "lib/find", {"title": str(number)}) for number in range(5)]
        listed = (await page.get("/state"))["calls"]
    assert [call["id"] for call in listed] == [call["id"] for call in reversed(made[2:])]


async def test_large_arguments_are_not_in_lists(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        view = await page.call("tool", "lib/find", {"title": "x" * 20_000})
        [listed] = (await page.get("/calls"))["calls"]
    assert len(view["arguments"]["title"]) == 20_000
    assert listed["arguments"] is None


async def test_secrets_in_results_are_masked(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        stage.console.core.secrets.add(["hunter2-secret"])
        view = await page.call("tool", "lib/find", {"title": "hunter2-secret"})
        content, _ = await page.download(f"/calls/{view['id']}/result")
    assert view["arguments"] == {"title": "***"}
    assert view["result"]["content"][0]["text"] == "shelf 7: ***"
    assert b"hunter2" not in content
    assert "hunter2" not in json.dumps(page.events)


async def test_closing_the_console_cancels_its_calls(tmp_path: Path) -> None:
    made, stopped = Server("s"), asyncio.Event()

    @made.tool
    async def wait() -> str:
        try:
            await asyncio.sleep(BOUND)
        finally:
            stopped.set()
        return ""

    async with on_console({"s": made}, tmp_path) as stage:
        await stage.client().post("/calls", {"kind": "tool", "id": "s/wait"})
    async with asyncio.timeout(BOUND):
        await stopped.wait()


COUNTER = """
import os
from trunkline import Context, Server

server = Server("counter")
calls = []

@server.tool
def count() -> list[int]:
    calls.append(1)
    return [len(calls), os.getpid()]

@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Name?", str)).content or "no name"
"""


def counting_server(folder: Path) -> dict[str, Any]:
    file = folder / "counter.py"
    file.write_text(COUNTER)
    command = {"command": sys.executable, "args": ["-m", "trunkline", "run", str(file)]}
    return {"counter": {**command, "era": "handshake", "dedicatedIdle": 0.05}}


async def test_a_stdio_server_keeps_its_state_while_a_page_is_open_and_runs_once(tmp_path: Path) -> None:
    async with on_console(counting_server(tmp_path), tmp_path) as stage, stage.client().listen() as page:
        first = (await page.call("tool", "counter/count"))["result"]["structuredContent"]["result"]
        chat = stage.console.requesters.typed(stage.console.open_session())
        item = stage.host.catalog.find_tool("counter/count")
        assert item is not None
        second = (await stage.console.core.call_tool(item, {}, chat)).structured_content
        await stage.console.core._sweep()
        await asyncio.sleep(0.06)
        await stage.console.core._sweep()
        third = (await page.call("tool", "counter/count"))["result"]["structuredContent"]["result"]
        fourth = (await stage.console.core.call_tool(item, {}, chat)).structured_content
        pid = (await page.get("/servers"))["servers"][0]["pid"]
    # The page and the chat use the one process that is shown.
    assert [first, second["result"], third, fourth["result"]] == [[1, pid], [2, pid], [3, pid], [4, pid]]


async def test_a_question_of_the_one_process_reaches_its_call_while_other_sessions_come_and_go(tmp_path: Path) -> None:
    async with on_console(counting_server(tmp_path), tmp_path) as stage, stage.client().listen() as page:
        core, item = stage.console.core, stage.host.catalog.find_tool("counter/count")
        assert item is not None
        call = (await page.post("/calls", {"kind": "tool", "id": "counter/ask"}))["call"]
        question = await page.item("form")
        chat = stage.console.open_session()
        await core.call_tool(item, {}, stage.console.requesters.typed(chat))
        await core.close_session(chat)
        await page.post(f"/inbox/{question['id']}", {"action": "accept", "content": {"value": "Ann"}})
        first = await page.finished(call["id"])
        later = (await page.post("/calls", {"kind": "tool", "id": "counter/ask"}))["call"]
        asked = await page.item("form", lambda form: form["id"] != question["id"])
        await page.post(f"/inbox/{asked['id']}", {"action": "accept", "content": {"value": "Bo"}})
        second = await page.finished(later["id"])
    assert [call["result"]["content"][0]["text"] for call in (first, second)] == ["Ann", "Bo"]
