"""The shared connection to a server, as the connection of all sessions of one person.

A gateway lists a server on the shared connection and calls it on a dedicated one for each client, since only there a
question of the server identifies its client. The sessions of a console (the page, its chats, pages of servers) and of a
chat in the terminal are those of one person: there a second process would have its own state, and another process id
than the one that is shown. These sessions adopt the shared connection if they declare the same. A question on it goes
to one of their calls, as on a dedicated connection: the one in progress, or the one that started last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.host.upstreams.routing.channels import ConnectionNeeds
from trunkline.host.upstreams.routing.connection_pool import DedicatedConnection, OnLog
from trunkline.host.upstreams.supervision.upstream import Upstream

__all__ = ["AdoptedConnection"]


class AdoptedConnection(DedicatedConnection):
    """The shared connection of a server as one session uses it; the supervisor opens, checks and closes it."""

    has_process = False

    def __init__(self, upstream: Upstream, needs: ConnectionNeeds, on_log: OnLog) -> None:
        """Prepare it; until ``aclose``, questions on the shared connection go to the calls of its adopters."""
        super().__init__(upstream, needs, roots=None, credentials=None, on_log=on_log)
        #: The calls of all adopters, in the order of their start.
        self.calls = upstream.adopted_calls
        upstream.adopters.append(self)

    @property
    def is_closed(self) -> bool:
        """Whether the server was stopped or restarted since: the next call adopts the new connection."""
        return self._client is not None and self._client is not self.upstream.client

    async def _connect(self) -> Client:
        self._client = await self.upstream.connected_client()
        return self._client

    async def answer(self, capability: str, *question: Any) -> Any:
        """Answer a question of the server through the call that it belongs to.

        Raises:
            RequestFailed: no call is in progress, or the user does not allow it.
        """
        answers: dict[str, Callable[..., Awaitable[Any]]] = {
            "sampling": self._sample,
            "elicitation": self._elicit,
            "roots": self._roots,
        }
        return await answers[capability](*question)

    def deliver_log(self, message: t.LoggingMessageNotificationParams) -> bool:
        """Deliver a log message to the call in progress; return False if there is none."""
        if self.busy:
            self._logged(message)
        return self.busy

    async def is_hanging(self) -> bool:
        """Return False: the supervisor checks the shared connection itself."""
        return False

    async def aclose(self) -> None:
        """Cancel the calls of the session; the shared connection stays open."""
        if self in self.upstream.adopters:
            self.upstream.adopters.remove(self)
        self._client = None
        await super().aclose()
