"""A stdio server of one era behind a gateway: ``python program.py NAME ERA``; it says which process it is."""

from __future__ import annotations

import asyncio
import os
import sys

from trunkline import Context, Server
from trunkline.protocol.revisions import NEWEST, REVISION_NAMES

__all__ = ["make"]


def make(name: str, era: str) -> Server:
    """Make a server of one era."""
    handshakes = [each for each in REVISION_NAMES if each != NEWEST.name]
    made = Server(name, revisions=[NEWEST.name] if era == "stateless" else handshakes)
    state = dict.fromkeys(("calls", "cancelled", "most", "napping", "note", "waiting"), 0)

    @made.tool
    async def pid() -> int:
        """Return the id of this process."""
        state["calls"] += 1
        return os.getpid()

    @made.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        return f"hello {(await ctx.elicit('Name?', str)).data}"

    @made.tool
    async def ask_twice(ctx: Context) -> str:
        """Ask two questions, one after the other, and report progress between them."""
        first = (await ctx.elicit("First?", str)).data
        await ctx.report_progress(1, 2)
        return f"{first} {(await ctx.elicit('Second?', str)).data}"

    @made.tool
    async def count(ctx: Context, steps: int) -> int:
        """Report and log each step."""
        for step in range(steps):
            await ctx.report_progress(step + 1, steps)
            await ctx.info(f"step {step}")
        return steps

    @made.tool
    async def wait() -> str:
        """Wait until cancelled."""
        state["waiting"] += 1
        try:
            await asyncio.Event().wait()
        finally:
            state["cancelled"] += 1
        return ""

    @made.tool
    async def seen() -> dict[str, int]:
        """Return what was counted."""
        return {name: state[name] for name in ("calls", "cancelled", "most", "waiting")}

    @made.tool
    async def nap(seconds: float) -> str:
        """Sleep; the maximum of concurrent calls is recorded."""
        state["waiting"] += 1
        state["napping"] += 1
        state["most"] = max(state["most"], state["napping"])
        await asyncio.sleep(seconds)
        state["napping"] -= 1
        return "rested"

    @made.tool
    async def grow() -> str:
        """Add a tool."""

        async def grown() -> str:
            """Was added."""
            return "grown"

        made.tool(grown)
        return "ok"

    @made.tool
    async def write() -> int:
        """Change the note."""
        state["note"] += 1
        made.changed("note://1")
        return state["note"]

    @made.resource("note://1")
    async def note() -> str:
        return f"note {state['note']}"

    @made.tool
    async def crash() -> str:
        """End the process."""
        os._exit(3)

    return made


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2]).run()
