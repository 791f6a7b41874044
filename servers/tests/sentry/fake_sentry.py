"""A stand-in for the API of Sentry: one issue with a stack trace, one without events, in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

__all__ = ["ISSUE", "SentryDouble"]

ISSUE: dict[str, Any] = {
    "id": "4815",
    "title": "ZeroDivisionError: division by zero",
    "status": "unresolved",
    "level": "error",
    "firstSeen": "2026-01-05T09:00:00Z",
    "lastSeen": "2026-01-06T10:30:00Z",
    "count": "17",
}
EVENT: dict[str, Any] = {
    "entries": [
        {"type": "breadcrumbs", "data": {"values": []}},
        {
            "type": "exception",
            "data": {
                "values": [
                    {
                        "type": "ZeroDivisionError",
                        "value": "division by zero",
                        "stacktrace": {
                            "frames": [
                                {"filename": "shop/views.py", "lineNo": 12, "function": "pay"},
                                {
                                    "filename": "shop/prices.py",
                                    "lineNo": 3,
                                    "function": "share",
                                    "context": [[2, "def share(total, people):"], [3, "    return total / people"]],
                                },
                            ]
                        },
                    },
                    {"type": "PaymentFailed", "value": "cart 7"},
                ]
            },
        },
    ]
}


class SentryDouble:
    """The double: its issues, the events behind them, and what was asked of it."""

    def __init__(self, *, token: str) -> None:
        self.token = token
        self.issues: dict[str, Any] = {"4815": ISSUE, "16": {**ISSUE, "title": "Gone"}}
        self.events: dict[str, list[Any]] = {"4815": [{"id": "h1", "latestEvent": EVENT}], "16": []}
        #: The path and the authorization of every request.
        self.seen: list[tuple[str, str | None]] = []
        #: What to answer with instead, from now on: the arguments of a response.
        self.instead: dict[str, Any] | None = None

    @asynccontextmanager
    async def running(self, *, port: int = 0) -> AsyncIterator[str]:
        """Listen while the block runs; gives the address of the API."""
        application = web.Application()
        application.add_routes([web.get("/api/0/{path:.*}", self._answer)])
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/api/0"
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        sent = request.headers.get("Authorization")
        self.seen.append((request.rel_url.raw_path, sent))
        if self.instead is not None:
            return web.Response(**self.instead)
        if sent != f"Bearer {self.token}":
            return web.json_response({"detail": "Invalid token"}, status=401)
        match request.match_info["path"].split("/"):
            case ["issues", number, ""] if number in self.issues:
                return web.json_response(self.issues[number])
            case ["issues", number, "hashes", ""] if number in self.issues:
                return web.json_response(self.events[number])
        return web.json_response({"detail": "The requested resource does not exist"}, status=404)
