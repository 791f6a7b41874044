"""Each cell of the page "Questions across eras": a real server, a real gateway and a real client of given revisions.

The cells are in ``question_table``, from which the tables of the page are made.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.question_table import CASES, ERAS, KINDS, PAGE, SERVER, Case, Kind, lacks, redrawn, works
from tests.host.gateway.questioner import make
from tests.host.gateway.support import CELLS, NEW, OLD, allow, audit_entries, fronted, on_stage, served
from tests.interaction.wire import Wire
from tests.transports.http.serving_support import running
from trunkline import Client, RequestFailed
from trunkline.protocol.revisions import REVISION_NAMES

ROOT = Path(__file__).parents[3]


class Person:
    """The user and the model in front of the gateway: answer everything, and keep what they were shown."""

    def __init__(self) -> None:
        self.saw: list[str | None] = []

    def options(self, *without: str) -> dict[str, Any]:
        """Return the options of a client that can be asked everything, without some of them."""
        whole = {
            "elicitation": self.elicit,
            "elicitation_urls": True,
            "sampling": self.sample,
            "sampling_tools": True,
            "roots": self.roots,
        }
        return {name: option for name, option in whole.items() if name not in without}

    def elicit(self, question: t.ElicitRequestParams) -> t.ElicitResult:
        """Do with a form what its message says, and open every page."""
        if question.mode == "url":
            self.saw.append(f"{question.message} {question.url}")
            return t.ElicitResult(action="accept")
        self.saw.append(question.message)
        action: Any = question.message.split()[-1]
        return t.ElicitResult(action=action, content={"value": "Ada"} if action == "accept" else None)

    def sample(self, question: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        """Answer a request for a model: call its tool if there is one, and report what the tool returned."""
        self.saw.append(question.system_prompt)
        last = question.messages[-1].content
        results = [block for block in last if isinstance(block, t.ToolResultContent)] if isinstance(last, list) else []
        if results:
            return _said(t.TextContent(text=f"There is {results[0].content[0].text}"))  # type: ignore[union-attr]
        if question.tools:
            return _said(t.ToolUseContent(id="1", name=question.tools[0].name, input={"city": "Oslo"}))
        return _said(t.TextContent(text="four"))

    def roots(self) -> list[str]:
        """List the folders."""
        self.saw.append("roots")
        return ["file:///work"]


def _said(block: t.TextContent | t.ToolUseContent) -> t.CreateMessageResult:
    return t.CreateMessageResult(role="assistant", content=block, model="small")


async def _call(client: Client, case: Case) -> str:
    """Call the tool of a case; return its text, or the error."""
    try:
        return (await client.call_tool(f"{SERVER}__{case.tool}", case.arguments, raise_on_error=False)).text
    except RequestFailed as error:
        return str(error)


def _judged(trail: Path) -> set[tuple[str, str, str, str]]:
    """Return the questions in the audit trail: their server, their method, and what the policy decided."""
    notes = [entry for entry in audit_entries(trail) if entry["stage"] == "note"]
    return {(entry["server"], entry["name"], entry["effect"], entry["by"]) for entry in notes}


def _pairs(servers: Iterable[str]) -> pytest.MarkDecorator:
    """Run a test with every revision in front of some servers."""
    pairs = [
        pytest.param(client, server, id=f"{client} in front of {server}")
        for client, server in product(REVISION_NAMES, servers)
    ]
    return pytest.mark.parametrize(("channel", "upstream"), pairs)


#: One case of each kind.
FIRST = {case.kind: case for case in reversed(CASES)}


def _expected_error(kind: Kind, server: str) -> str:
    """Return what an error has to name: what the server's revision lacks, or the capability that the client lacks."""
    if lacks(kind, server):
        return f"Protocol revision {server} {kind.named}"
    return f"did not declare the capability '{re.escape(kind.capability)}'"


# --- every cell ------------------------------------------------------------------------------------------------------


