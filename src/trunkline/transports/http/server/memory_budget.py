"""The one account of the memory that HTTP clients make a process hold while it receives and serves their requests.

Every request is charged to its caller (`owner_name`: a user, or a network where there are none) from the first part
of its body that arrives until it is answered, also if its client has disconnected meanwhile and the handler still waits
for an answer to a question. A caller has a share, and all callers together a total: what one does never uses up what
the others have, unless very many do it. What a request would exceed is refused at once, and nothing of it is held.

What the server keeps in its store is counted there, by `StoreBudget`.
"""

from __future__ import annotations

from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.asgi import TOO_MANY, UNAVAILABLE, HTTPException

__all__ = ["HeldMemory", "MemoryBudget"]

#: What a request holds besides its body: its headers, its task, its response.
OVERHEAD = 4096
_RETRY_SECONDS = b"5"  # Most requests are answered in less.


class MemoryBudget:
    """Counts the bytes that are held for each caller."""

    __slots__ = ("_by_owner", "_share", "_total", "held_bytes")

    def __init__(self, limits: Limits) -> None:
        """Start with nothing held."""
        # One request of the largest size always fits.
        self._share = max(limits.owner_memory_bytes, limits.body_bytes + OVERHEAD)
        self._total = max(limits.memory_bytes, self._share)
        self._by_owner: dict[str, int] = {}
        #: The bytes that are held for all callers.
        self.held_bytes: int = 0

    def hold(self, owner: str, size: int) -> HeldMemory:
        """Charge a request of so many bytes to its caller.

        Raises:
            HTTPException: the caller, or all callers together, would hold too much.
        """
        size += OVERHEAD
        self.charge(owner, size)
        return HeldMemory(self, owner, size)

    def charge(self, owner: str, size: int) -> None:
        """Add to what is held for a caller.

        Raises:
            HTTPException: the caller, or all callers together, would hold too much.
        """
        held = self._by_owner.get(owner, 0) + size
        if held > self._share:
            raise _refusal(
                TOO_MANY,
                f"The requests of this caller that are in progress hold too much memory "
                f"(owner_memory_bytes={self._share}); wait until some are answered",
            )
        if self.held_bytes + size > self._total:
            raise _refusal(
                UNAVAILABLE,
                f"The requests in progress hold too much memory (memory_bytes={self._total}); try again later",
            )
        self._by_owner[owner] = held
        self.held_bytes += size

    def release(self, owner: str, size: int) -> None:
        """Subtract from what is held for a caller."""
        self.held_bytes -= size
        left = self._by_owner[owner] - size
        if left:
            self._by_owner[owner] = left
        else:
            del self._by_owner[owner]


class HeldMemory:
    """What one request holds."""

    __slots__ = ("_budget", "_owner", "_size")

    def __init__(self, budget: MemoryBudget, owner: str, size: int) -> None:
        """Wrap what was charged."""
        self._budget = budget
        self._owner = owner
        self._size = size

    def grow(self, size: int) -> None:
        """Charge more.

        Raises:
            HTTPException: the caller, or all callers together, would hold too much.
        """
        self._budget.charge(self._owner, size)
        self._size += size

    def release(self) -> None:
        """Release it; a second time does nothing."""
        if self._size:
            self._budget.release(self._owner, self._size)
            self._size = 0


def _refusal(status: int, message: str) -> HTTPException:
    # The rest of the body is not read.
    headers = ((b"retry-after", _RETRY_SECONDS), (b"connection", b"close"))
    return HTTPException(status, message, code=status, headers=headers)
