"""What a connection needs to serve requests: the interface of the service that handles them, and its errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from trunkline.errors import InsufficientScope, RequestFailed
from trunkline.protocol.caller import Origin, Session
from trunkline.protocol.peer import NotificationReceived

if TYPE_CHECKING:
    from trunkline.connection import Exchange

__all__ = ["ErrorReply", "Service", "TaskFactory", "error_reply", "public_message", "task_factory"]

log = logging.getLogger("trunkline")

#: Starts a task for a coroutine.
TaskFactory = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class ErrorReply(Struct, frozen=True):
    """The error response to a request that is rejected."""

    code: int
    message: str
    data: Any = msgspec.UNSET
    #: The scopes that the caller's token lacks, if that is why it was rejected.
    insufficient_scope: InsufficientScope | None = None


def error_reply(error: RequestFailed) -> ErrorReply:
    """Return the error response for an exception of a handler."""
    data = msgspec.UNSET if error.data is None else error.data
    scope = error if isinstance(error, InsufficientScope) else None
    return ErrorReply(error.code, public_message(error), data, scope)


def public_message(error: RequestFailed) -> str:
    """Return the message that the caller gets; if it is another one than the error's, log that of the error."""
    if error.public_message != error.message:
        log.warning("a request failed: %s", error.message)
    return error.public_message


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


def task_factory(loop: asyncio.AbstractEventLoop) -> TaskFactory:
    """Return a function that creates asyncio tasks without the loop's slower wrapper, unless that is customized."""
    plain = loop.get_task_factory() is None and not loop.get_debug()
    return partial(asyncio.Task, loop=loop) if plain else loop.create_task
