"""State of a request while it is served: requests back to the caller, and the store that handlers share.

The connection carries both without using them; the server fills them in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trunkline.protocol.request_validation import ValidatedRequest as ValidatedRequest
    from trunkline.types import InputRequiredResult

__all__ = ["ElicitorState", "RequestStore"]


class ElicitorState(Protocol):
    """The requests that are sent back to the caller while its request is served."""

    @property
    def round(self) -> int:
        """The number of earlier rounds of this call, each of which ended with requests to the caller."""

    @property
    def nonce(self) -> str | None:
        """Identifies the sealed state that the call was resumed from, if it was."""

    @property
    def interrupted(self) -> bool:
        """Whether the handler was cancelled so that its requests can be sent in the result."""

    @property
    def replaying(self) -> bool:
        """Whether the handler is still repeating what it did in an earlier round."""

    def did(self, key: str) -> bool:
        """Return True if ``once`` has a result for this key."""

    async def input_required(self) -> InputRequiredResult:
        """Return the result that carries the requests to the caller."""


class RequestStore:
    """Values shared by all contexts of one request."""

    __slots__ = ("handles", "progress", "state")

    def __init__(self) -> None:
        """Create an empty store."""
        self.state: dict[str, object] = {}
        #: The progress that was reported last.
        self.progress: float | None = None
        #: The number of handles that were created without a key.
        self.handles: int = 0
