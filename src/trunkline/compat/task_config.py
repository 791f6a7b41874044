"""What FastMCP says about tasks of a component: kept and listed, since tasks themselves are not supported."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

__all__ = ["TASKS_EXTENSION_ID", "TaskConfig", "TaskMeta", "task_config_of"]

TASKS_EXTENSION_ID = "io.modelcontextprotocol/tasks"


@dataclass
class TaskMeta:
    """What a request says about the task it wants."""

    ttl: int | None = None
    fn_key: str | None = None


@dataclass
class TaskConfig:
    """Whether a component may, must or must not run as a task."""

    mode: str = "optional"
    poll_interval: timedelta = timedelta(seconds=5)

    @classmethod
    def from_bool(cls, value: bool) -> TaskConfig:
        """Return the configuration that ``task=True`` or ``task=False`` means."""
        return cls("optional" if value else "forbidden")

    def supports_tasks(self) -> bool:
        """Return whether the component may run as a task."""
        return self.mode != "forbidden"

    def validate_function(self, fn: Callable[..., Any], name: str) -> None:
        """Check that a function can run as a task.

        Raises:
            ValueError: it is not async.
        """
        function: Any = fn.func if isinstance(fn, partial) else fn
        if not inspect.isroutine(function):
            function = function.__call__
        if self.supports_tasks() and not inspect.iscoroutinefunction(function):
            raise ValueError(f"{name!r} may run as a task, so its function must be async")


def task_config_of(value: Any) -> TaskConfig | None:
    """Return what ``task=`` of a decorator means."""
    return TaskConfig.from_bool(value) if isinstance(value, bool) else value
