# ruff: noqa: D103 (the name of a test is the claim it makes)
"""Tests of the server with a page, in memory: as a host that shows pages, and as one that does not."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from examples.weather_app.server import PANEL, make_server
from trunkline import Client, ToolError

ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
NOON = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)


def connect(**options: Any) -> Client:
    """Connect a client to a server whose clock stands still."""
    return Client(make_server(lambda: NOON), **options)


@ERAS
def test_a_host_that_shows_pages_reads_the_page_of_the_tool(revision: str) -> None:
    async def main() -> None:
        async with connect(revision=revision, apps=True) as client:
            page = await client.read_app("show_weather")
            again = await client.call_tool("refresh_weather", {"city": "Oslo"})
        assert page.uri == PANEL
        assert page.html.startswith("<!doctype html>")
        assert page.declared.prefers_border
        assert "connect-src 'none'" in page.content_security_policy
        assert again.data["at"] == "12:30 UTC"

    asyncio.run(main())


@ERAS
def test_another_host_gets_one_tool_and_text(revision: str) -> None:
    async def main() -> None:
        async with connect(revision=revision) as client:
            tools = await client.list_tools()
            shown = await client.call_tool("show_weather", {"city": " Oslo "})
        assert [(tool.name, tool.meta) for tool in tools] == [("show_weather", None)]
        assert '"city":"Oslo"' in shown.text
        assert [day["day"] for day in shown.data["days"]] == ["Monday", "Tuesday", "Wednesday"]

    asyncio.run(main())


def test_a_name_that_is_none_is_an_error_for_the_model() -> None:
    async def main() -> None:
        async with connect() as client:
            await client.call_tool("show_weather", {"city": "  "})

    with pytest.raises(ToolError, match="Pass the name of a city"):
        asyncio.run(main())
