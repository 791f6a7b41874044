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


def add(a: int, b: int) -> int:
    return a + b


def fail_with(error: BaseException) -> None:
    raise error


def await_gate(gate: threading.Event) -> bool:
    return gate.wait(WAIT)


class Own(BaseException):
    """No `Exception`, and nothing to an event loop."""


def call(pool: WorkerPool, function: Any, **kwargs: Any) -> Any:
    async def main() -> Any:
        return await pool.submit(function, kwargs)

    return run_async(main())


def test_a_function_gets_its_arguments_and_its_result_is_returned(pool: WorkerPool) -> None:
    assert call(pool, add, a=1, b=2) == 3


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


def test_no_more_threads_start_than_the_bound() -> None:
    pool = WorkerPool(2)

    async def main() -> set[int]:
        return set(await asyncio.gather(*[pool.submit(threading.get_ident, {}) for _ in range(64)]))

    assert len(run_async(main())) <= 2
    pool.close()


@pytest.mark.parametrize("size", [1, 64, 2000])
def test_every_call_of_a_burst_is_answered_with_its_own_result(pool: WorkerPool, size: int) -> None:
    async def main() -> list[int]:
        results: list[int] = await asyncio.gather(*[pool.submit(add, {"a": n, "b": 0}) for n in range(size)])
        return results

    assert run_async(main()) == list(range(size))


def test_a_burst_wakes_the_loop_fewer_times_than_it_has_calls() -> None:
    pool = WorkerPool(1)

    async def main() -> int:
        loop = asyncio.get_running_loop()
        wake, wakes = loop.call_soon_threadsafe, []

        def counted(*args: Any, **kwargs: Any) -> Any:
            wakes.append(args)
            return wake(*args, **kwargs)

        loop.call_soon_threadsafe = counted  # type: ignore[assignment]
        gate = threading.Event()
        calls = [pool.submit(await_gate, {"gate": gate}), *[pool.submit(add, {"a": 1, "b": 1}) for _ in range(500)]]
        gate.set()
        await asyncio.gather(*calls)
        return len(wakes)

    assert run_async(main()) < 250
    pool.close()


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


def test_superfluous_threads_sleep_and_every_call_is_answered(pool: WorkerPool) -> None:
    barrier = threading.Barrier(4)

    async def main() -> list[int]:
        await asyncio.gather(*[pool.submit(barrier.wait, {"timeout": WAIT}) for _ in range(4)])
        pool._monitor = _Never()
        results: list[int] = await asyncio.gather(*[pool.submit(add, {"a": n, "b": 0}) for n in range(2000)])
        return results

    assert run_async(main()) == list(range(2000))


def test_a_call_for_which_no_thread_is_awake_wakes_one_however_busy_the_process_is(pool: WorkerPool) -> None:
    pool._monitor = _Never()

    async def main() -> list[int]:
        return [int(await pool.submit(add, {"a": n, "b": 0})) for n in range(500)]

    assert run_async(main()) == list(range(500))


def test_a_call_that_never_ends_and_keeps_the_processor_busy_does_not_keep_the_others_waiting(pool: WorkerPool) -> None:
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            pass

    async def main() -> int:
        busy = pool.submit(spin, {})
        try:
            return int(await pool.submit(add, {"a": 1, "b": 2}))
        finally:
            done.set()
            await busy

    assert run_async(main()) == 3


def test_a_function_sees_the_callers_context_and_cannot_change_it(pool: WorkerPool) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")

    def swap() -> str:
        seen = user.get()
        user.set("other")
        return seen

    async def main() -> tuple[str, str]:
        user.set("ada")
        return await pool.submit(swap, {}), user.get()

    assert run_async(main()) == ("ada", "ada")


def test_a_function_runs_in_the_context_that_is_given(pool: WorkerPool) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    context = contextvars.Context()
    context.run(user.set, "grace")

    async def main() -> str:
        seen: str = await pool.submit(user.get, {}, context)
        return seen

    assert run_async(main()) == "grace"


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


def test_a_function_without_a_name_is_named_by_its_text(pool: WorkerPool) -> None:
    class Quit:
        def __call__(self) -> None:
            raise SystemExit

        def __repr__(self) -> str:
            return "<quit>"

    with pytest.raises(RuntimeError, match="<quit> raised SystemExit"):
        call(pool, Quit())


