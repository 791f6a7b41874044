"""The latest stderr lines of each server, and their delivery to the pages.

Lines are stored unmasked and masked when they are read: a secret may become known only after it was written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["StderrLines"]

_MOST_LINES = 1000  # Lines per server, as documented; a traceback has some fifty.
_LONGEST_LINE = 4096  # Characters of a line; a longer one is data, not a message.
_MOST_SERVERS = 500  # Servers; names come from the configuration, so this is only a safety net.
_INTERVAL = 0.1  # Ten events a second: a server that writes without pause must not flood the pages.
_MOST_PENDING = 1000  # Lines in one event; a page keeps no more.


class StderrLines:
    """Collects the lines of all servers."""

    def __init__(self, hide: Callable[[str], str], publish: Callable[[str, list[str]], None]) -> None:
        """Mask lines with ``hide``; call ``publish`` with the new lines of a server, at most ten times a second."""
        self._hide = hide
        self._publish = publish
        self._lines: dict[str, deque[str]] = {}
        self._partial: dict[str, bytes] = {}
        self._pending: dict[str, deque[str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def received(self, server: str, data: bytes) -> None:
        """Called with output of a server's process."""
        if server not in self._lines and len(self._lines) >= _MOST_SERVERS:
            return
        *whole, rest = (self._partial.get(server, b"") + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            whole, rest = [*whole, rest], b""
        self._partial[server] = rest
        self.add(server, [_text(line) for line in whole])

    def add(self, server: str, lines: list[str]) -> None:
        """Add whole lines of a server."""
        if not lines:
            return
        self._lines.setdefault(server, deque(maxlen=_MOST_LINES)).extend(lines)
        self._pending.setdefault(server, deque(maxlen=_MOST_PENDING)).extend(lines)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._flush)

    def lines(self, server: str) -> list[str]:
        """Return the latest lines of a server, masked, including those of its pending event."""
        return [self._hide(line) for line in self._lines.get(server, ())]

    def forget(self, server: str) -> None:
        """Forget the lines of a server that was removed."""
        for kept in (self._lines, self._partial, self._pending):
            kept.pop(server, None)

    def close(self) -> None:
        """Stop publishing."""
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        self._timer = None
        pending, self._pending = self._pending, {}
        for server, lines in pending.items():
            self._publish(server, [self._hide(line) for line in lines])


def _text(line: bytes) -> str:
    cut = line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")
    return f"{cut}... ({len(line)} bytes)" if len(line) > _LONGEST_LINE else cut
