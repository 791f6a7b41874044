"""What belongs to one request while it is served, besides what it asked: the questions back, and what handlers keep.

The connection carries both without looking into them; the server fills them in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trunkline.protocol.request_validation import ValidatedRequest as ValidatedRequest
    from trunkline.types import InputRequiredResult

__all__ = ["Questions", "RequestStore"]


class Questions(Protocol):
    """The questions that are asked of the caller while its request is served."""

    @property
    def round(self) -> int:
        """How often the caller has been asked before, in this call."""

    @property
    def nonce(self) -> str | None:
        """Names the state that the call was resumed from, if it was."""

    @property
    def left(self) -> bool:
        """Whether the handler was cancelled so that its questions can go out in the result."""

    @property
    def replaying(self) -> bool:
        """Whether the handler repeats what an earlier round has done."""

    def did(self, key: str) -> bool:
        """Return True if ``once`` has a result for this key."""

    def input_required(self) -> InputRequiredResult:
        """Return the result that asks the caller."""


class RequestStore:
    """What all contexts of one request share."""

    __slots__ = ("progress", "state")

    def __init__(self) -> None:
        """Start empty."""
        self.state: dict[str, object] = {}
        #: The last progress that was reported.
        self.progress: float | None = None
