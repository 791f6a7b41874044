"""Every example does what it says, in both eras."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from examples.both_eras import server as pizzeria
from examples.composition.server import geo
from examples.composition.server import server as travel
from examples.dependencies.server import server as notes
from examples.generator.server import server as storyteller
from examples.hello.server import server as hello
from examples.middleware.server import server as guarded
from tests.support import run_async
from trunkline import Client, RequestFailed
from trunkline.types import ElicitRequestParams

EXAMPLES = Path(__file__).parents[2] / "examples"


#: The servers that need neither a port nor settings.
PROGRAMS = (
    *("both_eras", "composition", "dependencies", "generator", "hello"),
    *("middleware", "pydantic_models", "weather", "weather_app"),
)
each_era = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_example_runs_as_a_program_and_lists_its_tools(name: str) -> None:
    async with Client(EXAMPLES / name / "server.py") as client:
        assert await client.list_tools()


@each_era
async def test_hello_greets(revision: str) -> None:
    async with Client(hello, revision=revision) as client:
        assert (await client.call_tool("greet", {"name": "Ada", "times": 2})).data == "hello Ada, hello Ada"


async def _order_a_pizza(question: ElicitRequestParams) -> object:
    return {
        "Which size?": {"size": "large", "pieces": 2},
        "Topping 1?": "cheese",
        "Topping 2?": "olives",
        "Your name?": "Ada",
        "Which floor?": 3,
    }[question.message]


@each_era
def test_one_handler_asks_in_loops_and_side_by_side_and_charges_once(
    revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    charges: list[str] = []
    monkeypatch.setattr(pizzeria, "charges", charges)

    async def main() -> str:
        async with Client(pizzeria.server, revision=revision, elicitation=_order_a_pizza) as client:
            return (await client.call_tool("order")).text

    assert run_async(main()) == "2 large with cheese and olives for Ada, floor 3, receipt R-1"
    assert charges == ["2 large"]


@each_era
async def test_what_is_mounted_is_offered_under_its_namespace(revision: str) -> None:
    async with Client(travel, revision=revision) as client:
        assert {tool.name for tool in await client.list_tools()} == {"plan", "geo_distance"}
        assert (await client.call_tool("geo_distance", {"start": "A", "end": "B"})).data == "A to B: far"
        assert [each.uri for each in await client.list_resources()] == ["places://geo/capitals"]


async def test_what_is_added_to_a_mounted_server_appears_in_the_parent() -> None:
    async def later() -> str:
        """Come later."""
        return "late"

    async with Client(travel) as client, client.listen(tools=True) as changes:
        geo.add_tool(later)
        await anext(changes)
        assert (await client.call_tool("geo_later")).data == "late"
        geo.remove_tool("later")


@each_era
def test_middleware_refuses_and_measures(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Client(guarded, revision=revision) as client:
            assert (await client.call_tool("read", {"path": "a"})).data == "the note a"
            with pytest.raises(RequestFailed, match="switched off") as refused:
                await client.call_tool("delete", {"path": "a"})
            assert refused.value.code == -32001

    with caplog.at_level(logging.INFO, logger="example"):
        run_async(main())
    assert sum("tools/call took" in line for line in caplog.messages) == 2


@each_era
async def test_a_dependency_is_hidden_from_clients_and_given_to_the_tool(revision: str) -> None:
    async with Client(notes, revision=revision) as client:
        tool = next(each for each in await client.list_tools() if each.name == "add_note")
        assert list(tool.input_schema["properties"]) == ["text"]
        assert (await client.call_tool("add_note", {"text": "one"})).data == 1
        assert (await client.call_tool("list_notes")).data == ["one"]


@each_era
def test_a_generator_sends_each_piece_and_joins_them(revision: str) -> None:
    pieces: list[str | None] = []

    async def main() -> str:
        async with Client(storyteller, revision=revision) as client:
            told = await client.call_tool(
                "story", {"sentences": 2}, on_progress=lambda done, total, text: pieces.append(text)
            )
            return told.text

    assert run_async(main()) == "This is sentence 1. This is sentence 2. "
    assert pieces == ["This is sentence 1. ", "This is sentence 2. "]


@each_era
async def test_pydantic_models_are_arguments_results_and_forms(revision: str) -> None:
    people = pytest.importorskip("examples.pydantic_models.server", reason="pydantic is the user's")

    async with Client(people.server, revision=revision, elicitation=lambda _: {"phone": "+47 1"}) as client:
        made = await client.call_tool("card", {"person": {"name": "Ada", "age": 36}})
        assert made.data == {"line": "Ada, 36", "adult": True}
        assert (await client.call_tool("ask_contact")).data == "+47 1"


def test_the_examples_wait_for_nobody_after_their_input_ends() -> None:
    async def main() -> int | None:
        import sys

        program = [sys.executable, str(EXAMPLES / "hello" / "server.py")]
        process = await asyncio.create_subprocess_exec(*program, stdin=asyncio.subprocess.DEVNULL)
        return await process.wait()

    assert run_async(main()) == 0
