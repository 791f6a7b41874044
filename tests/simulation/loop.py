"""A deterministic event loop: virtual time, no sockets, no threads.

Everything that runs belongs to an *actor*: a worker process, a client, the world itself. The callbacks of one actor run
in the order in which they were scheduled, as asyncio promises; which actor runs next is chosen by the seed, as
processes on machines of their own are in no order. An actor that was killed runs nothing any more, not even its
``finally`` blocks. The actor of a callback is found in its context, which tasks and futures pass on.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import time
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from typing import Any

from trunkline.timers import LoopClock

__all__ = ["EPOCH", "Actor", "SimulationLoop", "current_actor", "virtual_time"]

#: The wall time at the start of each run.
EPOCH = 1_800_000_000.0


class Actor:
    """Something with an order of its own: a worker process, a client, the world."""

    __slots__ = ("alive", "context", "name", "ready", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.ready: deque[_Handle] = deque()
        #: All its tasks, so that none is collected, at whatever time, before the run has ended.
        self.tasks: list[asyncio.Task[Any]] = []
        self.context: Context = Context()
        self.context.run(_actor.set, self)


_actor: ContextVar[Actor] = ContextVar("simulated actor")


def current_actor() -> Actor:
    """Return the actor whose callback runs now."""
    return _actor.get()


class _Handle:
    __slots__ = ("_when", "actor", "args", "callback", "context")

    def __init__(
        self, callback: Callable[..., Any] | None, args: tuple[Any, ...], context: Context, actor: Actor
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.actor = actor
        self._when = 0.0

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self._when


# What asyncio never calls here is not implemented.
_Base: Any = asyncio.AbstractEventLoop


class SimulationLoop(_Base):  # type: ignore[misc]
    """The event loop of one run."""

    def __init__(self, random: Random) -> None:
        self._random = random.random
        self._now = 0.0
        self._timers: list[tuple[float, int, _Handle]] = []
        self._numbers = itertools.count()
        #: The actors that have something to run.
        self._ready: list[Actor] = []
        self._actors: list[Actor] = []
        #: How many callbacks have run.
        self.steps: int = 0
        #: What went wrong outside of any task that is awaited.
        self.errors: list[str] = []
        self._closed = False

    # --- actors ------------------------------------------------------------------------------------------------------

    def actor(self, name: str) -> Actor:
        """Add an actor."""
        actor = Actor(name)
        self._actors.append(actor)
        return actor

    def start(self, actor: Actor, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task of an actor."""
        return self.create_task(work, context=actor.context.copy())

    def schedule(self, actor: Actor, delay: float, callback: Callable[..., Any], *args: Any) -> _Handle:
        """Call something as an actor, after a delay."""
        handle: _Handle = self.call_at(self._now + delay, callback, *args, context=actor.context.copy())
        return handle

    def schedule_at(self, actor: Actor, when: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call something as an actor, at a time; what is scheduled for the same time keeps its order.

        It runs in the context of the actor itself, and so must not set context variables.
        """
        heappush(self._timers, (when, next(self._numbers), _Handle(callback, args, actor.context, actor)))

    def kill(self, actor: Actor) -> None:
        """End an actor at once: nothing of it runs any more."""
        actor.alive = False
        if actor.ready:
            actor.ready.clear()
            self._ready.remove(actor)

    # --- what asyncio calls ------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        if context is None:
            context = copy_context()
        actor = context[_actor]
        handle = _Handle(callback, args, context, actor)
        if actor.alive:
            if not actor.ready:
                self._ready.append(actor)
            actor.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        if context is None:
            context = copy_context()
        handle = _Handle(callback, args, context, context[_actor])
        handle._when = when
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        if self._closed:
            coro.close()
            raise RuntimeError("the run has ended")
        context = copy_context() if context is None else context
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        context[_actor].tasks.append(task)
        return task

    def get_task_factory(self) -> Any:
        # Not None, so that tasks are created by this loop and belong to an actor.
        return self.create_task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: Any) -> None:
        error = context.get("exception")
        self.errors.append(f"{context['message']}: {error!r}")

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """Do nothing: cancelled timers are dropped when they are due."""

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self, work: asyncio.Future[Any], *, until: float, most_steps: int = 1_000_000) -> bool:
        """Run until a future is done; return False if it is not by a virtual time, or after so many steps."""
        ready, timers, random = self._ready, self._timers, self._random
        steps = 0
        while not work.done():
            if not ready:
                if not self._advance(until):
                    return False
                continue
            steps += 1
            if steps > most_steps:
                return False
            index = int(random() * len(ready)) if len(ready) > 1 else 0
            actor = ready[index]
            handle = actor.ready.popleft()
            if not actor.ready:
                ready[index] = ready[-1]
                ready.pop()
            if handle.callback is not None:
                handle.context.run(handle.callback, *handle.args)
            if timers and timers[0][0] <= self._now:
                self._release_due()
        self.steps += steps
        return True

    def _advance(self, until: float) -> bool:
        """Move the time to the next timer; return False if there is none before a time."""
        timers = self._timers
        while timers:
            when, _, handle = timers[0]
            if handle.callback is not None and handle.actor.alive:
                if when > until:
                    return False
                self._now = max(self._now, when)
                self._release_due()
                return True
            heappop(timers)
        return False

    def _release_due(self) -> None:
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[2]
            actor = handle.actor
            if handle.callback is not None and actor.alive:
                if not actor.ready:
                    self._ready.append(actor)
                actor.ready.append(handle)

    def close(self) -> None:
        """End every actor, and close what was still running, so that nothing of it runs when it is collected."""
        self._closed = True
        for actor in self._actors:
            self.kill(actor)
        with warnings.catch_warnings():
            # Coroutines that these would start are never awaited.
            warnings.simplefilter("ignore", RuntimeWarning)
            for actor in self._actors:
                for task in actor.tasks:
                    if not task.done():
                        task._log_destroy_pending = False  # type: ignore[attr-defined]
                        with contextlib.suppress(BaseException):
                            actor.context.copy().run(task.get_coro().close)
                actor.tasks.clear()


@contextlib.contextmanager
def virtual_time(loop: SimulationLoop, random: Random) -> Iterator[None]:
    """Make this loop the running one; clocks show its time, and random bytes come from the seed."""

    def clock() -> float:
        return loop._now

    def token_urlsafe(size: int = 32) -> str:
        return random.randbytes(size).hex()

    def replace(owner: Any, **attributes: Any) -> None:
        for name, value in attributes.items():
            restore.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)

    with contextlib.ExitStack() as restore:
        replace(time, time=lambda: EPOCH + loop._now, monotonic=clock)
        replace(os, urandom=random.randbytes)
        replace(secrets, token_hex=lambda size=32: random.randbytes(size).hex(), token_bytes=random.randbytes)
        replace(secrets, token_urlsafe=token_urlsafe)
        restore.callback(setattr, LoopClock, "now", LoopClock.__dict__["now"])
        LoopClock.now = staticmethod(clock)
        asyncio._set_running_loop(loop)
        restore.callback(asyncio._set_running_loop, None)
        yield
