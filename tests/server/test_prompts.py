"""Prompts: how they are listed and made."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import ERAS, STATELESS, reach
from trunkline import Server


def serving(function: Any, **options: Any) -> Server:
    server = Server("s")
    server.add_prompt(function, **{"name": "p", **options})
    return server


@ERAS
async def test_a_prompt_is_listed_with_its_arguments(revision: str) -> None:
    def p(city: str, days: int = 3) -> str:
        """Plan a trip.

        Args:
            city: Where to.
            days: How long.
        """
        return city

    icon = t.Icon(src="https://example.com/i.png")
    server = serving(p, title="Trip", icons=[icon], meta={"a": 1}, tags=["x"])
    async with reach(server, revision) as peer:
        listed = (await peer.result("prompts/list"))["prompts"]
    assert listed == [
        {
            "name": "p",
            "title": "Trip",
            "description": "Plan a trip.",
            "arguments": [
                {"name": "city", "description": "Where to.", "required": True},
                {"name": "days", "description": "How long."},
            ],
            "icons": [{"src": "https://example.com/i.png"}],
            "_meta": {"a": 1},
        }
    ]


async def test_a_number_in_text_becomes_a_number() -> None:
    def p(days: int) -> str:
        return f"{days + 1}"

    async with reach(serving(p), STATELESS) as peer:
        await peer.result("prompts/list")
        result = await peer.result("prompts/get", {"name": "p", "arguments": {"days": "3"}})
    assert result["messages"][0]["content"]["text"] == "4"


@ERAS
@pytest.mark.parametrize(
    "arguments", [{}, {"days": "many"}, {"days": "1", "dais": "2"}], ids=["missing", "wrong", "unknown"]
)
async def test_wrong_arguments_are_rejected(revision: str, arguments: dict[str, str]) -> None:
    def p(days: int) -> str:
        return "never"

    async with reach(serving(p), revision) as peer:
        error = await peer.error("prompts/get", {"name": "p", "arguments": arguments})
    assert (error["code"], "prompt 'p'" in error["message"], "da" in error["message"]) == (-32602, True, True)


@ERAS
async def test_a_whole_result_passes_through(revision: str) -> None:
    whole = t.GetPromptResult(
        description="d", messages=[t.PromptMessage(role="assistant", content=t.TextContent(text="x"))]
    )
    async with reach(serving(lambda: whole), revision) as peer:
        result = await peer.result("prompts/get", {"name": "p"})
    assert (result["description"], result["messages"][0]["role"]) == ("d", "assistant")


@ERAS
async def test_a_prompt_of_no_messages_is_a_fault_that_is_logged(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reach(serving(lambda: object()), revision) as peer:
        error = await peer.error("prompts/get", {"name": "p"})
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert "prompts/get failed" in caplog.text
