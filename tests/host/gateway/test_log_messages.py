"""Log messages of a server go to the client whose call they belong to, if it asked for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.support import CELLS, UPSTREAMS, Stage, in_loop, on_stage, server
from trunkline import Context, Server


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


async def _say(stage: Stage, front: str, word: str, level: t.LoggingLevel, **options: Any) -> list[object]:
    ear = Ear()
    async with stage.client(front, on_notification=ear, **options) as client:
        await client.set_logging_level(level)
        await client.call_tool("t__say", {"word": word})
    return ear.texts


async def _say_unasked(stage: Stage, front: str, word: str) -> list[object]:
    ear = Ear()
    async with stage.client(front, on_notification=ear) as client:
        await client.call_tool("t__say", {"word": word})
    return ear.texts


@CELLS
@pytest.mark.parametrize("asking", [False, True], ids=["plain", "may be asked"])
@pytest.mark.parametrize(
    ("level", "expected"),
    [
        pytest.param("debug", ["a debug", "a info", "a error"], id="debug"),
        pytest.param("info", ["a info", "a error"], id="info"),
        pytest.param("error", ["a error"], id="error"),
        pytest.param("critical", [], id="critical"),
    ],
)
@in_loop
async def test_a_client_hears_what_it_asked_for(
    front: str, upstream: str, level: t.LoggingLevel, expected: list[str], asking: bool, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"elicitation": lambda _: "x"} if asking else {}
    async with on_stage({"t": talker(upstream)}, tmp_path) as stage:
        assert await _say(stage, front, "a", level, **options) == expected


@CELLS
@in_loop
async def test_a_client_that_did_not_ask_hears_nothing(front: str, upstream: str, tmp_path: Path) -> None:
    async with on_stage({"t": talker(upstream)}, tmp_path) as stage:
        assert await _say_unasked(stage, front, "a") == []


@CELLS
@in_loop
async def test_clients_hear_of_their_own_calls_alone(front: str, upstream: str, tmp_path: Path) -> None:
    async with on_stage({"t": talker(upstream)}, tmp_path) as stage:
        heard = await asyncio.gather(
            *(_say(stage, front, f"w{number}", "info") for number in range(5)), _say_unasked(stage, front, "quiet")
        )
    assert heard == [*([f"w{number} info", f"w{number} error"] for number in range(5)), []]


@UPSTREAMS
@in_loop
async def test_a_program_hears_log_messages(upstream: str, tmp_path: Path) -> None:
    heard: list[t.LoggingLevel] = []
    async with on_stage(
        {"t": talker(upstream)}, tmp_path, logging=lambda message: heard.append(message.level)
    ) as stage:
        await stage.host.call_tool("t/say", {"word": "a"})
    assert heard == ["info", "error"]
