"""What a connection needs to serve requests: the interface of the service that handles them, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from trunkline.errors import InsufficientScope
from trunkline.protocol.caller import Origin, Session
from trunkline.protocol.peer import NotificationReceived

if TYPE_CHECKING:
    from trunkline.connection import Exchange

__all__ = ["ErrorReply", "Service", "TaskFactory"]

#: Starts a task for a coroutine.
TaskFactory = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class ErrorReply(Struct, frozen=True):
    """The error response to a request that is rejected."""

    code: int
    message: str
    data: Any = msgspec.UNSET
    #: The scopes that the caller's token lacks, if that is why it was rejected.
    insufficient_scope: InsufficientScope | None = None


class Service(Protocol):
    """Handles the messages of a connection; its methods are called in the order in which messages arrive."""

    @property
    def session(self) -> Session | None:
        """The session that the connection belongs to; None if there is none."""

    def request_received(self, exchange: Exchange, origin: Origin) -> Coroutine[Any, Any, Any] | ErrorReply:
        """Validate a request; return the coroutine that produces its result, or the error to respond with."""

    def notification_received(self, event: NotificationReceived, origin: Origin) -> None:
        """Handle a notification."""

    def accepts_batches(self) -> bool:
        """Return whether the other side may send JSON-RPC batches."""

    def input_ended(self) -> None:
        """Called when no more messages will arrive; endless streams should end."""
