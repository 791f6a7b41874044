"""Whether a path in the arguments of a tool lies in a folder, checked so that no spelling of it can escape.

It works on text only. Symbolic links are resolved by a function that is passed in; the home folder and the working
directories of servers are passed in too. A path that cannot be read with certainty (a link that cannot be resolved, a
``~``, a scheme, a backslash, an escape, a control character) is neither inside nor outside.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

__all__ = ["PathError", "Paths", "Places", "compile_within"]

_MOST_TEXT = 8192
_ODD = re.compile(
    r"[\x00-\x1f\x7f\\\ud800-\udfff]|%(?:00|25|2e|2f|5c)|\A(?:~|[A-Za-z][A-Za-z0-9+.-]*:|\Z)", re.IGNORECASE
)


class PathError(ValueError):
    """A folder in a rule is invalid; the message says why and what to write."""


class Places(Struct, frozen=True, kw_only=True):
    """How paths are resolved on this machine."""

    #: What ``~`` in a rule stands for.
    home: str | None = None
    #: The working directory of each server; a relative path for any other server cannot be judged.
    folders: Mapping[str, str] = MappingProxyType({})
    #: Resolves the links of an absolute path; None: paths are compared as written.
    resolve: Callable[[str], str] | None = None


class Paths:
    """Reads paths, each once per decision: a link may lead elsewhere the next time."""

    __slots__ = ("_read", "places")

    def __init__(self, places: Places) -> None:
        """Read paths in this context."""
        self.places = places
        self._read: dict[tuple[str, str], _Path | None] = {}

    def read(self, value: str, server: str) -> _Path | None:
        """Read a path as a server would; None if it cannot be judged."""
        key = (value, server)
        try:
            return self._read[key]
        except KeyError:
            pass
        written = _absolute(value, self.places.folders.get(server))
        path = self._read[key] = None if written is None else _Path(written)
        return path

    def forget(self) -> None:
        """Clear the cache, for the next decision."""
        if self._read:
            self._read.clear()


class _Path:
    """A path in its forms; its links are resolved on first use."""

    __slots__ = ("_real", "_written", "folded", "straight")

    def __init__(self, written: str) -> None:
        self._written = written
        self.straight = _straight(written)
        self.folded = _fold(self.straight)
        self._real: _Path | None = None

    def real(self, resolve: Callable[[str], str]) -> _Path:
        """Return the path with its links resolved.

        Raises:
            OSError, ValueError: they cannot be resolved.
        """
        if self._real is None:
            self._real = _Path(resolve(self._written))
        return self._real


def compile_within(folders: Iterable[str], *, paths: Paths, loose: bool) -> Callable[[str, str], bool | None]:
    """Return a function that checks if a path, for a server, lies in one of the folders; None: unknown.

    Where being inside allows something, a path must be inside in every form: as written and with its links resolved.
    Where being inside restricts it (``lenient``), one form is enough, and case is ignored.

    Raises:
        InvalidFolder: a folder is not absolute.
    """
    resolve = paths.places.resolve
    written = [_folder(each, paths.places) for each in folders]
    real_ones = [_straight(resolve(each)) for each in written if resolve is not None]
    roots = tuple(dict.fromkeys(map(_fold, (*written, *real_ones)) if loose else (*written, *real_ones)))
    # ``startswith`` is faster with a string than with a tuple.
    starts = roots[0] if len(roots) == 1 else roots
    read = paths.read

    def judge(value: str, server: str) -> bool | None:
        path = read(value, server)
        if path is None:
            return None
        inside = (path.folded if loose else path.straight).startswith(starts)
        if resolve is None or inside is loose:
            return inside
        try:
            real = path.real(resolve)
        except (OSError, ValueError):
            return None
        return (real.folded if loose else real.straight).startswith(starts)

    return judge


def _folder(text: str, places: Places) -> str:
    path = text
    if text == "~" or text.startswith("~/"):
        if places.home is None:
            raise PathError(f"{text!r}: the home folder '~' is not known; write the whole path")
        path = places.home + text[1:]
    if not path.startswith("/") or _ODD.search(path):
        raise PathError(f"{text!r} is not an absolute path: begin it with '/' or '~/'")
    return _straight(path)


def _absolute(value: str, cwd: str | None) -> str | None:
    if len(value) > _MOST_TEXT or _ODD.search(value):
        return None
    if value.startswith("/"):
        return value
    return None if cwd is None else f"{cwd}/{value}"


def _straight(path: str) -> str:
    """Resolve dots and double slashes; it ends with a slash, so that a prefix is a containing folder."""
    # POSIX keeps two leading slashes; on all systems that matter here they mean one.
    straight = posixpath.normpath(path).strip("/")
    return f"/{straight}/" if straight else "/"


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
