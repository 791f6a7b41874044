"""Observation of all messages between a host and its servers, on shared and dedicated connections alike.

Observing may start and end while the host runs, and includes open connections. Without an observer, a message costs one
attribute check (``Connection.observer``). Nothing is stored or masked here: that is up to the observer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakSet

from msgspec import Struct

from trunkline.protocol.jsonrpc import Incoming, Outbound
from trunkline.protocol.traffic import HttpTraffic, TrafficObserver, TrafficTap
from trunkline.types import RequestId

__all__ = ["HostTraffic", "ServerTap", "TrafficHandler", "TrafficSource"]

log = logging.getLogger("trunkline.host")


class TrafficSource(Struct, frozen=True):
    """A connection of the host: its server, and ``shared`` or ``dedicated N``."""

    server: str
    connection: str


class TrafficHandler(Protocol):
    """Observes a host."""

    def __call__(self, source: TrafficSource) -> TrafficObserver:
        """Called once for each client of the host; return the observer of its traffic."""


class ServerTap(TrafficTap):
    """The tap of one client of a host."""

    def __init__(self, traffic: HostTraffic, source: TrafficSource) -> None:
        """Start without an observer."""
        super().__init__()
        self.source = source
        self._traffic = traffic

    def dedicated(self) -> ServerTap:
        """Return the tap of a dedicated connection to the same server."""
        return self._traffic.dedicated_tap(self.source.server)


class HostTraffic:
    """The taps of a host, and their observers."""

    def __init__(self) -> None:
        """Start without taps and handlers."""
        self._taps: WeakSet[ServerTap] = WeakSet()
        self._handlers: list[TrafficHandler] = []
        self._dedicated = 0

    def tap(self, server: str) -> ServerTap:
        """Return a new tap for the shared connection to a server; it lasts as long as its client."""
        return self._add(ServerTap(self, TrafficSource(server, "shared")))

    def dedicated_tap(self, server: str) -> ServerTap:
        """Return a new tap for a dedicated connection to a server."""
        self._dedicated += 1
        return self._add(ServerTap(self, TrafficSource(server, f"dedicated {self._dedicated}")))

    def _add(self, tap: ServerTap) -> ServerTap:
        self._taps.add(tap)
        self._connect(tap)
        return tap

    def observe(self, handler: TrafficHandler) -> Callable[[], None]:
        """Observe all open and later connections; return a function that stops observing."""
        self._handlers.append(handler)
        self._connect_all()

        def end() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)
                self._connect_all()

        return end

    def _connect_all(self) -> None:
        for tap in self._taps:
            self._connect(tap)

    def _connect(self, tap: ServerTap) -> None:
        observers = tap.observer.observers if isinstance(tap.observer, _Observers) else {}
        kept = {handler: observers.get(handler) or handler(tap.source) for handler in self._handlers}
        tap.observe(_Observers(kept) if kept else None)


class _Observers:
    """Passes the traffic of one client to several observers; a failure of one affects neither traffic nor others."""

    def __init__(self, observers: dict[TrafficHandler, TrafficObserver]) -> None:
        self.observers = observers

    def messages_sent(self, batch: Sequence[Outbound]) -> None:
        self._call("messages_sent", batch)

    def message_received(self, incoming: Incoming) -> None:
        self._call("message_received", incoming)

    def request_failed(self, id: RequestId, error: Exception | None) -> None:
        self._call("request_failed", id, error)

    def http_exchanged(self, exchange: HttpTraffic) -> None:
        self._call("http_exchanged", exchange)

    def connected(self) -> None:
        self._call("connected")

    def _call(self, name: str, *arguments: Any) -> None:
        for observer in self.observers.values():
            try:
                getattr(observer, name)(*arguments)
            except Exception:
                log.exception("an observer of the traffic failed")
