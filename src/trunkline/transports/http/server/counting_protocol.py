"""Counts the bytes of HTTP connections: a subclass of the connection's protocol, used only where they are counted."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["ByteCounter", "counting_protocol"]


class ByteCounter(Protocol):
    """Counts bytes in both directions."""

    def received(self, size: int) -> None:
        """Called with the size of what was received."""

    def sent(self, size: int) -> None:
        """Called with the size of what is sent."""


class _CountedTransport:
    """A transport that counts what is written to it."""

    __slots__ = ("_sent", "_transport")

    def __init__(self, transport: Any, counter: ByteCounter) -> None:
        self._transport = transport
        self._sent = counter.sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Count and write."""
        self._sent(len(data))
        self._transport.write(data)


def counting_protocol(protocol_class: type, counter: ByteCounter) -> type:
    """Return a subclass of a connection's protocol that counts bytes."""

    class CountingProtocol(protocol_class):  # type: ignore[misc]  # any protocol of uvicorn
        __slots__ = ()

        def connection_made(self, transport: Any) -> None:
            """Count what is written to the connection."""
            super().connection_made(_CountedTransport(transport, counter))

        def data_received(self, data: bytes) -> None:
            """Count what is received."""
            counter.received(len(data))
            super().data_received(data)

    return CountingProtocol
