"""The GitHub server over its double, with a client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from examples.code_review.github_double import GitHubDouble
from servers.tests.over_http import texts
from trunkline import Client
from trunkline_servers.github import make_server

__all__ = ["PROJECT", "SECRET", "Stage", "staged"]

SECRET = "github_pat_only_for_tests"
PROJECT: dict[str, Any] = {"owner": "acme", "repo": "project"}


class Stage(NamedTuple):
    """A client of the server, and the double behind it."""

    client: Client
    double: GitHubDouble

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool on acme/project; gives the value of its first text."""
        result = await self.client.call_tool(tool, {**PROJECT, **arguments})
        return json.loads(texts(result)[0])

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Call a tool on acme/project that must refuse; gives what it says."""
        result = await self.client.call_tool(tool, {**PROJECT, **arguments}, raise_on_error=False)
        assert result.is_error
        return texts(result)[0]


@asynccontextmanager
async def staged(
    *, token: str | None = SECRET, client: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Stage]:
    """Run the double and the server; settings are the server's."""
    double = GitHubDouble(token=SECRET)
    async with (
        double.running() as url,
        Client(make_server(token=token, api_url=url, **settings), **(client or {})) as connected,
    ):
        yield Stage(connected, double)
