"""The calls of a chat's model in the log of calls, where every page sees them beside the user's own.

A record starts with the call, follows its progress, and ends with the complete result, or with the reason why there is
none. The host's own tools (search, parts of long results, skills) are no calls of a server, and have no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trunkline.types as t
from trunkline.host.chat.events import CallFinished, CallProgressed, CallProposed, CallStarted, ChatEvent
from trunkline.host.chat.toolbox import HOST_SERVER
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import item_id

if TYPE_CHECKING:
    from trunkline.console.calls import Call, NoResult
    from trunkline.console.console import Console

__all__ = ["ChatCalls"]


class ChatCalls:
    """Records the calls of one chat."""

    def __init__(self, console: Console) -> None:
        """Record in the log of this console."""
        self._console = console
        self._proposed: dict[str, CallProposed] = {}
        self._running: dict[str, Call] = {}
        self._results: dict[str, tuple[CatalogItem, dict[str, Any], t.CallToolResult]] = {}

    def add(self, event: ChatEvent) -> None:
        """Update the records from an event of the conversation."""
        match event:
            case CallProposed(call_id=call_id, server=server) if server not in (None, HOST_SERVER):
                self._proposed[call_id] = event
            case CallStarted(call_id=call_id) if call_id in self._proposed:
                call = self._proposed.pop(call_id)
                target = item_id(str(call.server), call.tool)
                log = self._console.calls
                self._running[call_id] = log.begin("tool", str(call.server), target, call.arguments or {}, by="chat")
            case CallProgressed(call_id=call_id) if call_id in self._running:
                news = {"progress": event.progress, "total": event.total, "message": event.message}
                self._console.calls.progress(self._running[call_id], news)
            case CallFinished(call_id=call_id):
                self._proposed.pop(call_id, None)
                self._end(event)

    def keep_result(self, call_id: str, item: CatalogItem, arguments: dict[str, Any], result: t.CallToolResult) -> None:
        """Called with each complete result; the user may have edited the arguments.

        The events of the call arrive later, through a queue.
        """
        self._results[call_id] = item, arguments, result

    def close(self) -> None:
        """Mark the calls without an end as cancelled, after the turn has ended."""
        for call in self._running.values():
            self._console.calls.abandon(call, "cancelled")
        self._proposed, self._running, self._results = {}, {}, {}

    def _end(self, event: CallFinished) -> None:
        call, found = self._running.pop(event.call_id, None), self._results.pop(event.call_id, None)
        if call is None:
            return
        if found is not None:
            item, arguments, result = found
            call.set_arguments(arguments)
            self._console.calls.end(call, item, result)
        else:
            state: NoResult = "cancelled" if event.cancelled else "denied" if event.denied else "failed"
            self._console.calls.abandon(call, state, event.preview)
