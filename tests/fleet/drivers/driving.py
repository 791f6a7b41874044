"""What the drivers in Python share: reading the target, finding a tool, writing what was seen.

A driver is a small program for one third-party client. Its one argument is a JSON list of targets: ``command`` and
``env``, or ``url`` and ``headers``; ``calls``, pairs of a tool's name and its arguments; and for some ``mode``. It
connects to one target after the other, lists, calls, and prints a line for each: ``FLEET`` and JSON, either ``tools``,
the names that the client shows, and ``results``, the text of each answer, or ``failed``, the reason. One process does
all of it, because some of these packages take ten seconds to import.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

#: Seconds for one target: some clients never return from a connection that failed.
_SECONDS = 90.0


def run(look: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> None:
    """Look at each target, and print what was seen."""
    for target in json.loads(sys.argv[1]):
        try:
            seen = asyncio.run(_bounded(look(target)))
        except Exception as error:  # noqa: BLE001 - a client may fail in any way, and the next target is still tried
            seen = {"failed": _reason(error)}
        sys.stdout.write(f"\nFLEET {json.dumps(seen)}\n")
        sys.stdout.flush()


async def _bounded(looking: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    async with asyncio.timeout(_SECONDS):
        return await looking


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]


def find(tools: Iterable[Any], wanted: str) -> Any:
    """Find a tool by its name; clients may put a prefix before it and replace characters in it."""
    for tool in tools:
        if plain(tool.name).endswith(plain(wanted)):
            return tool
    raise LookupError(wanted)


def plain(name: str) -> str:
    """Return a name without the characters that clients replace; some replace several by one."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name)


def text_of(value: Any) -> str:
    """Return the text of what a client makes of a result: a text, blocks, or an object around them."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for name in ("text", "content", "result"):
            if name in value:
                return text_of(value[name])
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return "".join(text_of(each) for each in value)
    for name in ("text", "content"):
        if hasattr(value, name):
            return text_of(getattr(value, name))
    return str(value)
