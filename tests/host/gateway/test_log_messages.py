"""Log messages of a server go to the client whose call they belong to: as it asked for, or as its era has it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.support import CELLS, NEW, OLD, PAIRS, UPSTREAMS, Stage, fronted, on_stage, server, until
from trunkline import Client, Context, Server


def talker(revision: str) -> Server:
    """Make a server that logs while it works."""
    made = server("talker", revision)

    @made.tool
    async def say(ctx: Context, word: str) -> str:
        """Log at three levels."""
        await ctx.debug(f"{word} debug")
        await ctx.info(f"{word} info")
        await asyncio.sleep(0)
        await ctx.error(f"{word} error")
        return word

    return made


class Ear:
    """Hears log messages."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []

    def __call__(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params["data"]["msg"] if isinstance(params["data"], dict) else params["data"]))

    @property
    def texts(self) -> list[object]:
        assert {method for method, _ in self.heard} <= {"notifications/message"}
        return [text for _, text in self.heard]


async def _say(
    stage: Stage, channel: str, word: str, level: t.LoggingLevel | None = None, **options: Any
) -> list[object]:
    """Call the tool as a client that asks for a level, or for none; return what it heard."""
    ear = Ear()
    async with stage.client(channel, on_notification=ear, **options) as client:
        if level is not None:
            await client.set_logging_level(level)
        await client.call_tool("t__say", {"word": word})
    return ear.texts


LEVELS: dict[t.LoggingLevel, list[object]] = {
    "debug": ["a debug", "a info", "a error"],
    "info": ["a info", "a error"],
    "error": ["a error"],
    "critical": [],
}


@CELLS
@pytest.mark.parametrize("asking", [False, True], ids=["plain", "may be asked"])
async def test_a_client_hears_what_it_asked_for(channel: str, upstream: str, asking: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"elicitation": lambda _: "x"} if asking else {}
    async with on_stage({"t": talker(upstream)}, tmp_path) as stage:
        assert {level: await _say(stage, channel, "a", level, **options) for level in LEVELS} == LEVELS


@UPSTREAMS
@pytest.mark.parametrize("asking", [False, True], ids=["plain", "may be asked"])
async def test_a_handshake_client_hears_what_it_would_hear_without_the_gateway(
    upstream: str, asking: bool, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"elicitation": lambda _: "x"} if asking else {}
    made, direct = talker(upstream), Ear()
    async with Client(talker(OLD), revision=OLD, on_notification=direct) as client:
        await client.call_tool("say", {"word": "a"})
    async with on_stage({"t": made}, tmp_path) as stage:
        through = await _say(stage, OLD, "a", **options)
        assert sum(len(session.connections) for session in stage.gateway.core.sessions) == 0 or asking
    assert through == direct.texts == ["a info", "a error"]


async def test_a_stateless_client_does_not_change_what_others_on_the_connection_receive(tmp_path: Path) -> None:
    ear = Ear()
    async with (
        on_stage({"t": talker(OLD)}, tmp_path) as stage,
        stage.client(OLD, on_notification=ear) as old,
        stage.client(NEW) as new,
    ):
        await old.call_tool("t__say", {"word": "mine"})
        await new.call_tool("t__say", {"word": "theirs"})
    assert ear.texts == ["mine info", "mine error"]


async def test_clients_receive_no_log_messages_of_other_clients_calls(tmp_path: Path) -> None:
    made, both = server("both", OLD), asyncio.Barrier(2)

    @made.tool
    async def say(ctx: Context, word: str) -> str:
        """Log while another call is under way."""
        await both.wait()
        await ctx.info(f"{word} info")
        await both.wait()
        return word

    ears = [Ear(), Ear()]
    async with (
        on_stage({"t": made}, tmp_path) as stage,
        stage.client(OLD, on_notification=ears[0]) as one,
        stage.client(OLD, on_notification=ears[1]) as two,
    ):
        await asyncio.gather(one.call_tool("t__say", {"word": "one"}), two.call_tool("t__say", {"word": "two"}))
    # A handshake server does not say for whose call it logs, so what could be the other's is sent to neither.
    assert [ear.texts for ear in ears] == [[], []]


@pytest.mark.parametrize("asking", [False, True], ids=["shared connection", "own connection"])
async def test_what_a_server_logs_between_calls_reaches_the_only_client(asking: bool, tmp_path: Path) -> None:
    made = server("late", OLD)
    go_on = asyncio.Event()

    @made.tool
    async def later(ctx: Context) -> str:
        """Log after the answer."""
        connection = ctx._exchange.connection

        async def log() -> None:
            await go_on.wait()
            params = t.LoggingMessageNotificationParams(level="notice", data="late")
            connection.notify("notifications/message", params)

        made.logging_task = asyncio.create_task(log())  # type: ignore[attr-defined]
        return ""

    ear = Ear()
    options: dict[str, Any] = {"elicitation": lambda _: "x"} if asking else {}
    async with fronted({"t": made}, tmp_path, OLD, on_notification=ear, **options) as client:
        await client.call_tool("t__later")
        go_on.set()
        await until(lambda: ear.heard)
    assert ear.texts == ["late"]


@PAIRS
async def test_clients_hear_of_their_own_calls_alone(channel: str, upstream: str, tmp_path: Path) -> None:
    async with on_stage({"t": talker(upstream)}, tmp_path) as stage:
        heard = await asyncio.gather(
            *(_say(stage, channel, f"w{number}", "info") for number in range(5)), _say(stage, channel, "quiet")
        )
    unasked = ["quiet info", "quiet error"] if channel == OLD else []
    assert heard == [*([f"w{number} info", f"w{number} error"] for number in range(5)), unasked]


@UPSTREAMS
async def test_a_program_hears_log_messages(upstream: str, tmp_path: Path) -> None:
    heard: list[t.LoggingLevel] = []
    async with on_stage(
        {"t": talker(upstream)}, tmp_path, logging=lambda message: heard.append(message.level)
    ) as stage:
        await stage.host.call_tool("t/say", {"word": "a"})
    assert heard == ["info", "error"]
