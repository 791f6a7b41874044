"""Servers set up as the seeds show them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trunkline import Server
from trunkline.types import TextContent

__all__ = ["example_server", "filesystem_server", "github_server", "search_server", "weather_server"]


def weather_server() -> Server:
    """The weather server of the whole dialogue."""
    server = Server("example-weather-server", version="1.0.0")

    @server.tool(
        name="com.example.weather/current",
        title="Get Current Weather",
        description="Get the current weather for a specific location",
    )
    async def current(
        location: Annotated[str, Meta(description="The city and state/country")],
        units: Literal["metric", "imperial"] = "metric",
    ) -> TextContent:
        temperature, speed = ("72°F", "8 mph") if units == "imperial" else ("22°C", "13 km/h")
        sky = f"partly cloudy with light winds from the west at {speed}"
        return TextContent(text=f"Current weather in {location}: {temperature}, {sky}. Humidity: 65%")

    @server.resource("weather://stations")
    async def stations() -> str:
        """List the stations that measure."""
        return "KSFO"

    return server


def example_server() -> Server:
    """The server of the first handshake: something of everything, and a log."""
    server = Server("ExampleServer", version="0.1.0")

    @server.tool
    async def capital(country: str) -> str:
        """Name the capital of a country."""
        return {"France": "Paris"}.get(country, "unknown")

    @server.prompt
    async def ask(topic: str) -> str:
        """Ask about a topic."""
        return f"What do you know about {topic}?"

    @server.resource("note://one")
    async def note() -> str:
        """A note."""
        return "one"

    return server


def filesystem_server(version: str = "1.0.0") -> Server:
    """The file server of the code review."""
    server = Server("filesystem-server", version=version)

    @server.tool(description="Read file contents")
    async def read_file(path: str) -> TextContent:
        return TextContent(text="File contents here...")

    @server.tool(description="List directory contents")
    async def list_directory(path: str = ".") -> TextContent:
        return TextContent(text="src")

    @server.resource("file:///README.md")
    async def readme() -> str:
        """Tell what the project is."""
        return "# Project"

    @server.prompt
    async def review(path: str) -> str:
        """Review a file."""
        return f"Review {path}."

    return server


def github_server() -> Server:
    """The GitHub server of the code review."""
    server = Server("github-server", version="2.1.0")

    @server.tool(description="Fetch pull request details")
    async def get_pull_request(owner: str, repo: str, pr_number: float) -> TextContent:
        return TextContent(text=f"{owner}/{repo}#{pr_number:g}")

    @server.tool(description="Post review comment on PR")
    async def post_review_comment(
        owner: str, repo: str, pr_number: float, body: str, path: str = "", line: float = 0
    ) -> TextContent:
        return TextContent(text=f"{path}:{line:g} {body}")

    return server


def search_server() -> Server:
    """The server of the message forms."""
    server = Server("forms", version="1.0.0")

    @server.tool(description="Search")
    async def search(query: str) -> TextContent:
        return TextContent(text="Search results...")

    @server.tool(description="Read file contents")
    async def read_file(path: str) -> TextContent:
        return TextContent(text="File contents here...")

    return server
