"""What the server remembers between requests, whose it is, and when it is forgotten.

A handshake client has a session, and what belongs to it ends with it. A stateless client has none: what is kept for it
is found by a name nobody can guess. Everything here has a bound, and all of it goes when the last connection does.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

from trunkline import Context, Server
from trunkline.server import Timer

__all__ = ["Shelf", "State", "Ticks", "identity_of", "state_of"]

_MOST_ISSUED = 256
_MOST_CANCELLED = 20


def identity_of(ctx: Context) -> Hashable:
    """Say whose something is that no session has: whoever was authenticated; else nobody's in particular."""
    return None if ctx.auth is None else ctx.auth.identity


class Ticks:
    """Acts that come again every few seconds, each under a key, until they are switched off or say that it is over."""

    def __init__(self, seconds: float) -> None:
        """Start with none."""
        self.seconds = seconds
        self._rows: dict[Hashable, Timer] = {}

    def __len__(self) -> int:
        """Count what runs."""
        return len(self._rows)

    def toggle(self, key: Hashable, server: Server, act: Callable[[], bool]) -> bool | None:
        """Act at once and from then on, or stop if it was on already; tell whether it is on now.

        It is None if there was nobody to act for, so that nothing was started.
        """
        row = self._rows.pop(key, None)
        if row is not None:
            row.cancel()
            return False
        self._act(key, server, act)
        return True if key in self._rows else None

    def clear(self) -> None:
        """Stop everything."""
        for row in self._rows.values():
            row.cancel()
        self._rows.clear()

    def _act(self, key: Hashable, server: Server, act: Callable[[], bool]) -> None:
        self._rows.pop(key, None)
        if act():
            self._rows[key] = server.call_later(self.seconds, lambda: self._act(key, server, act))


class Shelf:
    """Files that callers made, by whose they are and their URI; when it is full the oldest goes."""

    def __init__(self, *, most: int, most_bytes: int) -> None:
        """Start empty."""
        self._most = most
        self._most_bytes = most_bytes
        self._files: OrderedDict[tuple[Hashable, str], bytes] = OrderedDict()

    def put(self, owner: Hashable, uri: str, data: bytes) -> None:
        """Keep a file in place of an older one of that URI."""
        self._files.pop((owner, uri), None)
        self._files[owner, uri] = data
        while len(self._files) > self._most or sum(map(len, self._files.values())) > self._most_bytes:
            self._files.popitem(last=False)

    def get(self, owner: Hashable, uri: str) -> bytes | None:
        """Give a file of an owner's."""
        return self._files.get((owner, uri))

    def keep_only(self, alive: Callable[[Hashable], bool]) -> None:
        """Forget the files of owners that are gone."""
        for key in [key for key in self._files if not alive(key[0])]:
            del self._files[key]

    def uris(self) -> set[str]:
        """Give the URIs under which anybody has something."""
        return {uri for _, uri in self._files}

    def clear(self) -> None:
        """Forget everything."""
        self._files.clear()


class State:
    """All that is remembered."""

    def __init__(self, *, interval: float, files: int, file_bytes: int) -> None:
        """Start with nothing."""
        self.logging = Ticks(interval)
        self.updates = Ticks(interval)
        self.shelf = Shelf(most=files, most_bytes=file_bytes)
        #: The note that everybody shares.
        self.note = "Nothing has been noted yet."
        #: Labels of calls that were cancelled, the newest last.
        self.cancelled: deque[str] = deque(maxlen=_MOST_CANCELLED)
        #: What was added to a list at run time: its kind and name.
        self.added: set[tuple[str, str]] = set()
        self._issued: OrderedDict[Hashable, None] = OrderedDict()

    def issue(self, key: Hashable) -> bool:
        """Tell whether something is issued now; the second time it is taken back instead."""
        if key in self._issued:
            del self._issued[key]
            return False
        self._issued[key] = None
        while len(self._issued) > _MOST_ISSUED:
            self._issued.popitem(last=False)
        return True

    def clear(self) -> None:
        """Stop every timer and forget what belonged to somebody."""
        self.logging.clear()
        self.updates.clear()
        self.shelf.clear()
        self._issued.clear()


def state_of(ctx: Context) -> State:
    """Give what the server of this request remembers."""
    state: State = ctx.lifespan_context
    return state
