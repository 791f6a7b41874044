"""Tools that take their time: they wait, report, log and notice when they are stopped."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from trunkline import Context, Server


def make() -> Server:
    """Make the server."""
    server = Server("slow", version="1")
    add_waiting(server)
    add_reporting(server)
    return server


def add_waiting(server: Server) -> None:
    """Add tools that wait until another call lets them go."""
    gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    threads: defaultdict[str, threading.Event] = defaultdict(threading.Event)
    history: list[str] = []
    moved = asyncio.Event()

    def note(event: str) -> None:
        history.append(event)
        moved.set()

    @server.tool
    async def hold(name: str) -> str:
        note(f"{name} started")
        try:
            await gates[name].wait()
        except asyncio.CancelledError:
            note(f"{name} cancelled")
            raise
        note(f"{name} finished")
        return name

    @server.tool
    async def stubborn(name: str) -> str:
        """Swallow the cancellation and answer nevertheless."""
        note(f"{name} started")
        try:
            await gates[name].wait()
        except asyncio.CancelledError:
            note(f"{name} cancelled")
        return name

    @server.tool
    def block(name: str) -> str:
        """Wait in a worker thread."""
        threads[name].wait(120)
        return name

    @server.tool
    async def release(name: str) -> str:
        gates[name].set()
        threads[name].set()
        return "released"

    @server.tool
    async def happened(event: str) -> list[str]:
        """Wait until something happened, and tell all that did."""
        while event not in history:
            moved.clear()
            await moved.wait()
        return list(history)


def add_reporting(server: Server) -> None:
    """Add tools that report and log."""
    later: list[asyncio.Task[None]] = []

    @server.tool
    async def count(to: int, ctx: Context) -> int:
        for number in range(1, to + 1):
            await ctx.report_progress(number, to, f"step {number}")
        return to

    @server.tool
    async def waver(ctx: Context) -> str:
        """Report progress that does not always increase."""
        for number in (1.5, 1.5, 1.0, 2.5):
            await ctx.report_progress(number)
        return "done"

    @server.tool
    def waver_in_thread(ctx: Context) -> str:
        """Report the same from a worker thread."""
        reports: list[Any] = [ctx.report_progress(number) for number in (1.5, 1.5, 1.0, 2.5)]
        return f"reported {len(reports)}"

    @server.tool
    async def linger(ctx: Context) -> str:
        """Report progress and log after the answer."""

        async def after() -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await ctx.report_progress(9)
            await ctx.error("too late")

        later.append(asyncio.ensure_future(after()))
        return "done"

    @server.tool
    async def words() -> AsyncIterator[str]:
        """Answer piece by piece."""
        for word in ("one ", "two ", "three"):
            yield word

    @server.tool
    async def logs(ctx: Context) -> str:
        for level in ("debug", "info", "warning", "error"):
            await getattr(ctx, level)(f"a {level}", logger_name="acme")
        return "logged"

    @server.tool
    async def log_data(ctx: Context) -> str:
        await ctx.log("critical", {"disk": "full", "percent": 100})
        return "logged"

    @server.resource("log://there")
    async def there(ctx: Context) -> str:
        await ctx.warning("read")
        return "there"


if __name__ == "__main__":
    make().run()
