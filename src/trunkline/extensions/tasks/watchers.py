"""The streams of clients that watch tasks, by the id of the task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.server.subscriptions import SubscriptionStream

__all__ = ["Watchers"]


class Watchers:
    """The streams of one process."""

    def __init__(self) -> None:
        """Start without any."""
        self._streams: dict[str, set[SubscriptionStream]] = {}

    def __iter__(self) -> Iterator[str]:
        """Return the watched tasks."""
        return iter(self._streams)

    def add(self, stream: SubscriptionStream, ids: Sequence[str]) -> Callable[[], None]:
        """Notify a stream of changes of tasks; return a function that stops it."""
        for id in ids:
            self._streams.setdefault(id, set()).add(stream)

        def remove() -> None:
            for id in ids:
                streams = self._streams.get(id, set())
                streams.discard(stream)
                if not streams:
                    self._streams.pop(id, None)

        return remove

    def notify(self, id: str) -> None:
        """Notify the streams that watch a task that it may have changed."""
        for stream in self._streams.get(id, ()):
            stream.notify_change(("task", id))
