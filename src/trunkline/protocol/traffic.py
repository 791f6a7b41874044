"""The interface for observing the traffic of a client: each message, and over HTTP each exchange.

A client has a ``TrafficTap`` if its owner may observe it, now or later. The tap sets the observer of open connections,
so that a connection without one costs a single attribute check per message. An observer must not raise or block: it is
called before a message is delivered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from weakref import WeakSet

from msgspec import Struct

from trunkline.protocol.jsonrpc import Incoming, Outbound
from trunkline.types import RequestId

__all__ = ["HttpTraffic", "ObservableConnection", "TrafficObserver", "TrafficTap"]


class HttpTraffic(Struct, frozen=True, kw_only=True):
    """One HTTP request and the head of its response; bodies are observed as messages."""

    method: str
    #: Without query and user info, which may contain secrets.
    url: str
    #: None if there was no response.
    status: int | None = None
    #: Without the values of headers that carry credentials.
    request_headers: Mapping[str, str] = {}
    response_headers: Mapping[str, str] = {}
    #: From sending the request to the response headers.
    seconds: float
    #: The id of our request that it carried, if any.
    about: RequestId | None = None
    #: Why there was no response.
    error: str | None = None


class TrafficObserver(Protocol):
    """Called with the traffic of one client, in the event loop's thread."""

    def messages_sent(self, batch: Sequence[Outbound]) -> None:
        """Called before messages are passed to the link."""

    def message_received(self, incoming: Incoming) -> None:
        """Called with a message before it is handled; the messages of a batch follow one by one."""

    def request_failed(self, id: RequestId, error: Exception | None) -> None:
        """Called when a request of ours can no longer get a response, such as after an HTTP error."""

    def http_exchanged(self, exchange: HttpTraffic) -> None:
        """Called when the head of an HTTP response has arrived, or the request failed."""

    def connected(self) -> None:
        """Called when a new connection was opened; its request ids start again."""


class ObservableConnection(Protocol):
    """A connection, as a tap sees it."""

    observer: TrafficObserver | None


class TrafficTap:
    """Observes the traffic of one client on all its connections."""

    def __init__(self) -> None:
        """Start without an observer."""
        self.observer: TrafficObserver | None = None
        self._connections: WeakSet[ObservableConnection] = WeakSet()

    def attach(self, connection: ObservableConnection) -> None:
        """Add a connection that was just opened."""
        self._connections.add(connection)
        connection.observer = self.observer
        if self.observer is not None:
            self.observer.connected()

    def observe(self, observer: TrafficObserver | None) -> None:
        """Set the observer of all open and later connections; None removes it."""
        self.observer = observer
        for connection in self._connections:
            connection.observer = observer
