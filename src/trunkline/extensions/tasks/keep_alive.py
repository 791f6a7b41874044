"""Sends progress for silent calls that are held open, so that their clients keep waiting.

Many clients cancel a call after a minute without a response, but progress resets that timeout. A tool that may run as a
task declares that it is slow; if its caller does not support tasks, the call is held open, and progress is sent while
the handler sends none.
"""

from __future__ import annotations

import math

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.serving import RequestStore
from trunkline.server.server import Server
from trunkline.timers import TimerHandle

__all__ = ["KeepAlive"]

_SILENCE_SECONDS = 10.0  # Shorter than the shortest timeouts of known clients.
_STEP = 1e-6  # Progress must increase with each notification; this step is too small to look like real progress.


class KeepAlive:
    """Context manager that sends progress on an exchange while its handler is silent."""

    def __init__(self, server: Server, exchange: Exchange) -> None:
        """Create it for an exchange; it does nothing if the caller did not request progress."""
        meta = exchange.admitted.params.meta
        self._token: t.ProgressToken | None = None if meta is None else meta.progress_token
        self._server = server
        self._exchange = exchange
        self._timer: TimerHandle | None = None
        self._seconds = 0.0
        self._seen: float | None = None

    def __enter__(self) -> None:
        """Start the timer."""
        if self._token is not None:
            if self._exchange.store is None:
                # The handler's contexts store the last progress there.
                self._exchange.store = RequestStore()
            self._wait()

    def __exit__(self, *exc: object) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = self._server.call_later(_SILENCE_SECONDS, self._tick)

    def _tick(self) -> None:
        self._seconds += _SILENCE_SECONDS
        store, exchange = self._exchange.store, self._exchange
        if self._token is None or store is None or exchange.reports_status or not exchange.open:
            return
        if store.progress == self._seen:
            last = store.progress or 0.0
            store.progress = max(last + _STEP, math.nextafter(last, math.inf))
            message = f"still running ({self._seconds:g} s)"
            params = t.ProgressNotificationParams(progress_token=self._token, progress=store.progress, message=message)
            exchange.notify("notifications/progress", adapt_params(params, exchange.admitted.caller.revision))
        self._seen = store.progress
        self._wait()
