"""What a link over HTTP asks of whoever holds its credentials; how those come about is no business of a transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

__all__ = ["Authorizer", "Clocks", "clocks_of"]


class Authorizer(Protocol):
    """Shows requests to be allowed, and does something about a refusal."""

    @property
    def stale(self) -> bool:
        """Whether ``prepare`` should be awaited before the next request."""

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Give the headers that show one request to be allowed."""

    def accepted(self, nonce: str | None) -> None:
        """Learn that a request was let in, and the nonce that its answer gives for the next."""

    async def prepare(self) -> None:
        """Get ready without asking anybody."""

    async def refused(
        self, status: int, challenges: list[str], *, shown: str | None, nonce: str | None, quietly: bool = False
    ) -> bool:
        """Do something about a refusal; tell whether the request is worth another try."""


@runtime_checkable
class Clocks(Protocol):
    """The clocks of requests that wait, which stand still while a person logs in."""

    def pause_clocks(self) -> None:
        """Stop them."""

    def resume_clocks(self) -> None:
        """Let them run on."""


def clocks_of(receiver: object) -> Clocks | None:
    """Find the clocks of whom a link delivers to; one that only listens has none."""
    return receiver if isinstance(receiver, Clocks) else None
