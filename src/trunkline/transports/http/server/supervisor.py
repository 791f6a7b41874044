"""Several worker processes behind one set of listening sockets: started, watched, restarted, replaced and stopped.

The workers accept connections themselves, on sockets that they inherit: see `worker_process`. The supervisor serves
nothing, runs no event loop and no threads, so that it can fork at any time. A worker that does not respond for too long
is killed and replaced; one that is replaced or stopped answers what it has first. A worker whose supervisor is gone
stops by itself. What the workers need beside it is in another process, the companion: without it no worker is started.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Protocol

from trunkline.transports.http.server.companion import (
    SHORT_LIFE,
    START_SECONDS,
    Companion,
    CompanionProcess,
    kill,
    name_process,
    restart_delay,
)
from trunkline.transports.http.server.worker_process import BEAT_SECONDS, Scoreboard, ScoreboardRow, WorkerProcess

__all__ = ["ASK", "ReportReader", "Supervisor"]

log = logging.getLogger("trunkline.http")

#: What the supervisor writes when a worker shall report; a report is its length, four bytes, and its content.
ASK = b"?"
_LENGTH = struct.Struct(">I")
#: A report has a line for each series of a worker's metrics, of which labels are bounded; far more than all of them.
_REPORT_BYTES = 64 * 1024 * 1024
_REPORT_READ = 256 * 1024  # A usual report in one read.
#: Seconds that workers get beyond their own time to drain, before they are killed.
_KILL_AFTER = 5.0
#: So many times within the limit on their silence the heartbeats of the workers are looked at.
_BEAT_CHECKS = 10


class _Worker:
    __slots__ = (
        "born",
        "deadline",
        "heard_at",
        "last_beat",
        "lifeline",
        "pid",
        "ready",
        "reports",
        "row",
        "slot",
        "stopping",
        "unread",
    )

    def __init__(
        self, pid: int, slot: int, *, lifeline: socket.socket, row: ScoreboardRow, reports: socket.socket | None
    ) -> None:
        self.pid = pid
        self.slot = slot
        self.lifeline = lifeline
        self.row = row
        #: The socket on which it reports when it is asked to, and what has arrived of a report.
        self.reports = reports
        self.unread = bytearray()
        self.born = time.monotonic()
        self.ready = False
        self.stopping = False
        #: The last heartbeat that was seen, and when it was seen.
        self.last_beat = 0.0
        self.heard_at = self.born
        #: When it is killed: if it is not ready by then, and later, once it is stopping.
        self.deadline = self.born + START_SECONDS


class ReportReader(Protocol):
    """Reads what workers report about themselves, when they are asked to and when they end."""

    def start(self, supervisor: Supervisor) -> None:
        """Called before the first worker is started."""

    def reported(self, worker: int, report: bytes) -> None:
        """Called with the report of a worker, by its process id."""

    def ended(self, worker: int) -> None:
        """Called when a worker has ended, after its last report."""

    def close(self) -> None:
        """Called when all workers have ended; also in each worker, to close what it inherited."""


class _Query:
    """A question to all workers."""

    __slots__ = ("answered", "deadline", "missing")

    def __init__(self, missing: set[int], deadline: float, answered: Callable[[], None]) -> None:
        self.missing = missing
        self.deadline = deadline
        self.answered = answered


class Supervisor:
    """Runs so many workers until it is signalled to stop."""

    def __init__(
        self,
        count: int,
        work: Callable[[WorkerProcess], int],
        listeners: Sequence[socket.socket],
        *,
        drain_seconds: float,
        heartbeat_seconds: float = 0.0,
        started: Callable[[], None] = lambda: None,
        companion: Companion | None = None,
        before_replacing: Callable[[], bool] = lambda: True,
        reports: ReportReader | None = None,
    ) -> None:
        """Prepare the workers.

        Args:
            count: How many workers run at a time.
            work: Called in each worker, with what it has of the supervisor; returns its exit code.
            listeners: The listening sockets, not blocking. The supervisor has them open too: connections wait while
                no worker is there.
            drain_seconds: How long a worker may take to finish its requests when it is stopped.
            heartbeat_seconds: How long the event loop of a worker may stand still before it is replaced; 0: for ever.
            started: Called once all workers accept connections.
            companion: Another process that the workers need; it is started first and stopped last.
            before_replacing: Called before the workers are replaced one after another; False leaves them as they are.
                The companion gets the signal too.
            reports: Reads what workers report; None if they report nothing.
        """
        self._count = count
        self._work = work
        self._listeners = list(listeners)
        self._drain_seconds = drain_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._beats_checked = time.monotonic()
        # Each worker and the one that replaces it.
        self._scoreboard = Scoreboard(2 * count)
        self._started = started
        self._companion = None if companion is None else CompanionProcess(companion, self._fork_companion)
        self._before_replacing = before_replacing
        self._reports = reports
        self._queries: list[_Query] = []
        self._workers: dict[int, _Worker] = {}
        #: By slot: how many workers in a row lived too short, and when the next one may start.
        self._failures = [0] * count
        self._starts: dict[int, float] = {}
        self._replacing: deque[int] = deque()
        self._signals: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._running = False
        self._stopping = False
        self._code = 0

    def run(self) -> int:
        """Run until all workers have ended after a signal; return the exit code.

        A worker or companion that fails before it was ever ready stops the others: its exit code is returned.
        """
        with self._signal_handlers():
            if self._reports is not None:
                self._reports.start(self)
            self._starts = dict.fromkeys(range(self._count), time.monotonic())
            self._start_companion()
            self._start_workers()
            while self._workers or (self._starts and not self._stopping) or self._companion_runs:
                self._step()
            if self._reports is not None:
                self._reports.close()
        self._selector.close()
        return self._code

    # --- one step ----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        for key, _ in self._selector.select(self._timeout()):
            if isinstance(key.data, _Worker):
                self._hear(key.data)
            elif key.data is None:
                with contextlib.suppress(BlockingIOError):
                    key.fileobj.recv(4096)  # type: ignore[union-attr]
            else:
                key.data()
        signals, self._signals = self._signals, []
        for number in signals:
            self._signalled(number)
        self._reap()
        now = time.monotonic()
        if self._companion is not None:
            if self._companion.is_due(now):
                self._start_companion()
            if self._stopping and not self._workers:
                self._companion.stop()
        self._start_workers()
        for query in [query for query in self._queries if query.deadline <= now or not query.missing]:
            self._queries.remove(query)
            query.answered()
        self._check_heartbeats(now)
        for worker in self._workers.values():
            if (worker.stopping or not worker.ready) and worker.deadline <= now:
                what = "stop" if worker.stopping else "start"
                log.error("worker %d (process %d) did not %s in time and is killed", worker.slot + 1, worker.pid, what)
                worker.deadline = now + _KILL_AFTER
                kill(worker.pid, signal.SIGKILL)

    def _start_workers(self) -> None:
        if self._stopping or not self._has_companion:
            return
        now = time.monotonic()
        for slot in [slot for slot, at in self._starts.items() if at <= now]:
            del self._starts[slot]
            self._fork(slot)

    def _timeout(self) -> float | None:
        times = [query.deadline for query in self._queries]
        if self._has_companion:
            times += self._starts.values()
        if self._companion is not None:
            times += self._companion.times()
        for worker in self._workers.values():
            if worker.stopping or not worker.ready:
                times.append(worker.deadline)
            elif self._heartbeat_seconds:
                times.append(self._beats_checked + self._heartbeat_seconds / _BEAT_CHECKS)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _check_heartbeats(self, now: float) -> None:
        """Kill the workers whose event loop has not turned for too long."""
        pause = self._heartbeat_seconds / _BEAT_CHECKS
        elapsed = now - self._beats_checked
        if not pause or elapsed < pause:
            return
        self._beats_checked = now
        for worker in self._workers.values():
            beat = worker.row.last_beat
            if beat != worker.last_beat or elapsed > 2 * pause:
                # The second: this process stood still itself, and with it perhaps the whole machine or container.
                worker.last_beat, worker.heard_at = beat, now
            elif now - worker.heard_at >= self._heartbeat_seconds and worker.ready and not worker.stopping:
                worker.stopping = True
                worker.deadline = now + _KILL_AFTER
                kill(worker.pid, signal.SIGKILL)
                log.error(
                    "worker %d (process %d) has not responded for %g s and is replaced: a function blocks its event "
                    "loop, or the process is stopped. If a function must block for longer, raise "
                    "Limits.heartbeat_seconds",
                    worker.slot + 1,
                    worker.pid,
                    self._heartbeat_seconds,
                )

    def _signalled(self, number: int) -> None:
        if number == signal.SIGCHLD:
            return
        if number == signal.SIGHUP:
            if self._before_replacing():
                self._replacing.extend(pid for pid in self._workers if pid not in self._replacing)
                if self._companion is not None and self._companion.ready and self._companion.pid is not None:
                    kill(self._companion.pid, signal.SIGHUP)
                self._replace_next()
        else:
            self._stop()

    # --- the companion -----------------------------------------------------------------------------------------------

    @property
    def _has_companion(self) -> bool:
        """Whether workers have what they need."""
        return self._companion is None or self._companion.ready

    @property
    def _companion_runs(self) -> bool:
        return self._companion is not None and self._companion.pid is not None

    def _start_companion(self) -> None:
        if self._companion is not None:
            self._companion.start()
            assert self._companion.lifeline is not None
            self.watch(self._companion.lifeline, selectors.EVENT_READ, self._hear_companion)

    def _hear_companion(self) -> None:
        assert self._companion is not None
        assert self._companion.lifeline is not None
        self._companion.hear()
        # Its end is reported by the signal for it.
        self.watch(self._companion.lifeline, 0)

    def _fork_companion(self, work: Callable[[], int], ours: socket.socket) -> int:
        assert self._companion is not None
        return self._fork_process([ours], work, self._companion.label)

    def _reap_companion(self, companion: CompanionProcess) -> None:
        code = companion.reap()
        if code is None:
            return
        if companion.lifeline is not None:
            self.watch(companion.lifeline, 0)
            companion.lifeline.close()
        if self._stopping:
            return
        if not companion.served:
            # It cannot start: neither will the next one.
            self._fail(code)
            return
        delay = companion.start_later(time.monotonic())
        if delay is None:
            log.error("%s %s repeatedly; the server is stopped", companion.name, _end_of(code))
            self._fail(1)
            return
        log.error("%s %s; it is restarted in %g s", companion.name, _end_of(code), delay)
        if companion.replaces_workers:
            for worker in self._workers.values():
                self._stop_worker(worker)

    def _fail(self, code: int) -> None:
        self._code = code if code > 0 else 1
        self._stop()

    # --- reports -----------------------------------------------------------------------------------------------------

    def watch(self, file: socket.socket, events: int, callback: Callable[[], object] = lambda: None) -> None:
        """Call a function whenever a socket is ready for these events of ``selectors``; 0 ends it."""
        if file.fileno() in self._selector.get_map():
            self._selector.unregister(file)
        if events:
            self._selector.register(file, events, callback)

    def ask_workers(self, seconds: float, answered: Callable[[], None]) -> None:
        """Ask all workers for a report; ``answered`` is called when all have answered, or after ``seconds``."""
        missing: set[int] = set()
        for worker in self._workers.values():
            # Also those that are stopping: they still answer requests.
            if worker.ready and worker.reports is not None:
                with contextlib.suppress(OSError):
                    worker.reports.send(ASK)
                    missing.add(worker.pid)
        self._queries.append(_Query(missing, time.monotonic() + seconds, answered))

    def _read_report(self, worker: _Worker) -> bool:
        """Read what a worker reports; return whether there may be more."""
        assert worker.reports is not None
        try:
            data = worker.reports.recv(_REPORT_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        worker.unread += data
        while len(worker.unread) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(worker.unread)
            end = _LENGTH.size + size
            if size > _REPORT_BYTES:
                data = b""
                break
            if len(worker.unread) < end:
                break
            report = bytes(worker.unread[_LENGTH.size : end])
            del worker.unread[:end]
            self._reported(worker.pid, report)
        if not data:
            self.watch(worker.reports, 0)
            self._answered(worker.pid)
        return bool(data)

    def _reported(self, pid: int, report: bytes) -> None:
        if self._reports is not None:
            self._reports.reported(pid, report)
        self._answered(pid)

    def _answered(self, pid: int) -> None:
        for query in self._queries:
            query.missing.discard(pid)

    # --- workers -----------------------------------------------------------------------------------------------------

    def _fork(self, slot: int) -> None:
        lifeline, worker_lifeline = socket.socketpair()
        reports, worker_reports = (None, None) if self._reports is None else socket.socketpair()
        taken = {worker.row for worker in self._workers.values()}
        row = next(row for row in self._scoreboard.rows if row not in taken)
        row.clear()
        process = WorkerProcess(
            slot,
            self._listeners,
            worker_lifeline,
            self._scoreboard,
            row,
            reports=worker_reports,
            beat_seconds=min(BEAT_SECONDS, self._heartbeat_seconds / 4 or BEAT_SECONDS),
        )
        close = [lifeline] if reports is None else [lifeline, reports]
        pid = self._fork_process(close, lambda: self._work(process), f"worker {slot + 1}", listens=True)
        worker_lifeline.close()
        lifeline.setblocking(False)
        worker = self._workers[pid] = _Worker(pid, slot, lifeline=lifeline, row=row, reports=reports)
        self._selector.register(lifeline, selectors.EVENT_READ, worker)
        if reports is not None and worker_reports is not None:
            worker_reports.close()
            reports.setblocking(False)
            self.watch(reports, selectors.EVENT_READ, partial(self._read_report, worker))

    def _fork_process(
        self, close: list[socket.socket], work: Callable[[], int], label: str, *, listens: bool = False
    ) -> int:
        """Run a function in a new process, where the supervisor's own sockets and these are closed; return its id."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            # A process group of its own: an interrupt at the terminal is for the supervisor, which stops the others.
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            self._selector.close()
            close += [file for other in self._workers.values() for file in (other.lifeline, other.reports) if file]
            if not listens:
                close += self._listeners
            if self._companion is not None and self._companion.lifeline is not None:
                # The companion must see the end of the supervisor alone.
                close.append(self._companion.lifeline)
            for file in close:
                file.close()
            if self._reports is not None:
                self._reports.close()
            name_process(label)
            code = work()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:  # noqa: BLE001  the process ends here, whatever it was
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _hear(self, worker: _Worker) -> None:
        try:
            data = worker.lifeline.recv(16)
        except OSError:
            data = b""
        if not data:
            # Its end is reported by the signal for it.
            self._selector.unregister(worker.lifeline)
            return
        worker.ready = True
        worker.heard_at = time.monotonic()
        if self._replacing and worker.slot == self._workers[self._replacing[0]].slot:
            # It accepts no more connections, answers what it has, and ends.
            self._stop_worker(self._workers[self._replacing[0]])
        self._replace_next()
        if not self._running and sum(other.ready for other in self._workers.values()) == self._count:
            self._running = True
            self._started()

    def _reap(self) -> None:
        if self._companion is not None:
            self._reap_companion(self._companion)
        for worker in list(self._workers.values()):
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, code: int) -> None:
        del self._workers[worker.pid]
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.lifeline)
        worker.lifeline.close()
        # No other worker leaves a connection to it.
        worker.row.clear()
        if worker.reports is not None:
            self._last_report(worker, worker.reports)
        replaced = worker.pid in self._replacing
        if replaced:
            self._replacing.remove(worker.pid)
        if self._stopping:
            return
        if not self._running and not worker.ready:
            # It cannot start: neither will the next one.
            self._fail(code)
        elif not worker.ready and any(each.slot == worker.slot for each in self._workers.values()):
            log.error("a replacement worker could not start; the old workers keep running")
            self._replacing.clear()
        elif not worker.stopping:
            self._restart(worker, code)
        elif all(each.slot != worker.slot for each in self._workers.values()):
            self._starts[worker.slot] = time.monotonic()
        self._replace_next()

    def _last_report(self, worker: _Worker, reports: socket.socket) -> None:
        while self._read_report(worker):
            pass
        self.watch(reports, 0)
        reports.close()
        if self._reports is not None:
            self._reports.ended(worker.pid)

    def _restart(self, worker: _Worker, code: int) -> None:
        short = time.monotonic() - worker.born < SHORT_LIFE
        failures = self._failures[worker.slot] = self._failures[worker.slot] + 1 if short else 0
        delay = restart_delay(failures)
        log.error(
            "worker %d (process %d) %s; the next one starts in %g s", worker.slot + 1, worker.pid, _end_of(code), delay
        )
        self._starts[worker.slot] = time.monotonic() + delay

    def _replace_next(self) -> None:
        """Start the successor of the next worker to replace; one at a time."""
        if self._stopping or not self._replacing or self._starts:
            return
        old = self._workers[self._replacing[0]]
        if old.stopping or not all(worker.ready for worker in self._workers.values()):
            return
        if len(self._workers) >= len(self._scoreboard.rows):
            # Those replaced before still drain; the first that ends makes room.
            return
        self._fork(old.slot)

    def _stop_worker(self, worker: _Worker) -> None:
        worker.stopping = True
        worker.deadline = time.monotonic() + self._drain_seconds + _KILL_AFTER
        kill(worker.pid, signal.SIGTERM)

    def _stop(self) -> None:
        """Let the workers stop accepting, and drain; the second time, let them end at once."""
        again, self._stopping = self._stopping, True
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for worker in self._workers.values():
            self._stop_worker(worker)
            if again:
                worker.deadline = time.monotonic() + _KILL_AFTER

    @contextlib.contextmanager
    def _signal_handlers(self) -> Iterator[None]:
        """Interrupt the wait of a step on signals; restore the previous handlers at the end."""
        reader, writer = socket.socketpair()
        for each in (reader, writer):
            each.setblocking(False)
        self._selector.register(reader, selectors.EVENT_READ, None)

        def handle(number: int, frame: FrameType | None) -> None:
            self._signals.append(number)

        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
        wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, previous in before.items():
                signal.signal(number, signal.SIG_DFL if previous is None else previous)
            reader.close()
            writer.close()


def _end_of(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
