"""The recorder between a client and a server that speak in lines.

It forwards each line unchanged and writes it down. A line is not parsed, so one that is no message is forwarded as
well. A side that does not read makes the other wait. The relay ends when the server does, or when it is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from trunkline.devtools.recording.format import RecordingWriter, Side
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Incoming
from trunkline.protocol.limits import Limits
from trunkline.transports.link import Receiver
from trunkline.transports.pipes import PipeLink
from trunkline.transports.process import ProcessLink
from trunkline.transports.stdio import StdioLink
from trunkline.types import RequestId

__all__ = ["LineReceiver", "LineStream", "ProcessLineStream", "Relay", "StdioLineStream"]

_LIMITS = Limits()


class LineReceiver(Receiver, Protocol):
    """Receives the lines of a line stream, and its end like any receiver."""

    def line_received(self, line: bytes) -> None:
        """Called with a line, without its newline."""

    def line_skipped(self) -> None:
        """Called when a line was too long and was skipped."""


class LineStream(Protocol):
    """One side of a relay: lines in, lines out."""

    @property
    def backlog(self) -> int:
        """The number of bytes that wait to be written."""

    def begin(self, receiver: LineReceiver) -> None:
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


class _PipeLineStream(PipeLink):
    """A link over pipes that delivers lines as they are."""

    _line_receiver: LineReceiver

    @property
    def backlog(self) -> int:
        """The number of bytes that wait to be written."""
        return self._output._size

    def begin(self, receiver: LineReceiver) -> None:
        """Start delivering lines."""
        self._line_receiver = receiver
        self.attach(receiver)

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
                self._line_receiver.line_received(line)
            else:
                self._line_receiver.line_skipped()

    def _input_ended(self, error: OSError | None) -> None:
        self._stop_reading()
        for line in self._lines.finish():
            if isinstance(line, bytes) and not self._ended:
                self._line_receiver.line_received(line)
        self._input_closed(error)


class StdioLineStream(_PipeLineStream, StdioLink):
    """The line stream to the client that started this process."""

    @classmethod
    def claim(cls, limits: Limits = _LIMITS) -> StdioLineStream:
        """Claim the standard streams for this object alone.

        Raises:
            LinkError: the process was started without a standard input or output.
        """
        wire = super().claim(limits)
        assert isinstance(wire, StdioLineStream)
        return wire

    def finish(self) -> None:
        """Do nothing: written lines are flushed before the process exits."""


class ProcessLineStream(_PipeLineStream, ProcessLink):
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
    ) -> ProcessLineStream:
        """Start a server; see ``ProcessLink.spawn``.

        Raises:
            LinkError: the command or directory does not exist, or no process can be started.
        """
        wire = cls.spawn(command, env=env, cwd=cwd, limits=limits, on_stderr=on_stderr)
        assert isinstance(wire, ProcessLineStream)
        return wire

    def finish(self) -> None:
        """Close the server's input once it has read everything; it has the usual time to exit."""
        self._finishing = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        await self._output.flush(self._limits.eof_seconds)
        self._start_shutdown()


class Relay:
    """Forwards lines between two line streams until one of them ends, and records them."""

    def __init__(
        self, client: LineStream, server: LineStream, file: RecordingWriter, *, high_water: int = 1024 * 1024
    ) -> None:
        """Use two line streams that have not started; a side pauses while the other has over ``high_water`` bytes."""
        self._wires: dict[Side, LineStream] = {"client": client, "server": server}
        self._file = file
        self._high_water = high_water
        self._over: asyncio.Future[Exception | None] | None = None
        self._waits: set[asyncio.Task[None]] = set()
        self._leaving = False

    async def run(self) -> Exception | None:
        """Relay until the server ends; return the error if it ended with one."""
        self._over = asyncio.get_running_loop().create_future()
        client, server = self._wires["client"], self._wires["server"]
        try:
            server.begin(_RelaySide(self, "server"))
            client.begin(_RelaySide(self, "client"))
            return await self._over
        finally:
            for task in self._waits:
                task.cancel()
            await server.aclose()
            await client.aclose()
            self._file.close()

    def stop(self) -> None:
        """Stop the relay."""
        self._end(None, "the recorder was stopped")

    def passed(self, sender: Side, line: bytes) -> None:
        """Record a line and forward it; in this order, since a response may arrive before the call returns."""
        source, other = self._wires[sender], self._wires["server" if sender == "client" else "client"]
        self._file.message(sender, line)
        other.write(line)
        if other.backlog > self._high_water:
            source.pause()
            task = asyncio.get_running_loop().create_task(self._resume(source, other))
            self._waits.add(task)
            task.add_done_callback(self._waits.discard)

    def skipped(self, sender: Side) -> None:
        """Record that a line was not forwarded."""
        self._file.note("recorder", f"a line of the {sender} was too long and was not forwarded")

    async def _resume(self, source: LineStream, other: LineStream) -> None:
        await other.drain()
        source.resume()

    def ended(self, side: Side, error: Exception | None) -> None:
        """Called when a side ended; the server may still answer a client that only closed its output."""
        if self._over is None or self._over.done():
            return
        if side == "server":
            # Once its client has ended, a server is expected to end, in whichever way.
            self._end(None if self._leaving else error, f"the server ended{f': {error}' if error else ''}")
        else:
            self._leaving = True
            self._file.note("recorder", "the client ended")
            self._wires["server"].finish()

    def _end(self, error: Exception | None, note: str) -> None:
        if self._over is not None and not self._over.done():
            self._file.note("recorder", note)
            self._over.set_result(error)


class _RelaySide:
    """One side of a relay, as the receiver of its line stream."""

    def __init__(self, relay: Relay, side: Side) -> None:
        self._relay = relay
        self._side = side

    def line_received(self, line: bytes) -> None:
        self._relay.passed(self._side, line)

    def line_skipped(self) -> None:
        self._relay.skipped(self._side)

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Do nothing: lines are delivered by ``line_received``."""

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        self._relay.ended(self._side, error)
