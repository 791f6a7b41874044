"""The Slack server over its double, with a client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from examples.code_review.slack_double import SlackDouble
from servers.tests.over_http import texts
from trunkline import Client
from trunkline_servers.slack import make_server

__all__ = ["SECRET", "Stage", "staged"]

SECRET = "xoxb-only-for-tests"


class Stage(NamedTuple):
    """A client of the server, and the double behind it."""

    client: Client
    double: SlackDouble

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool; gives the value of its first text."""
        return json.loads(texts(await self.client.call_tool(tool, arguments))[0])

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must refuse; gives what it says."""
        result = await self.client.call_tool(tool, arguments, raise_on_error=False)
        assert result.is_error
        return texts(result)[0]


@asynccontextmanager
async def staged(
    *, token: str | None = SECRET, client: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Stage]:
    """Run the double and the server; settings are the server's."""
    double = SlackDouble(token=SECRET)
    async with double.running() as url:
        server = make_server(token, **{"team_id": "T0ACME", "api_url": url, **settings})
        async with Client(server, **(client or {})) as connected:
            yield Stage(connected, double)
