"""Handlers inside a task: questions to the caller, results of ``once``, and calls that ask before they are tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.server.talk import accept, again
from tests.server.tasks.talk import CORE, EXTENSION, FORMS, Gate, TaskPeer, opened, serving
from trunkline import Context, Server
from trunkline.errors import RequestFailed
from trunkline.extensions import TaskOptions
from trunkline.protocol.limits import Limits

RELATED = "io.modelcontextprotocol/related-task"
ASKS: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def asker(server: Server, **options: Any) -> list[Any]:
    """Add a tool that asks one question; return what it was told."""
    told: list[Any] = []

    @server.tool(task=TaskOptions(**options))
    async def work(ctx: Context) -> str:
        try:
            answer = await ctx.elicit("Which?", str, key="which")
        except RequestFailed as error:
            told.append(error.message)
            raise
        told.append(answer.data if answer.accepted else answer.action)
        return f"{answer.data}"

    return told


async def keys_of(peer: TaskPeer, id: str, count: int) -> dict[str, Any]:
    """Wait until a task of the extension has so many open questions."""
    while True:
        state = await peer.until(id, "input_required")
        if len(state["inputRequests"]) == count:
            found: dict[str, Any] = state["inputRequests"]
            return found


# --- questions --------------------------------------------------------------------------------------------------------


@FORMS
async def test_a_question_waits_for_its_answer_and_the_handler_goes_on(revision: str, stored: dict[str, Any]) -> None:
    server = Server("s", **stored)
    told = asker(server)
    async with opened(server, revision, ASKS) as peer:
        id = await peer.start("work")
        key, question = await peer.question(id)
        waiting = await peer.get(id)
        await peer.answer(id, key, accept("red"))
        outcome = await peer.outcome(id)
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == "Which?"
    assert (waiting["status"], outcome["content"][0]["text"], told) == ("input_required", "red", ["red"])


async def test_a_question_of_the_extension_has_the_key_of_the_handler() -> None:
    server = Server("s")
    asker(server)
    async with opened(server, EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        key, question = await peer.question(id)
        again = await peer.get(id)
    assert key == "which"
    assert question["params"]["requestedSchema"]["properties"].keys() == {"value"}
    assert again["inputRequests"] == {"which": question}


async def test_a_question_of_the_core_is_related_to_its_task() -> None:
    server = Server("s")
    asker(server)
    async with opened(server, CORE, ASKS) as peer:
        id = await peer.start("work")
        _, request = await peer.question(id)
    assert request["params"]["_meta"] == {RELATED: {"taskId": id}}


@FORMS
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_say_no(revision: str, action: str) -> None:
    server = Server("s")
    told = asker(server)
    async with opened(server, revision, ASKS) as peer:
        id = await peer.start("work")
        key, _ = await peer.question(id)
        await peer.answer(id, key, {"action": action})
        await peer.outcome(id)
    assert told == [action]


@FORMS
async def test_a_model_and_the_roots_can_be_asked_for_in_a_task(revision: str) -> None:
    async def work(ctx: Context) -> str:
        said = await ctx.sample("Say something")
        roots = await ctx.list_roots()
        return f"{said.text} in {roots[0].uri}"

    async with opened(serving(work), revision, ASKS) as peer:
        id = await peer.start("work")
        key, first = await peer.question(id)
        text = {"type": "text", "text": "Hello"}
        await peer.answer(id, key, {"role": "assistant", "model": "m", "content": text})
        while True:
            key, second = await peer.question(id)
            if second["method"] != first["method"]:
                break
        await peer.answer(id, key, {"roots": [{"uri": "file:///home"}]})
        outcome = await peer.outcome(id)
    assert (first["method"], second["method"]) == ("sampling/createMessage", "roots/list")
    assert outcome["content"][0]["text"] == "Hello in file:///home"


async def test_what_the_client_cannot_do_makes_a_task_of_the_extension_fail() -> None:
    server = Server("s")
    asker(server)
    async with opened(server, EXTENSION) as peer:
        outcome = await peer.outcome(await peer.start("work"))
    assert outcome["error"]["code"] == -32021
    assert outcome["error"]["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_what_the_client_cannot_do_is_an_error_of_the_tool_in_the_core_form() -> None:
    server = Server("s")
    asker(server)
    async with opened(server, CORE) as peer:
        outcome = await peer.outcome(await peer.start("work"))
    assert outcome["isError"]
    assert "elicitation" in outcome["content"][0]["text"]


async def test_an_answer_of_the_wrong_shape_is_an_error_of_the_task_in_the_core_form() -> None:
    server = Server("s")
    asker(server)
    async with opened(server, CORE, ASKS) as peer:
        id = await peer.start("work")
        key, _ = await peer.question(id)
        await peer.answer(id, key, {"action": "shrug"})
        outcome = await peer.outcome(id)
    assert outcome["error"]["code"] == -32602


@FORMS
async def test_an_answer_that_does_not_fit_the_form_is_asked_for_again(revision: str) -> None:
    async def work(ctx: Context) -> int:
        answer = await ctx.elicit("How many?", int, key="n")
        return answer.data or 0

    async with opened(serving(work), revision, ASKS) as peer:
        id = await peer.start("work")
        first, _ = await peer.question(id)
        await peer.answer(id, first, {"action": "accept", "content": {"value": "many"}})
        while (second := (await peer.question(id))[0]) == first:
            pass
        await peer.answer(id, second, accept(3))
        outcome = await peer.outcome(id)
    assert outcome["content"][0]["text"] == "3"


async def test_an_error_of_the_client_reaches_the_handler() -> None:
    server = Server("s")
    told = asker(server)
    async with opened(server, CORE, ASKS) as peer:
        id = await peer.start("work")
        key, _ = await peer.question(id)
        await peer.peer.say({"jsonrpc": "2.0", "id": key, "error": {"code": -1, "message": "User is away"}})
        outcome = await peer.outcome(id)
    assert outcome == {"error": {"code": -1, "message": "User is away"}}
    assert told == ["User is away"]


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_no_key_is_used_for_two_questions(stored: dict[str, Any]) -> None:
    server = Server("s", **stored)

    @server.tool(task=True)
    async def work(ctx: Context) -> list[str]:
        async def ask(key: str | None, text: str) -> str:
            return str((await ctx.elicit(text, str, key=key)).data)

        together = [ask("a", "1"), ask("a", "2"), ask("a-2", "3"), ask(None, "4"), ask(None, "4"), ask("a", "1")]
        return list(await asyncio.gather(*together))

    async with opened(server, EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        questions = await keys_of(peer, id, 6)
        texts = {key: each["params"]["message"] for key, each in questions.items()}
        for key in questions:
            await peer.answer(id, key, accept(f"{texts[key]}!"))
        outcome = await peer.outcome(id)
    assert outcome["structuredContent"] == {"result": ["1!", "2!", "3!", "4!", "4!", "1!"]}


async def test_a_key_is_not_used_again_after_its_answer() -> None:
    async def work(ctx: Context) -> str:
        for _ in range(4):
            await ctx.elicit("Again?", str, key="again")
        return "done"

    seen: list[str] = []
    async with opened(serving(work), EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        while (state := await peer.until(id, "input_required", "completed"))["status"] == "input_required":
            (key,) = state["inputRequests"]
            seen.append(key)
            await peer.answer(id, key, accept("yes"))
    assert len(seen) == len(set(seen)) == 4


async def test_some_answers_leave_the_task_waiting_for_the_rest() -> None:
    async def work(ctx: Context) -> str:
        first, second = await asyncio.gather(ctx.elicit("1", str, key="a"), ctx.elicit("2", str, key="b"))
        return f"{first.data}{second.data}"

    async with opened(serving(work), EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        await keys_of(peer, id, 2)
        await peer.answer(id, "b", accept("y"))
        partly = await peer.get(id)
        await peer.answer(id, "a", accept("x"))
        outcome = await peer.outcome(id)
    assert (partly["status"], list(partly["inputRequests"])) == ("input_required", ["a"])
    assert outcome["content"][0]["text"] == "xy"


async def test_answers_to_questions_that_are_not_open_are_acknowledged_and_ignored() -> None:
    server = Server("s")
    told = asker(server)
    async with opened(server, EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        await peer.question(id)
        unknown = {"taskId": id, "inputResponses": {"other": accept("no")}}
        acknowledged = await peer.peer.result("tasks/update", unknown)
        still = await peer.get(id)
        await peer.answer(id, "which", accept("red"))
        await peer.until(id)
        await peer.answer(id, "which", accept("blue"))
        outcome = await peer.outcome(id)
    assert {name: value for name, value in acknowledged.items() if name != "_meta"} == {"resultType": "complete"}
    assert (still["status"], outcome["content"][0]["text"], told) == ("input_required", "red", ["red"])


async def test_of_two_answers_to_one_question_the_first_counts(stored: dict[str, Any]) -> None:
    server = Server("s", **stored)
    told = asker(server)
    async with opened(server, EXTENSION, ASKS) as peer:
        id = await peer.start("work")
        await peer.question(id)
        sent = [
            await peer.peer.send("tasks/update", {"taskId": id, "inputResponses": {"which": accept(colour)}})
            for colour in ("red", "blue", "green")
        ]
        answers = await peer.peer.answers(*sent)
        outcome = await peer.outcome(id)
    assert all("result" in each for each in answers.values())
    assert (outcome["content"][0]["text"], told) == ("red", ["red"])


# --- questions without a waiting caller -------------------------------------------------------------------------------


@FORMS
async def test_a_handler_that_waits_no_longer_withdraws_its_question(revision: str, stored: dict[str, Any]) -> None:
    server, gate, late = Server("s", **stored), Gate(), asyncio.Event()

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        asking = asyncio.ensure_future(ctx.elicit("Quick?", str, key="quick"))
        await late.wait()
        asking.cancel()
        await asyncio.wait([asking])
        await gate.wait()
        return "done without"

    async with opened(server, revision, ASKS) as peer:
        id = await peer.start("work")
        key, _ = await peer.question(id)
        late.set()
        await gate.entered.wait()
        state = await peer.get(id)
        await peer.answer(id, key, accept("late"))
        gate.open.set()
        outcome = await peer.outcome(id)
    assert (state["status"], "inputRequests" in state) == ("working", False)
    assert outcome["content"][0]["text"] == "done without"


async def test_a_client_of_the_core_is_told_that_a_question_was_withdrawn() -> None:
    server = Server("s")
    asker(server)
    async with opened(server, CORE, ASKS) as peer:
        id = await peer.start("work")
        key, _ = await peer.question(id)
        await peer.cancel(id)
        notice = await peer.peer.notice("notifications/cancelled")
    assert notice["requestId"] == key


@FORMS
async def test_a_question_is_open_for_as_long_as_a_task_is_kept(revision: str) -> None:
    server = Server("s")
    told = asker(server, ttl=0.05)
    async with opened(server, revision, ASKS) as peer:
        id = await peer.start("work")
        while not told:
            await peer.peer.settle()
    assert told == ["No answer to 'which' came within 0.05 s"]
    assert id


@FORMS
async def test_an_answer_that_meets_the_cancellation_changes_nothing(revision: str, stored: dict[str, Any]) -> None:
    server = Server("s", **stored)
    told = asker(server)
    async with opened(server, revision, ASKS) as peer:
        id = await peer.start("work")
        key, _ = await peer.question(id)
        cancelling = await peer.peer.send("tasks/cancel", {"taskId": id})
        await peer.answer(id, key, accept("late"))
        cancelled = await peer.peer.answer(cancelling)
        state = await peer.until(id)
        await peer.peer.settle()
    # The answer may be stored first, if looking the task up takes longer. Then the task stays cancelled all the same,
    # or it has completed, and the cancellation says so.
    if state["status"] == "completed":
        assert told == ["late"]
        assert ("error" in cancelled) == (revision == CORE)
    else:
        assert (state["status"], told) in (("cancelled", []), ("cancelled", ["late"]))


# --- pages ------------------------------------------------------------------------------------------------------------


@FORMS
async def test_a_page_is_opened_once_and_waited_for(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.server.client_requests._POLL_SECONDS", 0.001)
    server, calls = Server("s"), list[int]()

    def finished() -> bool:
        calls.append(1)
        return len(calls) > 30

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        return (await ctx.elicit_url("Log in", "https://example.com/", done=finished)).action

    async with opened(server, revision, ASKS) as peer:
        id = await peer.start("work")
        key, question = await peer.question(id)
        await peer.answer(id, key, {"action": "accept"})
        outcome = await peer.outcome(id)
        await peer.peer.settle()
        complete = peer.peer.notices("notifications/elicitation/complete")
        asked = [each for each in peer.peer.heard if each.get("method") == "elicitation/create"]
    assert (question["params"]["mode"], outcome["content"][0]["text"]) == ("url", "accept")
    assert len(asked) == (1 if revision == CORE else 0)
    assert [each["_meta"] for each in complete] == ([{RELATED: {"taskId": id}}] if revision == CORE else [])


@FORMS
async def test_a_page_that_is_never_finished_is_given_up(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.server.client_requests._POLL_SECONDS", 0.001)
    server = Server("s", limits=Limits(ask_seconds=0.02))

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        return (await ctx.elicit_url("Log in", "https://example.com/", done=lambda: False)).action

    async with opened(server, revision, ASKS) as peer:
        id = await peer.start("work")
        key, _ = await peer.question(id)
        await peer.answer(id, key, {"action": "accept"})
        outcome = await peer.outcome(id)
    assert outcome["content"][0]["text"] == "cancel"


# --- ``once``, and rounds before the call is a task -------------------------------------------------------------------


@FORMS
async def test_once_calls_a_function_once_and_keeps_plain_data(revision: str, stored: dict[str, Any]) -> None:
    server, calls = Server("s", **stored), list[int]()

    @server.tool(task=True)
    async def work(ctx: Context) -> list[Any]:
        def pay() -> dict[str, Any]:
            calls.append(1)
            return {"receipt": (1, 2)}

        return [await ctx.once("pay", pay) for _ in range(3)]

    async with opened(server, revision) as peer:
        outcome = await peer.outcome(await peer.start("work"))
    assert json.loads(outcome["content"][0]["text"]) == [{"receipt": [1, 2]}] * 3
    assert len(calls) == 1


async def test_what_was_asked_in_rounds_is_known_to_the_task() -> None:
    calls = list[str]()

    async def work(ctx: Context) -> str:
        await ctx.once("begin", lambda: calls.append("begin"))
        first = await ctx.elicit("First?", str, key="q")
        await ctx.continue_as_task()
        await ctx.once("begin", lambda: calls.append("begin"))
        second = await ctx.elicit("Second?", str, key="q")
        same = await ctx.elicit("Second?", str, key="q")
        return f"{first.data} {second.data} {same.data}"

    async with opened(serving(work, task=TaskOptions(after=None)), EXTENSION, ASKS) as peer:
        params = {"name": "work", "arguments": {}}
        asked = await peer.peer.result("tools/call", params)
        task = await peer.peer.result("tools/call", again(params, asked, accept("one")))
        id, seen = task["taskId"], list[str]()
        while (state := await peer.until(id, "input_required", "completed"))["status"] == "input_required":
            (key,) = state["inputRequests"]
            seen.append(key)
            await peer.answer(id, key, accept(str(len(seen))))
    assert state["result"]["content"][0]["text"] == "one 1 2"
    assert len({*asked["inputRequests"], *seen}) == 3
    assert calls == ["begin"]


async def test_a_call_that_asks_when_its_time_is_over_asks_in_its_result() -> None:
    gate = Gate()

    async def work(ctx: Context) -> str:
        async def slow() -> str:
            await gate.wait()
            return "paid"

        # The question is held back until what runs once has been recorded.
        answer, _ = await asyncio.gather(ctx.elicit("Sure?", bool), ctx.once("pay", slow))
        return str(answer.data)

    async with opened(serving(work, task=TaskOptions(after=0.02)), EXTENSION, ASKS) as peer:
        id = await peer.peer.send("tools/call", {"name": "work", "arguments": {}})
        await gate.entered.wait()
        asyncio.get_running_loop().call_later(0.05, gate.open.set)
        result = (await peer.peer.answer(id))["result"]
        assert result["resultType"] == "input_required"
        params = {"name": "work", "arguments": {}}
        done = await peer.peer.result("tools/call", again(params, result, accept(True)))
        outcome = done if "content" in done else await peer.outcome(done["taskId"])
    assert outcome["content"][0]["text"] == "True"
    assert gate.count == 1


@FORMS
async def test_the_context_of_a_task_knows_its_caller(revision: str) -> None:
    async def work(ctx: Context) -> str:
        return f"{ctx.client.revision} {ctx.client.supports('roots')} {ctx.cancelled} {ctx.round} {ctx.transport}"

    async with opened(serving(work), revision, ASKS) as peer:
        outcome = await peer.outcome(await peer.start("work"))
    assert outcome["content"][0]["text"] == f"{revision} True False 0 memory"


async def test_a_request_that_must_leave_at_once_cannot_be_sent_from_a_task() -> None:
    told = list[str]()

    async def work(ctx: Context) -> str:
        from trunkline.connection import Timeouts
        from trunkline.errors import ConnectionLost

        try:
            await ctx.exchange.request("ping", None, timeouts=Timeouts(None, None))
        except ConnectionLost as error:
            told.append(str(error))
        return "done"

    async with opened(serving(work), CORE) as peer:
        await peer.outcome(await peer.start("work"))
    assert told == ["the call became a task, so no request can be sent on its exchange"]
