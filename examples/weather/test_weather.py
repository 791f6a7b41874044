# ruff: noqa: D103 (the name of a test is the claim it makes)
"""The test of the weather server and its client: no process, no port, every protocol revision."""

import asyncio

import pytest

from examples.weather import client as weather_client
from examples.weather.server import server
from trunkline import Client
from trunkline.types import ElicitRequestParams, ResourceTemplateReference

ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


async def answer(question: ElicitRequestParams) -> object:
    """Fill in what the tool asks for, as a user would."""
    return {"destination": "Paris", "days": 2} if "go?" in question.message else {"value": True}


@ERAS
def test_the_weather_is_told_in_the_units_asked_for(revision: str) -> None:
    async def main() -> None:
        async with Client(server, revision=revision) as client:
            arguments = {"location": "San Francisco", "units": "imperial"}
            result = await client.call_tool("com.example.weather/current", arguments)
            assert "72°F" in result.text

    asyncio.run(main())


@ERAS
def test_a_trip_is_planned_from_the_users_answers(revision: str) -> None:
    async def main() -> None:
        async with Client(server, revision=revision, elicitation=answer) as client:
            result = await client.call_tool("plan_trip")
            assert result.data == "2 days in Paris (rain), with an umbrella."

    asyncio.run(main())


@ERAS
def test_a_forecast_reports_each_day(revision: str) -> None:
    seen: list[tuple[float, float | None]] = []

    async def main() -> None:
        async with Client(server, revision=revision) as client:
            arguments = {"location": "Oslo", "days": 3}
            await client.call_tool("forecast", arguments, on_progress=lambda done, total, _: seen.append((done, total)))

    asyncio.run(main())
    assert seen == [(1, 3), (2, 3), (3, 3)]


@ERAS
def test_the_model_of_the_client_describes_the_weather(revision: str) -> None:
    async def main() -> None:
        async with Client(server, revision=revision, sampling=lambda _: "Oslo lies under snow.") as client:
            result = await client.call_tool("describe", {"location": "Oslo"})
            assert result.data == "Oslo lies under snow."

    asyncio.run(main())


@ERAS
def test_a_tool_comes_and_goes(revision: str) -> None:
    async def main() -> None:
        async with Client(server, revision=revision) as client, client.listen(tools=True) as changes:
            await client.call_tool("watch_storms", {"on": True})
            assert (await anext(changes)).kind == "tools"
            assert "storm_warnings" in [tool.name for tool in await client.list_tools()]
            await client.call_tool("watch_storms", {"on": False})
            assert (await anext(changes)).kind == "tools"
            assert "storm_warnings" not in [tool.name for tool in await client.list_tools()]

    asyncio.run(main())


def test_a_city_is_completed_and_its_resource_read() -> None:
    async def main() -> None:
        async with Client(server) as client:
            ref = ResourceTemplateReference(uri="weather://{city}/today")
            found = await client.complete(ref, {"name": "city", "value": "o"})
            assert found.values == ["Oslo"]
            (contents,) = await client.read_resource("weather://Oslo/today")
            assert contents.text == "Oslo: snow"

    asyncio.run(main())


def test_the_client_prints_the_weather(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(weather_client.main())
    assert capsys.readouterr().out.startswith("Current weather in San Francisco: 22°C")
