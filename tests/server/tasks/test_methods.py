"""The methods of tasks, in both forms: state, result, cancelling, lists, and whose task it is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.server.talk import reach
from tests.server.tasks.talk import (
    CORE,
    DECLARES_NOTHING,
    EXTENSION,
    FORMS,
    PLAIN,
    Gate,
    TaskPeer,
    at_workshop,
    opened,
    serving,
    workshop,
)
from trunkline import Context, Server
from trunkline.protocol.limits import Limits

RELATED = "io.modelcontextprotocol/related-task"
METHODS = ["tasks/get", "tasks/update", "tasks/result", "tasks/cancel", "tasks/list"]
SERVED = {
    CORE: {"tasks/get", "tasks/result", "tasks/cancel", "tasks/list"},
    EXTENSION: {"tasks/get", "tasks/update", "tasks/cancel"},
}


# --- which revision has which methods ---------------------------------------------------------------------------------


@PLAIN
async def test_each_form_has_its_own_methods_and_older_revisions_have_none(revision: str) -> None:
    params = {"taskId": "x", "inputResponses": {}}
    async with at_workshop(revision) as (peer, _):
        answers = {method: await peer.peer.request(method, params) for method in METHODS}
    served = {method for method, answer in answers.items() if answer.get("error", {}).get("code") != -32601}
    assert served == SERVED.get(revision, set())


@FORMS
async def test_a_server_without_tasks_has_none_of_their_methods(revision: str) -> None:
    async with at_workshop(revision, task=False) as (peer, _):
        codes = [(await peer.peer.error(method, {"taskId": "x"}))["code"] for method in ("tasks/get", "tasks/cancel")]
    assert codes == [-32601] * 2


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_client_without_the_extension_is_told_what_is_missing(method: str) -> None:
    async with at_workshop(EXTENSION) as (peer, _):
        id = await peer.start()
        error = await peer.peer.error(method, {"taskId": id, "inputResponses": {}}, meta=DECLARES_NOTHING)
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@FORMS
async def test_an_unknown_task_is_an_invalid_param(revision: str) -> None:
    params = {"taskId": "x", "inputResponses": {}}
    async with at_workshop(revision) as (peer, _):
        errors = [await peer.peer.error(method, params) for method in SERVED[revision] - {"tasks/list"}]
    assert [(error["code"], "Task not found" in error["message"]) for error in errors] == [(-32602, True)] * 3


# --- the state --------------------------------------------------------------------------------------------------------


async def test_the_state_of_the_extension_has_the_result_inside() -> None:
    async with at_workshop(EXTENSION) as (peer, gate):
        gate.open.set()
        state = await peer.until(await peer.start("work", n=3))
    assert state["resultType"] == "complete"
    assert state["result"]["content"] == [{"type": "text", "text": "3"}]
    assert not {"error", "inputRequests"} & state.keys()


async def test_the_state_of_the_core_has_no_result_and_no_relation() -> None:
    async with at_workshop(CORE) as (peer, gate):
        gate.open.set()
        state = await peer.until(await peer.start("work", n=3))
    assert state.keys() == {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}


# --- the result, in the core form -------------------------------------------------------------------------------------


async def test_a_result_is_related_to_its_task() -> None:
    async with at_workshop(CORE) as (peer, gate):
        gate.open.set()
        id = await peer.start()
        result = await peer.outcome(id)
    assert result["_meta"] == {RELATED: {"taskId": id}}


async def test_a_result_keeps_the_meta_of_the_tool() -> None:
    async def work() -> Any:
        from trunkline.server import ToolResult

        return ToolResult("done", meta={"cost": 3})

    async with opened(serving(work), CORE) as peer:
        id = await peer.start("work")
        result = await peer.outcome(id)
    assert result["_meta"] == {"cost": 3, RELATED: {"taskId": id}}


async def test_a_result_is_waited_for(stored: dict[str, Any]) -> None:
    async with at_workshop(CORE, **stored) as (peer, gate):
        id = await peer.start("work", n=9)
        waiting = await peer.peer.send("tasks/result", {"taskId": id})
        await peer.peer.settle()
        assert waiting not in [each.get("id") for each in peer.peer.heard]
        gate.open.set()
        answer = await peer.peer.answer(waiting)
    assert answer["result"]["content"][0]["text"] == "9"


async def test_waiting_for_the_result_of_a_cancelled_task_ends(stored: dict[str, Any]) -> None:
    async with at_workshop(CORE, **stored) as (peer, _):
        id = await peer.start()
        waiting = await peer.peer.send("tasks/result", {"taskId": id})
        await peer.cancel(id)
        error = (await peer.peer.answer(waiting))["error"]
    assert "cancelled" in error["message"]


async def test_giving_up_the_wait_for_a_result_leaves_the_task_alone() -> None:
    async with at_workshop(CORE) as (peer, gate):
        id = await peer.start()
        waiting = await peer.peer.send("tasks/result", {"taskId": id})
        await peer.peer.tell("notifications/cancelled", {"requestId": waiting})
        await peer.peer.settle()
        gate.open.set()
        assert "content" in await peer.outcome(id)


async def test_the_relation_in_a_request_about_a_task_is_ignored() -> None:
    async with at_workshop(CORE) as (peer, _):
        id = await peer.start()
        state = await peer.peer.result("tasks/get", {"taskId": id}, meta={RELATED: {"taskId": "other"}})
    assert state["taskId"] == id


# --- cancelling -------------------------------------------------------------------------------------------------------


async def test_a_task_of_the_core_is_cancelled_before_the_answer(stored: dict[str, Any]) -> None:
    async with at_workshop(CORE, **stored) as (peer, gate):
        id = await peer.start()
        await gate.entered.wait()
        result = (await peer.cancel(id))["result"]
        await gate.cancelled.wait()
        state = await peer.get(id)
    assert (result["taskId"], result["status"], state["status"]) == (id, "cancelled", "cancelled")
    assert result["statusMessage"] == "The task was cancelled by request."
    assert "_meta" not in result


async def test_cancelling_a_task_of_the_extension_is_acknowledged(stored: dict[str, Any]) -> None:
    async with at_workshop(EXTENSION, **stored) as (peer, gate):
        id = await peer.start()
        await gate.entered.wait()
        result = (await peer.cancel(id))["result"]
        await gate.cancelled.wait()
        state = await peer.until(id)
    assert {name: value for name, value in result.items() if name != "_meta"} == {"resultType": "complete"}
    assert state["status"] == "cancelled"
    assert not {"result", "error"} & state.keys()


@FORMS
async def test_a_cancelled_task_stays_cancelled_whatever_its_handler_does(
    revision: str, stored: dict[str, Any]
) -> None:
    server, gate, left = Server("s", **stored), Gate(), asyncio.Event()

    @server.tool(task=True)
    async def work() -> str:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            left.set()
        return "I went on"

    async with opened(server, revision) as peer:
        id = await peer.start("work")
        await gate.entered.wait()
        await peer.cancel(id)
        await left.wait()
        await peer.peer.settle()
        state = await peer.get(id)
    assert state["status"] == "cancelled"


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_a_finished_task_of_the_core_cannot_be_cancelled(status: str) -> None:
    async def work() -> str:
        if status == "failed":
            raise ValueError
        if status == "cancelled":
            await asyncio.Event().wait()
        return "done"

    async with opened(serving(work), CORE) as peer:
        id = await peer.start("work")
        if status == "cancelled":
            await peer.cancel(id)
        await peer.until(id, status)
        error = (await peer.cancel(id))["error"]
    assert error == {"code": -32602, "message": f"Cannot cancel task: already in terminal status {status!r}"}


async def test_cancelling_a_finished_task_of_the_extension_changes_nothing() -> None:
    async with at_workshop(EXTENSION) as (peer, gate):
        gate.open.set()
        id = await peer.start()
        before = await peer.until(id)
        answer = await peer.cancel(id)
        after = await peer.get(id)
    assert "result" in answer
    assert (after["status"], after["result"]) == ("completed", before["result"])


@FORMS
async def test_cancelling_and_finishing_at_once_gives_one_end(revision: str, stored: dict[str, Any]) -> None:
    server, gate = workshop(**stored)
    ends = set()
    async with opened(server, revision) as peer:
        for number in range(30):
            gate.open.clear()
            gate.entered.clear()
            id = await peer.start()
            await gate.entered.wait()
            cancelling = await peer.peer.send("tasks/cancel", {"taskId": id})
            for _ in range(number % 4):
                await asyncio.sleep(0)
            gate.open.set()
            answer = await peer.peer.answer(cancelling)
            state = await peer.until(id)
            again = await peer.get(id)
            assert state["status"] == again["status"]
            # In the core form an answer that says cancelled is final, and a rejection means that it was finished.
            assert revision == EXTENSION or ("result" in answer) == (state["status"] == "cancelled")
            ends.add(state["status"])
    assert ends <= {"completed", "cancelled"}


@FORMS
async def test_cancelling_twice_at_once_is_one_cancellation(revision: str) -> None:
    async with at_workshop(revision) as (peer, gate):
        id = await peer.start()
        await gate.entered.wait()
        both = [await peer.peer.send("tasks/cancel", {"taskId": id}) for _ in range(2)]
        answers = await peer.peer.answers(*both)
    accepted = [each for each in answers.values() if "result" in each]
    assert len(accepted) == (1 if revision == CORE else 2)


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_a_list_has_all_tasks_oldest_first() -> None:
    async with at_workshop(CORE) as (peer, _):
        ids = [await peer.start() for _ in range(3)]
        listed = await peer.peer.result("tasks/list")
    assert [each["taskId"] for each in listed["tasks"]] == ids
    assert "nextCursor" not in listed
    assert listed["tasks"][0].keys() >= {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl"}


async def test_a_long_list_comes_in_pages() -> None:
    async with at_workshop(CORE, limits=Limits(page_size=2)) as (peer, _):
        ids = [await peer.start() for _ in range(5)]
        pages, cursor = list[Any](), None
        while cursor is not None or not pages:
            pages.append(await peer.peer.result("tasks/list", {} if cursor is None else {"cursor": cursor}))
            cursor = pages[-1].get("nextCursor")
    assert [len(page["tasks"]) for page in pages] == [2, 2, 1]
    assert [each["taskId"] for page in pages for each in page["tasks"]] == ids


@pytest.mark.parametrize("cursor", ["", "!", "bm90", "W10", "WzEsIDJd", "WzFlMzA4LCAieCJd", "Wy0xLCAieCJd"])
async def test_a_cursor_that_is_not_ours_is_refused(cursor: str) -> None:
    async with at_workshop(CORE) as (peer, _):
        assert (await peer.peer.error("tasks/list", {"cursor": cursor}))["code"] == -32602


async def test_a_list_shows_what_a_task_says_now() -> None:
    gate = Gate()

    async def work(ctx: Context) -> str:
        await ctx.info("digging")
        await gate.wait()
        return "done"

    async with opened(serving(work), CORE) as peer:
        await peer.start("work")
        await gate.entered.wait()
        (task,) = (await peer.peer.result("tasks/list"))["tasks"]
    assert task["statusMessage"] == "digging"


# --- status notifications of the core form ----------------------------------------------------------------------------


async def test_the_client_is_notified_of_every_change_with_the_whole_state(monkeypatch: pytest.MonkeyPatch) -> None:
    # A task that is over before its client would look for the first time needs no notification.
    monkeypatch.setattr("trunkline.server.tasks.service.FIRST_POLL", 0.0)
    async with at_workshop(CORE) as (peer, gate):
        id = await peer.start()
        gate.open.set()
        notice = await peer.peer.notice("notifications/tasks/status")
        state = await peer.until(id)
    assert notice == {**notice, "taskId": id, "status": "completed"}
    assert notice.keys() - {"statusMessage"} == state.keys() - {"statusMessage"}
    assert "_meta" not in notice


async def test_progress_keeps_its_token_and_is_related_to_the_task() -> None:
    gate = Gate()

    async def work(ctx: Context) -> str:
        await gate.wait()
        await ctx.report_progress(1, 4, "digging")
        return "done"

    async with opened(serving(work), CORE) as peer:
        task = await peer.create("work", meta={"progressToken": 77})
        gate.open.set()
        notice = await peer.peer.notice("notifications/progress")
        state = await peer.until(task["taskId"])
    related = {RELATED: {"taskId": task["taskId"]}}
    assert notice == {"progressToken": 77, "progress": 1, "total": 4, "message": "digging", "_meta": related}
    assert state["statusMessage"] == "1/4: digging"


async def test_progress_without_a_token_is_the_status_alone() -> None:
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 4, "digging")
        return "done"

    async with opened(serving(work), CORE) as peer:
        state = await peer.until(await peer.start("work"))
        await peer.peer.settle()
        notices = peer.peer.notices("notifications/progress")
    assert (state["statusMessage"], notices) == ("1/4: digging", [])


async def test_a_notification_of_the_handler_reaches_the_session() -> None:
    async def work(ctx: Context) -> str:
        await ctx.notify("example/found", {"what": "gold"})
        await ctx.notify("example/more")
        return "done"

    server = serving(work)
    async with reach(server, CORE) as raw:
        peer = TaskPeer(raw)
        id = await peer.start("work")
        await peer.until(id)
        found = [await raw.notice(each) for each in ("example/found", "example/more")]
    await server.aclose()
    related = {RELATED: {"taskId": id}}
    assert found == [{"what": "gold", "_meta": related}, {"_meta": related}]


@pytest.mark.parametrize("text", ["short", "x" * 2000], ids=["short", "long"])
@FORMS
async def test_a_log_message_is_the_status(revision: str, text: str) -> None:
    async def work(ctx: Context) -> str:
        await ctx.debug("not for everyone")
        await ctx.info(text)
        return "done"

    async with opened(serving(work), revision) as peer:
        state = await peer.until(await peer.start("work"))
        await peer.peer.settle()
        logged = peer.peer.notices("notifications/message")
    assert state["statusMessage"] == (text if len(text) < 500 else "x" * 499 + "…")
    assert logged == []


@FORMS
async def test_a_structured_log_message_is_the_status_too(revision: str) -> None:
    async def work(which: str, ctx: Context) -> str:
        if which == "list":
            await ctx.warning(["a", 1])
        else:
            await ctx.warning("hot", temperature=900)
        return "done"

    async with opened(serving(work), revision) as peer:
        with_fields = await peer.until(await peer.start("work", which="fields"))
        as_list = await peer.until(await peer.start("work", which="list"))
    assert with_fields["statusMessage"] == "hot"
    assert json.loads(as_list["statusMessage"]) == ["a", 1]
