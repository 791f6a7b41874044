"""Servers that are processes and servers at URLs behave behind the gateway as those in memory do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.support import (
    NEW,
    OLD,
    PAIRS,
    Stage,
    again,
    asked,
    fronted,
    gone,
    on_stage,
    until,
)
from tests.host.gateway.workers.gateway_process import PROGRAM
from tests.host.gateway.workers.program import make
from tests.transports.http.serving_support import running
from trunkline import RequestFailed
from trunkline.protocol.revisions import uses_handshake

ROOT = Path(__file__).parents[3]
KINDS = pytest.mark.parametrize("kind", ["process", "url"])


def _era(revision: str) -> str:
    return "handshake" if uses_handshake(revision) else "stateless"


def process(revision: str, **settings: Any) -> dict[str, Any]:
    """Make the entry of a server process."""
    return {
        "command": sys.executable,
        "args": [str(PROGRAM), "p", _era(revision)],
        "env": {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        **settings,
    }


@asynccontextmanager
async def behind(kind: str, revision: str, folder: Path) -> AsyncIterator[Stage]:
    """Put a server of a kind behind a gateway."""
    if kind == "process":
        async with on_stage({"p": process(revision)}, folder) as stage:
            yield stage
    else:
        async with (
            running(make("p", _era(revision)).asgi()) as web,
            on_stage({"p": {"url": f"{web.url}/mcp"}}, folder) as stage,
        ):
            yield stage


@PAIRS
@KINDS
async def test_calls_questions_progress_and_log_messages_cross(
    channel: str, upstream: str, kind: str, tmp_path: Path
) -> None:
    progress: list[float] = []
    logged: list[str] = []
    async with (
        behind(kind, upstream, tmp_path) as stage,
        stage.client(
            channel,
            elicitation=lambda _: "Ada",
            logging=lambda message: logged.append(message.level),
            log_level="info",
        ) as client,
    ):
        assert (await client.call_tool("p__ask")).data == "hello Ada"
        assert (await client.read_resource("note://p/1"))[0].text == "note 0"
        counted = await client.call_tool(
            "p__count", {"steps": 3}, on_progress=lambda done, total, text: progress.append(done)
        )
    assert (counted.data, progress, logged) == (3, [1, 2, 3], ["info"] * 3)


async def test_sessions_that_may_be_asked_have_processes_of_their_own_that_end_with_the_gateway(tmp_path: Path) -> None:
    async with (
        on_stage({"p": process(OLD)}, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda _: "x") as one,
        stage.client(OLD, elicitation=lambda _: "x") as two,
        stage.client(OLD) as three,
        stage.client(OLD) as four,
    ):
        pids = [(await client.call_tool("p__pid")).data for client in (one, two, three, four, one)]
    assert len({*pids[:3]}) == 3
    assert (pids[2], pids[0]) == (pids[3], pids[4])
    assert all(map(gone, pids))


async def test_a_process_that_dies_fails_what_was_parked_there_and_nothing_else(tmp_path: Path) -> None:
    async with fronted({"p": process(OLD), "q": make("q", "handshake")}, tmp_path, elicitation=lambda _: "x") as client:
        pid = (await client.call_tool("p__pid")).data
        params, question = await asked(client, "p__ask")
        other, elsewhere = await asked(client, "q__ask")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RequestFailed, match="'p'"):
            await client.forward("tools/call", again(params, question, "Ada"))
        result, _ = await client.forward("tools/call", again(other, elsewhere, "Bea"))
        assert result.content[0].text == "hello Bea"
        again_there = (await client.call_tool("p__pid")).data
    assert again_there != pid


async def test_a_process_that_dies_while_it_works_fails_the_call_at_once(tmp_path: Path) -> None:
    async with on_stage({"p": process(NEW)}, tmp_path) as stage, stage.client() as client:
        pid = (await client.call_tool("p__pid")).data
        call = asyncio.create_task(client.call_tool("p__wait"))
        await until(lambda: stage.gateway.core.router.on_shared(stage.gateway.core.upstream("p")))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RequestFailed, match="'p'"):
            await call
        await until(lambda: stage.host.status()[0].state == "ready")
        assert (await client.call_tool("p__pid")).data != pid


async def test_what_a_server_wrote_to_its_stderr_stays_with_the_host(tmp_path: Path) -> None:
    entry = process(NEW)
    entry["args"] = ["-c", "import sys; sys.stderr.write('password=hunter2\\n'); sys.exit(3)"]
    async with (
        on_stage({"p": entry, "q": make("q", "stateless")}, tmp_path, wait_seconds=2.0) as stage,
        stage.client(NEW) as client,
    ):
        assert all(tool.name.startswith("q__") for tool in await client.list_tools())
        with pytest.raises(RequestFailed, match="Unknown tool") as refused:
            await client.call_tool("p__pid")
    assert "hunter2" not in str(refused.value)
