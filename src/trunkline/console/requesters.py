"""The requesters of the console's calls.

A call that the user starts by a click needs no approval for default rules or a tainted session; rules, flagged and
changed definitions can still require it. Calls of chats and apps have no such consent: every approval that the policy
requires goes to the inbox.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Raw

import trunkline.types as t
from trunkline.host.config.model import ServerEntry
from trunkline.host.requester import Requester
from trunkline.host.server_requests.handlers import ServerRequestHandler
from trunkline.host.session import HostSession
from trunkline.host.upstreams.routing.channels import LocalChannel, TaskProgress
from trunkline.host.upstreams.routing.upstream_tasks import TASK_KEYS

if TYPE_CHECKING:
    from trunkline.console.console import Console

__all__ = ["AskedCaller", "CallObserver", "ConsoleChannel", "Requesters"]

#: Callers whose calls are never approved in advance.
AskedCaller: TypeAlias = Literal["model", "app"]


class CallObserver:
    """Called with the progress, log messages and task of a running call; every method may be overridden."""

    def progressed(self, news: t.ProgressNotificationParams) -> None:
        """Called with a progress notification."""

    def logged(self, message: t.LoggingMessageNotificationParams) -> None:
        """Called with a log message."""

    def became_task(self, id: str) -> None:
        """Called when the server answers with a task; the call waits for its result."""

    def task_changed(self, status: str, message: str | None) -> None:
        """Called when the status or message of the task changes."""


class ConsoleChannel(LocalChannel):
    """The caller channel of a console request; reports progress, log messages and the task."""

    __slots__ = ("_observer", "_task")

    #: The default log level of the server; requesting another would need a dedicated connection.
    receives_logs = True

    def __init__(self, request_handler: ServerRequestHandler, session: HostSession, observer: CallObserver) -> None:
        """Report to this observer."""
        super().__init__(request_handler, session, on_progress=self._progressed, on_log=observer.logged)
        self.log_level = None
        self._observer = observer
        self._task = False

    def _progressed(self, news: t.ProgressNotificationParams) -> None:
        if isinstance(news, TaskProgress):
            self._observer.task_changed("working", news.message)
        else:
            self._observer.progressed(news)

    async def ask(self, method: str, params: Any, *, key: str, entry: ServerEntry | None = None) -> Raw:
        """Call the request handler; the status of a task is ``input_required`` meanwhile."""
        if not self._task:
            return await super().ask(method, params, key=key, entry=entry)
        self._observer.task_changed("input_required", None)
        try:
            return await super().ask(method, params, key=key, entry=entry)
        finally:
            self._observer.task_changed("working", None)

    async def once(self, key: str, function: Callable[..., Any]) -> Any:
        """Call the function; if its result is the id of a task, report it."""
        found = await super().once(key, function)
        if key in TASK_KEYS:
            self._task = True
            self._observer.became_task(str(found))
        return found


class Requesters:
    """Creates the requesters of a console."""

    def __init__(self, console: Console) -> None:
        """Create the requesters of this console."""
        self._console = console

    def typed(self, session: HostSession | None = None, *, observer: CallObserver | None = None) -> Requester:
        """Return the requester of a call that the user started; by default in the console's session."""
        session = session or self._console.session
        return Requester(
            session=session,
            channel=self._channel(session, observer),
            policy=self._console.host.policy,
            prompter=self._console.inbox.approve,
            caller="user",
            consented_by="user",
        )

    def asked(self, caller: AskedCaller, session: HostSession, *, observer: CallObserver | None = None) -> Requester:
        """Return the requester of a model or of a page (MCP Apps), in its own session."""
        return Requester(
            session=session,
            channel=self._channel(session, observer),
            policy=self._console.host.policy,
            prompter=self._console.inbox.approve,
            caller=caller,
        )

    def _channel(self, session: HostSession, observer: CallObserver | None) -> LocalChannel:
        handler = self._console.host._request_handler()
        return LocalChannel(handler, session) if observer is None else ConsoleChannel(handler, session, observer)
