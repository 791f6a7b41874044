"""Line streams: whole lines in, whole lines out, exactly as written; a recorder has one on either side.

A line is not parsed here: one that is not a message passes as well. Both are links over pipes that deliver lines before
they are decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from trunkline.protocol.limits import Limits
from trunkline.transports.link import Receiver
from trunkline.transports.pipes import PipeLink
from trunkline.transports.process import ProcessLink
from trunkline.transports.stdio import StdioLink

__all__ = ["ProcessWire", "StdioWire", "Taker", "Wire"]

_LIMITS = Limits()


class Taker(Receiver, Protocol):
    """Receives the lines of a line stream, and its end like any receiver."""

    def line_received(self, line: bytes) -> None:
        """Called with a line, without its newline."""

    def line_skipped(self) -> None:
        """Called when a line was too long and was skipped."""


class Wire(Protocol):
    """One side of a relay: lines in, lines out."""

    @property
    def backlog(self) -> int:
        """The number of bytes that wait to be written."""

    def begin(self, taker: Taker) -> None:
        """Start delivering lines."""

    def write(self, line: bytes) -> None:
        """Send a line; never blocks and never raises."""

    def pause(self) -> None:
        """Pause reading."""

    def resume(self) -> None:
        """Resume reading."""

    def finish(self) -> None:
        """Signal that no line will follow: the other end may still answer pending requests, and then ends."""

    async def drain(self) -> None:
        """Wait until the write buffer has room."""

    async def aclose(self) -> None:
        """Close immediately."""


class _LineWire(PipeLink):
    """A link over pipes that delivers lines as they are."""

    _taker: Taker

    @property
    def backlog(self) -> int:
        """The number of bytes that wait to be written."""
        return self._output._size

    def begin(self, taker: Taker) -> None:
        """Start delivering lines."""
        self._taker = taker
        self.attach(taker)

    def write(self, line: bytes) -> None:
        """Send a line."""
        self._output.write_lines([line])

    def pause(self) -> None:
        """Pause reading; a file, which a thread reads, is not paused."""
        self._stop_reading()

    def resume(self) -> None:
        """Resume reading."""
        if not (self._ended or self._reading or self._reading_thread or self._loop is None):
            self._loop.add_reader(self._read_fd, self._drain_socket if self._is_socket else self._read_once)
            self._reading = True

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if self._ended:
                return
            if isinstance(line, bytes):
                self._taker.line_received(line)
            else:
                self._taker.line_skipped()

    def _input_ended(self, error: OSError | None) -> None:
        self._stop_reading()
        for line in self._lines.finish():
            if isinstance(line, bytes) and not self._ended:
                self._taker.line_received(line)
        self._input_over(error)


class StdioWire(_LineWire, StdioLink):
    """The line stream to the client that started this process."""

    @classmethod
    def claim(cls, limits: Limits = _LIMITS) -> StdioWire:
        """Claim the standard streams for this object alone.

        Raises:
            LinkError: the process was started without a standard input or output.
        """
        wire = super().claim(limits)
        assert isinstance(wire, StdioWire)
        return wire

    def finish(self) -> None:
        """Do nothing: written lines are flushed before the process exits."""


class ProcessWire(_LineWire, ProcessLink):
    """The line stream to a server that this process started."""

    _finishing: asyncio.Task[None] | None = None

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        limits: Limits,
        on_stderr: Callable[[bytes], None] | None,
    ) -> ProcessWire:
        """Start a server; see ``ProcessLink.spawn``.

        Raises:
            LinkError: the command or directory does not exist, or no process can be started.
        """
        wire = cls.spawn(command, env=env, cwd=cwd, limits=limits, on_stderr=on_stderr)
        assert isinstance(wire, ProcessWire)
        return wire

    def finish(self) -> None:
        """Close the server's input once it has read everything; it has the usual time to exit."""
        self._finishing = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        await self._output.flush(self._limits.eof_seconds)
        self._let_go()
