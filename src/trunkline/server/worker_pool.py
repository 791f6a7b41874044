"""Worker threads for sync functions: calls go in from an event loop, results come back to it in bursts.

It knows nothing of tools or requests: a function, its arguments and a context. Most functions are short, and for them
one thread that takes a burst of calls one after another is much cheaper than a thread woken for each. So a call wakes a
thread only if none is awake; if calls still wait a moment later, those awake are held up, and their number is doubled,
up to a bound, unless what they do keeps the processor busy: then more of them would only fight for it. A result is put
on the outbox of the loop that asked, and the loop is woken only if it has not been woken since it last looked. A thread
cannot be stopped from outside; a cancelled call that has not started never starts, and the result of one that has is
dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, TypeAlias

__all__ = ["WorkerPool"]

# What would end the event loop, or pass for a cancellation, if it came out of an await. Other exceptions cross as they
# are, also those that are no `Exception`.
_NOT_FOR_A_LOOP = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration)


# So long the threads that are awake have for what waits, before more are woken.
_PATIENCE = 0.001
_TELLS_OF_THREADS = hasattr(time, "pthread_getcpuclockid")
# Threads count as busy that together use a processor for such a share of the time; a short time tells little, and only
# those that are as good as idle do not count as busy then.
_BUSY = 0.5
_IDLE = 0.25  # Of one processor, measured over less than `_SHORT`.
_SHORT = 0.01  # Seconds; below them one time slice of the scheduler decides the share.
# So long each thread may keep the processor busy without an end of any call, before one that waits gets a thread.
_STUCK = 0.02


class WorkerPool:
    """Runs sync functions in at most so many threads, for one event loop after another."""

    __slots__ = (
        "_awake",
        "_clocks",
        "_closed",
        "_ended",
        "_jobs",
        "_lock",
        "_looking",
        "_max_threads",
        "_outbox",
        "_pace",
        "_threads",
        "_too_many",
        "_wakes",
    )

    def __init__(self, max_threads: int) -> None:
        """Start no thread yet.

        Raises:
            ValueError: the bound leaves no thread at all.
        """
        if max_threads < 1:
            raise ValueError(f"A worker pool needs at least one thread, not {max_threads}")
        self._max_threads = max_threads
        self._threads = 0
        #: Threads that take calls, or are in one, stuck ones included; changed under the lock.
        self._awake = 0
        self._closed = False
        self._lock = threading.Lock()
        self._jobs: deque[_Job] = deque()
        #: Each item wakes one thread: True to take calls, False to end.
        self._wakes: SimpleQueue[bool] = SimpleQueue()
        self._outbox: _Outbox | None = None
        self._looking = False
        #: How many calls have ended, about: what counts is whether it is another number than before.
        self._ended = 0
        self._pace = _Pace()
        self._clocks: list[int] = []
        #: Whether one of the threads that are awake is to sleep; said by the loop's thread.
        self._too_many = False

    def submit(
        self, function: Callable[..., object], kwargs: Mapping[str, object], context: contextvars.Context | None = None
    ) -> asyncio.Future[Any]:
        """Have a function called in a thread and give the future of its result, in the running loop.

        The function runs in ``context``, which must not be entered elsewhere meanwhile, or in a copy of the caller's.
        ``SystemExit`` and its like become the ``RuntimeError`` of this call, with the original as its cause.

        Raises:
            RuntimeError: the pool is closed, or no event loop is running.
        """
        loop = asyncio.get_running_loop()
        outbox = self._outbox
        if outbox is None or outbox.loop is not loop:
            outbox = self._outbox = _Outbox(loop)
            self._looking = False
        if context is None:
            context = contextvars.copy_context()
        future: asyncio.Future[Any] = loop.create_future()
        if self._closed:
            raise RuntimeError("The worker pool is closed")
        self._jobs.append((outbox, future, function, kwargs, context))
        # Read without the lock: a thread that is about to sleep looks at the calls once more after it says so.
        if self._awake == 0:
            self._wake(1)
        elif not self._looking:
            self._looking = True
            self._pace.begin(time.monotonic(), self._used(), self._ended)
            loop.call_later(_PATIENCE, self._look)
        return future

    def close(self) -> None:
        """Let the threads end, each after the call it is in; calls that have not started fail."""
        with self._lock:
            self._closed = True
            unstarted = self._take_all()
            for _ in range(self._threads):
                self._wakes.put(False)
        for outbox, future, *_ in unstarted:
            outbox.post(future, (None, RuntimeError("The worker pool was closed before the call could start")))

    def _look(self) -> None:
        """Wake more threads if calls still wait; in the loop's thread."""
        self._looking = self._too_many = False
        waiting = len(self._jobs)
        if not waiting or self._closed:
            return
        awake = self._awake
        if not awake or self._pace.more_would_help(time.monotonic(), self._used(), self._ended, awake):
            self._wake(min(waiting, max(1, awake)))
        else:
            self._too_many = awake > 1
        outbox = self._outbox
        if (self._too_many or self._awake < self._max_threads) and outbox is not None and not outbox.loop.is_closed():
            self._looking = True
            outbox.loop.call_later(_PATIENCE, self._look)

    def _used(self) -> float:
        """Give the time for which the threads have used a processor, where the system tells it of each; else none."""
        return sum(map(time.clock_gettime, self._clocks)) if _TELLS_OF_THREADS else 0.0

    def _wake(self, count: int) -> None:
        """Wake so many threads, sleeping ones first, new ones up to the bound."""
        with self._lock:
            for _ in range(count):
                if self._awake < self._threads:
                    self._wakes.put(True)
                elif self._threads >= self._max_threads or not self._start_thread():
                    return
                self._awake += 1

    def _start_thread(self) -> bool:
        # A daemon: a stuck function must not keep the process from ending.
        thread = threading.Thread(target=self._work, name=f"trunkline-worker-{self._threads}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system gives no more threads: those there are must do, but with none the call would wait for ever.
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
                # A thread was quicker.
                break
        return taken

    def _work(self) -> None:
        """Be one thread: take calls while there are any, then sleep until woken."""
        if _TELLS_OF_THREADS:
            self._clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        while True:
            # Nothing of a call stays in this frame: an idle thread keeps no arguments of its last one.
            while self._serve() and not self._too_many:
                pass
            with self._lock:
                if self._too_many and self._awake > 1:
                    # One goes to sleep although calls wait: the others are faster without it.
                    self._too_many = False
                elif self._jobs:
                    continue
                self._awake -= 1
            if not self._wakes.get():
                return

    def _serve(self) -> bool:
        """Run one call; False if there is none."""
        try:
            outbox, future, function, kwargs, context = self._jobs.popleft()
        except IndexError:
            return False
        outcome = _CANCELLED if future.cancelled() else _call(function, kwargs, context)
        outbox.post(future, outcome)
        self._ended += 1
        # The traceback of an error leads back to this frame: what it still held would wait for the collector.
        del future, outcome
        return True


class _Pace:
    """Whether more threads would help: not while those there are get on, and keep the processor busy with it."""

    __slots__ = ("_cpu", "_ended", "_got_on", "_since")

    def begin(self, at: float, cpu: float, ended: int) -> None:
        """Take the time, the time for which threads have used a processor, and how many calls have ended."""
        self._since = self._got_on = at
        self._cpu = cpu
        self._ended = ended

    def more_would_help(self, at: float, cpu: float, ended: int, awake: int) -> bool:
        """Judge by what was done since the last looks."""
        if ended != self._ended:
            self._got_on, self._ended = at, ended
        passed = at - self._since
        busy = cpu - self._cpu >= (_BUSY if passed >= _SHORT else _IDLE) * passed
        if not busy or at - self._got_on >= _STUCK * awake:
            self.begin(at, cpu, ended)
            return True
        if passed >= _SHORT:
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
        """Hand over how a call ended, from any thread."""
        # Append first, then look at the flag that the drain lowers before it takes anything: whoever finds it raised
        # knows that a drain is still to come. Two threads that both find it lowered cost a wake-up too many, no more.
        self._results.append((future, outcome))
        if not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The loop is closed: nobody waits for these results any more.
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


# How a call ended: with a result, or with an error.
_Outcome: TypeAlias = tuple[Any, BaseException | None]
# A call on its way to a thread.
_Job: TypeAlias = tuple[_Outbox, asyncio.Future[Any], Callable[..., Any], Mapping[str, Any], contextvars.Context]

_CANCELLED: _Outcome = (None, None)


def _call(function: Callable[..., object], kwargs: Mapping[str, object], context: contextvars.Context) -> _Outcome:
    try:
        return context.run(function, **kwargs), None
    except _NOT_FOR_A_LOOP as raised:
        name = getattr(function, "__name__", None) or repr(function)
        return None, _caused(RuntimeError(f"{name} raised {type(raised).__name__} in its worker thread"), raised)
    except BaseException as raised:  # noqa: BLE001  (whatever it is, it belongs to the caller)
        return None, raised


def _caused(error: RuntimeError, cause: BaseException) -> RuntimeError:
    error.__cause__ = cause
    return error
