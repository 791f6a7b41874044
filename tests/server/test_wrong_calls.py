"""The corpus of wrong calls: what a caller is told is enough to correct all of it at once."""

from __future__ import annotations

from typing import Any

from benchmarks.wrong_calls import TOOLS, measure
from trunkline import Client, Server


async def test_every_wrong_call_of_the_corpus_is_right_at_the_second_try() -> None:
    async with Client(Server("s", tools=list(TOOLS))) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> str | None:
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            return result.text if result.is_error else None

        figures = await measure(call)
    assert (figures["calls"], figures["more"], figures["needless"]) == (60, 0, 0)
    assert figures["round_trips"] <= 107
