"""A link over two open file descriptors and its non-blocking writer; stdio on both sides is built on it.

Also tunes the C library's allocator while large messages are exchanged.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from typing import Any

from trunkline.errors import ConnectionLost
from trunkline.protocol.caller import STREAM, Origin
from trunkline.protocol.jsonrpc import Outbound, decode, encode
from trunkline.protocol.limits import Limits
from trunkline.protocol.line_framing import LineReader
from trunkline.transports.codec_errors import encode_each, is_identified, too_long_error
from trunkline.transports.link import Link, Receiver

__all__ = ["MemoryTuner", "PipeLink", "PipeOutput", "keep_freed_memory", "trim_memory"]

# glibc's malloc.h: how much freed memory is kept, and how many buffers may be mapped on their own.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_RETAINED_BYTES = 256 * 1024 * 1024  # Memory that malloc keeps between large messages: a few of the largest (64 MiB).
_QUIET_SECONDS = 5.0  # After this long without large messages the memory is returned.


class MemoryTuner:
    """Makes the C library keep freed memory while large messages are exchanged."""

    __slots__ = ("_scheduled", "_seen")

    def __init__(self) -> None:
        """Change nothing before the first large message."""
        self._seen = False
        self._scheduled = False

    def large_message_seen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called when a part of a large message was read or written."""
        self._seen = True
        if not self._scheduled and keep_freed_memory():
            self._scheduled = True
            loop.call_later(_QUIET_SECONDS, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._seen:
            self._seen = False
            loop.call_later(_QUIET_SECONDS, self._check, loop)
            return
        self._scheduled = False
        trim_memory()


@cache
def keep_freed_memory() -> bool:
    """Make the C library keep freed memory instead of returning it to the system; return whether that worked."""
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _RETAINED_BYTES))
    except (OSError, AttributeError):
        # A C library other than glibc.
        return False


def trim_memory() -> None:
    """Make the C library return all free memory to the system."""
    import ctypes

    ctypes.CDLL(None).malloc_trim(0)


_LIMITS = Limits()
# One read returns all that a pipe holds by default; after a full one the next is larger.
_READ_BYTES = 64 * 1024
_LARGE_READ_BYTES = 1024 * 1024  # The largest pipe buffer that Linux grants without privileges.
# A large pipe saves a quarter of the CPU of a large message: fewer turns of reader and writer. But Linux lets a user
# hold 64 MiB in pipes before it shrinks the next ones to two pages, so only pipes that carry such messages grow.
_LARGE_PIPE_BYTES = 1024 * 1024
_LARGE_MESSAGE_BYTES = 256 * 1024  # Four times the usual pipe buffer (64 KiB): from here on, a larger pipe pays.
# Up to this size joining messages into one buffer is cheaper than handing the kernel a list.
_JOIN_BYTES = 64 * 1024
_WRITE_PARTS = 64  # Far below IOV_MAX (1024), and more does not make a write faster.
# Enough for a full socket buffer, and a bound on how much of the loop's time one busy peer takes.
_SOCKET_READS = 64


