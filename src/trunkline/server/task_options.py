"""The options of tasks: those of a tool, and those of a server.

Tasks are implemented by ``trunkline.server.tasks``, which is imported when the first tool with ``task=`` is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.protocol.caller import Caller

if TYPE_CHECKING:
    from trunkline.server.tasks.records import TaskLimits

__all__ = [
    "Sent",
    "SlowCalls",
    "TaskDeclaration",
    "TaskOptions",
    "TaskSettings",
    "may_list_tasks",
    "task_options",
    "task_settings",
    "tasks_capability",
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


def tasks_capability(caller: Caller | None) -> Mapping[str, Any]:
    """Return the ``tasks`` capability of revisions with tasks in their core; without a caller, all of it."""
    declared: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    return {"list": {}, **declared} if caller is None or may_list_tasks(caller) else declared


def may_list_tasks(caller: Caller) -> bool:
    """Return True if a caller may list its tasks: only if it can be distinguished from others."""
    return caller.principal is not None or caller.origin.transport != "http"
