"""What is measured before and after: descriptors, tasks, memory, and processes by their mark."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from collections import Counter
from collections.abc import Callable

import psutil  # type: ignore[import-untyped]
from msgspec import Struct

from tests.faults.casting import MARK

__all__ = ["Measure", "below", "lives", "marked", "measure", "named", "processes_of", "settled", "until"]


class Measure(Struct, frozen=True, kw_only=True):
    """How much this process holds."""

    descriptors: int
    tasks: int
    threads: int
    megabytes: float
    #: What the descriptors and the tasks are, to name what is left over.
    kinds: Counter[str]
    names: Counter[str]


def measure() -> Measure:
    """Measure this process, after everything that nobody holds was given back."""
    for _ in range(3):
        gc.collect()
    _trim()
    kinds = _descriptors()
    names = Counter(_name(task) for task in asyncio.all_tasks())
    process = psutil.Process()
    return Measure(
        descriptors=kinds.total(),
        tasks=names.total(),
        threads=process.num_threads(),
        megabytes=process.memory_info().rss / 1e6,
        kinds=kinds,
        names=names,
    )


async def settled(before: Measure, *, seconds: float = 5.0) -> Measure:
    """Measure again once descriptors and tasks are what they were, or after so many seconds."""

    def same() -> bool:
        return _descriptors().total() <= before.descriptors and len(asyncio.all_tasks()) <= before.tasks

    await until(same, seconds)
    return measure()


async def until(true: Callable[[], object], seconds: float) -> bool:
    """Wait until something holds; tell whether it came to that in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.05)
    return True


def _descriptors() -> Counter[str]:
    found: Counter[str] = Counter()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        found[target.partition(":")[0]] += 1
    return found


def _name(task: asyncio.Task[object]) -> str:
    work = task.get_coro()
    return getattr(work, "__qualname__", None) or repr(work)


def _trim() -> None:
    """Have the C library give back what it keeps for later, where it can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def marked(mark: str) -> list[int]:
    """Find the processes of a run, this one left out."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def processes_of(mark: str, name: str) -> list[int]:
    """Find the processes of one server of a run: the one that all share, and those of single sessions."""
    return [pid for pid in marked(mark) if name in _arguments(pid)]


def _arguments(pid: int) -> list[str]:
    try:
        found: list[str] = psutil.Process(pid).cmdline()
        return found
    except psutil.Error:
        return []


def below(pid: int) -> list[int]:
    """Find all processes that a process started, and those that they started."""
    return [process.pid for process in psutil.Process(pid).children(recursive=True)]


def lives(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def named(pid: int) -> str:
    """Name a process, for a message."""
    try:
        process = psutil.Process(pid)
        return f"{pid} ({process.status()}, below {process.ppid()}) {' '.join(process.cmdline())[-120:]}"
    except psutil.Error:
        return str(pid)
