"""The official SDK's events about changes, and its bus inside one process; our server announces changes itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "InMemorySubscriptionBus",
    "PromptsListChanged",
    "ResourceUpdated",
    "ResourcesListChanged",
    "ServerEvent",
    "ToolsListChanged",
    "event_of",
]


@dataclass(frozen=True)
class ToolsListChanged:
    """The list of tools changed."""


@dataclass(frozen=True)
class PromptsListChanged:
    """The list of prompts changed."""


@dataclass(frozen=True)
class ResourcesListChanged:
    """The list of resources changed."""


@dataclass(frozen=True)
class ResourceUpdated:
    """A resource changed."""

    uri: str


def event_of(what: str) -> Any:
    """Return the event for a changed list, or for the resource of a URI."""
    lists = {"tools": ToolsListChanged, "prompts": PromptsListChanged, "resources": ResourcesListChanged}
    return lists[what]() if what in lists else ResourceUpdated(uri=what)


ServerEvent = ToolsListChanged | PromptsListChanged | ResourcesListChanged | ResourceUpdated


class InMemorySubscriptionBus:
    """Tells listeners of events."""

    def __init__(self) -> None:
        """Start without listeners."""
        self._listeners: list[Callable[[Any], None]] = []

    def subscribe(self, listener: Callable[[Any], None]) -> Callable[[], None]:
        """Add a listener; return what removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def publish(self, event: Any) -> None:
        """Notify every listener."""
        for listener in tuple(self._listeners):
            listener(event)
