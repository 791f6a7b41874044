"""A weather server that uses most features of MCP, with invented weather.

Start it over stdio with ``python examples/weather/server.py``, or let a client start it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from trunkline import Context, ResourceNotFound, Server
from trunkline.types import TextContent

server = Server(
    "example-weather-server",
    version="1.0.0",
    title="Example weather",
    instructions="Ask for one place at a time.",
)

SKIES = {"Oslo": "snow", "Paris": "rain", "San Francisco": "partly cloudy", "Seville": "clear sky"}


@dataclass
class Trip:
    """The form for planning a trip."""

    destination: Annotated[str, Meta(description="The city you go to")]
    days: Annotated[int, Meta(ge=1, le=14, description="How many days you stay")] = 3


@server.tool(
    name="com.example.weather/current",
    title="Get Current Weather",
    description="Get the current weather for a specific location",
)
async def current(
    location: Annotated[str, Meta(description="The city and state/country")],
    units: Literal["metric", "imperial"] = "metric",
) -> TextContent:
    """Return the weather as text."""
    temperature, wind = ("72°F", "8 mph") if units == "imperial" else ("22°C", "13 km/h")
    sky = f"partly cloudy with light winds from the west at {wind}"
    return TextContent(text=f"Current weather in {location}: {temperature}, {sky}. Humidity: 65%")


@server.tool
async def forecast(
    ctx: Context, location: str, days: Annotated[int, Meta(ge=1, description="How many days to look ahead")] = 3
) -> dict[str, str]:
    """Forecast the weather, a day at a time; reports progress."""
    sky = SKIES.get(location, "mixed")
    found: dict[str, str] = {}
    for day in range(1, days + 1):
        await asyncio.sleep(0.05)
        found[f"day {day}"] = sky
        await ctx.report_progress(day, days, f"day {day}: {sky}")
    return found


@server.tool
async def plan_trip(ctx: Context) -> str:
    """Plan a trip: asks the user where to and, if it may rain there, about an umbrella."""
    trip = await ctx.elicit("Where do you want to go?", Trip)
    if not trip.accepted:
        return "No trip, then."
    sky = SKIES.get(trip.data.destination, "mixed")
    plan = f"{trip.data.days} days in {trip.data.destination} ({sky})"
    if sky == "clear sky":
        return f"{plan}. Take a hat."
    umbrella = await ctx.elicit("It may be wet. Take an umbrella?", bool)
    return f"{plan}, {'with' if umbrella.data else 'without'} an umbrella."


@server.tool
async def describe(location: str, ctx: Context) -> str:
    """Describe the weather in the words of the client's own model."""
    sky = SKIES.get(location, "mixed")
    answer = await ctx.sample(f"Say in one short sentence: {location} has {sky}.", max_tokens=60)
    return answer.text


@server.tool
async def watch_storms(on: bool) -> TextContent:
    """Turn storm watching on or off; while it is on, there is one more tool."""
    watching = "storm_warnings" in server.registry.tools
    if on and not watching:
        server.add_tool(storm_warnings)
    if watching and not on:
        server.remove_tool("storm_warnings")
    return TextContent(text=f"Storm watching is {'on' if on else 'off'}.")


async def storm_warnings() -> list[str]:
    """List the storms that are coming."""
    return ["Gale over the North Sea", "Thunder near Paris"]


@server.resource("weather://stations", mime_type="application/json")
async def stations() -> list[str]:
    """List the cities with a station."""
    return sorted(SKIES)


@server.resource("weather://{city}/today", mime_type="text/plain")
async def today(city: str) -> str:
    """Return today's weather in a city."""
    if city not in SKIES:
        raise ResourceNotFound(f"There is no station in {city}.")
    return f"{city}: {SKIES[city]}"


@server.completion("weather://{city}/today", "city")
async def complete_city(value: str) -> list[str]:
    """Return the cities that begin with the typed text."""
    return [city for city in sorted(SKIES) if city.lower().startswith(value.lower())]


@server.prompt
async def packing_list(city: str, days: int = 3) -> str:
    """Ask a model for a packing list."""
    return f"What should I pack for {days} days in {city}? Expect {SKIES.get(city, 'mixed weather')}."


if __name__ == "__main__":
    server.run()
