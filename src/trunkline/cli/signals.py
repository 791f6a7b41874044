"""Has functions called on signals while something lasts, where the system and the thread can."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

__all__ = ["hearing"]


@contextmanager
def hearing(wanted: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Have each signal call its function; what cannot be heard here is left to the system."""
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []
    try:
        for number, function in wanted.items():
            try:
                loop.add_signal_handler(number, function)
            except (NotImplementedError, RuntimeError, ValueError):
                # Not the main thread, or a system without such signals.
                break
            heard.append(number)
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
