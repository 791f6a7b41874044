"""Temporary signal handlers on the event loop, where the system and the thread support them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

__all__ = ["hearing"]


@contextmanager
def hearing(wanted: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Call a function for each signal while the context is active; unsupported signals keep their default."""
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
