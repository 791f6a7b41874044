"""Each cell of the page "Questions across eras": a real server, a real gateway and a real client of given revisions.

The cells are in ``question_table``, from which the tables of the page are made.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.question_table import CASES, ERAS, KINDS, PAGE, SERVER, Case, Kind, lacks, redrawn, works
from tests.host.gateway.questioner import WEB_PAGE, make
from tests.host.gateway.support import CELLS, NEW, OLD, allow, on_stage, over_http
from tests.interaction.wire import Wire
from tests.transports.http.serving_support import running
from trunkline import Client, RequestFailed
from trunkline.host.host import Host
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
    entries = [json.loads(line) for line in trail.read_text(encoding="utf-8").splitlines()]
    return {
        (entry["server"], entry["name"], entry["effect"], entry["by"]) for entry in entries if entry["stage"] == "note"
    }


def _pairs(*cells: tuple[Any, str, str], name: Any) -> list[Any]:
    return [
        pytest.param(what, client, server, id=f"{name(what)}, {client} in front of {server}")
        for what, client, server in cells
    ]


WORKING = [
    (case, client, server)
    for case, client, server in product(CASES, REVISION_NAMES, REVISION_NAMES)
    if works(KINDS[case.kind], client, server)
]
#: One case of each kind.
FIRST = {case.kind: case for case in reversed(CASES)}
LACKING = [
    (FIRST[name], client, server)
    for name, client, server in product(KINDS, REVISION_NAMES, REVISION_NAMES)
    if not works(KINDS[name], client, server)
]
EACH_KIND = pytest.mark.parametrize("case", [pytest.param(FIRST[name], id=name) for name in KINDS])


# --- every cell ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "channel", "upstream"), _pairs(*WORKING, name=lambda case: case.id))
async def test_the_answer_of_the_client_reaches_the_server(
    case: Case, channel: str, upstream: str, tmp_path: Path
) -> None:
    person, trail = Person(), tmp_path / "audit.jsonl"
    async with (
        on_stage({SERVER: make(upstream)}, tmp_path, audit=trail) as stage,
        stage.client(channel, **person.options()) as client,
    ):
        assert await _call(client, case) == case.result
        assert stage.parked == 0
    assert tuple(person.saw) == case.shown
    assert _judged(trail) == {(SERVER, KINDS[case.kind].method, "ask", "policy")}


def _expected_error(kind: Kind, server: str) -> str:
    """Return what an error has to name: what the server's revision lacks, or the capability that the client lacks."""
    if lacks(kind, server):
        return f"Protocol revision {server} {kind.named}"
    return f"did not declare the capability '{re.escape(kind.capability)}'"


@pytest.mark.parametrize(("case", "channel", "upstream"), _pairs(*LACKING, name=lambda case: case.kind))
async def test_a_question_that_a_revision_does_not_have_fails_with_an_error_that_names_it(
    case: Case, channel: str, upstream: str, tmp_path: Path
) -> None:
    person, trail = Person(), tmp_path / "audit.jsonl"
    async with (
        on_stage({SERVER: make(upstream)}, tmp_path, audit=trail) as stage,
        stage.client(channel, **person.options()) as client,
    ):
        assert re.search(_expected_error(KINDS[case.kind], upstream), await _call(client, case))
    assert person.saw == []
    assert _judged(trail) == set()


# --- the four pairs of eras ------------------------------------------------------------------------------------------


@CELLS
@EACH_KIND
async def test_a_client_without_the_capability_gets_an_error_that_names_it(
    case: Case, channel: str, upstream: str, tmp_path: Path
) -> None:
    kind, person = KINDS[case.kind], Person()
    async with (
        on_stage({SERVER: make(upstream)}, tmp_path) as stage,
        stage.client(channel, **person.options(*kind.options)) as client,
    ):
        assert f"did not declare the capability '{kind.capability}'" in await _call(client, case)
    assert person.saw == []


@CELLS
@EACH_KIND
async def test_the_policy_decides_before_anyone_is_asked(
    case: Case, channel: str, upstream: str, tmp_path: Path
) -> None:
    person, trail, method = Person(), tmp_path / "audit.jsonl", KINDS[case.kind].method
    policy = allow(SERVER, more=f'[[rule]]\neffect = "deny"\nkind = "{method.partition("/")[0]}"\n')
    async with (
        on_stage({SERVER: make(upstream)}, tmp_path, policy=policy, audit=trail) as stage,
        stage.client(channel, **person.options()) as client,
    ):
        assert re.search("decline|not allow", await _call(client, case))
    assert person.saw == []
    assert _judged(trail) == {(SERVER, method, "deny", "policy")}


