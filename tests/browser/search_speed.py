"""Measures the search: from a keystroke to the paint after it, with 10 tools and with 5,000.

Run it with ``python -m tests.browser.search_speed``. The claim is a ratio of medians of 30 keystrokes on one machine; a
test cannot make it, as a busy machine is not a slow page.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trunkline.types as t
from tests.browser.support import CHROMIUM, Api, Window, surfing
from tests.console.support import on_console
from trunkline import Server

__all__ = ["keystrokes", "large_console", "main"]

KEYSTROKES = 30
MOST_RATIO = 3.0
WORD = "tool_1"
#: From the event of a key to the frame after the one that shows its results.
_WATCH = """() => {
  globalThis.paints = [];
  addEventListener("keydown", () => {
    const began = performance.now();
    requestAnimationFrame(() => {
      const channel = new MessageChannel(); // A message that is posted in a frame arrives after its paint.
      channel.port1.onmessage = () => paints.push(performance.now() - began);
      channel.port2.postMessage(0);
    });
  }, true);
}"""


@asynccontextmanager
async def large_console(folder: Path, tools: int) -> AsyncIterator[Api]:
    """Show a console over a server with so many tools."""
    made = Server("many")
    for number in range(tools):
        made.add_tool(
            lambda text="": text,
            name=f"tool_{number}",
            description=f"Look up entry {number} of the catalogue, by its title, its author or its year.",
            annotations=t.ToolAnnotations(read_only_hint=True),
        )
    async with on_console({"many": made}, folder, typed=True) as console:
        yield Api(console.address.origin, console.address.token)


async def keystrokes(window: Window) -> list[float]:
    """Type and delete words in the search; return the milliseconds from each key to its paint."""
    await window.shown("[data-item]")
    await window.page.evaluate(_WATCH)
    await window.page.keyboard.press("/")
    await window.page.evaluate("paints.length = 0")
    count = 0
    while count < KEYSTROKES:
        for key in [*WORD, *(["Backspace"] * len(WORD))][: KEYSTROKES - count]:
            await window.page.keyboard.press(key)
            count += 1
            await window.page.wait_for_function("(count) => paints.length >= count", arg=count)
    found: list[float] = await window.page.evaluate("paints")
    return found


async def measure(tools: int) -> float:
    """Return the median of the keystrokes with so many tools."""
    with tempfile.TemporaryDirectory() as folder:
        async with large_console(Path(folder), tools) as api, surfing() as surfer:
            return statistics.median(await keystrokes(await surfer.open(api.url)))


async def main() -> int:
    """Measure, print the figures, and return the exit code."""
    if CHROMIUM is None:
        sys.stdout.write("SKIPPED: chromium is not here.\n")
        return 0
    few, many = await measure(10), await measure(5000)
    ratio = many / few
    sys.stdout.write(
        f"keystroke to paint, median of {KEYSTROKES}: {few:.1f} ms with 10 tools, {many:.1f} ms with 5,000: "
        f"{ratio:.2f} times (at most {MOST_RATIO:g})\n"
    )
    return 0 if ratio <= MOST_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
