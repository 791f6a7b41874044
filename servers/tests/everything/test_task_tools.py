"""The tools with tasks: one that runs as a task, and two whose requests the client runs as tasks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import pytest

import trunkline.types as t
from servers.tests.everything.support import HANDSHAKE, MIDDLE, STATELESS, Heard, call, connected
from tests.support import run_async
from trunkline import Client, RequestFailed, Server, ToolError
from trunkline.types import ElicitResult
from trunkline_servers.everything import make_server

BOTH = (HANDSHAKE, STATELESS)
UNCLEAR = {"topic": "Python", "ambiguous": True}
_TASK_ID = re.compile(r"Task created: [\w-]{32}")


@cache
def quick() -> Server:
    """Return the server, with stages that take no time."""
    return make_server(stage=0)


def researched(revision: str, *, heard: Heard | None = None, **options: Any) -> str:
    """Call the research tool with an ordinary call, and return the report."""
    arguments = options.pop("arguments", UNCLEAR)

    async def main() -> str:
        async with connected(revision, quick(), heard=heard, **options) as client:
            return str((await call(client, "simulate-research-query", **arguments)).text)

    return run_async(main())


# --- the research ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", BOTH)
def test_the_research_asks_what_an_ambiguous_topic_means(revision: str) -> None:
    heard = Heard()
    report = researched(revision, heard=heard)
    [form] = [question.requested_schema for question in heard.asked]
    assert form is not None
    assert [each["const"] for each in form["properties"]["interpretation"]["oneOf"]] == [
        "programming",
        "snake",
        "comedy",
    ]
    assert report.startswith("# Research Report: Python (snake)\n")
    assert "- **Clarification**: snake" in report


def test_a_clear_topic_is_not_asked_about() -> None:
    heard = Heard()
    report = researched(STATELESS, heard=heard, arguments={"topic": "tides"})
    assert (heard.asked, report.splitlines()[0]) == ([], "# Research Report: tides")
    assert "Stage 4: Generating report ✓" in report


def test_a_client_that_cannot_be_asked_gets_the_plain_report() -> None:
    report = researched(STATELESS, elicitation=None, elicitation_urls=False)
    assert report.startswith("# Research Report: Python\n")


@pytest.mark.parametrize(("action", "told"), [("decline", "declined"), ("cancel", "cancelled")])
@pytest.mark.parametrize("revision", BOTH)
def test_who_does_not_answer_gets_the_default(revision: str, action: Any, told: str) -> None:
    report = researched(revision, answers=lambda question: ElicitResult(action=action))
    assert f"Python (User {told} - using default interpretation)" in report


def test_a_client_that_fails_to_ask_gets_the_default() -> None:
    def fail(question: t.ElicitRequestParams) -> Any:
        raise RequestFailed("there is no screen")

    assert "(technical (default - elicitation unavailable))" in researched(HANDSHAKE, answers=fail)


async def test_the_status_tells_what_the_research_waits_for() -> None:

    asked = 'Found multiple interpretations for "Python". Requesting clarification...'
    waiting, answered = asyncio.Event(), asyncio.Event()

    async def think(question: t.ElicitRequestParams) -> Any:
        waiting.set()
        await answered.wait()
        return {"interpretation": "comedy"}

    async with Client(quick(), revision=HANDSHAKE, elicitation=think) as client:
        task = await client.start_task("simulate-research-query", UNCLEAR)
        await waiting.wait()
        state = await task.refresh()
        assert state is not None
        answered.set()
        await task.result()
        after = await client.task(task.id).refresh()
        assert after is not None
    assert (state.status, state.message, after.message) == ("input_required", asked, "Generating report...")


def test_a_topic_has_a_longest_length() -> None:
    with pytest.raises(ToolError, match="topic must not have more than 10000 characters"):
        researched(STATELESS, arguments={"topic": "x" * 10_001})


async def test_the_research_must_be_called_as_a_task_where_that_can_be_chosen() -> None:
    async with connected(HANDSHAKE) as client:
        with pytest.raises(RequestFailed) as plain:
            await client.request("tools/call", {"name": "simulate-research-query", "arguments": {"topic": "x"}})
        with pytest.raises(RequestFailed) as other:
            await client.request("tools/call", {"name": "echo", "arguments": {"message": "x"}, "task": {}})
        assert (plain.value.code, other.value.code) == (-32601, -32601)
        [tool] = [each for each in await client.list_tools() if each.name == "simulate-research-query"]
        assert tool.execution == t.ToolExecution(task_support="required")


# --- tasks of the client ---------------------------------------------------------------------------------------------

ASYNC = {"trigger-sampling-request-async", "trigger-elicitation-request-async"}


@asynccontextmanager
async def able(**options: Any) -> AsyncIterator[Client]:
    """Connect a client that runs requests as tasks."""
    async with connected(HANDSHAKE, **options) as client:
        yield client


@pytest.mark.parametrize(("revision", "tools"), [(MIDDLE, set()), (HANDSHAKE, ASYNC), (STATELESS, set())])
async def test_only_clients_that_run_requests_as_tasks_see_the_tools(revision: str, tools: set[str]) -> None:
    async with connected(revision) as client:
        assert {tool.name for tool in await client.list_tools()} & ASYNC == tools


def test_the_clients_model_answers_in_a_task() -> None:
    async def main() -> str:
        async with able() as client:
            return str((await call(client, "trigger-sampling-request-async", prompt="Pack!", maxTokens=9)).text)

    heading, *lines = _TASK_ID.sub("Task created: ID", run_async(main())).splitlines()
    assert heading == "[COMPLETED] Async sampling completed!"
    assert lines[:5] == ["", "**Progress:**", "Task created: ID", "Poll 1: completed", ""]
    assert '    "text": "a lantern"' in lines


async def test_the_user_fills_in_a_form_in_a_task() -> None:
    async with able() as client:
        done, inputs, raw = [each.text for each in (await call(client, "trigger-elicitation-request-async")).content]
    assert done == "[COMPLETED] User provided the requested information!"
    assert inputs == "User inputs:\n- Name: Ann\n- Agreed to terms: false"
    assert '"agreeToTerms": false' in raw


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("decline", "[DECLINED] User declined to provide the requested information."),
        ("cancel", "[CANCELLED] User cancelled the elicitation dialog."),
    ],
)
async def test_what_else_the_user_does_is_told(action: Any, told: str) -> None:
    async with able(answers=lambda question: ElicitResult(action=action)) as client:
        assert (await call(client, "trigger-elicitation-request-async")).content[0].text == told


def test_a_task_of_the_client_that_failed_is_told() -> None:
    def fail(question: t.ElicitRequestParams) -> Any:
        raise RequestFailed("there is no screen")

    async def main() -> str:
        async with able(answers=fail) as client:
            return str((await call(client, "trigger-elicitation-request-async")).text)

    told = _TASK_ID.sub("Task created: ID", run_async(main()))
    reason = "there is no screen"
    assert told == f"[FAILED] {reason}\n\nProgress:\nTask created: ID\nPoll 1: failed - {reason}"


async def test_the_length_of_an_answer_has_bounds() -> None:
    async with able() as client:
        with pytest.raises(ToolError, match="maxTokens must be a whole number from 1"):
            await call(client, "trigger-sampling-request-async", prompt="x", maxTokens=0)