@CELLS
@pytest.mark.parametrize("tool", ["one_after_another", "all_at_once"])
async def test_one_call_may_ask_questions_of_every_kind(tool: str, channel: str, upstream: str, tmp_path: Path) -> None:
    person = Person()
    async with (
        on_stage({SERVER: make(upstream)}, tmp_path) as stage,
        stage.client(channel, **person.options()) as client,
    ):
        assert (await client.call_tool(f"{SERVER}__{tool}")).text == "accept Ada / accept / small: four / file:///work"
    assert len(person.saw) == 4


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


@CELLS
@pytest.mark.parametrize("kind", ["process", "url"])
async def test_the_answers_of_a_client_over_http_reach_a_server_outside(
    kind: str, channel: str, upstream: str, tmp_path: Path
) -> None:
    person, trail = Person(), tmp_path / "audit.jsonl"
    async with (
        _entry(kind, upstream) as entry,
        Host.open({SERVER: entry}, folder=tmp_path, policy=allow(SERVER), audit=trail) as host,
        over_http(host) as web,
        web.client(channel, **person.options()) as client,
    ):
        assert [await _call(client, case) for case in CASES] == [case.result for case in CASES]
        assert host.status()[0].era == upstream
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
#: A client may declare more than its revision has: some programs declare all that they know in every revision.
OLDER = [
    (FIRST[name], client, server)
    for name, client, server in product(KINDS, REVISION_NAMES, ERAS.values())
    if lacks(KINDS[name], client)
]
NEWER = [
    (FIRST[name], client, server)
    for name, client, server in product(KINDS, REVISION_NAMES, ERAS.values())
    if not lacks(KINDS[name], client)
]


@pytest.mark.parametrize(("case", "channel", "upstream"), _pairs(*OLDER, name=lambda case: case.kind))
async def test_a_client_that_declares_more_than_its_revision_has_is_not_asked(
    case: Case, channel: str, upstream: str, tmp_path: Path
) -> None:
    async with (
        on_stage({SERVER: make(upstream)}, tmp_path) as stage,
        Wire("memory", channel).open(stage.gateway, capabilities=EVERYTHING) as peer,
    ):
        talk = await peer.converse_tool(f"{SERVER}__{case.tool}", ANSWERS, **case.arguments)
    assert talk.questions == []
    assert KINDS[case.kind].capability in json.dumps(talk.answer)


@CELLS
@EACH_KIND
async def test_a_missing_capability_is_an_error_in_the_form_of_the_clients_revision(
    case: Case, channel: str, upstream: str, tmp_path: Path
) -> None:
    async with (
        on_stage({SERVER: make(upstream)}, tmp_path) as stage,
        Wire("memory", channel).open(stage.gateway, capabilities={}) as peer,
    ):
        talk = await peer.converse_tool(f"{SERVER}__{case.tool}", ANSWERS, **case.arguments)
    if channel == OLD:
        # As from a server of that era: no revision with a handshake has the error, and the model can read the reason.
        assert talk.result["isError"]
        assert KINDS[case.kind].capability in talk.result["content"][0]["text"]
    elif upstream == NEW:
        assert talk.answer["error"]["code"] == -32021


@pytest.mark.parametrize(("case", "channel", "upstream"), _pairs(*NEWER, name=lambda case: case.kind))
async def test_a_question_leaves_in_the_form_of_the_clients_revision(
    case: Case, channel: str, upstream: str, tmp_path: Path
) -> None:
    # Every message that came is held against the schema of the revision when the conversation ends.
    async with (
        on_stage({SERVER: make(upstream)}, tmp_path) as stage,
        Wire("memory", channel).open(stage.gateway, capabilities=EVERYTHING) as peer,
    ):
        talk = await peer.converse_tool(f"{SERVER}__{case.tool}", ANSWERS, **case.arguments)
    assert {question["method"] for question in talk.questions} == {KINDS[case.kind].method}
    assert not talk.result.get("isError")


@CELLS
async def test_a_page_has_an_id_where_the_clients_revision_requires_one(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    async with (
        on_stage({SERVER: make(upstream)}, tmp_path) as stage,
        Wire("memory", channel).open(stage.gateway, capabilities=EVERYTHING) as peer,
    ):
        talk = await peer.converse_tool(f"{SERVER}__page", ANSWERS)
    (asked,) = [question["params"] for question in talk.questions]
    assert (asked["mode"], asked["url"], bool(asked.get("elicitationId"))) == ("url", WEB_PAGE, channel == OLD)


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_tables_of_the_page_are_those_of_the_cells() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert redrawn(page) == page, "run: python -m tests.host.gateway.question_table"


def test_every_cell_has_a_test() -> None:
    cells = {(case.kind, client, server) for case, client, server in [*WORKING, *LACKING]}
    assert cells == set(product(KINDS, REVISION_NAMES, REVISION_NAMES))
