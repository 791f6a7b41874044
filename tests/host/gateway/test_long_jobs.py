"""Each cell of the page "Long jobs": a real server, a real gateway and a raw client of given revisions."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.long_job_table import CELLS, CLIENTS, DIRECT_CELLS, PAGE, SERVERS, Cell, DirectCell, redrawn
from tests.host.gateway.long_jobs import ASKED, DIGGING, FOUND, Caller, Site, capabilities_of, make_caller
from tests.host.gateway.support import Stage, allow, audit_entries, on_stage, until
from tests.interaction.wire import Peer, Wire
from trunkline.extensions import TaskSettings
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.protocol.revisions import uses_handshake

SOON = 0.01
EACH_CLIENT = pytest.mark.parametrize(("client", "way"), CLIENTS, ids=[f"{way} in {name}" for name, way in CLIENTS])
#: A client for each form of a job that outlives its request.
OUTLIVING = pytest.mark.parametrize(
    ("client", "way"), [("2025-11-25", "task"), ("2026-07-28", "task"), ("2025-06-18", "poll"), ("2026-07-28", "poll")]
)


def _options(way: str, after: float = SOON) -> GatewayOptions:
    return GatewayOptions(slow_calls="poll" if way == "poll" else "hold", task_after=after)


class Sites:
    """A server of each revision behind a gateway with an audit trail, and the cells of one client in front of it."""

    def __init__(self, client: str, way: str, folder: Path) -> None:
        self.by_revision = {revision: Site(revision) for revision in SERVERS}
        self.cells = [cell for cell in CELLS if (cell.client, cell.way) == (client, way)]
        self.wire, self.capabilities = Wire("memory", client), capabilities_of(way, client)
        self.folder, self.trail = folder, folder / "audit.jsonl"

    def on_stage(self, after: float = SOON, **options: Any) -> AbstractAsyncContextManager[Stage]:
        """Open the gateway; the calls of clients that poll become jobs after so many seconds."""
        servers = {_name(revision): site.server for revision, site in self.by_revision.items()}
        gateway = _options(self.cells[0].way, after)
        return on_stage(servers, self.folder, **{"audit": self.trail, "gateway": gateway, **options})

    def connect(self, stage: Stage) -> AbstractAsyncContextManager[Peer]:
        """Connect the client."""
        return self.wire.open(stage.gateway, capabilities=self.capabilities)

    def caller(self, cell: Cell, peer: Peer) -> tuple[Site, Caller]:
        """Return the caller of the tool of a cell, and the site where its job will wait to go on."""
        site = self.by_revision[cell.server]
        for event in (site.begun, site.go, site.cancelled):
            event.clear()
        return site, make_caller(cell.way, peer, f"{_name(cell.server)}__{cell.kind}")

    def acts(self) -> list[tuple[str, str | None]]:
        """Return the stages of calls in the audit trail, and how those ended."""
        stages = [(entry["stage"], entry.get("outcome")) for entry in audit_entries(self.trail)]
        return [stage for stage in stages if stage[0] in ("begun", "ended")]

    async def until_acts(self, count: int) -> None:
        """Wait until so many stages were recorded."""
        await until(lambda: len(self.acts()) == count)


def _name(revision: str) -> str:
    return f"site-{revision}"


@EACH_CLIENT
async def test_a_client_gets_the_result_of_each_long_job_in_its_own_way(client: str, way: str, tmp_path: Path) -> None:
    sites, outcomes = Sites(client, way, tmp_path), {}
    async with sites.on_stage() as stage:
        for cell in sites.cells:
            async with sites.connect(stage) as peer:
                outcomes[cell.id] = await _outcome(*sites.caller(cell, peer))
    # The oldest revisions have no message beside the progress of a held call.
    status = DIGGING if way == "plain" else f"1/2: {DIGGING}"
    assert outcomes == {cell.id: (status, FOUND, [True], cell.upstream == "task") for cell in sites.cells}
    one_call: list[Any] = [("begun", None), ("ended", "asked")] * (sites.cells[0].rounds - 1)
    assert sites.acts() == [*one_call, ("begun", None), ("ended", "ok")] * len(sites.cells)


async def _outcome(site: Site, caller: Caller) -> tuple[str, str, list[bool], bool]:
    """Have a job done; return its status, its text, whether its one question was asked, and whether it was a task."""
    tasks = await site.tasks()
    await caller.start()
    status = await caller.status()
    site.go.set()
    result = await caller.finish()
    assert not result.get("isError"), result
    asked = [ASKED in json.dumps(question) for question in caller.questions]
    return status, result["content"][0]["text"], asked, await site.tasks() > tasks


@EACH_CLIENT
async def test_cancelling_a_long_job_reaches_the_handler_at_the_server(client: str, way: str, tmp_path: Path) -> None:
    sites = Sites(client, way, tmp_path)
    # A client that polls can cancel its call for as long as it waits.
    async with sites.on_stage(60.0 if way == "poll" else SOON) as stage, sites.connect(stage) as peer:
        for number, cell in enumerate(sites.cells, 1):
            site, caller = sites.caller(cell, peer)
            await caller.start()
            await site.begun.wait()
            await caller.cancel()
            await site.cancelled.wait()
            await sites.until_acts(2 * number)
            assert caller.questions == [], cell.id
    assert sites.acts() == [("begun", None), ("ended", "cancelled")] * len(sites.cells)


# --- a server alone --------------------------------------------------------------------------------------------------


def _direct(way: str) -> TaskSettings:
    return TaskSettings(slow_calls="poll" if way == "poll" else "hold", poll_after=SOON)


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.id) for cell in DIRECT_CELLS if cell.error is None])
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


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.id) for cell in DIRECT_CELLS if cell.error is not None])
async def test_a_server_alone_refuses_what_its_tool_does_not_do(cell: DirectCell) -> None:
    site, capabilities = Site(tasks=_direct(cell.way)), capabilities_of(cell.way, cell.client)
    wanted: dict[str, Any] = {"task": {}} if cell.way == "task" and uses_handshake(cell.client) else {}
    async with Wire("memory", cell.client).open(site.server, capabilities=capabilities) as peer:
        error = await peer.error("tools/call", {"name": cell.kind, "arguments": {}, **wanted})
    assert error["code"] == cell.error
    assert not site.begun.is_set()


# --- what holds for jobs beside the cells ----------------------------------------------------------------------------


@OUTLIVING
async def test_a_job_goes_on_when_its_client_leaves_and_comes_back(client: str, way: str, tmp_path: Path) -> None:
    sites, texts = Sites(client, way, tmp_path), []
    async with sites.on_stage() as stage:
        for cell in sites.cells:
            async with sites.connect(stage) as first:
                site, caller = sites.caller(cell, first)
                await caller.start()
                await caller.status()
            site.go.set()
            async with sites.connect(stage) as caller.peer:
                texts.append((await caller.finish())["content"][0]["text"])
    assert texts == [FOUND] * len(sites.cells)
    assert sites.acts() == [("begun", None), ("ended", "ok")] * len(sites.cells)


@pytest.mark.parametrize(
    ("client", "server", "kind"),
    [("2025-06-18", "2026-07-28", "optional"), ("2026-07-28", "2025-11-25", "required")],
)
async def test_a_held_call_of_a_slow_tool_is_kept_alive_while_its_server_is_silent(
    client: str, server: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.server.tasks.exchange._SILENCE_SECONDS", 0.05)
    sites = Sites(client, "plain", tmp_path)
    async with sites.on_stage() as stage, sites.connect(stage) as peer:
        site, caller = sites.caller(Cell(client, "plain", server, kind), peer)
        await caller.start()
        seen = [await peer.notice("notifications/progress") for _ in range(4)]
        site.go.set()
        await caller.finish()
        seen += peer.notices("notifications/progress")[4:]
    steps = [each["progress"] for each in seen]
    assert steps == sorted(set(steps))
    assert any("still running" in each.get("message", "") for each in seen)


@pytest.mark.parametrize(
    ("client", "way", "server"),
    [
        ("2025-11-25", "task", "2026-07-28"),
        ("2026-07-28", "task", "2025-11-25"),
        ("2026-07-28", "plain", "2026-07-28"),
    ],
)
async def test_a_question_of_a_task_is_subject_to_the_rules_like_any_other(
    client: str, way: str, server: str, tmp_path: Path
) -> None:
    sites = Sites(client, way, tmp_path)
    rules = allow(_name(server), more=f'[[rule]]\neffect = "deny"\nserver = "{_name(server)}"\nkind = "elicitation"\n')
    async with sites.on_stage(policy=rules) as stage, sites.connect(stage) as peer:
        site, caller = sites.caller(Cell(client, way, server, "required"), peer)
        await caller.start()
        site.go.set()
        result = await caller.finish()
    assert caller.questions == []
    assert "garden" not in json.dumps(result)


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_tables_of_the_page_are_those_of_the_cells() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert redrawn(page) == page, "run: python -m tests.host.gateway.long_job_table"
