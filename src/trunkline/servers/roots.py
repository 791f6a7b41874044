"""Which folders a server may touch: those it was started with, or the client's roots, live, in both eras.

A client that shares roots replaces the configured folders entirely. In a session it is asked by the first call, and
again after it has said that its roots changed; without sessions it is asked in each call, but for methods that cannot
ask: these go by what was said last on the connection. A client that reaches the
server over HTTP did not start it, so its roots only narrow what is configured. The folders are named here, not opened:
whoever opens something below them must not trust a name that it has checked.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit
from weakref import WeakKeyDictionary

from msgspec import Struct

import trunkline.types as t
from trunkline.errors import ConfigError, LinkError, MissingCapability, RemoteProtocolError, RequestFailed, ToolError
from trunkline.server import Context, Server

__all__ = ["Allowed", "Folder", "path_of_uri"]

log = logging.getLogger("trunkline.servers")

_CHANGED = "notifications/roots/list_changed"
#: How many roots of one client are looked at, and how many sessions are remembered.
_MOST_ROOTS = 256
_MOST_SESSIONS = 1024
#: How long a program may take to name its folders; nobody is asked there.
_SECONDS = 20.0
#: Over these the client did not start the server.
_REMOTE = ("http", "sse")


class Folder(Struct, frozen=True):
    """A folder that may be touched: the path that it was named by, and the path without links."""

    given: Path
    real: Path

    @classmethod
    def find(cls, path: str | os.PathLike[str]) -> Folder | None:
        """Find a folder by its path; None if there is none."""
        try:
            given = os.path.abspath(os.path.expanduser(path))
            real = os.path.realpath(given, strict=True)
            return cls(Path(given), Path(real)) if os.path.isdir(real) else None
        except (OSError, ValueError):
            return None

    def holds(self, other: Folder) -> bool:
        """Tell whether another folder is this one or lies in it."""
        return other.real.is_relative_to(self.real)


class _Known(Struct):
    """What a session's client said of its roots; ``round`` tells whether it has changed its mind since."""

    session: object
    round: int
    roots: tuple[Folder, ...]


class Allowed:
    """The folders that a server may touch for a caller."""

    def __init__(self, configured: Sequence[str | os.PathLike[str]] = ()) -> None:
        """Take the folders that the server was started with; those that are not there are left out.

        Raises:
            ConfigError: folders were given, and none of them is there.
        """
        found = {each: Folder.find(each) for each in configured}
        self.configured = tuple(dict.fromkeys(each for each in found.values() if each is not None))
        if found and not self.configured:
            names = ", ".join(os.fspath(each) for each in found)
            raise ConfigError(f"None of these is a folder that can be opened: {names}. Give one that exists.")
        for name in (each for each, folder in found.items() if folder is None):
            log.warning("%s is no folder that can be opened; it is left out", os.fspath(name))
        #: Counts how often any client said that its roots changed.
        self._round = 0
        self._hears: Server | None = None
        self._known: dict[int, _Known] = {}
        #: What was last said on a connection: some methods of a client without a session cannot ask it.
        self._latest: WeakKeyDictionary[object, tuple[Folder, ...]] = WeakKeyDictionary()

    def attach(self, server: Server) -> None:
        """Hear through this server that roots changed; until then every call asks anew."""
        server.notification(_CHANGED)(self._changed)
        self._hears = server

    async def folders(self, ctx: Context) -> tuple[Path, ...]:
        """Give the folders, as paths without links, that may be touched for this caller.

        Raises:
            ToolError: there are none.
        """
        return tuple(dict.fromkeys(each.real for each in await self.named(ctx)))

    async def named(self, ctx: Context) -> tuple[Folder, ...]:
        """Give the same with the names that they were given by.

        Raises:
            ToolError: there are none.
        """
        roots = await self._roots(ctx) if ctx.client.supports("roots") else ()
        if roots and ctx.transport in _REMOTE:
            return self._narrowed(roots)
        if not (found := roots or self.configured):
            raise ToolError(
                "No folder may be touched: the server was started without folders, and the client shares no roots. "
                "Start the server with the folders as arguments, or use a client that shares its roots."
            )
        return found

    def _changed(self, params: dict[str, Any]) -> None:
        # Notifications do not say whose they are, so everybody is asked again, once.
        self._round += 1

    def _narrowed(self, roots: tuple[Folder, ...]) -> tuple[Folder, ...]:
        inside = [root for root in roots if any(each.holds(root) for each in self.configured)]
        around = [each for each in self.configured if any(root.holds(each) for root in roots)]
        found = tuple(dict.fromkeys(inside + around))
        if not found:
            raise ToolError(
                "None of the client's roots lies in a folder that this server was started with. Over HTTP roots only "
                "narrow what is configured: share a root inside those folders, or start the server with others."
            )
        return found

    async def _roots(self, ctx: Context) -> tuple[Folder, ...]:
        """Give the client's roots: remembered, or asked for; none if it gives none, or does not answer."""
        session, now = ctx.session, self._round
        if session is None and not ctx.can_ask:
            return self._latest.get(ctx.connection, ())
        known = self._known.get(id(session))
        if known is not None and known.session is session and known.round == now:
            return known.roots
        try:
            async with asyncio.timeout(_SECONDS):
                said = await ctx.list_roots()
        except (RequestFailed, LinkError, RemoteProtocolError, MissingCapability, TimeoutError) as error:
            log.warning("the client did not give its roots, so the configured folders are used: %s", error)
            return ()
        roots = self._latest[ctx.connection] = _folders(said)
        # A server that is mounted in another does not hear of changes, so it may not remember.
        if session is not None and self._hears is ctx.root_server:
            self._remember(_Known(session, now, roots))
        return roots

    def _remember(self, known: _Known) -> None:
        self._known.pop(id(known.session), None)
        while len(self._known) >= _MOST_SESSIONS:
            del self._known[next(iter(self._known))]
        self._known[id(known.session)] = known


def path_of_uri(uri: str) -> str | None:
    """Give the path that a ``file:`` URI names on this machine; None if it names none."""
    try:
        parts = urlsplit(uri)
        host = parts.hostname
    except ValueError:
        return None
    if parts.scheme != "file" or host not in (None, "", "localhost") or parts.query or parts.fragment:
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    return path if path.startswith("/") and "\0" not in path else None


def _folders(said: Sequence[t.Root]) -> tuple[Folder, ...]:
    """Find the folders behind roots.

    Raises:
        ToolError: roots were given, and none of them is a folder here.
    """
    named = [(root.uri, path_of_uri(root.uri)) for root in said[:_MOST_ROOTS]]
    found = [(uri, None if path is None else Folder.find(path)) for uri, path in named]
    roots = tuple(dict.fromkeys(folder for _, folder in found if folder is not None))
    for uri in (uri for uri, folder in found if folder is None):
        log.warning("the client's root %.200r is no folder that can be opened; it is left out", uri)
    if found and not roots:
        raise ToolError(
            "None of the client's roots is a folder on the machine of this server: "
            f"{', '.join(uri[:200] for uri, _ in found[:4])}. Share a root that exists there."
        )
    return roots
