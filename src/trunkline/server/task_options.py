"""The server's side of tasks: the options of a tool and of the server, and the interface of the service.

Tasks are implemented by ``trunkline.extensions.tasks``, which is imported when the first tool with ``task=`` is
registered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import ConfigError

if TYPE_CHECKING:
    from trunkline.extensions.tasks.records import TaskLimits
    from trunkline.protocol.caller import Caller, Session
    from trunkline.server.server import Server
    from trunkline.server.subscriptions import SubscriptionStream
    from trunkline.server.tools import ToolDefinition

__all__ = [
    "Sent",
    "SlowCalls",
    "TaskDeclaration",
    "TaskOptions",
    "TaskService",
    "TaskSettings",
    "load_tasks",
    "task_options",
    "task_settings",
]

#: How slow calls of clients without tasks are served: held open, or as a job to poll.
SlowCalls: TypeAlias = Literal["hold", "poll"]
#: What one stream was told of each task, by id.
Sent: TypeAlias = dict[str, object]
#: The accepted values of ``task=`` of a tool.
TaskDeclaration: TypeAlias = "bool | Literal['optional', 'required'] | TaskOptions"


class TaskOptions(Struct, frozen=True, kw_only=True):
    """The options of a tool that can run as a task."""

    #: Whether clients without tasks are rejected, with the error of their revision.
    required: bool = False
    #: Seconds before a call becomes a task, where the server decides that (the tasks extension); a call that is done
    #: in time is answered directly. None: only ``ctx.continue_as_task()`` turns it into a task.
    after: float | None = 0.0
    #: Seconds that a finished task is kept; None for ever.
    ttl: float | None = 3600.0
    #: The poll interval in seconds that clients are advised to use; None: a tenth of a second for a new task, which
    #: grows with its age up to ``TaskSettings.usual_poll``.
    poll: float | None = None
    #: The number of times an unfinished task may run again after its process died; only if repeating does no harm.
    retry: int = 0


class TaskSettings(Struct, frozen=True, kw_only=True):
    """The settings for the tasks of a server."""

    limits: TaskLimits | None = None
    #: The maximum time to live in seconds that a caller may request for a finished task.
    max_ttl: float = 7 * 24 * 3600.0
    #: The longest poll interval in seconds that clients are advised to use for a tool without one of its own.
    usual_poll: float = 1.0
    #: How slow calls of clients without tasks are served.
    slow_calls: SlowCalls = "hold"
    #: Seconds after which the unfinished tasks of a process that has died are taken over by others, on a durable store.
    lease: float = 30.0
    #: Seconds that a client without tasks waits before it gets a job to poll (``slow_calls="poll"``).
    poll_after: float = 20.0


class TaskService(Protocol):
    """Runs calls as tasks, and handles the methods of tasks."""

    @property
    def tools(self) -> Mapping[str, ToolDefinition]:
        """The job tools for clients without tasks."""

    def call(
        self,
        options: TaskOptions,
        exchange: Exchange,
        params: t.CallToolRequestParams,
        work: Callable[[Exchange], Awaitable[t.CallToolResult]],
        *,
        keep_alive: bool = False,
    ) -> Awaitable[Any]:
        """Run a call in the form that the caller supports: as a task, held open, or as a job to poll.

        With ``keep_alive``, a call that is held open reports progress while its handler is silent.
        """

    async def continue_as_task(self, exchange: Exchange) -> bool:
        """Answer the caller of a request with a task; return False if it cannot become one."""

    def states(self) -> Iterable[str]:
        """Return the state of each task that runs here."""

    def runs_for(self, session: Session) -> bool:
        """Return True if a task of this session runs here."""

    def capabilities(self, caller: Caller | None) -> Mapping[str, Any]:
        """Return the ``tasks`` capability of revisions with tasks in their core."""

    async def listenable(self, exchange: Exchange, ids: Sequence[str]) -> list[str]:
        """Return the tasks that the caller may watch.

        Raises:
            MissingClientCapability: the client did not declare the extension.
        """

    async def watch(self, stream: SubscriptionStream, ids: Sequence[str]) -> Callable[[], None]:
        """Notify a stream of changes of tasks; return a function that stops it."""

    async def notification(self, id: str, meta: dict[str, Any], sent: Sent) -> tuple[str, t.NotificationParams] | None:
        """Return the notification with the state of a task; None if there is no such task, or it was sent already."""

    async def leave(self) -> None:
        """Stop the running tasks that other workers can take over; called before the store is closed."""

    def start(self) -> None:
        """Take over unfinished tasks of an earlier process; called in the event loop, may be called repeatedly."""

    async def drain(self, seconds: float) -> None:
        """Wait, with a timeout, for running tasks that would end with the process."""

    def close(self) -> None:
        """Stop the running tasks; the next process takes over those of a durable store."""

    async def aclose(self) -> None:
        """Stop the running tasks, and wait until they are released."""


def task_options(given: object) -> TaskOptions | None:
    """Parse ``task=`` of a tool; None if it is off.

    Raises:
        TypeError: the value is not valid.
    """
    if given is None or given is False:
        return None
    if isinstance(given, TaskOptions):
        return given
    if given is True or given == "optional":
        return TaskOptions()
    if given == "required":
        return TaskOptions(required=True)
    raise TypeError(f'task= must be True, "required" or TaskOptions(...), not {given!r}')


def task_settings(given: TaskSettings | None) -> TaskSettings:
    """Return the settings of a server's tasks; None for those without any.

    Raises:
        ConfigError: ``slow_calls`` or ``lease`` has an invalid value.
    """
    settings = given or TaskSettings()
    if settings.slow_calls not in ("hold", "poll"):
        raise ConfigError(f'slow_calls={settings.slow_calls!r} is unknown; use "hold" or "poll"')
    if not settings.lease > 0:
        raise ConfigError(f"lease={settings.lease!r} is not valid: give a number of seconds above 0")
    return settings


def load_tasks(server: Server, settings: TaskSettings) -> TaskService:
    """Load the extension and return its service for a server."""
    from trunkline.extensions.tasks.service import make_service

    return make_service(server, settings)
