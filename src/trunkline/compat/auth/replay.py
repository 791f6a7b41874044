"""Names of assertions that were used: each is accepted once while it is valid."""

from __future__ import annotations

__all__ = ["ReplayCache"]

_MOST = 10_000  # Assertions live for minutes: more at once is an attack.


class ReplayCache:
    """The identifiers of assertions that were used and have not expired; bounded."""

    def __init__(self, max_size: int = _MOST) -> None:
        """Start empty."""
        self.max_size = max_size
        self.entries: dict[str, float] = {}

    def use(self, name: str, until: float, now: float) -> None:
        """Mark an identifier as used.

        Raises:
            ValueError: it was used before, or there is no room: an assertion that is not remembered could be replayed.
        """
        if self.entries.get(name, 0.0) > now:
            raise ValueError("Assertion replay detected: the jti was used before")
        if len(self.entries) >= self.max_size:
            self.entries = {key: expires for key, expires in self.entries.items() if expires > now}
        if len(self.entries) >= self.max_size:
            raise ValueError("Server overloaded: too many assertions are in use")
        self.entries[name] = until
