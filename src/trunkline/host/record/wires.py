"""Wires: whole lines in, whole lines out, just as they were written; what a recorder has on either side.

A line is not read here: what is no message passes as well. Both wires are links over pipes that hand on lines before
anybody decodes them.
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
    """Who takes the lines of a wire; it learns of the end as any receiver does."""

    def line_received(self, line: bytes) -> None:
        """Take a line, without its newline."""

    def line_skipped(self) -> None:
        """Learn that a line was too long to be read."""


class Wire(Protocol):
    """One side of a relay: lines in, lines out."""

    @property
    def backlog(self) -> int:
        """How many bytes wait to be written."""

    def begin(self, taker: Taker) -> None:
        """Start to deliver lines."""

    def write(self, line: bytes) -> None:
        """Send a line; never blocks and never raises."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read again."""

    def finish(self) -> None:
        """Learn that no line will follow: whoever is there may answer what is left, and then ends."""

    async def drain(self) -> None:
        """Wait until few bytes wait to be written."""

    async def aclose(self) -> None:
        """End it now."""


class _LineWire(PipeLink):
    """A link over pipes that hands on lines as they are."""

    _taker: Taker

    @property
    def backlog(self) -> int:
        """How many bytes wait to be written."""
        return self._output._size

    def begin(self, taker: Taker) -> None:
        """Start to deliver lines."""
        self._taker = taker
        self.attach(taker)

    def write(self, line: bytes) -> None:
        """Send a line."""
        self._output.write_lines([line])

    def pause(self) -> None:
        """Read no more for now; what a thread reads, a file, comes on."""
        self._stop_reading()

    def resume(self) -> None:
        """Read again."""
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
    """The client that started this process."""

    @classmethod
    def claim(cls, limits: Limits = _LIMITS) -> StdioWire:
        """Take the standard streams away from everybody else in the process.

        Raises:
            LinkError: the process was started without a standard input or output.
        """
        wire = super().claim(limits)
        assert isinstance(wire, StdioWire)
        return wire

    def finish(self) -> None:
        """Do nothing: what was written leaves before the process does."""


class ProcessWire(_LineWire, ProcessLink):
    """A server that this process started."""

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
            LinkError: there is no such command or directory, or no process can be started.
        """
        wire = cls.spawn(command, env=env, cwd=cwd, limits=limits, on_stderr=on_stderr)
        assert isinstance(wire, ProcessWire)
        return wire

    def finish(self) -> None:
        """Close the server's input once it has read all; it is given the usual time to end."""
        self._finishing = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        await self._output.flush(self._limits.eof_seconds)
        self._let_go()
