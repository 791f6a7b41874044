"""Sync functions in worker threads, seen from the event loop that asks."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import run_async
from trunkline.server import worker_pool
from trunkline.server.worker_pool import WorkerPool

WAIT = 10.0


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool(4)
    yield made
    made.close()


@pytest.fixture
def single() -> Iterator[WorkerPool]:
    """A pool of one thread."""
    made = WorkerPool(1)
    yield made
    made.close()


class Gated:
    """A function that has begun, and waits until its gate is opened."""

    def __init__(self, pool: WorkerPool) -> None:
        """Submit the function."""
        self.gate, self._begun = threading.Event(), threading.Event()
        self.call = pool.submit(self._work, {})

    def _work(self) -> threading.Thread:
        self._begun.set()
        self.gate.wait(WAIT)
        return threading.current_thread()

    async def begun(self) -> None:
        """Wait until a thread runs it."""
        assert await asyncio.to_thread(self._begun.wait, WAIT)


def add(a: int, b: int) -> int:
    return a + b


def fail_with(error: BaseException) -> None:
    raise error


class Own(BaseException):
    """No `Exception`, and nothing to an event loop."""


def call(pool: WorkerPool, function: Any, **kwargs: Any) -> Any:
    async def main() -> Any:
        return await pool.submit(function, kwargs)

    return run_async(main())


def test_a_function_runs_in_another_thread_that_does_not_keep_the_process_alive(pool: WorkerPool) -> None:
    thread = call(pool, threading.current_thread)

    assert thread is not threading.current_thread()
    assert thread.daemon


def test_a_call_that_follows_another_gets_its_thread(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Between its answer and its sleep a thread still counts as awake, and a second one is woken if that takes long.
    monkeypatch.setattr(worker_pool, "_WAKE_DELAY", WAIT)

    assert call(pool, threading.get_ident) == call(pool, threading.get_ident)


async def test_as_many_calls_run_at_once_as_there_are_threads(pool: WorkerPool) -> None:
    barrier = threading.Barrier(4)

    await asyncio.gather(*[pool.submit(barrier.wait, {"timeout": WAIT}) for _ in range(4)])


async def test_no_more_threads_start_than_the_bound(single: WorkerPool) -> None:
    assert len(set(await asyncio.gather(*[single.submit(threading.get_ident, {}) for _ in range(64)]))) == 1


async def test_every_call_of_a_burst_is_answered_with_its_own_result(pool: WorkerPool) -> None:
    results = await asyncio.gather(*[pool.submit(add, {"a": n, "b": 0}) for n in range(2000)])
    assert results == list(range(2000))


async def test_a_burst_wakes_the_loop_fewer_times_than_it_has_calls(
    single: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, wakes = asyncio.get_running_loop(), list[Any]()
    wake = loop.call_soon_threadsafe

    def counted(*args: Any, **kwargs: Any) -> Any:
        wakes.append(args)
        return wake(*args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    first = Gated(single)
    calls = [single.submit(add, {"a": 1, "b": 1}) for _ in range(500)]
    first.gate.set()
    await asyncio.gather(first.call, *calls)
    assert len(wakes) < 250


Look = tuple[float, float, int]


@pytest.mark.parametrize(
    ("looks", "helps"),
    [
        pytest.param([(0.001, 0.0, 0)], [True], id="the threads wait for something"),
        pytest.param([(0.02, 0.008, 5)], [True], id="the processor has time left"),
        pytest.param([(0.001, 0.001, 0)], [False], id="the processor is busy"),
        pytest.param([(0.001, 0.0005, 0)], [False], id="busy half of a short time"),
        pytest.param([(0.001, 0.001, 1), (0.1, 0.1, 2)], [False, False], id="busy, and calls end"),
        pytest.param([(0.001, 0.001, 0), (0.021, 0.021, 0)], [False, True], id="busy, and none ends for long"),
        pytest.param(
            [(0.021, 0.021, 0), (0.022, 0.022, 0), (0.042, 0.042, 0)], [True, False, True], id="one more at a time"
        ),
        pytest.param([(0.01, 0.01, 1), (0.011, 0.01, 1)], [False, True], id="busy first, then waiting"),
        pytest.param([(0.009, 0.009, 0), (0.010, 0.009, 0)], [False, False], id="busy but for a moment"),
    ],
)
def test_more_threads_are_woken_only_if_that_helps(looks: list[Look], helps: list[bool]) -> None:
    monitor = worker_pool._LoadMonitor()
    monitor.begin(0.0, 0.0, 0)

    assert [monitor.more_would_help(*look, awake=1) for look in looks] == helps


def test_with_more_busy_threads_progress_may_take_longer() -> None:
    monitor = worker_pool._LoadMonitor()
    monitor.begin(0.0, 0.0, 0)

    assert [monitor.more_would_help(at, at, 0, awake=4) for at in (0.03, 0.07, 0.09)] == [False, False, True]


class _Never(worker_pool._LoadMonitor):
    """Always returns that no thread would help."""

    def more_would_help(self, at: float, cpu: float, ended: int, awake: int) -> bool:
        return False


async def test_superfluous_threads_sleep_and_every_call_is_answered(pool: WorkerPool) -> None:
    barrier = threading.Barrier(4)
    await asyncio.gather(*[pool.submit(barrier.wait, {"timeout": WAIT}) for _ in range(4)])
    pool._monitor = _Never()
    results = await asyncio.gather(*[pool.submit(add, {"a": n, "b": 0}) for n in range(2000)])
    assert results == list(range(2000))


async def test_a_call_for_which_no_thread_is_awake_wakes_one_however_busy_the_process_is(pool: WorkerPool) -> None:
    pool._monitor = _Never()
    assert [await pool.submit(add, {"a": n, "b": 0}) for n in range(500)] == list(range(500))


async def test_a_call_that_keeps_the_processor_busy_does_not_keep_the_others_waiting(pool: WorkerPool) -> None:
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            pass

    busy = pool.submit(spin, {})
    try:
        assert await pool.submit(add, {"a": 1, "b": 2}) == 3
    finally:
        done.set()
        await busy


async def test_a_function_sees_the_callers_context_and_cannot_change_it(pool: WorkerPool) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")

    def swap() -> str:
        seen = user.get()
        user.set("other")
        return seen

    user.set("ada")
    assert (await pool.submit(swap, {}), user.get()) == ("ada", "ada")


async def test_a_function_runs_in_the_context_that_is_given(pool: WorkerPool) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    context = contextvars.Context()
    context.run(user.set, "grace")
    assert await pool.submit(user.get, {}, context) == "grace"


@pytest.mark.parametrize("error", [ValueError("bad"), Own("own")], ids=["exception", "other base exception"])
def test_an_exception_is_raised_unchanged_with_its_traceback(pool: WorkerPool, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        call(pool, fail_with, error=error)

    assert caught.value is error
    assert "fail_with" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_unsafe_for_the_loop_becomes_an_error_of_its_call(pool: WorkerPool, error: BaseException) -> None:
    with pytest.raises(RuntimeError, match=f"fail_with raised {type(error).__name__}") as caught:
        call(pool, fail_with, error=error)

    assert caught.value.__cause__ is error
    assert call(pool, add, a=1, b=1) == 2


async def test_the_late_result_of_a_cancelled_call_is_dropped(single: WorkerPool) -> None:
    cancelled = Gated(single)
    await cancelled.begun()
    cancelled.call.cancel()
    after = single.submit(add, {"a": 1, "b": 1})
    cancelled.gate.set()
    assert (await after, cancelled.call.cancelled()) == (2, True)


async def test_a_call_cancelled_before_it_starts_never_starts(single: WorkerPool) -> None:
    ran: list[int] = []
    first = Gated(single)
    single.submit(lambda: ran.append(1), {}).cancel()
    last = single.submit(add, {"a": 1, "b": 1})
    first.gate.set()
    await asyncio.gather(first.call, last)
    assert ran == []


@pytest.mark.parametrize("size", [1, 2], ids=["the thread goes on", "the thread still counts as busy"])
def test_a_result_for_a_closed_loop_is_dropped(size: int) -> None:
    pool = WorkerPool(size)

    async def leave() -> Gated:
        return Gated(pool)

    async def main() -> Any:
        following = pool.submit(add, {"a": 2, "b": 2})
        if size == 1:
            left.gate.set()
        return await following

    left = run_async(leave())
    assert run_async(main()) == 4
    left.gate.set()
    pool.close()


def test_an_idle_thread_keeps_nothing_of_the_last_call(pool: WorkerPool) -> None:
    class Large:
        pass

    large = Large()
    gone = weakref.ref(large)

    assert call(pool, lambda value: value is not None, value=large)
    del large
    # A second call on the same single thread proves that the first has been left altogether.
    assert call(pool, add, a=1, b=1) == 2
    gc.collect()

    assert gone() is None


def test_a_failed_call_leaves_no_cycle_for_the_collector(pool: WorkerPool) -> None:
    class Marked(Exception):
        pass

    async def main() -> weakref.ref[Marked]:
        def fail() -> None:
            raise Marked

        try:
            await pool.submit(fail, {})
        except Marked as error:
            return weakref.ref(error)
        raise AssertionError("it did not fail")

    gc.disable()
    try:
        gone = run_async(main())
        # The thread is past the failed call once it has answered another.
        call(pool, add, a=1, b=1)
        assert gone() is None
    finally:
        gc.enable()


def test_close_ends_idle_threads(pool: WorkerPool) -> None:
    thread = call(pool, threading.current_thread)

    pool.close()
    thread.join(WAIT)

    assert not thread.is_alive()


async def test_close_waits_for_no_stuck_thread_and_its_result_still_arrives(single: WorkerPool) -> None:
    stuck = Gated(single)
    await stuck.begun()
    single.close()
    single.close()
    assert not stuck.call.done()
    stuck.gate.set()
    thread = await stuck.call
    thread.join(WAIT)
    assert not thread.is_alive()


async def test_close_fails_the_calls_that_have_not_started(single: WorkerPool) -> None:
    stuck = Gated(single)
    waiting = single.submit(add, {"a": 1, "b": 1})
    await stuck.begun()
    single.close()
    with pytest.raises(RuntimeError, match="closed before the call could start"):
        await waiting
    stuck.gate.set()
    await stuck.call


def test_a_closed_pool_rejects_calls(pool: WorkerPool) -> None:
    pool.close()

    with pytest.raises(RuntimeError, match="the worker pool is closed"):
        call(pool, add, a=1, b=1)


def test_a_pool_without_threads_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="at least one thread, not 0"):
        WorkerPool(0)


def refuse_to_start(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_system_without_threads_fails_the_call_rather_than_letting_it_wait(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse_to_start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            call(pool, add, a=1, b=1)

    assert call(pool, add, a=1, b=1) == 2


async def test_without_more_system_threads_the_existing_ones_do_the_work(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await pool.submit(add, {"a": 1, "b": 1}) == 2
    monkeypatch.setattr(threading.Thread, "start", refuse_to_start)
    assert await asyncio.gather(*[pool.submit(add, {"a": 1, "b": n}) for n in range(8)]) == list(range(1, 9))


def test_a_thread_about_to_sleep_changes_the_counter_before_it_looks_at_the_queue() -> None:
    """Otherwise a call submitted between the two finds a thread awake, and does not wake one."""
    pool = WorkerPool(1)
    awake: list[int] = []

    class Jobs(deque[Any]):
        def __len__(self) -> int:
            awake.append(pool._awake)
            return super().__len__()

    pool._jobs = Jobs()
    pool._awake = 1
    assert pool._may_sleep()
    assert awake == [0]
    pool._awake = 1
    pool._jobs.append(None)
    assert not pool._may_sleep()
    assert pool._awake == 1