class PipeLink(Link):
    """Carries messages over a descriptor to read and one to write, both owned by the link."""

    #: Whether the process exists for this link, so that its allocator may be tuned for large messages.
    owns_process = False

    def __init__(self, read_fd: int, write_fd: int, *, limits: Limits = _LIMITS, origin: Origin = STREAM) -> None:
        """Wrap the descriptors; nothing is read before ``attach``."""
        self._limits = limits
        self._origin = origin
        self._lines = LineReader(limits.message_bytes, enough=is_identified)
        self._read_fd = read_fd
        self._read_bytes = _READ_BYTES
        self._is_socket = stat.S_ISSOCK(os.fstat(read_fd).st_mode)
        self._was_blocking = os.get_blocking(read_fd)
        if self._is_socket:
            os.set_blocking(read_fd, False)
        self._tuner = MemoryTuner() if self.owns_process else None
        self._output = PipeOutput(
            write_fd, high_water=limits.write_bytes, on_broken=self._output_broken, tuner=self._tuner
        )
        self._receiver: Receiver | None = None
        self._burst_ended: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Whether the loop watches the descriptor; where it cannot, a thread reads.
        self._reading = False
        self._reading_thread = False
        self._ended = False
        self._released = False

    def deliver_in_bursts(self, burst_ended: Callable[[], None]) -> bool:
        """Call ``burst_ended`` after each read."""
        self._burst_ended = burst_ended
        return True

    def count_bytes(self, received: Callable[[int], None], sent: Callable[[int], None]) -> None:
        """Call a function with the size of each read and of each write; called before ``attach``."""
        inner, output = self._received, self._output

        def count_received(data: bytes) -> None:
            received(len(data))
            inner(data)

        self._received = count_received  # type: ignore[method-assign]
        self._output = _CountedOutput(output, sent)  # type: ignore[assignment]

    def attach(self, receiver: Receiver) -> None:
        """Start to read."""
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._output.attach(self._loop)
        try:
            self._loop.add_reader(self._read_fd, self._drain_socket if self._is_socket else self._read_once)
            self._reading = True
        except (OSError, ValueError, RuntimeError):
            # The loop cannot watch regular files and the null device.
            self._read_in_thread(self._loop)

    def send(self, batch: Sequence[Outbound]) -> None:
        """Write the messages together, as far as the kernel accepts them; keep the rest."""
        try:
            lines = [encode(outbound.message) for outbound in batch]
        except Exception:  # noqa: BLE001 - send never raises
            lines = encode_each(batch)
        self._output.write_lines(lines)

    @property
    def unsent_bytes(self) -> int:
        """How many bytes wait until the other side reads."""
        return self._output.size

    async def drain(self) -> None:
        """Wait until the unsent bytes are below the limit, or the output is broken."""
        await self._output.drain()

    async def aclose(self) -> None:
        """Stop reading, wait a bounded time for unsent data to be sent, and close both descriptors."""
        self._end(None)
        try:
            await self._output.flush(self._limits.exit_seconds)
        finally:
            self._release()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _drain_socket(self) -> None:
        """Read a socket until it is empty.

        When the other side was reset, uvloop calls once and then never again: what is not read now is never read.
        """
        for _ in range(_SOCKET_READS):
            if self._ended or not self._read_once():
                return

    def _read_once(self) -> bool:
        """Read once and deliver the messages; return whether more may be read."""
        try:
            data = os.read(self._read_fd, self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._input_ended(error)
            return False
        if not data:
            self._input_ended(None)
            return False
        if len(data) < _READ_BYTES:
            self._read_bytes = _READ_BYTES
        else:
            self._read_bytes = _LARGE_READ_BYTES
            if self._lines.held > _LARGE_MESSAGE_BYTES:
                _enlarge(self._read_fd)
                if self._tuner is not None and self._loop is not None:
                    self._tuner.large_message_seen(self._loop)
        self._received(data)
        return self._reading

    def _received(self, data: bytes) -> None:
        receiver, limits, origin = self._receiver, self._limits, self._origin
        assert receiver is not None
        for line in self._lines.feed(data):
            if self._ended:
                break
            receiver.message_received(decode(line, limits) if isinstance(line, bytes) else too_long_error(line), origin)
        if self._burst_ended is not None:
            self._burst_ended()

    def _input_ended(self, error: OSError | None) -> None:
        """Deliver the last line if it has no newline, then report the end of the input."""
        self._stop_reading()
        for line in self._lines.finish():
            if isinstance(line, bytes) and self._receiver is not None and not self._ended:
                self._receiver.message_received(decode(line, self._limits), self._origin)
        if self._burst_ended is not None:
            self._burst_ended()
        self._input_closed(error)

    def _input_closed(self, error: OSError | None) -> None:
        self._end(None if error is None else _lost("reading", error))

    def _output_broken(self, error: OSError) -> None:
        self._end(_lost("writing", error))

    def _end(self, error: Exception | None) -> None:
        """Report the end to the receiver, once."""
        if self._ended:
            return
        self._ended = True
        self._stop_reading()
        if self._receiver is not None:
            self._receiver.eof_received(error)

    def _stop_reading(self) -> None:
        if self._reading and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._read_fd)
        self._reading = False

    def _release(self) -> None:
        """Close the descriptors, once."""
        if self._released:
            return
        self._released = True
        self._output.close()
        if not self._reading_thread:
            os.set_blocking(self._read_fd, self._was_blocking)
            os.close(self._read_fd)

    # --- descriptors that the loop cannot watch ----------------------------------------------------------------------

    def _read_in_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        import threading

        self._reading_thread = True
        delivered = threading.Semaphore(1)

        def deliver(data: bytes) -> None:
            delivered.release()
            if data and not self._ended:
                self._received(data)
            elif not data:
                self._input_ended(None)

        def read() -> None:
            # The thread closes the descriptor itself: closed elsewhere, its number could be reused under the read.
            try:
                data = b"-"
                while data and not self._ended:
                    delivered.acquire()
                    data = _read_or_end(self._read_fd)
                    loop.call_soon_threadsafe(deliver, data)
            except RuntimeError:
                return  # The loop is closed: no receiver is left.
            finally:
                os.close(self._read_fd)

        threading.Thread(target=read, name="trunkline-input", daemon=True).start()


class _CountedOutput:
    """An output that counts what is written to it."""

    def __init__(self, output: PipeOutput, sent: Callable[[int], None]) -> None:
        self._output = output
        self._sent = sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)

    def write_lines(self, lines: list[bytes]) -> None:
        """Count the lines with their newlines, and write them."""
        self._sent(sum(map(len, lines)) + len(lines))
        self._output.write_lines(lines)


