"""Worker threads for sync functions: calls are submitted from an event loop, and results return to it in bursts.

It knows neither tools nor requests, only functions, arguments and contexts. Most functions are short, and for them
one thread that runs a burst of calls one after another is much cheaper than waking a thread for each. So a call wakes a
thread only if none is awake. If calls are still queued a moment later, the awake threads are blocked, and their number
is doubled, up to a maximum, unless they keep the processor busy: then more threads would only compete for it. A result
is put into the outbox of its event loop, which is woken only if it has not been woken since it last emptied the outbox.
A thread cannot be stopped from outside; a cancelled call that has not started never starts, and the result of one that
has started is dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

__all__ = ["WorkerPool"]

# Exceptions that would stop the event loop, or look like a cancellation, if an await raised them. All others are
# raised unchanged, including those that are not an `Exception`.
_UNSAFE_IN_LOOP = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration)


# How many seconds calls may be queued before more threads are woken.
_WAKE_DELAY = 0.001
_HAS_THREAD_CLOCKS = hasattr(time, "pthread_getcpuclockid")
# Threads count as busy if together they use the processor for this share of the time. Over a period shorter than
# ``_SHORT`` the measurement is unreliable, so the smaller share ``_IDLE`` counts then.
_BUSY = 0.5
_IDLE = 0.25  # Of one processor, measured over less than `_SHORT`.
_SHORT = 0.01  # Seconds; below them one time slice of the scheduler decides the share.
# How many seconds per awake thread may pass without any call finishing before a queued call gets another thread.
_STUCK = 0.02


class WorkerPool:
    """Runs sync functions in up to ``max_threads`` threads, for one event loop after another."""

    __slots__ = (
        "_awake",
        "_check_scheduled",
        "_clocks",
        "_closed",
        "_finished",
        "_jobs",
        "_lock",
        "_max_threads",
        "_monitor",
        "_outbox",
        "_threads",
        "_too_many",
        "_wakes",
    )

    def __init__(self, max_threads: int) -> None:
        """Create the pool without starting a thread.

        Raises:
            ValueError: ``max_threads`` is less than one.
        """
        if max_threads < 1:
            raise ValueError(f"a worker pool needs at least one thread, not {max_threads}")
        self._max_threads = max_threads
        self._threads = 0
        #: The number of threads that run calls or look for some, including blocked ones; changed under the lock.
        self._awake = 0
        self._closed = False
        self._lock = threading.Lock()
        self._jobs: deque[_Job] = deque()
        self._wakes = _WakePipe()
        self._outbox: _Outbox | None = None
        self._check_scheduled = False
        #: Roughly the number of finished calls: only whether it has changed matters.
        self._finished = 0
        self._monitor = _LoadMonitor()
        self._clocks: list[int] = []
        #: Whether one of the awake threads should sleep; set by the event loop's thread.
        self._too_many = False

    def submit(
        self, function: Callable[..., object], kwargs: Mapping[str, object], context: contextvars.Context | None = None
    ) -> asyncio.Future[Any]:
        """Call a function in a worker thread and return the future of its result, in the running event loop.

        The function runs in ``context``, which must not be entered elsewhere meanwhile, or in a copy of the caller's.
        ``SystemExit`` and similar exceptions are raised as a ``RuntimeError`` with the original as its cause.

        Raises:
            RuntimeError: the pool is closed, or no event loop is running.
        """
        loop = asyncio.get_running_loop()
        outbox = self._outbox
        if outbox is None or outbox.loop is not loop:
            outbox = self._outbox = _Outbox(loop)
            self._check_scheduled = False
        if context is None:
            context = contextvars.copy_context()
        future: asyncio.Future[Any] = loop.create_future()
        if self._closed:
            raise RuntimeError("the worker pool is closed")
        self._jobs.append((outbox, future, function, kwargs, context))
        # Read without the lock: a thread that is about to sleep checks the queue once more after changing the counter.
        if self._awake == 0:
            self._wake(1)
        elif not self._check_scheduled:
            self._check_scheduled = True
            self._monitor.begin(time.monotonic(), self._cpu_time(), self._finished)
            loop.call_later(_WAKE_DELAY, self._check_load)
        return future

    def close(self) -> None:
        """Stop the threads, each after its current call; calls that have not started fail."""
        with self._lock:
            self._closed = True
            unstarted = self._take_all()
            self._wakes.wake(self._threads)
        for outbox, future, *_ in unstarted:
            outbox.post(future, (None, RuntimeError("the worker pool was closed before the call could start")))

    def _check_load(self) -> None:
        """Wake more threads if calls are still queued; runs in the event loop's thread."""
        self._check_scheduled = self._too_many = False
        queued = len(self._jobs)
        if not queued or self._closed:
            return
        awake = self._awake
        if not awake or self._monitor.more_would_help(time.monotonic(), self._cpu_time(), self._finished, awake):
            self._wake(min(queued, max(1, awake)))
        else:
            self._too_many = awake > 1
        outbox = self._outbox
        if (self._too_many or self._awake < self._max_threads) and outbox is not None and not outbox.loop.is_closed():
            self._check_scheduled = True
            outbox.loop.call_later(_WAKE_DELAY, self._check_load)

    def _cpu_time(self) -> float:
        """Return the processor time used by the threads; zero if the system cannot measure it."""
        return sum(map(time.clock_gettime, self._clocks)) if _HAS_THREAD_CLOCKS else 0.0

    def _wake(self, count: int) -> None:
        """Wake ``count`` threads, sleeping ones first, then new ones up to the maximum."""
        woken = 0
        with self._lock:
            for _ in range(count):
                if self._awake < self._threads:
                    woken += 1
                elif self._threads >= self._max_threads or not self._start_thread():
                    break
                self._awake += 1
        # Outside of the lock: a thread may wake up, run its call and need the lock before the write returns.
        self._wakes.wake(woken)

    def _start_thread(self) -> bool:
        # A daemon thread: a blocked function must not keep the process from exiting.
        thread = threading.Thread(target=self._work, name=f"trunkline-worker-{self._threads}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no more threads. The existing ones must suffice; without any, the call would never run.
            if not self._threads:
                self._take_all()
                raise
            return False
        self._threads += 1
        return True

    def _take_all(self) -> list[_Job]:
        taken: list[_Job] = []
        while self._jobs:
            try:
                taken.append(self._jobs.popleft())
            except IndexError:
                # A worker thread took the last one.
                break
        return taken

    def _work(self) -> None:
        """Run calls while there are any, then sleep until woken; the main function of a thread."""
        if _HAS_THREAD_CLOCKS:
            self._clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        while True:
            # No part of a call stays in this frame, so an idle thread keeps no arguments of its last call alive.
            while self._run_next():
                pass
            self._wakes.wait()
            if self._closed and not self._jobs:
                return

    def _run_next(self) -> bool:
        """Run one call; return False if the thread is to sleep."""
        try:
            outbox, future, function, kwargs, context = self._jobs.popleft()
        except IndexError:
            return not self._may_sleep()
        outcome = _CANCELLED if future.cancelled() else _call(function, kwargs, context)
        self._finished += 1
        # Decided before the event loop is woken, so that its thread finds the interpreter free as soon as possible.
        sleeps = (not self._jobs or self._too_many) and self._may_sleep()
        outbox.post(future, outcome)
        # The traceback of an error refers to this frame; these references would be a cycle for the garbage collector.
        del future, outcome
        return not sleeps

    def _may_sleep(self) -> bool:
        """Count this thread as asleep and return True, unless there are calls for it to run."""
        with self._lock:
            if self._too_many and self._awake > 1:
                # This thread sleeps although calls are queued: the others are faster without it.
                self._too_many = False
                self._awake -= 1
                return True
            # In this order: a call that is submitted in between finds no thread awake, and wakes one.
            self._awake -= 1
            if self._jobs:
                self._awake += 1
                return False
            return True


class _WakePipe:
    """Wakes threads that wait, one for each byte; closed when no thread is left.

    A pipe and not a queue: writing releases the interpreter, so that the thread that wakes up finds it free. One woken
    by a lock has to wait a second time, until its waker sleeps, which doubles the number of thread switches.
    """

    __slots__ = ("_read_fd", "_write_fd")

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()

    def wake(self, count: int) -> None:
        """Wake this many threads, now or as soon as they wait."""
        if count:
            os.write(self._write_fd, b"." * count)

    def wait(self) -> None:
        """Wait until woken."""
        os.read(self._read_fd, 1)

    def __del__(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


class _LoadMonitor:
    """Decides whether more threads would help: not while the awake ones finish calls and keep the processor busy."""

    __slots__ = ("_cpu", "_finished", "_progress_at", "_since")

    def begin(self, at: float, cpu: float, finished: int) -> None:
        """Start a period: the time, the processor time of the threads, and the number of finished calls."""
        self._since = self._progress_at = at
        self._cpu = cpu
        self._finished = finished

    def more_would_help(self, at: float, cpu: float, finished: int, awake: int) -> bool:
        """Return whether more threads would help, judged by the period since the last checks."""
        if finished != self._finished:
            self._progress_at, self._finished = at, finished
        elapsed = at - self._since
        busy = cpu - self._cpu >= (_BUSY if elapsed >= _SHORT else _IDLE) * elapsed
        if not busy or at - self._progress_at >= _STUCK * awake:
            self.begin(at, cpu, finished)
            return True
        if elapsed >= _SHORT:
            self._since, self._cpu = at, cpu
        return False


class _Outbox:
    """Results on their way back to one event loop."""

    __slots__ = ("_results", "_woken", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._results: deque[tuple[asyncio.Future[Any], _Outcome]] = deque()
        self._woken = False

    def post(self, future: asyncio.Future[object], outcome: _Outcome) -> None:
        """Add the outcome of a call; may be called from any thread."""
        # Append first, then read the flag, which the drain clears before it takes anything: if the flag is set, a drain
        # is still to come. Two threads that both find it cleared only cost one superfluous wake-up.
        self._results.append((future, outcome))
        if not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The event loop is closed: nothing awaits these results any more.
                self._results.clear()

    def _drain(self) -> None:
        self._woken = False
        results = self._results
        while results:
            future, (result, error) = results.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


# The outcome of a call: a result, or an error.
_Outcome: TypeAlias = tuple[Any, BaseException | None]
# A queued call.
_Job: TypeAlias = tuple[_Outbox, asyncio.Future[Any], Callable[..., Any], Mapping[str, Any], contextvars.Context]

_CANCELLED: _Outcome = (None, None)


def _call(function: Callable[..., object], kwargs: Mapping[str, object], context: contextvars.Context) -> _Outcome:
    try:
        return context.run(function, **kwargs), None
    except _UNSAFE_IN_LOOP as raised:
        name = getattr(function, "__name__", None) or repr(function)
        return None, _caused(RuntimeError(f"{name} raised {type(raised).__name__} in its worker thread"), raised)
    except BaseException as raised:  # noqa: BLE001  (it is passed on to the caller)
        return None, raised


def _caused(error: RuntimeError, cause: BaseException) -> RuntimeError:
    error.__cause__ = cause
    return error
