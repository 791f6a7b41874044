"""Each cell of the page "Long jobs": a real server, a real gateway and a raw client of given revisions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.long_job_table import (
    CELLS,
    DIRECT_CELLS,
    KINDS,
    PAGE,
    SERVERS,
    Cell,
    DirectCell,
    redrawn,
)
from tests.host.gateway.long_jobs import ASKED, DIGGING, FOUND, Site, capabilities_of, make_caller
from tests.host.gateway.support import allow, on_stage, quiet, until
from tests.interaction.wire import Wire
from trunkline.extensions import TaskSettings
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.protocol.revisions import REVISION_NAMES, uses_handshake

SERVER = "site"
SOON = 0.01
EACH_CELL = pytest.mark.parametrize("cell", [pytest.param(each, id=each.id) for each in CELLS])


def _options(way: str, after: float = SOON) -> GatewayOptions:
    return GatewayOptions(slow_calls="poll" if way == "poll" else "hold", task_after=after)


def _acts(trail: Path) -> list[tuple[str, str | None]]:
    """Return the stages of calls in the audit trail, and how those ended."""
    entries = [json.loads(line) for line in trail.read_text(encoding="utf-8").splitlines()]
    return [(entry["stage"], entry.get("outcome")) for entry in entries if entry["stage"] in ("begun", "ended")]


@EACH_CELL
async def test_a_client_gets_the_result_of_a_long_job_in_its_own_way(cell: Cell, tmp_path: Path) -> None:
    site, trail = Site(cell.server), tmp_path / "audit.jsonl"
    async with (
        on_stage({SERVER: site.server}, tmp_path, audit=trail, gateway=_options(cell.way)) as stage,
        Wire("memory", cell.client).open(stage.gateway, capabilities=capabilities_of(cell.way, cell.client)) as peer,
    ):
        caller = make_caller(cell.way, peer, f"{SERVER}__{cell.kind}")
        await caller.start()
        assert DIGGING in await caller.status()
        site.go.set()
        result = await caller.finish()
    assert result["content"][0]["text"] == FOUND
    assert not result.get("isError")
    assert [ASKED in json.dumps(question) for question in caller.questions] == [True]
    assert await site.tasks() == (cell.upstream == "task")
    asked: list[tuple[str, Any]] = [("begun", None), ("ended", "asked")] * (cell.rounds - 1)
    assert _acts(trail) == [*asked, ("begun", None), ("ended", "ok")]


@EACH_CELL
async def test_cancelling_a_long_job_reaches_the_handler_at_the_server(cell: Cell, tmp_path: Path) -> None:
    site, trail = Site(cell.server), tmp_path / "audit.jsonl"
    # A client that polls can cancel its call for as long as it waits.
    after = 60.0 if cell.way == "poll" else SOON
    async with (
        on_stage({SERVER: site.server}, tmp_path, audit=trail, gateway=_options(cell.way, after)) as stage,
        Wire("memory", cell.client).open(stage.gateway, capabilities=capabilities_of(cell.way, cell.client)) as peer,
    ):
        caller = make_caller(cell.way, peer, f"{SERVER}__{cell.kind}")
        await caller.start()
        await site.begun.wait()
        await caller.cancel()
        await site.cancelled.wait()
        await until(lambda: len(_acts(trail)) > 1)
    assert _acts(trail) == [("begun", None), ("ended", "cancelled")]
    assert caller.questions == []


# --- a server alone --------------------------------------------------------------------------------------------------


def _direct(way: str, after: float = SOON) -> TaskSettings:
    return TaskSettings(slow_calls="poll" if way == "poll" else "hold", poll_after=after)


@pytest.mark.parametrize("cell", [pytest.param(each, id=each.id) for each in DIRECT_CELLS if each.error is None])
async def test_a_server_alone_does_a_long_job_in_the_way_of_its_client(cell: DirectCell) -> None:
    site = Site(tasks=_direct(cell.way))
    capabilities = capabilities_of(cell.way, cell.client)
    async with Wire("memory", cell.client).open(site.server, capabilities=capabilities) as peer:
        caller = make_caller(cell.form, peer, cell.kind)
        await caller.start()
        assert DIGGING in await caller.status()
        site.go.set()
        result = await caller.finish()
    assert result["content"][0]["text"] == FOUND
    assert [ASKED in json.dumps(question) for question in caller.questions] == [True]


@pytest.mark.parametrize("cell", [pytest.param(each, id=each.id) for each in DIRECT_CELLS if each.error is None])
async def test_cancelling_a_long_job_of_a_server_alone_reaches_its_handler(cell: DirectCell) -> None:
    site = Site(tasks=_direct(cell.way, 60.0 if cell.way == "poll" else SOON))
    capabilities = capabilities_of(cell.way, cell.client)
    async with Wire("memory", cell.client).open(site.server, capabilities=capabilities) as peer:
        caller = make_caller(cell.form, peer, cell.kind)
        await caller.start()
        await site.begun.wait()
        await caller.cancel()
        await site.cancelled.wait()
    assert caller.questions == []


@pytest.mark.parametrize("cell", [pytest.param(each, id=each.id) for each in DIRECT_CELLS if each.error is not None])
async def test_a_server_alone_refuses_what_its_tool_does_not_do(cell: DirectCell) -> None:
    site = Site(tasks=_direct(cell.way))
    wanted: dict[str, Any] = {"task": {}} if cell.way == "task" and uses_handshake(cell.client) else {}
    async with Wire("memory", cell.client).open(
        site.server, capabilities=capabilities_of(cell.way, cell.client)
    ) as peer:
        error = await peer.error("tools/call", {"name": cell.kind, "arguments": {}, **wanted})
    assert error["code"] == cell.error
    assert not site.begun.is_set()


# --- what holds for jobs beside the cells ----------------------------------------------------------------------------

#: A client for each form of a job that outlives its request.
OUTLIVING = [("2025-11-25", "task"), ("2026-07-28", "task"), ("2025-06-18", "poll"), ("2026-07-28", "poll")]
TOOLS = [("2025-06-18", "never"), ("2025-11-25", "optional"), ("2025-11-25", "required"), ("2026-07-28", "optional")]


def _cells(clients: Sequence[tuple[str, str]], tools: Sequence[tuple[str, str]]) -> pytest.MarkDecorator:
    cells = [Cell(client, way, server, kind) for client, way in clients for server, kind in tools]
    return pytest.mark.parametrize("cell", [pytest.param(each, id=each.id) for each in cells])


@_cells(OUTLIVING, TOOLS)
async def test_a_job_goes_on_when_its_client_leaves_and_comes_back(cell: Cell, tmp_path: Path) -> None:
    site, trail = Site(cell.server), tmp_path / "audit.jsonl"
    wire, capabilities = Wire("memory", cell.client), capabilities_of(cell.way, cell.client)
    async with on_stage({SERVER: site.server}, tmp_path, audit=trail, gateway=_options(cell.way)) as stage:
        async with wire.open(stage.gateway, capabilities=capabilities) as first:
            caller = make_caller(cell.way, first, f"{SERVER}__{cell.kind}")
            await caller.start()
            await caller.status()
        await quiet()
        site.go.set()
        async with wire.open(stage.gateway, capabilities=capabilities) as caller.peer:
            result = await caller.finish()
    assert result["content"][0]["text"] == FOUND
    assert _acts(trail) == [("begun", None), ("ended", "ok")]


@_cells([("2025-11-25", "task"), ("2026-07-28", "task"), ("2025-06-18", "poll")], TOOLS)
async def test_the_status_of_a_job_is_what_the_server_says(cell: Cell, tmp_path: Path) -> None:
    site = Site(cell.server)
    async with (
        on_stage({SERVER: site.server}, tmp_path, gateway=_options(cell.way)) as stage,
        Wire("memory", cell.client).open(stage.gateway, capabilities=capabilities_of(cell.way, cell.client)) as peer,
    ):
        caller = make_caller(cell.way, peer, f"{SERVER}__{cell.kind}")
        await caller.start()
        assert await caller.status() == "1/2: digging"


@_cells([("2025-06-18", "plain"), ("2026-07-28", "plain")], TOOLS[1:])
async def test_a_held_call_of_a_slow_tool_is_kept_alive_while_its_server_is_silent(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.extensions.tasks.keep_alive._SILENCE_SECONDS", 0.05)
    site = Site(cell.server)
    async with (
        on_stage({SERVER: site.server}, tmp_path, gateway=_options(cell.way)) as stage,
        Wire("memory", cell.client).open(stage.gateway, capabilities=capabilities_of(cell.way, cell.client)) as peer,
    ):
        caller = make_caller(cell.way, peer, f"{SERVER}__{cell.kind}")
        await caller.start()
        seen = [await peer.notice("notifications/progress") for _ in range(4)]
        site.go.set()
        await caller.finish()
        seen += peer.notices("notifications/progress")[4:]
    steps = [each["progress"] for each in seen]
    assert steps == sorted(set(steps))
    assert any("still running" in each.get("message", "") for each in seen)


@_cells(
    [("2025-11-25", "task"), ("2026-07-28", "task"), ("2026-07-28", "plain")],
    [("2025-11-25", "required"), ("2026-07-28", "required")],
)
async def test_a_question_of_a_task_is_subject_to_the_rules_like_any_other(cell: Cell, tmp_path: Path) -> None:
    site = Site(cell.server)
    rules = allow(SERVER, more=f'[[rule]]\neffect = "deny"\nserver = "{SERVER}"\nkind = "elicitation"\n')
    capabilities = capabilities_of(cell.way, cell.client)
    async with (
        on_stage({SERVER: site.server}, tmp_path, policy=rules, gateway=_options(cell.way)) as stage,
        Wire("memory", cell.client).open(stage.gateway, capabilities=capabilities) as peer,
    ):
        caller = make_caller(cell.way, peer, f"{SERVER}__{cell.kind}")
        await caller.start()
        site.go.set()
        result = await caller.finish()
    assert caller.questions == []
    assert "garden" not in json.dumps(result)


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_tables_of_the_page_are_those_of_the_cells() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert redrawn(page) == page, "run: python -m tests.host.gateway.long_job_table"


def test_every_cell_has_a_test() -> None:
    ways = [(client, way) for client in REVISION_NAMES for way in ("task", "plain", "poll")]
    # Revisions before the first with tasks have none to ask for.
    clients = [pair for pair in ways if pair[1] != "task" or pair[0] in ("2025-11-25", "2026-07-28")]
    assert {(each.client, each.way, each.server, each.kind) for each in CELLS} == {
        (*client, server, kind) for client in clients for server in SERVERS for kind in KINDS
    }
    assert {(each.client, each.way, each.kind) for each in DIRECT_CELLS} == {
        (*client, kind) for client in clients for kind in KINDS
    }
