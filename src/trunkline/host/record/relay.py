"""The relay between a client and a server that forwards every line and records it.

It knows two line streams and a file: nothing is negotiated here, and nothing is changed. A side that does not read
makes the other wait. The relay ends when the server does, or when it is stopped.
"""

from __future__ import annotations

import asyncio

from trunkline.host.record.recording import Side
from trunkline.host.record.wires import Wire
from trunkline.host.record.writing import RecordingFile
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Incoming
from trunkline.types import RequestId

__all__ = ["Relay"]


class Relay:
    """Forwards lines between two line streams until one of them ends, and records them."""

    def __init__(self, client: Wire, server: Wire, file: RecordingFile, *, high_water: int = 1024 * 1024) -> None:
        """Use two line streams that have not started; a side pauses while the other has over ``high_water`` bytes."""
        self._wires: dict[Side, Wire] = {"client": client, "server": server}
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
            server.begin(_End(self, "server"))
            client.begin(_End(self, "client"))
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

    async def _resume(self, source: Wire, other: Wire) -> None:
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


class _End:
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
