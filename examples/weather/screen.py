"""The output of the tours: headings, wrapped text, and JSON-RPC messages with an arrow for their direction.

Colour and pauses are used on a terminal only; elsewhere the text is plain and nothing waits.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import textwrap
from typing import Any

import msgspec

from trunkline.testing import RecordingEntry

__all__ = ["Abridger", "Screen"]

_BOLD, _DIM, _OUT, _IN, _CODE = "1", "2", "36", "33", "32"
_LONGEST_TEXT = 110
_ITEMS = 3
_LONG_OBJECT = 60
# Members that are repeated in every message: they are shown once.
_REPEATED = frozenset({"_meta", "capabilities"})


class Screen:
    """The terminal or file to which a tour is written."""

    def __init__(self, *, interactive: bool | None = None) -> None:
        """Detect whether it is interactive."""
        terminal = sys.stdout.isatty()
        self.interactive = terminal and sys.stdin.isatty() if interactive is None else interactive
        self._colour = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._width = max(50, min(shutil.get_terminal_size((100, 24)).columns, 110))
        self._abridger = Abridger()
        # Whether the last line that was shown is an empty one.
        self._apart = False
        if hasattr(sys.stdout, "reconfigure"):
            # A terminal that cannot show an arrow gets a question mark, not a traceback.
            sys.stdout.reconfigure(errors="replace")

    def heading(self, text: str) -> None:
        """Print the heading of a step."""
        line = f"── {text} "
        before = "" if self._apart else "\n"
        print(before + self._paint(line + "─" * max(0, self._width - len(line)), _BOLD) + "\n")
        self._apart = True

    def say(self, text: str) -> None:
        """Print a wrapped paragraph."""
        print(textwrap.fill(" ".join(text.split()), self._width) + "\n", flush=True)
        self._apart = True

    def lines(self, *lines: str) -> None:
        """Print separate lines; a long one is wrapped."""
        print("".join(f"{self._indented(line)}\n" for line in lines))
        self._apart = True

    def item(self, name: str, text: str, *, whole: bool = False) -> None:
        """Print a name and, below it, a text: its first line, or all of it."""
        line, room = " ".join(text.split()), self._width - 6
        shown = textwrap.wrap(line, room) if whole else [line if len(line) <= room else f"{line[: room - 1]}…"]
        print("\n".join([f"  {self._paint(name, _BOLD)}", *(f"      {each}" for each in shown)]))
        self._apart = False

    def code(self, text: str) -> None:
        """Print lines of code."""
        print("".join(self._paint(f"    {line}", _CODE) + "\n" for line in textwrap.dedent(text).strip().split("\n")))
        self._apart = True

    def result(self, text: str) -> None:
        """Print the result of a step."""
        before = "" if self._apart else "\n"
        print(before + textwrap.fill(text, self._width, initial_indent="  = ", subsequent_indent="    "))
        self._apart = False

    def message(self, entry: RecordingEntry) -> None:
        """Print a message as it was sent, with long parts shortened."""
        ours = entry.sender == "client"
        text = msgspec.json.encode(self._abridger.shorten(entry.json)).decode()
        lines = _fold(text, self._width - 4)
        for index, line in enumerate(lines):
            mark = ("→" if ours else "←") if index == 0 else " "
            print(f"  {self._paint(mark, _BOLD)} {self._paint(line, _OUT if ours else _IN)}")
        self._apart = False

    def exchange(self, speaker: str, text: str) -> None:
        """Print a line of HTTP, or a message in it."""
        ours = speaker == "client"
        start, brace, rest = text.partition("{")
        try:
            message = msgspec.json.encode(self._abridger.shorten(msgspec.json.decode(brace + rest))).decode()
        except msgspec.DecodeError:
            start, message = text, ""
        for index, line in enumerate(_fold(start + message, self._width - 4)):
            mark = ("→" if ours else "←") if index == 0 else " "
            print(f"  {self._paint(mark, _BOLD)} {self._paint(line, _OUT if ours else _IN)}")
        self._apart = False

    def pause(self) -> None:
        """Wait for Enter, on a terminal."""
        if self.interactive:
            self.read(self._paint("\n  Enter: continue, Ctrl-C: end the tour. ", _DIM))

    def read(self, prompt: str) -> str:
        """Read a line; at the end of the input, the tour is no longer interactive."""
        # The event loop's own handler would ignore the first Ctrl-C while a line is read.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self._apart = False
        try:
            return input(prompt)
        except EOFError:
            self.interactive = False
            print()
            return ""
        finally:
            signal.signal(signal.SIGINT, before)

    def _indented(self, line: str) -> str:
        if len(line) + 2 <= self._width:
            return f"  {line}"
        deeper = " " * (6 + len(line) - len(line.lstrip()))
        return textwrap.fill(
            line,
            self._width,
            initial_indent="  ",
            subsequent_indent=deeper,
            break_on_hyphens=False,
            break_long_words=False,
        )

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colour else text


class Abridger:
    """Shortens JSON values for display: long texts, long lists, and what was shown before."""

    def __init__(self) -> None:
        """Start with nothing shown."""
        self._shown: set[bytes] = set()

    def shorten(self, value: Any) -> Any:
        """Return the value with its long parts replaced by an ellipsis."""
        if isinstance(value, str):
            return value if len(value) <= _LONGEST_TEXT else f"{value[:40]}… ({len(value)} characters)"
        if isinstance(value, list):
            return self._list(value)
        if isinstance(value, dict):
            return {key: self._member(key, member) for key, member in value.items()}
        return value

    def _list(self, value: list[Any]) -> list[Any]:
        if len(value) <= _ITEMS:
            return [self._member("", item) for item in value]
        return [self._member("", value[0]), f"… {len(value) - 2} more …", self._member("", value[-1])]

    def _member(self, key: str, value: Any) -> Any:
        if not isinstance(value, dict) or not (key in _REPEATED or "inputSchema" in value):
            return self.shorten(value)
        whole = msgspec.json.encode(value)
        if whole in self._shown:
            return {**({"name": value["name"]} if "name" in value else {}), "…": "as before"}
        # A short one is not worth an ellipsis.
        if len(whole) > _LONG_OBJECT:
            self._shown.add(whole)
        return self.shorten(value)


def _fold(text: str, width: int) -> list[str]:
    """Break JSON into lines after its commas and heads after their gaps, or anywhere if a part is too long."""
    lines = [""]
    for part in text.replace(',"', ',\0"').replace("   ", "   \0").split("\0"):
        if len(lines[-1]) + len(part) > width and lines[-1]:
            lines.append("")
        while len(part) > width:
            lines[-1:] = [part[:width], ""]
            part = part[width:]
        lines[-1] += part
    return lines
