"""What a store counts about itself, for metrics: a few numbers, read when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from trunkline.errors import StoreUnavailable

__all__ = ["StoreStats"]


class StoreStats:
    """The operations of one connection to a store, since the process began."""

    __slots__ = ("done", "failed", "last_success", "reconnects", "seconds")

    def __init__(self) -> None:
        """Start at zero."""
        self.done = 0
        self.failed = 0
        #: Of all operations together, failed ones too.
        self.seconds = 0.0
        #: How often it could be reached again after it could not.
        self.reconnects = 0
        #: Wall time of the last answer; 0 if there was none.
        self.last_success = 0.0

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Count an operation; one that is cancelled is not counted."""
        began = time.perf_counter()
        try:
            yield
        except StoreUnavailable:
            self.failed += 1
            self.seconds += time.perf_counter() - began
            raise
        self.done += 1
        self.seconds += time.perf_counter() - began
        self.last_success = time.time()
