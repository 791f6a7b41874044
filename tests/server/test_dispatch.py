"""One connection of a server: cancelling, failing, ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.talk import ERAS, HANDSHAKE, STATELESS, reach, text
from trunkline import Context, Server
from trunkline.errors import PromptError

# --- failures of prompts and resources -------------------------------------------------------------------------------


async def _grouped(ctx: Context) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.elicit("a", str))
    return "asked"


async def _grouped_refusal() -> str:
    async def refuses() -> None:
        raise PromptError("not today")

    async with asyncio.TaskGroup() as group:
        group.create_task(refuses())
    return "never"


async def _grouped_fault() -> str:
    async def fails() -> None:
        raise ValueError("secret")

    async with asyncio.TaskGroup() as group:
        group.create_task(fails())
    return "never"


@pytest.mark.parametrize(
    ("function", "revision", "code", "words"),
    [
        pytest.param(_grouped, STATELESS, -32021, "elicitation", id="capability-stateless"),
        pytest.param(_grouped, HANDSHAKE, -32603, "elicitation", id="capability-handshake"),
        pytest.param(_grouped_refusal, STATELESS, -32603, "not today", id="on-purpose"),
        pytest.param(_grouped_fault, STATELESS, -32603, "Internal error", id="unexpected"),
    ],
)
async def test_an_exception_group_is_answered_with_the_error_meant_for_the_caller(
    function: Callable[..., Any], revision: str, code: int, words: str
) -> None:
    server = Server("s")
    server.add_prompt(function, name="p")
    async with reach(server, revision) as peer:
        error = await peer.error("prompts/get", {"name": "p"})
    assert (error["code"], words in error["message"]) == (code, True)


# --- what is not declared --------------------------------------------------------------------------------------------


@ERAS
async def test_definitions_registered_later_are_found(revision: str) -> None:
    server = Server("s")
    async with reach(server, revision) as peer:
        await peer.error("tools/list")
        server.add_tool(lambda: "x", name="f")
        assert text(await peer.call("f")) == "x"
