"""Batches: validated as a whole, and answered with one array when the last answer is ready."""

from __future__ import annotations

from trunkline.protocol.jsonrpc import Batch, ErrorResponse, Malformed, Message, Notification, Request, Response
from trunkline.types import ErrorObject, RequestId

__all__ = ["BatchReply", "fault"]


def fault(batch: Batch) -> str | None:
    """Return why a batch is invalid as a whole, or None."""
    answers = sum(isinstance(item, Response | ErrorResponse) for item in batch.items)
    asks = sum(isinstance(item, Request | Notification) for item in batch.items)
    if answers and asks:
        return "Invalid request: a batch holds requests or responses, not both"
    ids = [item.id for item in batch.items if isinstance(item, Request)]
    if len(ids) != len({(type(id), id) for id in ids}):
        return "Invalid request: two requests of a batch have the same id"
    # 2025-03-26, basic/lifecycle: the initialize request MUST NOT be part of a batch.
    if any(isinstance(item, Request) and item.method == "initialize" for item in batch.items):
        return "Invalid request: initialize cannot be part of a batch"
    return None


class BatchReply:
    """Collects the answers to one batch."""

    __slots__ = ("_messages", "_owed")

    def __init__(self, batch: Batch) -> None:
        """Expect an answer to each request; invalid messages are answered at once."""
        self._owed = {item.id for item in batch.items if isinstance(item, Request)}
        self._messages: list[Message] = [
            ErrorResponse(item.id, ErrorObject(code=item.code, message=item.message))
            for item in batch.items
            if isinstance(item, Malformed) and not item.response
        ]

    def add(self, id: RequestId, message: Message | None) -> tuple[Message, ...] | None:
        """Add the answer to a request (None: it was cancelled); return all answers once none is missing."""
        self._owed.discard(id)
        if message is not None:
            self._messages.append(message)
        return self.complete()

    def complete(self) -> tuple[Message, ...] | None:
        """Return the answers if none is missing and there are some."""
        if self._owed or not self._messages:
            return None
        messages, self._messages = tuple(self._messages), []
        return messages
