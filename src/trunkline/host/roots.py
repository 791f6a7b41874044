"""The roots of each server: those of its entry, plus and minus those added and removed while the host runs.

Roots are set per server, so that each learns only of the folders it needs. A server without roots in its entry, and
without added ones, gets those of the caller. The sandbox opens the same list (``paths``). Servers are not notified
here; that is up to the caller that changes the list.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from urllib.parse import unquote, urlsplit

import trunkline.types as t
from trunkline.client.answers import as_root
from trunkline.errors import ConfigError
from trunkline.host.entries import ServerEntry

__all__ = ["Roots", "root_text"]


def root_text(root: object) -> str:
    """Return the absolute path of a root that is given as a path, a ``file:`` URI or a ``Root``.

    Raises:
        ConfigError: it is not a local folder or file.
    """
    text = root.uri if isinstance(root, t.Root) else os.fspath(root) if isinstance(root, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(f"{root!r} is not a root: give a path or a file: URI.")
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise ConfigError(f"{text!r} is not a root: it names no local folder.")
        text = unquote(parts.path)
    elif "://" in text:
        raise ConfigError(f"{text!r} is not a root: give a path or a file: URI.")
    # Percent-decoding may have produced one.
    if "\0" in text:
        raise ConfigError("A root has a zero byte in it.")
    return os.path.abspath(os.path.expanduser(text))


class Roots:
    """The roots of all servers of a host."""

    def __init__(self) -> None:
        """Start with the roots of the entries."""
        self._added: dict[str, list[str]] = {}
        self._removed: dict[str, set[str]] = {}

    def of(self, entry: ServerEntry) -> list[t.Root] | None:
        """Return the roots of a server; None for those of the caller."""
        found = self._texts(entry)
        return None if found is None else [as_root(each) for each in found]

    def paths(self, entry: ServerEntry) -> tuple[str, ...]:
        """Return the roots as absolute paths, for a sandbox; URIs that name no local path are omitted."""
        found = []
        for each in self._texts(entry) or ():
            try:
                found.append(root_text(each))
            except ConfigError:
                continue
        return tuple(found)

    def add(self, server: str, root: object) -> bool:
        """Add a root for a server; return True if it was not there before.

        Raises:
            ConfigError: it is not a local folder or file.
        """
        path = root_text(root)
        removed, added = self._removed.get(server, set()), self._added.setdefault(server, [])
        news = path in removed or path not in added
        removed.discard(path)
        if path not in added:
            added.append(path)
        return news

    def remove(self, entry: ServerEntry, root: object) -> bool:
        """Remove a root of a server; return True if it was there.

        Raises:
            ConfigError: it is not a local folder or file.
        """
        path = root_text(root)
        known = path in self.paths(entry)
        if known:
            self._added[entry.name] = [each for each in self._added.get(entry.name, ()) if each != path]
            self._removed.setdefault(entry.name, set()).add(path)
        return known

    def _texts(self, entry: ServerEntry) -> list[str] | None:
        configured, added = entry.settings.roots, self._added.get(entry.name)
        if configured is None and added is None:
            return None
        removed: Collection[str] = self._removed.get(entry.name, ())
        return [
            *(each for each in configured or () if _known(each) not in removed),
            *_news(configured or (), added or ()),
        ]


def _known(root: str) -> str:
    try:
        return root_text(root)
    except ConfigError:
        return root


def _news(configured: tuple[str, ...], added: list[str] | tuple[str, ...]) -> list[str]:
    """Return the added roots that are not configured anyway."""
    known = {_known(each) for each in configured}
    return [each for each in added if each not in known]
