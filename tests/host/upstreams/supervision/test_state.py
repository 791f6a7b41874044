"""The states of a server: only the moves in the table happen, whatever happens to the server."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.scripted_server import DIE, Fail, handshake_server, settle
from tests.host.supervised import Stage, scripted, supervising
from tests.support import run_async
from trunkline.errors import LocalProtocolError, TrunklineError
from trunkline.host.config.model import ServerEntry, Source
from trunkline.host.events import ServerState, ServerStateChanged
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.supervision.state import TRANSITIONS, UNAVAILABLE_STATES, UpstreamState

ENTRY = ServerEntry(name="a", source=Source("given"), command=("x",), secrets=frozenset({"hunter22"}))
TOOLS = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}


class Told:
    def __init__(self, entry: ServerEntry = ENTRY) -> None:
        self.moves: list[ServerStateChanged] = []
        self.offers = 0
        self.condition = UpstreamState(entry, now=lambda: 5.0, on_move=self.moves.append, on_offering=self._offered)

    def _offered(self) -> None:
        self.offers += 1


def test_a_transition_is_published() -> None:
    told = Told()
    told.condition.transition_to("starting")
    told.condition.transition_to("waiting", "it ended")
    assert told.moves == [ServerStateChanged("a", "starting"), ServerStateChanged("a", "waiting", "it ended")]


def test_a_move_that_is_not_in_the_table_raises() -> None:
    with pytest.raises(LocalProtocolError, match="from 'known' to 'ready'"):
        Told().condition.transition_to("ready")


def test_an_unchanged_state_is_published_only_with_another_reason() -> None:
    told = Told()
    told.condition.transition_to("known")
    told.condition.transition_to("known", "starts when it is used")
    assert told.moves == [ServerStateChanged("a", "known", "starts when it is used")]


@pytest.mark.parametrize("state", sorted(UNAVAILABLE_STATES))
def test_what_cannot_be_used_offers_nothing(state: ServerState) -> None:
    told = Told()
    told.condition.offer(Offering(revision="r", capabilities={}))
    told.condition.state = "starting"
    told.condition.transition_to(state) if state in TRANSITIONS["starting"] else None
    assert (told.condition.offering is None) is (state in TRANSITIONS["starting"])


def test_only_the_end_of_stderr_is_kept_and_no_secret_of_it() -> None:
    condition = Told().condition
    condition.append_stderr(b"x" * 100_000 + b"\nthe token is hunter22\n")
    assert condition.stderr_tail().endswith("the token is ***")
    assert len(condition.stderr_tail()) < 9000
    condition.clear_stderr()
    assert condition.stderr_tail() == ""


# --- any order of things

STEPS = st.sampled_from(
    [
        "restart",
        "stop",
        "reach",
        "call",
        "die",
        "storm",
        "new",
        "good",
        "bad",
        "dead",
        "second",
        "minute",
        "ten minutes",
    ]
)


@settings(max_examples=30)
@given(
    steps=st.lists(STEPS, max_size=25),
    lazy=st.booleans(),
    idle=st.sampled_from([None, 30.0]),
    trust=st.lists(st.booleans(), max_size=5),
)
def test_only_moves_of_the_table_happen_whatever_happens(
    steps: list[str], lazy: bool, idle: float | None, trust: list[bool]
) -> None:
    async def main() -> list[ServerStateChanged]:
        answers = iter(trust)

        async def trusts(entry: ServerEntry) -> tuple[bool, str | None]:
            await asyncio.sleep(0)
            return next(answers, True), "no"

        server = handshake_server({"tools/list": TOOLS, "tools/call": {"content": []}}, tools={"listChanged": True})
        options: dict[str, Any] = {"idle_stop": idle, "start": "lazy" if lazy else "eager", "era": "handshake"}
        async with supervising({"a": scripted("a", server, **options)}, trust=trusts) as stage:
            for step in steps:
                await _do(step, stage, server)
        await settle()
        assert len(asyncio.all_tasks()) == 1
        return stage.events.kept

    moves = run_async(main())
    states = [move.state for move in moves]
    wrong = [pair for pair in itertools.pairwise(states) if pair[0] != pair[1] and pair[1] not in TRANSITIONS[pair[0]]]
    assert wrong == []
    assert [move.reason for move in moves if "internal error" in (move.reason or "")] == []
    assert states[-1] == "stopped"


async def _do(step: str, stage: Stage, server: Any) -> None:
    upstream = stage.upstream()
    orders = {"restart": upstream.restart, "stop": upstream.stop, "reach": upstream.connected_client}
    if step in orders:
        await _bounded(orders[step](), stage)
    elif step == "call":
        server.table["tools/call"] = DIE
        with_client = asyncio.ensure_future(_call(upstream))
        await settle()
        with_client.cancel()
        server.table["tools/call"] = {"content": []}
    elif step == "die" and server.stages:
        server.stage.die()
    elif step == "storm" and server.stages and not server.stage.ended:
        server.stage.say("notifications/tools/list_changed")
    elif step == "new":
        await stage.supervisor.apply({"a": upstream.entry})
    tables = {
        "good": {"tools/list": TOOLS},
        "bad": {"tools/list": Fail(-32603)},
        "dead": {"tools/list": DIE},
    }
    server.table.update(tables.get(step, {}))
    await stage.pass_time({"second": 1.0, "minute": 61.0, "ten minutes": 600.0}.get(step, 0.0), steps=3)


async def _bounded(work: Any, stage: Stage) -> None:
    task = asyncio.ensure_future(work)
    for _ in range(40):
        await settle()
        if task.done():
            break
        stage.clock.advance(1.0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None or isinstance(task.exception(), TrunklineError)


async def _call(upstream: Any) -> None:
    with upstream.track_call():
        client = await upstream.connected_client()
        await client.call_tool("add")
