"""What an endpoint asks of whoever decides who comes in; it knows no tokens itself.

The guard judges where a request comes from, the gate who sends it. It may also serve documents of its own beside the
endpoint: the metadata that tells a client where to get a token, or the pages of an authorization server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from trunkline.protocol.access import Denied
from trunkline.protocol.caller import Principal

__all__ = ["App", "Gate"]

#: An ASGI application.
App = Callable[[Any, Any, Any], Awaitable[None]]


class Gate(Protocol):
    """Decides who may call, and says what those need who may not."""

    @property
    def header(self) -> bytes:
        """The header it reads, in lower case; a request that has it twice is refused."""

    async def admit(self, headers: Mapping[str, str], *, method: str, url: str) -> Principal | Denied:
        """Find out who sends a request with these headers (names in lower case) to a URL; never raises."""

    def challenge(self, denied: Denied, *, origin: str, root: str) -> str:
        """Write the ``WWW-Authenticate`` header of a refusal, for an endpoint that was called at an origin and root."""

    def fields(self, denied: Denied) -> Sequence[tuple[bytes, bytes]]:
        """Give further headers of a refusal."""

    def route(self, path: str) -> App | None:
        """Give the application that serves a path beside the endpoint, if there is one."""
