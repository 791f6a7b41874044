"""Servers that write too much, or what is no message, and serve as well."""

from __future__ import annotations

import os
import time
from typing import Any

from tests.faults.programs.honest import Honest

__all__ = ["FLOODING"]


class PrintsJunk(Honest):
    """Writes lines that are no messages before each answer; each line is whole."""

    def answer(self, id: Any, call: str, value: str) -> None:
        """Write junk, then answer."""
        for _ in range(self.chance.randrange(1, 20)):
            self.write(self._junk().replace(b"\n", b" ") + b"\n")
        super().answer(id, call, value)

    def _junk(self) -> bytes:
        kind = self.chance.randrange(7)
        if kind == 0:
            return self.chance.randbytes(200)
        if kind == 1:
            return b"loading... 100 %"
        if kind == 2:
            return b'{"jsonrpc": "2.0", "id": 1, "result'
        if kind == 3:
            return b"[" * 5000
        if kind == 4:
            return b"x" * self.chance.choice((10, 1000, 2_000_000))
        if kind == 5:
            return b'{"level": "info", "message": "up"}'
        return b""


class BreaksLines(Honest):
    """Writes half a line now and then, which spoils the message behind it."""

    def answer(self, id: Any, call: str, value: str) -> None:
        """Write half a line, or a line in pieces, then answer."""
        if self.chance.random() < 0.3:
            self.write(b'{"jsonrpc": "2.0", "method": "notifi')
        super().answer(id, call, value)

    def write(self, data: bytes) -> None:
        """Write in small pieces."""
        if self.chance.random() < 0.3:
            for start in range(0, min(len(data), 30), 7):
                os.write(1, data[start : start + 7])
                time.sleep(0.001)
            data = data[((min(len(data), 30) + 6) // 7) * 7 :]
        super().write(data)


class Torrent(Honest):
    """Writes junk as fast as it can, for a part of every second."""

    _lines = b"debug: still nothing happened\n" * 2000

    def patience(self) -> float:
        """Hurry while it floods."""
        return 0.0 if time.monotonic() % 1.0 < 0.25 else min(0.05, super().patience())

    def idle(self) -> None:
        """Flood."""
        if self.calls and time.monotonic() % 1.0 < 0.25:
            self.write(self._lines)


class EndlessLine(Honest):
    """Begins a line, in a few of its calls, that is longer than any message may be."""

    def answer(self, id: Any, call: str, value: str) -> None:
        """Answer, or write without end."""
        if self.chance.random() < 0.9:
            super().answer(id, call, value)
            return
        piece = b"[" + b" " * (1 << 20)
        for _ in range(80):
            self.write(piece)


class FloodsStderr(Honest):
    """Logs too much before each answer."""

    def answer(self, id: Any, call: str, value: str) -> None:
        """Log, then answer."""
        data = b"debug: nothing happened \xff\x1b[2J\n" * 4000
        while data:
            data = data[os.write(2, data) :]
        super().answer(id, call, value)


class AnswersAtLength(Honest):
    """Gives large results."""

    def echoed(self, call: str, value: str) -> dict[str, Any]:
        """Add a megabyte."""
        result = super().echoed(call, value)
        result["content"].append({"type": "text", "text": "y" * 1_000_000})
        return result


FLOODING: dict[str, type[Honest]] = {
    "prints-junk": PrintsJunk,
    "breaks-lines": BreaksLines,
    "torrent": Torrent,
    "endless-line": EndlessLine,
    "floods-stderr": FloodsStderr,
    "answers-at-length": AnswersAtLength,
}