class PipeOutput:
    """Writes to one descriptor without ever blocking; a regular file or a terminal is written to directly."""

    __slots__ = (
        "_closed",
        "_fd",
        "_high_water",
        "_loop",
        "_on_broken",
        "_room",
        "_size",
        "_tuner",
        "_unsent",
        "_waitable",
        "_waits",
        "_was_blocking",
    )

    def __init__(
        self, fd: int, *, high_water: int, on_broken: Callable[[OSError], None], tuner: MemoryTuner | None = None
    ) -> None:
        """Wrap the descriptor; ``on_broken`` is called at most once, when it can no longer be written to."""
        self._fd = fd
        self._high_water = high_water
        self._on_broken = on_broken
        self._tuner = tuner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsent: deque[memoryview] = deque()
        self._size = 0
        #: Whether the loop watches the descriptor for being writable.
        self._waits = False
        self._room = asyncio.Event()
        self._closed = False
        mode = os.fstat(fd).st_mode
        self._waitable = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        # The flag belongs to the open file, which others may share (a shell's terminal), so it is restored at the end.
        self._was_blocking = os.get_blocking(fd)
        os.set_blocking(fd, not self._waitable)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop, and write what was sent before."""
        self._loop = loop
        self._flush()

    def write_lines(self, lines: list[bytes]) -> None:
        """Write these lines with their newlines, at once as far as the kernel accepts them."""
        if self._closed or not lines:
            return
        if self._unsent or self._loop is None:
            self._keep(lines)
            return
        size = sum(map(len, lines))
        if size > _JOIN_BYTES:
            self._keep(lines)
            self._flush()
            return
        lines.append(b"")
        data = b"\n".join(lines)
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._break(error)
            return
        if written < len(data):
            self._unsent.append(memoryview(data)[written:])
            self._size = len(data) - written
            self._flush()

    async def drain(self) -> None:
        """Wait until the unsent bytes are at most the high-water mark, or nothing can be sent."""
        while self._size > self._high_water and not self._closed:
            self._room.clear()
            await self._room.wait()

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return self._size

    async def flush(self, seconds: float) -> None:
        """Wait until all is sent, nothing can be sent, or the time is over."""
        if not self._unsent or self._loop is None:
            return
        deadline = self._loop.call_later(seconds, self.close)
        try:
            while self._unsent and not self._closed:
                self._room.clear()
                await self._room.wait()
        finally:
            deadline.cancel()

    def close(self) -> None:
        """Drop unsent data and close the descriptor; its blocking flag is restored."""
        if self._closed:
            return
        self._closed = True
        if self._waits and self._loop is not None and not self._loop.is_closed():
            self._loop.remove_writer(self._fd)
        self._unsent.clear()
        self._size = 0
        self._room.set()
        os.set_blocking(self._fd, self._was_blocking)
        os.close(self._fd)

    def _keep(self, lines: list[bytes]) -> None:
        for line in lines:
            self._unsent.append(memoryview(line))
            self._unsent.append(memoryview(b"\n"))
            self._size += len(line) + 1

    def _flush(self) -> None:
        """Write until the kernel accepts no more; then let the loop call again."""
        while self._unsent:
            parts = list(islice(self._unsent, _WRITE_PARTS))
            try:
                written = os.writev(self._fd, parts)
            except BlockingIOError:
                self._wait()
                return
            except OSError as error:
                self._break(error)
                return
            self._size -= written
            full = self._drop(written) and self._waitable
            if full and not (self._size > _LARGE_MESSAGE_BYTES and self._grow()):
                self._wait()
                break
        if self._size <= self._high_water:
            self._room.set()
        if not self._unsent:
            self._stop_waiting()

    def _drop(self, written: int) -> bool:
        """Remove what was written; return whether the last buffer was written only in part."""
        unsent = self._unsent
        while written:
            head = unsent[0]
            if written < len(head):
                unsent[0] = head[written:]
                return True
            written -= len(head)
            unsent.popleft()
        return False

    def _wait(self) -> None:
        if not self._waits and self._loop is not None:
            self._waits = True
            self._loop.add_writer(self._fd, self._flush)

    def _stop_waiting(self) -> None:
        if self._waits and self._loop is not None:
            self._waits = False
            self._loop.remove_writer(self._fd)
        self._room.set()

    def _grow(self) -> bool:
        """Enlarge the pipe for a large message; return whether it accepts more now."""
        if self._tuner is not None and self._loop is not None:
            self._tuner.large_message_seen(self._loop)
        return _enlarge(self._fd)

    def _break(self, error: OSError) -> None:
        self.close()
        self._on_broken(error)


def _enlarge(fd: int) -> bool:
    """Enlarge a pipe; return whether it is larger than before."""
    if sys.platform != "linux":
        return False
    try:
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) >= _LARGE_PIPE_BYTES:
            return False
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _LARGE_PIPE_BYTES)
    except OSError:
        return False
    return True


def _read_or_end(fd: int) -> bytes:
    try:
        return os.read(fd, _LARGE_READ_BYTES)
    except OSError:
        return b""


def _lost(action: str, error: OSError) -> ConnectionLost:
    lost = ConnectionLost(f"{action} failed: {error.strerror or error}")
    lost.__cause__ = error
    return lost
