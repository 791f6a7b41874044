"""The one account of the memory that HTTP clients make a process hold while it receives and serves their requests.

Every request is charged to its caller (a principal, or the network address of a client without one) from the first part
of its body that arrives until it is answered, also if its client has disconnected meanwhile and the handler still waits
for an answer to a question. A caller has a share, and all callers together a total: what one does never uses up what
the others have, unless very many do it. What a request would exceed is refused at once, and nothing of it is held.

What the server keeps in its store is counted there, by `StoreBudget`.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.asgi import HTTPException

if TYPE_CHECKING:
    from trunkline.protocol.caller import Principal
    from trunkline.transports.http.server.asgi import Scope

__all__ = ["HeldMemory", "MemoryBudget", "caller_of"]

#: What a request holds besides its body: its headers, its task, its response.
OVERHEAD = 4096
#: RFC 6585, 4, for one caller, and RFC 9110, 15.6.4, for all; also the codes of the JSON-RPC errors.
_TOO_MANY, _FULL = 429, 503
_RETRY_SECONDS = b"5"  # Most requests are answered in less.


class MemoryBudget:
    """Counts the bytes that are held for each caller."""

    __slots__ = ("_by_caller", "_share", "_total", "held_bytes")

    def __init__(self, limits: Limits) -> None:
        """Start with nothing held."""
        # One request of the largest size always fits.
        self._share = max(limits.caller_memory_bytes, limits.body_bytes + OVERHEAD)
        self._total = max(limits.memory_bytes, self._share)
        self._by_caller: dict[Hashable, int] = {}
        #: The bytes that are held for all callers.
        self.held_bytes: int = 0

    def hold(self, caller: Hashable, size: int) -> HeldMemory:
        """Charge a request of so many bytes to its caller.

        Raises:
            HTTPException: the caller, or all callers together, would hold too much.
        """
        size += OVERHEAD
        self.charge(caller, size)
        return HeldMemory(self, caller, size)

    def charge(self, caller: Hashable, size: int) -> None:
        """Add to what is held for a caller.

        Raises:
            HTTPException: the caller, or all callers together, would hold too much.
        """
        held = self._by_caller.get(caller, 0) + size
        if held > self._share:
            raise _refusal(
                _TOO_MANY,
                f"The requests of this caller that are in progress hold too much memory "
                f"(caller_memory_bytes={self._share}); wait until some are answered",
            )
        if self.held_bytes + size > self._total:
            raise _refusal(
                _FULL, f"The requests in progress hold too much memory (memory_bytes={self._total}); try again later"
            )
        self._by_caller[caller] = held
        self.held_bytes += size

    def release(self, caller: Hashable, size: int) -> None:
        """Subtract from what is held for a caller."""
        self.held_bytes -= size
        left = self._by_caller[caller] - size
        if left:
            self._by_caller[caller] = left
        else:
            del self._by_caller[caller]


class HeldMemory:
    """What one request holds."""

    __slots__ = ("_budget", "_caller", "_size")

    def __init__(self, budget: MemoryBudget, caller: Hashable, size: int) -> None:
        """Wrap what was charged."""
        self._budget = budget
        self._caller = caller
        self._size = size

    def grow(self, size: int) -> None:
        """Charge more.

        Raises:
            HTTPException: the caller, or all callers together, would hold too much.
        """
        self._budget.charge(self._caller, size)
        self._size += size

    def release(self) -> None:
        """Release it; a second time does nothing."""
        if self._size:
            self._budget.release(self._caller, self._size)
            self._size = 0


def caller_of(principal: Principal | None, scope: Scope) -> Hashable:
    """Return what identifies the caller of a request: its principal, or the network of its address.

    All clients whose address is not known are one caller, and so are all behind one proxy.
    """
    if principal is not None:
        return principal.issuer, principal.subject
    client = scope.get("client")
    return _network(client[0]) if client else ""


@lru_cache(maxsize=4096)
def _network(address: str) -> str:
    """Return what identifies a client's network: an IPv4 address, or the /64 that one IPv6 customer has at least."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or int(parsed) >> 64)
    return address


def _refusal(status: int, message: str) -> HTTPException:
    # The rest of the body is not read.
    headers = ((b"retry-after", _RETRY_SECONDS), (b"connection", b"close"))
    return HTTPException(status, message, code=status, headers=headers)
