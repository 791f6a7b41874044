# ruff: noqa: D103 (the name of a test is the claim it makes)
"""Tests of a server: ``Client(server)`` is the whole set-up. No process, no port, no mock.

Run it with ``pytest examples/testing``.
"""

import asyncio

import pytest

from trunkline import Client, Context, Server, ToolError
from trunkline.errors import RequestTimeout
from trunkline.testing import FakeClock

server = Server("calculator")


@server.tool
async def divide(dividend: float, divisor: float) -> float:
    """Divide one number by another."""
    if divisor == 0:
        raise ToolError("The divisor must not be zero.")
    return dividend / divisor


@server.tool
async def confirm(question: str, ctx: Context) -> bool:
    """Ask the user."""
    return (await ctx.elicit(question, bool)).data is True


@server.tool
async def hang() -> None:
    """Never answer."""
    await asyncio.Event().wait()


def test_a_quotient_comes_back_as_a_number() -> None:
    async def main() -> None:
        async with Client(server) as client:
            assert (await client.call_tool("divide", {"dividend": 1, "divisor": 8})).data == 0.125

    asyncio.run(main())


def test_division_by_zero_is_explained_to_the_model() -> None:
    async def main() -> None:
        async with Client(server) as client:
            with pytest.raises(ToolError, match="must not be zero"):
                await client.call_tool("divide", {"dividend": 1, "divisor": 0})

    asyncio.run(main())


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_the_user_is_asked_in_every_revision_that_has_the_question(revision: str) -> None:
    async def main() -> None:
        async with Client(server, revision=revision, elicitation=lambda question: {"value": True}) as client:
            assert (await client.call_tool("confirm", {"question": "Sure?"})).data is True

    asyncio.run(main())


def test_a_call_without_an_answer_times_out_and_no_test_waits_for_it() -> None:
    clock = FakeClock()

    async def main() -> None:
        async with Client(server, clock=clock, timeout=30) as client:
            call = asyncio.ensure_future(client.call_tool("hang"))
            await asyncio.sleep(0)
            clock.advance(31)
            with pytest.raises(RequestTimeout, match="30"):
                await call

    asyncio.run(main())
