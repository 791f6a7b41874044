"""The members of a task's state: times, time to live, poll interval, and what a client is told of their changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.talk import accept
from tests.server.tasks.records import make_record
from tests.server.tasks.talk import CORE, EXTENSION, FORMS, Gate, at_workshop, opened, serving
from trunkline import Context, Server
from trunkline.extensions import TaskOptions, TaskSettings
from trunkline.protocol.limits import Limits
from trunkline.server.tasks.record import finish
from trunkline.server.tasks.wire import core_task, extension_task

ASKS: dict[str, Any] = {"elicitation": {"form": {}}}
#: The member with the time to live, and that with the poll interval, by revision.
TTL = {CORE: "ttl", EXTENSION: "ttlMs"}
POLL = {CORE: "pollInterval", EXTENSION: "pollIntervalMs"}


@FORMS
async def test_the_time_to_live_and_the_poll_interval_of_a_tool_are_the_same_in_every_response(revision: str) -> None:
    async with at_workshop(revision, task=TaskOptions(ttl=60.0, poll=7.0)) as (peer, gate):
        task = await peer.create("work")
        running = await peer.get(task["taskId"])
        gate.open.set()
        ended = await peer.until(task["taskId"])
    assert [(each[TTL[revision]], each[POLL[revision]]) for each in (task, running, ended)] == [(60_000, 7000)] * 3


@pytest.mark.parametrize("age", [0.0, 1.0, 29.9, 30.0, 45.0, 60.0, 119.0, 5000.0])
def test_a_task_that_runs_has_always_half_of_its_time_left(age: float) -> None:
    record = make_record(created=100.0, updated=100.0, ttl=60.0)
    declared = extension_task(record, 100.0 + age).ttl_ms
    ended = finish(record, "completed", 100.0 + age)
    assert declared is not None
    assert declared / 1000 - age >= 30.0
    # What a client was told is never more than what is kept.
    assert ended.expires is not None
    assert core_task(ended, 9999.0)["ttl"] / 1000 + ended.created <= ended.expires


@FORMS
async def test_without_a_poll_interval_a_young_task_is_to_be_asked_for_soon(revision: str) -> None:
    async with at_workshop(revision, tasks=TaskSettings(usual_poll=30.0)) as (peer, _):
        task = await peer.create("work")
    assert task[POLL[revision]] <= 1000


@pytest.mark.parametrize("ttl", [10**400, 2**63, 2**1023], ids=["googol", "64 bits", "float"])
async def test_a_huge_time_to_live_is_bounded(ttl: int) -> None:
    async with at_workshop(CORE, tasks=TaskSettings(max_ttl=100.0)) as (peer, gate):
        gate.open.set()
        task = await peer.create("work", ttl=ttl)
    assert task["ttl"] == 100_000


async def test_a_huge_time_to_live_without_a_bound_is_kept_as_long_as_a_number_goes() -> None:
    async with at_workshop(CORE, tasks=TaskSettings(max_ttl=float("inf"))) as (peer, gate):
        gate.open.set()
        task = await peer.create("work", ttl=10**400)
        state = await peer.until(task["taskId"])
    assert task["ttl"] == state["ttl"] == 2**53


@FORMS
async def test_a_new_status_message_is_an_update(revision: str) -> None:
    gate, end = Gate(), Gate()

    async def work(ctx: Context) -> str:
        await gate.wait()
        await ctx.report_progress(1, 2, "half")
        await end.wait()
        return "done"

    async with opened(serving(work), revision) as peer:
        id = await peer.start("work")
        before = await peer.get(id)
        while (await peer.create("work"))["createdAt"] == before["createdAt"]:
            pass
        gate.open.set()
        await end.entered.wait()
        after = await peer.get(id)
        end.open.set()
    assert "statusMessage" not in before
    assert after["statusMessage"] == "1/2: half"
    assert after["lastUpdatedAt"] > before["lastUpdatedAt"]


async def test_a_client_that_was_told_of_a_change_is_told_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # However quick it was: a client that was told ``working`` would wait for ever.
    monkeypatch.setattr("trunkline.server.tasks.service.FIRST_POLL", 60.0)

    async def work(ctx: Context) -> str:
        await ctx.elicit("Which?", str)
        return "done"

    async with opened(serving(work), CORE, {"elicitation": {}}) as peer:
        id = await peer.start("work")
        waiting = await peer.peer.send("tasks/result", {"taskId": id})
        key, _ = await peer.question(id)
        await peer.answer(id, key, accept("x"))
        await peer.peer.answer(waiting)
        heard = [(await peer.peer.notice("notifications/tasks/status"))["status"] for _ in range(3)]
    assert heard == ["input_required", "working", "completed"]


@pytest.mark.parametrize(
    "answer", ["red", 5, None, [], {}, {"action": "shrug"}], ids=["text", "number", "null", "list", "empty", "action"]
)
async def test_an_answer_that_cannot_be_read_is_rejected_and_the_question_stays_open(answer: Any) -> None:
    async def work(ctx: Context) -> str:
        return (await ctx.elicit("Colour?", str, key="colour")).data or ""

    async with opened(serving(work), EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        await peer.question(id)
        given = {"taskId": id, "inputResponses": {"colour": answer, "other": answer}}
        error = (await peer.peer.request("tasks/update", given))["error"]
        state = await peer.get(id)
        await peer.answer(id, "colour", accept("red"))
        outcome = await peer.outcome(id)
    assert error["code"] == -32602
    assert "colour" in error["message"]
    assert list(state["inputRequests"]) == ["colour"]
    assert outcome["content"][0]["text"] == "red"


async def test_answers_are_bounded_by_the_share_of_the_caller() -> None:
    server = Server("s", limits=Limits(owner_store_bytes=3000))

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        return (await ctx.elicit("Colour?", str, key="colour")).data or ""

    async with opened(server, EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        await peer.question(id)
        large = {"taskId": id, "inputResponses": {"colour": accept("x" * 3000)}}
        refused = [(await peer.peer.request("tasks/update", large))["error"] for _ in range(3)]
        state = await peer.get(id)
        await peer.answer(id, "colour", accept("red"))
        outcome = await peer.outcome(id)
    assert [each["data"]["limit"] for each in refused] == ["owner_store_bytes"] * 3
    assert state["status"] == "input_required"
    assert outcome["content"][0]["text"] == "red"


async def test_the_journal_of_a_task_has_the_limits_of_every_call() -> None:
    server = Server("s", limits=Limits(journal_entries=2, journal_bytes=1000))

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        colour = (await ctx.elicit("Colour?", str, key="colour")).data
        await ctx.once("page", lambda: "x")
        await ctx.once("another", lambda: "y")
        return colour or ""

    async with opened(server, EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        await peer.question(id)
        large = {"taskId": id, "inputResponses": {"colour": accept("x" * 3000)}}
        refused = (await peer.peer.request("tasks/update", large))["error"]
        waiting = await peer.get(id)
        await peer.answer(id, "colour", accept("red"))
        ended = await peer.until(id, "failed")
    assert (refused["code"], refused["message"]) == (-32602, "The responses of this call are too large to keep.")
    assert waiting["status"] == "input_required"
    assert "more than 2" in ended["error"]["message"]
