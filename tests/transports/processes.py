"""Helpers about processes: which run, and whether they exit within a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["PROGRAMS", "alive", "children", "descriptors", "gone_within"]

PROGRAMS = Path(__file__).parent / "programs"


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def gone_within(pids: Iterable[int], seconds: float) -> list[int]:
    """Wait until none of the processes lives; give those that still do when the time is over."""
    until = time.monotonic() + seconds
    left = [pid for pid in pids if alive(pid)]
    while left and time.monotonic() < until:
        time.sleep(0.01)
        left = [pid for pid in left if alive(pid)]
    return left


def children() -> set[int]:
    """List our children, zombies included."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def descriptors() -> set[str]:
    """List our open descriptors."""
    return set(os.listdir("/proc/self/fd"))
