"""Long tool calls through the gateway: each client gets them as a task, held open, or as a job to poll.

Whether a call is a task at its server is decided elsewhere (``routing/upstream_tasks.py``); here it is a function of an
exchange. The gateway has its own tasks and jobs, regardless of those of the server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import RequestFailed
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.routing.upstream_tasks import TASK_KEYS
from trunkline.protocol.caller import Session
from trunkline.protocol.extensions import TASKS, declared_extension
from trunkline.server.task_options import TaskOptions
from trunkline.server.tasks.methods import tasks_of
from trunkline.server.tools import ToolDefinition

if TYPE_CHECKING:
    from trunkline.host.gateway.gateway import Gateway

__all__ = ["LongCalls", "PreparedCall"]

_RESTARTS = 100  # The number of gateway restarts that one task survives.


class PreparedCall(Struct, frozen=True):
    """A call with its resolved tool: a function that performs it on a given exchange."""

    work: Callable[[Exchange], Awaitable[Any]]
    #: Whether it may be a task at its server, so that it is expected to be slow.
    is_slow: bool = False

    @classmethod
    def of(cls, item: CatalogItem, work: Callable[[Exchange], Awaitable[Any]], catalog: Catalog) -> PreparedCall:
        """Prepare the call of a catalog tool."""
        part, execution = catalog.parts.get(item.server), getattr(item.definition, "execution", None)
        # In the extension, tools do not declare whether they may run as tasks.
        extension = part is not None and declared_extension(part.offering.capabilities, TASKS) is not None
        return cls(work, extension or getattr(execution, "task_support", None) in ("optional", "required"))


class LongCalls:
    """Serves prepared calls in the form that their callers support."""

    def __init__(self, gateway: Gateway) -> None:
        """Use the tasks of a gateway."""
        # Unfinished calls of an earlier process continue only if they are tasks at their server.
        self._options = TaskOptions(after=gateway.options.task_after, retry=_RESTARTS)
        self._gateway = gateway
        gateway._use_tasks()

    @property
    def tools(self) -> Mapping[str, ToolDefinition]:
        """The job tools for clients without tasks; none if their calls are held open."""
        return self._gateway.table.job_tools

    async def call(self, exchange: Exchange, params: t.CallToolRequestParams, call: PreparedCall) -> Any:
        """Answer a call with its result, a task, or a job."""
        return await tasks_of(exchange).call(self._options, exchange, params, call.work, keep_alive=call.is_slow)

    def check_restarted(self, exchange: Exchange) -> None:
        """Check that a call of an earlier process can continue, because it is a task at its server.

        Raises:
            RequestFailed: it is not; the server may or may not have executed it.
        """
        if exchange.channel is None or not any(map(exchange.channel.did, TASK_KEYS)):
            raise RequestFailed("The gateway was restarted while the call was running; call the tool again")

    def goes_on(self, session: Session | None) -> bool:
        """Return True if a call of a session continues after the session ends."""
        services = [runtime.tasks for runtime in self._gateway._served_by()]
        return session is not None and any(tasks is not None and tasks.runs_for(session) for tasks in services)
