"""A tool that answers in pieces: each is sent at once as progress, and all of them are the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from trunkline import Server

server = Server("storyteller")


@server.tool
async def story(sentences: int = 3) -> AsyncIterator[str]:
    """Generate a story, sentence by sentence."""
    for number in range(1, sentences + 1):
        await asyncio.sleep(0.01)
        yield f"This is sentence {number}. "


if __name__ == "__main__":
    server.run()