def test_the_late_result_of_a_cancelled_call_is_dropped() -> None:
    pool = WorkerPool(1)

    async def main() -> int:
        started, gate = threading.Event(), threading.Event()

        def work() -> bool:
            started.set()
            return gate.wait(WAIT)

        cancelled = pool.submit(work, {})
        assert await asyncio.to_thread(started.wait, WAIT)
        cancelled.cancel()
        after = pool.submit(add, {"a": 1, "b": 1})
        gate.set()
        result: int = await after
        assert cancelled.cancelled()
        return result

    assert run_async(main()) == 2
    pool.close()


def test_a_call_cancelled_before_it_starts_never_starts() -> None:
    pool = WorkerPool(1)
    ran: list[int] = []

    async def main() -> None:
        gate = threading.Event()
        first = pool.submit(await_gate, {"gate": gate})
        pool.submit(lambda: ran.append(1), {}).cancel()
        last = pool.submit(add, {"a": 1, "b": 1})
        gate.set()
        await asyncio.gather(first, last)

    run_async(main())
    assert ran == []
    pool.close()


def test_one_pool_serves_several_event_loops_in_turn(pool: WorkerPool) -> None:
    assert [call(pool, add, a=number, b=1) for number in range(3)] == [1, 2, 3]


def test_a_result_for_a_closed_loop_is_dropped_and_the_thread_goes_on() -> None:
    pool = WorkerPool(1)
    gate = threading.Event()

    async def leave() -> None:
        pool.submit(await_gate, {"gate": gate})

    run_async(leave())

    async def main() -> Any:
        following = pool.submit(add, {"a": 2, "b": 2})
        gate.set()
        return await following

    assert run_async(main()) == 4
    pool.close()


def test_a_thread_stuck_for_a_closed_loop_still_counts_as_busy() -> None:
    pool = WorkerPool(2)
    gate = threading.Event()

    async def leave() -> None:
        pool.submit(await_gate, {"gate": gate})

    run_async(leave())

    assert call(pool, add, a=2, b=2) == 4
    gate.set()
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


def test_close_waits_for_no_stuck_thread_and_its_result_still_arrives() -> None:
    pool = WorkerPool(1)

    async def main() -> bool:
        started, gate = threading.Event(), threading.Event()

        def work() -> bool:
            started.set()
            return gate.wait(WAIT)

        stuck = pool.submit(work, {})
        assert await asyncio.to_thread(started.wait, WAIT)
        pool.close()
        assert not stuck.done()
        gate.set()
        result: bool = await stuck
        return result

    assert run_async(main())


async def test_close_fails_the_calls_that_have_not_started() -> None:
    pool = WorkerPool(1)

    started, gate = threading.Event(), threading.Event()

    def work() -> bool:
        started.set()
        return gate.wait(WAIT)

    stuck = pool.submit(work, {})
    waiting = pool.submit(add, {"a": 1, "b": 1})
    assert await asyncio.to_thread(started.wait, WAIT)
    pool.close()
    with pytest.raises(RuntimeError, match="closed before the call could start"):
        await waiting
    gate.set()
    await stuck


def test_a_stuck_thread_ends_after_its_call_when_the_pool_was_closed_twice() -> None:
    pool = WorkerPool(1)

    async def main() -> threading.Thread:
        started, gate = threading.Event(), threading.Event()

        def work() -> threading.Thread:
            started.set()
            gate.wait(WAIT)
            return threading.current_thread()

        stuck = pool.submit(work, {})
        assert await asyncio.to_thread(started.wait, WAIT)
        pool.close()
        pool.close()
        gate.set()
        thread: threading.Thread = await stuck
        return thread

    thread = run_async(main())
    thread.join(WAIT)
    assert not thread.is_alive()


def test_a_closed_pool_rejects_calls(pool: WorkerPool) -> None:
    pool.close()

    with pytest.raises(RuntimeError, match="the worker pool is closed"):
        call(pool, add, a=1, b=1)


def test_a_pool_without_threads_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="at least one thread, not 0"):
        WorkerPool(0)


def test_a_system_without_threads_fails_the_call_rather_than_letting_it_wait(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            call(pool, add, a=1, b=1)

    assert call(pool, add, a=1, b=1) == 2


def test_without_more_system_threads_the_existing_ones_do_the_work(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> list[int]:
        results: list[int] = await asyncio.gather(*[pool.submit(add, {"a": 1, "b": n}) for n in range(8)])
        return results

    assert call(pool, add, a=1, b=1) == 2
    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert run_async(main()) == list(range(1, 9))


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
