"""A server whose tasks are kept in a file, as a program: ``python -m tests.host.gateway.long_job_program``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from trunkline import Context, Server
from trunkline.extensions import TaskOptions, TaskSettings

__all__: list[str] = []

#: Whether there was a file of this name when the process began.
MAY_END = Path("go").exists()
server = Server("site", tasks=TaskSettings(backend="jobs.sqlite", slow_calls="poll", poll_after=0.05))


async def dig(ctx: Context) -> str:
    """Dig for ever, unless this process may end its jobs."""
    await ctx.report_progress(1, 2, "digging")
    if not MAY_END:
        await asyncio.Event().wait()
    return f"found {(await ctx.elicit('Where?', str)).data}"


server.tool(name="again", task=TaskOptions(after=0.05, retry=1))(dig)
server.tool(name="once", task=True)(dig)


def tell(url: str) -> None:
    """Write the URL for the test."""
    sys.stdout.write(url + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    server.run("http", port=0, started=tell)
