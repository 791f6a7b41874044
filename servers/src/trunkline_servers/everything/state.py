"""The state that the server keeps between requests, its owners, and its lifetime.

A handshake client has a session, and its state ends with it. A stateless client has none: its files are found by an
unguessable name. Everything here is bounded, and is cleared when the last connection closes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

from trunkline import Context, Server
from trunkline.server import TimerHandle

__all__ = ["CallerFiles", "RepeatingTimers", "ServerState", "identity_of", "state_of"]

_MOST_ISSUED = 256
_MOST_CANCELLED = 20


def identity_of(ctx: Context) -> Hashable:
    """Return the owner of state without a session: the authenticated principal; None if anonymous."""
    return None if ctx.auth is None else ctx.auth.identity


class RepeatingTimers:
    """Callbacks repeated every few seconds, each under a key, until they are toggled off or return False."""

    def __init__(self, seconds: float) -> None:
        """Start without timers."""
        self.seconds = seconds
        self._rows: dict[Hashable, TimerHandle] = {}

    def __len__(self) -> int:
        """Return the number of running timers."""
        return len(self._rows)

    def toggle(self, key: Hashable, server: Server, act: Callable[[], bool]) -> bool | None:
        """Call ``act`` at once and repeatedly, or stop if it was running; return True if it is running now.

        Returns None if the first call returned False, so that nothing was started.
        """
        row = self._rows.pop(key, None)
        if row is not None:
            row.cancel()
            return False
        self._act(key, server, act)
        return True if key in self._rows else None

    def clear(self) -> None:
        """Stop all timers."""
        for row in self._rows.values():
            row.cancel()
        self._rows.clear()

    def _act(self, key: Hashable, server: Server, act: Callable[[], bool]) -> None:
        self._rows.pop(key, None)
        if act():
            self._rows[key] = server.call_later(self.seconds, lambda: self._act(key, server, act))


class CallerFiles:
    """Files by owner and URI; when it is full the oldest is removed."""

    def __init__(self, *, most: int, most_bytes: int) -> None:
        """Start empty."""
        self._most = most
        self._most_bytes = most_bytes
        self._files: OrderedDict[tuple[Hashable, str], bytes] = OrderedDict()

    def put(self, owner: Hashable, uri: str, data: bytes) -> None:
        """Store a file, replacing an older one with that URI."""
        self._files.pop((owner, uri), None)
        self._files[owner, uri] = data
        while len(self._files) > self._most or sum(map(len, self._files.values())) > self._most_bytes:
            self._files.popitem(last=False)

    def get(self, owner: Hashable, uri: str) -> bytes | None:
        """Return a file of an owner; None if there is none."""
        return self._files.get((owner, uri))

    def keep_only(self, alive: Callable[[Hashable], bool]) -> None:
        """Remove the files of owners that are gone."""
        for key in [key for key in self._files if not alive(key[0])]:
            del self._files[key]

    def uris(self) -> set[str]:
        """Return the URIs of all files."""
        return {uri for _, uri in self._files}

    def clear(self) -> None:
        """Remove all files."""
        self._files.clear()


class ServerState:
    """All state of the server."""

    def __init__(self, *, interval: float, files: int, file_bytes: int) -> None:
        """Start empty."""
        self.logging = RepeatingTimers(interval)
        self.updates = RepeatingTimers(interval)
        self.files = CallerFiles(most=files, most_bytes=file_bytes)
        #: The note shared by all clients.
        self.note = "Nothing has been noted yet."
        #: Labels of calls that were cancelled, the newest last.
        self.cancelled: deque[str] = deque(maxlen=_MOST_CANCELLED)
        #: Kind and name of items that were added to lists at run time.
        self.added: set[tuple[str, str]] = set()
        self._issued: OrderedDict[Hashable, None] = OrderedDict()

    def issue_once(self, key: Hashable) -> bool:
        """Return True the first time for a key; the second call consumes the key and returns False."""
        if key in self._issued:
            del self._issued[key]
            return False
        self._issued[key] = None
        while len(self._issued) > _MOST_ISSUED:
            self._issued.popitem(last=False)
        return True

    def clear(self) -> None:
        """Stop all timers and remove what belongs to callers."""
        self.logging.clear()
        self.updates.clear()
        self.files.clear()
        self._issued.clear()


def state_of(ctx: Context) -> ServerState:
    """Return the state of the server of this request."""
    state: ServerState = ctx.lifespan_context
    return state
