"""Which folders a server may use: those it was started with, or the client's roots, kept current in both eras.

The roots of a client replace the configured folders entirely. In a session the client is asked on the first call, and
again after it announced that its roots changed; without sessions it is asked in each call, except for methods that
cannot send requests: these use the last roots of the connection. A client that connects over HTTP did not start the
server, so its roots only narrow the configured folders. Folders are only named here, not opened: code that opens files
below them must not trust a path that was checked before.
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

__all__ = ["AllowedFolders", "Folder", "path_from_file_uri"]

log = logging.getLogger("trunkline_servers")

_CHANGED = "notifications/roots/list_changed"
#: Most roots of one client, and most sessions that are cached.
_MOST_ROOTS = 256
_MOST_SESSIONS = 1024
#: Timeout for listing roots; the client answers without asking its user.
_SECONDS = 20.0
#: Transports over which the client did not start the server.
_REMOTE = ("http", "sse")


class Folder(Struct, frozen=True):
    """An allowed folder: the path it was given by, and its real path."""

    given: Path
    real: Path

    @classmethod
    def find(cls, path: str | os.PathLike[str]) -> Folder | None:
        """Return the folder at a path; None if there is none."""
        try:
            given = os.path.abspath(os.path.expanduser(path))
            real = os.path.realpath(given, strict=True)
            return cls(Path(given), Path(real)) if os.path.isdir(real) else None
        except (OSError, ValueError):
            return None

    def holds(self, other: Folder) -> bool:
        """Return True if another folder is this one or lies in it."""
        return other.real.is_relative_to(self.real)


class _CachedRoots(Struct):
    """The cached roots of a session; outdated once ``round`` has advanced."""

    session: object
    round: int
    roots: tuple[Folder, ...]


class AllowedFolders:
    """The folders that a server may use for a caller."""

    def __init__(self, configured: Sequence[str | os.PathLike[str]] = ()) -> None:
        """Initialize with the configured folders; those that do not exist are skipped.

        Raises:
            ConfigError: folders were given, and none of them exists.
        """
        found = {each: Folder.find(each) for each in configured}
        self.configured = tuple(dict.fromkeys(each for each in found.values() if each is not None))
        if found and not self.configured:
            names = ", ".join(os.fspath(each) for each in found)
            raise ConfigError(f"None of these is a folder that can be opened: {names}. Give one that exists.")
        for name in (each for each, folder in found.items() if folder is None):
            log.warning("%s is not a folder that can be opened; it is skipped", os.fspath(name))
        #: Counts the root changes of all clients.
        self._round = 0
        self._hears: Server | None = None
        self._known: dict[int, _CachedRoots] = {}
        #: The last roots of a connection, for methods that cannot ask a client without a session.
        self._latest: WeakKeyDictionary[object, tuple[Folder, ...]] = WeakKeyDictionary()

    def attach(self, server: Server) -> None:
        """Register for root changes on this server; without it every call asks again."""
        server.notification(_CHANGED)(self._changed)
        self._hears = server

    async def folders(self, ctx: Context) -> tuple[Path, ...]:
        """Return the real paths of the folders that this caller may use.

        Raises:
            ToolError: there are none.
        """
        return tuple(dict.fromkeys(each.real for each in await self.folder_records(ctx)))

    async def folder_records(self, ctx: Context) -> tuple[Folder, ...]:
        """Return the folders that this caller may use, with the paths they were given by.

        Raises:
            ToolError: there are none.
        """
        roots = await self._roots(ctx) if ctx.client.supports("roots") else ()
        if roots and ctx.transport in _REMOTE:
            return self._narrowed(roots)
        if not (found := roots or self.configured):
            raise ToolError(
                "No folder is allowed: the server was started without folders, and the client shares no roots. "
                "Start the server with the folders as arguments, or use a client that shares its roots."
            )
        return found

    def _changed(self, params: dict[str, Any]) -> None:
        # Notifications do not name their sender, so every client is asked once more.
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
        """Return the client's roots, cached or requested; none if it shares none or does not answer."""
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
            log.warning("the client did not list its roots, so the configured folders are used: %s", error)
            return ()
        roots = self._latest[ctx.connection] = _folders_of_roots(said)
        # A server that is mounted in another is not notified of changes, so it must not cache.
        if session is not None and self._hears is ctx.root_server:
            self._remember(_CachedRoots(session, now, roots))
        return roots

    def _remember(self, known: _CachedRoots) -> None:
        self._known.pop(id(known.session), None)
        while len(self._known) >= _MOST_SESSIONS:
            del self._known[next(iter(self._known))]
        self._known[id(known.session)] = known


def path_from_file_uri(uri: str) -> str | None:
    """Return the local path of a ``file:`` URI; None if it has none."""
    try:
        parts = urlsplit(uri)
        host = parts.hostname
    except ValueError:
        return None
    if parts.scheme != "file" or host not in (None, "", "localhost") or parts.query or parts.fragment:
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    return path if path.startswith("/") and "\0" not in path else None


def _folders_of_roots(said: Sequence[t.Root]) -> tuple[Folder, ...]:
    """Return the folders of roots.

    Raises:
        ToolError: roots were given, and none of them is a folder here.
    """
    named = [(root.uri, path_from_file_uri(root.uri)) for root in said[:_MOST_ROOTS]]
    found = [(uri, None if path is None else Folder.find(path)) for uri, path in named]
    roots = tuple(dict.fromkeys(folder for _, folder in found if folder is not None))
    for uri in (uri for uri, folder in found if folder is None):
        log.warning("the client's root %.200r is not a folder that can be opened; it is skipped", uri)
    if found and not roots:
        raise ToolError(
            "None of the client's roots is a folder on the machine of this server: "
            f"{', '.join(uri[:200] for uri, _ in found[:4])}. Share a root that exists there."
        )
    return roots