@_pairs(REVISION_NAMES)
async def test_a_question_reaches_the_client_if_both_revisions_have_it_and_else_an_error_names_what_is_missing(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    person, trail = Person(), tmp_path / "audit.jsonl"
    working = [case for case in CASES if works(KINDS[case.kind], channel, upstream)]
    lacking = [case for case in FIRST.values() if case not in working]
    async with on_stage({SERVER: make(upstream)}, tmp_path, audit=trail) as stage:
        async with stage.client(channel, **person.options()) as client:
            # Once a server has asked for the roots, a stateless client is asked for them with every call.
            errors = {case.kind: await _call(client, case) for case in lacking}
            results = {case.id: await _call(client, case) for case in working}
        assert stage.parked == 0
    assert results == {case.id: case.result for case in working}
    assert person.saw == [shown for case in working for shown in case.shown]
    unexpected = {
        kind: error for kind, error in errors.items() if not re.search(_expected_error(KINDS[kind], upstream), error)
    }
    assert unexpected == {}
    assert _judged(trail) == {(SERVER, KINDS[case.kind].method, "ask", "policy") for case in working}


# --- the four pairs of eras ------------------------------------------------------------------------------------------


@CELLS
async def test_a_client_without_the_capability_gets_an_error_that_names_it(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    person, errors = Person(), {}
    async with on_stage({SERVER: make(upstream)}, tmp_path) as stage:
        for name, kind in KINDS.items():
            async with stage.client(channel, **person.options(*kind.options)) as client:
                errors[name] = await _call(client, FIRST[name])
    assert person.saw == []
    assert [
        name
        for name, kind in KINDS.items()
        if f"did not declare the capability '{kind.capability}'" not in errors[name]
    ] == []


@CELLS
async def test_the_policy_decides_before_anyone_is_asked(channel: str, upstream: str, tmp_path: Path) -> None:
    person, trail = Person(), tmp_path / "audit.jsonl"
    policy = allow(SERVER, more='[[rule]]\neffect = "deny"\nkind = ["elicitation", "sampling", "roots"]\n')
    options = {"policy": policy, "audit": trail, **person.options()}
    async with fronted({SERVER: make(upstream)}, tmp_path, channel, **options) as client:
        refusals = {name: await _call(client, FIRST[name]) for name in KINDS}
    assert {name: text for name, text in refusals.items() if not re.search("decline|not allow", text)} == {}
    assert person.saw == []
    assert _judged(trail) == {(SERVER, kind.method, "deny", "policy") for kind in KINDS.values()}


@CELLS
async def test_one_call_may_ask_questions_of_every_kind(channel: str, upstream: str, tmp_path: Path) -> None:
    person, tools = Person(), ("one_after_another", "all_at_once")
    async with fronted({SERVER: make(upstream)}, tmp_path, channel, **person.options()) as client:
        texts = [(await client.call_tool(f"{SERVER}__{tool}")).text for tool in tools]
    assert texts == ["accept Ada / accept / small: four / file:///work"] * 2
    assert len(person.saw) == 8


# --- over processes and sockets --------------------------------------------------------------------------------------


@asynccontextmanager
async def _entry(kind: str, revision: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the entry of a server that is a process, or of one at a URL, which runs inside the block."""
    if kind == "process":
        variables = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        yield {
            "command": sys.executable,
            "args": ["-m", "tests.host.gateway.questioner", revision],
            "env": variables,
        }
    else:
        async with running(make(revision).asgi()) as web:
            yield {"url": f"{web.url}/mcp"}


@pytest.mark.parametrize(
    ("kind", "channel", "upstream"),
    [("process", OLD, NEW), ("process", NEW, OLD), ("url", OLD, OLD), ("url", NEW, OLD), ("url", NEW, NEW)],
)
async def test_the_answers_of_a_client_over_http_reach_a_server_outside(
    kind: str, channel: str, upstream: str, tmp_path: Path
) -> None:
    person, trail = Person(), tmp_path / "audit.jsonl"
    async with (
        _entry(kind, upstream) as entry,
        served({SERVER: entry}, tmp_path, audit=trail) as web,
        web.client(channel, **person.options()) as client,
    ):
        assert [await _call(client, case) for case in CASES] == [case.result for case in CASES]
        assert web.host.status()[0].era == upstream
    assert person.saw == [shown for case in CASES for shown in case.shown]
    assert _judged(trail) == {(SERVER, kind.method, "ask", "policy") for kind in KINDS.values()}


# --- what leaves for the client --------------------------------------------------------------------------------------

EVERYTHING: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
TEXT = {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "small"}
TOOL_USE = {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Oslo"}}
ANSWERS: Mapping[str, Any] = {
    "elicitation/create": lambda asked: {"action": "accept", "content": {"value": "Ada"}},
    "sampling/createMessage": lambda asked: TEXT if len(asked["messages"]) > 1 else {**TEXT, "content": [TOOL_USE]},
    "roots/list": {"roots": [{"uri": "file:///work"}]},
}


@asynccontextmanager
async def _raw_client(
    channel: str, upstream: str, folder: Path, capabilities: Mapping[str, Any] = EVERYTHING
) -> AsyncIterator[Callable[[Case], Awaitable[Any]]]:
    """Open a raw client in front of a gateway; yield a function that calls the tool of a case and answers questions."""
    async with (
        on_stage({SERVER: make(upstream)}, folder) as stage,
        Wire("memory", channel).open(stage.gateway, capabilities=capabilities) as peer,
    ):
        yield lambda case: peer.converse_tool(f"{SERVER}__{case.tool}", ANSWERS, **case.arguments)


@_pairs(ERAS.values())
async def test_a_question_leaves_in_the_form_of_the_clients_revision_if_that_has_it(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    # A client may declare more than its revision has: some programs declare all that they know in every revision.
    # Every message that came is held against the schema of the revision when the conversation ends.
    async with _raw_client(channel, upstream, tmp_path) as converse:
        talks = {name: await converse(FIRST[name]) for name in KINDS}
    asked = {name: {question["method"] for question in talk.questions} for name, talk in talks.items()}
    assert asked == {name: set() if lacks(kind, channel) else {kind.method} for name, kind in KINDS.items()}
    unnamed = [
        name
        for name, kind in KINDS.items()
        if lacks(kind, channel) and kind.capability not in json.dumps(talks[name].answer)
    ]
    failed = [name for name, kind in KINDS.items() if not lacks(kind, channel) and talks[name].result.get("isError")]
    assert (unnamed, failed) == ([], [])


@CELLS
async def test_a_missing_capability_is_an_error_in_the_form_of_the_clients_revision(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    async with _raw_client(channel, upstream, tmp_path, {}) as converse:
        talks = {name: await converse(FIRST[name]) for name in KINDS}
    if channel == OLD:
        # As from a server of that era: no revision with a handshake has the error, and the model can read the reason.
        assert all(talk.result["isError"] for talk in talks.values())
        texts = {name: talk.result["content"][0]["text"] for name, talk in talks.items()}
        assert [name for name, kind in KINDS.items() if kind.capability not in texts[name]] == []
    elif upstream == NEW:
        assert {talk.answer["error"]["code"] for talk in talks.values()} == {-32021}


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_tables_of_the_page_are_those_of_the_cells() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert redrawn(page) == page, "run: python -m tests.host.gateway.question_table"
