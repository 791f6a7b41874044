"""A server with an extension of its own, as a process; a JSON file says what it declares and lists."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from trunkline import Context, Extension, Server

POLLS = "com.example/polls"
OPENED = "notifications/polls/opened"
CLOSED = "notifications/polls/closed"
SEEN = "notifications/polls/seen"


def polls(settings: dict[str, Any] | None = None, listed: list[dict[str, Any]] | None = None) -> Extension:
    """Define the extension: which methods list and use definitions, and how its notifications are judged."""
    extension = Extension(POLLS, server_settings=settings or {"most": 8}, client_settings={})
    seen: list[str] = []

    @extension.method("polls/list", act="resource", lists="polls", key="question")
    async def list_polls() -> dict[str, Any]:
        return {"polls": listed or []}

    @extension.method("polls/vote", act="tool", item="question")
    async def vote(ctx: Context, question: str) -> dict[str, Any]:
        await ctx.notify(OPENED, {"question": question})
        return {"voted": question}

    @extension.method("polls/seen", act="tool")
    async def have_seen() -> dict[str, Any]:
        return {"seen": seen}

    @extension.method("polls/flood", act="tool")
    async def flood(ctx: Context, times: int, size: int) -> dict[str, Any]:
        for number in range(times):
            await ctx.notify(OPENED, {"number": number, "text": "x" * size})
        return {}

    @extension.method("polls/about", act="tool")
    async def about(ctx: Context, uri: str) -> dict[str, Any]:
        await ctx.notify(CLOSED, {"uri": uri})
        return {}

    @extension.notification(OPENED, act="resource")
    def opened(params: dict[str, Any]) -> None:
        """Do nothing: tests look at what arrives."""

    @extension.notification(CLOSED, act="resource", target="uri", audience="all")
    def closed(params: dict[str, Any]) -> None:
        """Do nothing: tests look at what arrives."""

    @extension.notification("notifications/polls/private")
    def private(params: dict[str, Any]) -> None:
        """Do nothing: it has no act, so no gateway forwards it."""

    @extension.notification(SEEN, receiver="server", act="tool")
    def was_seen(question: str) -> None:
        seen.append(question)

    return extension


def server(
    settings: dict[str, Any] | None = None, listed: list[dict[str, Any]] | None = None, **options: Any
) -> Server:
    """Make a server with the extension and a resource."""
    made = Server("polls", extensions=[polls(settings, listed)], **options)

    @made.tool
    async def announce(ctx: Context) -> str:
        """Announce a poll from a tool."""
        await ctx.notify(OPENED, {"question": "Lunch?"})
        await ctx.notify("notifications/polls/private", {"question": "Lunch?"})
        return "announced"

    return made


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    server(given.get("settings"), given.get("polls")).run()
