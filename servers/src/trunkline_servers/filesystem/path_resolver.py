"""Resolution of paths below the allowed folders and nowhere else, with no check that can go stale.

A path is never checked and then used. It is walked from an open descriptor of the allowed folder, and the result is a
``Location``: an open directory and the name of an entry in it, which is opened later without following links. Where
possible the kernel walks in one call (``openat2``): the path, already without dots, goes through no link from the root
on, so it ends below the allowed folder. Otherwise each component is opened separately, links are read and walked as
text, and a link whose target leaves the allowed folders is denied: links that stay inside work, wherever they start.
Swapping a directory for a link at any moment leads to an error, never outside.

The system calls that Python does not offer come first: opening without following links, renaming without replacing,
birth times and inotify. Each raises ``ENOSYS`` where the system lacks the call, and the caller has a fallback.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct

from trunkline.errors import ToolError
from trunkline_servers.roots import Folder

__all__ = [
    "Location",
    "PathChanged",
    "PathDenied",
    "PathResolver",
    "birth_seconds",
    "displayable",
    "inotify_add",
    "inotify_init",
    "open_without_links",
    "rename_new",
]

_NR_OPENAT2 = 437
_HOW_BYTES = 24
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS = 0x02, 0x04
_RENAME_NOREPLACE = 1
_AT_FDCWD, _AT_EMPTY_PATH, _AT_SYMLINK_NOFOLLOW = -100, 0x1000, 0x100
_STATX_BTIME = 0x800
#: Size of ``struct statx``, and the offset of the birth time in it.
_STATX_BYTES, _STATX_BIRTH = 256, 80
#: Machines that share system call numbers for calls added since 2019; numbers of older calls differ and are not used.
_KNOWN_MACHINES = ("aarch64", "loongarch64", "ppc64le", "riscv64", "s390x", "x86_64")


def open_without_links(path: str, flags: int) -> int:
    """Open an absolute path that must not contain a symbolic link.

    Raises:
        OSError: it contains one, or the system lacks the call (``ENOSYS``).
    """
    call = _openat2()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = _how(flags | os.O_CLOEXEC, _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS)
    return _checked(call(_NR_OPENAT2, _AT_FDCWD, os.fsencode(path), how, _HOW_BYTES))


def rename_new(source: tuple[int, str], destination: tuple[int, str]) -> None:
    """Rename a directory entry to a name that must not exist.

    Raises:
        OSError: the name exists, or the system or file system lacks the call (``ENOSYS``, ``EINVAL``).
    """
    call = getattr(_libc(), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    _checked(call(source[0], os.fsencode(source[1]), destination[0], os.fsencode(destination[1]), _RENAME_NOREPLACE))


def birth_seconds(descriptor: int) -> float | None:
    """Return the creation time of an open file; None if the system does not know it."""
    known: float | None = getattr(os.fstat(descriptor), "st_birthtime", None)
    call = None if known is not None or not sys.platform.startswith("linux") else getattr(_libc(), "statx", None)
    if call is None:
        return known
    from ctypes import create_string_buffer

    found = create_string_buffer(_STATX_BYTES)
    if call(descriptor, b"", _AT_EMPTY_PATH | _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found) != 0:
        return None
    if not int.from_bytes(found.raw[:4], sys.byteorder) & _STATX_BTIME:
        return None
    seconds = int.from_bytes(found.raw[_STATX_BIRTH : _STATX_BIRTH + 8], sys.byteorder, signed=True)
    return seconds + int.from_bytes(found.raw[_STATX_BIRTH + 8 : _STATX_BIRTH + 12], sys.byteorder) / 1e9


def inotify_init() -> int:
    """Open an inotify descriptor.

    Raises:
        OSError: there are too many, or the system lacks the call (``ENOSYS``).
    """
    call = getattr(_libc(), "inotify_init1", None) if sys.platform.startswith("linux") else None
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _checked(call(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add(descriptor: int, directory: int, mask: int) -> int:
    """Watch an open directory; it is named by its descriptor, so it cannot be replaced by another.

    Raises:
        OSError: it cannot be watched, or there are too many watches.
    """
    return _checked(_libc().inotify_add_watch(descriptor, f"/proc/self/fd/{directory}".encode(), mask))


@cache
def _openat2() -> Any:
    """Return the system call with its types declared once, as it is made for most paths; None if unavailable."""
    if not sys.platform.startswith("linux") or os.uname().machine not in _KNOWN_MACHINES:
        return None
    from ctypes import CDLL, c_char_p, c_int, c_long, c_size_t, c_void_p

    # From a separate library object, so that these types apply to no other system call.
    call = CDLL(None, use_errno=True).syscall
    call.argtypes, call.restype = (c_long, c_int, c_char_p, c_void_p, c_size_t), c_long
    return call


@cache
def _how(flags: int, resolve: int) -> Any:
    """Return the ``open_how`` struct; the kernel only reads it."""
    from ctypes import c_uint64

    return (c_uint64 * 3)(flags, 0, resolve)


def _checked(answer: Any) -> int:
    """Return the result of a system call, or raise its error."""
    if answer >= 0:
        return int(answer)
    from ctypes import get_errno

    number = get_errno()
    raise OSError(number, os.strerror(number))


@cache
def _libc() -> Any:
    # Loaded on first use: ctypes takes longer to import than the rest of a server.
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


T = TypeVar("T")

#: Opens a directory to walk through; without O_PATH the directory must be readable.
_THROUGH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: The system lacks the call, or a sandbox blocks it.
_NO_SUCH_CALL = (errno.ENOSYS, errno.EPERM)
#: Errors that have nothing to do with the path.
_TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE)
#: Most links that a path may go through, as in the kernel.
_MOST_LINKS = 40
#: Longest path, as in the kernel, and most folders that are kept open on the way.
_LONGEST = 4095
_DEEPEST = 256
#: How often resolution is retried if an entry becomes a link between resolving and opening it.
_TRIES = 8


class PathDenied(ToolError):
    """The path leads out of the allowed folders."""

    def __init__(self, message: str) -> None:
        """Initialize with the message, which may contain names that are not valid UTF-8."""
        super().__init__(displayable(message))


class PathChanged(OSError):
    """The entry was replaced after the path was resolved."""


class Location(Struct, frozen=True):
    """An entry of an open directory, not a link when it was resolved; ``.`` is an allowed folder itself."""

    directory: int
    name: str
    #: The path without links; for display only.
    path: str
    #: The status of the entry when it was resolved, if it was read.
    found: os.stat_result | None = None

    def status(self) -> os.stat_result | None:
        """Return the current status of the entry; None if it does not exist."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self, flags: int) -> int:
        """Open the entry without blocking and without following a link.

        Raises:
            PathChanged: it has become a link.
        """
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            return os.open(self.name, flags, dir_fd=self.directory)
        except OSError as error:
            # A link raises ENOTDIR with O_DIRECTORY, and ELOOP without.
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and self._is_link():
                raise PathChanged(errno.ELOOP, os.strerror(errno.ELOOP)) from error
            raise

    def open_file(self) -> int:
        """Open a regular file for reading.

        Raises:
            OSError: it is a directory, device, pipe or socket; none of these is even opened.
        """
        return self.open_sized()[0]

    def open_sized(self) -> tuple[int, int]:
        """Open a regular file for reading and return its descriptor and reported size.

        Raises:
            OSError: as for ``open_file``.
        """
        _must_be_file(self.found or os.stat(self.name, dir_fd=self.directory, follow_symlinks=False))
        descriptor = self.open(os.O_RDONLY)
        try:
            opened = os.fstat(descriptor)
            _must_be_file(opened)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor, opened.st_size

    def _is_link(self) -> bool:
        found = self.status()
        return found is not None and stat.S_ISLNK(found.st_mode)


class PathResolver:
    """Resolves paths below the allowed folders of one call."""

    def __init__(self, folders: Sequence[Folder], *, kernel_walk: bool = True) -> None:
        """Initialize with the folders; without ``kernel_walk`` each component is opened separately."""
        self.folders = tuple(folders)
        self._kernel_walk = kernel_walk
        named = [(_parts(str(base)), folder) for folder in folders for base in (folder.given, folder.real)]
        self._bases = sorted(named, key=lambda each: len(each[0]), reverse=True)

    def use(self, path: str, action: Callable[[Location], T], *, follow: bool = True) -> T:
        """Resolve a path and run an action on the location; retry if the entry became a link in between.

        Raises:
            PathDenied: the path leads out of the allowed folders.
            OSError: a part of the path does not exist.
        """
        absolute = self.absolute(path)
        for _ in range(_TRIES):
            try:
                location = self._find(absolute, follow)
                try:
                    return action(location)
                finally:
                    os.close(location.directory)
            except PathChanged:
                continue
        raise PathDenied(f"Access denied: {path} keeps changing.")

    def absolute(self, path: str) -> str:
        """Return a path as an absolute one: ``~`` is the home folder, a relative path is below an allowed folder.

        A relative path refers to the first allowed folder that contains it, else to the first one.

        Raises:
            PathDenied: it is not a valid path.
        """
        if not path or "\0" in path:
            raise PathDenied("Access denied: a path has at least one character and no zero byte.")
        if len(path) > _LONGEST:
            raise PathDenied(f"Access denied: a path has at most {_LONGEST} characters.")
        if path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)
        if path.startswith("/"):
            return _normal(path)
        below = [_normal(f"{folder.given}/{path}") for folder in self.folders]
        return next((each for each in below if self._has(each)), below[0])

    def _find(self, absolute: str, follow: bool) -> Location:
        """Resolve an absolute path; the caller closes the location's directory.

        Without ``follow`` the last component may be a link.

        Raises:
            PathDenied: the path leads out of the allowed folders.
            OSError: a part of the path does not exist.
        """
        folder, rest = self.below(_parts(absolute), f"{absolute} is")
        location = self._found_by_kernel(folder, rest, follow)
        return _Walk(self, absolute, follow).go(folder, rest) if location is None else location

    def enter(self, folder: Folder) -> int:
        """Open an allowed folder; its path must not contain a link, even if it was changed since it was allowed.

        Raises:
            PathDenied: it contains one.
            OSError: too many files are open.
        """
        real = str(folder.real)
        try:
            if self._kernel_walk:
                return open_without_links(real, _THROUGH)
        except OSError as error:
            if error.errno not in _NO_SUCH_CALL:
                raise self._closed(real, error) from error
        try:
            return _enter_by_steps(real)
        except OSError as error:
            raise self._closed(real, error) from error

    def _closed(self, real: str, error: OSError) -> Exception:
        if error.errno in _TOO_MANY_OPEN:
            return error
        return PathDenied(f"Access denied: the allowed folder {real} no longer exists, or its path has become a link.")

    def _has(self, absolute: str) -> bool:
        try:
            return self.use(absolute, lambda location: location.status() is not None, follow=False)
        except (PathDenied, OSError):
            return False

    def below(self, parts: list[str], what: str) -> tuple[Folder, list[str]]:
        """Return the allowed folder that contains a path, compared by components, and the rest of the path.

        Raises:
            PathDenied: none contains it; ``what`` begins the message.
        """
        for base, folder in self._bases:
            if parts[: len(base)] == base:
                return folder, parts[len(base) :]
        folders = ", ".join(dict.fromkeys(str(each.real) for each in self.folders))
        raise PathDenied(f"Access denied: {what} outside the allowed folders ({folders}).")

    def _found_by_kernel(self, folder: Folder, rest: Sequence[str], follow: bool) -> Location | None:
        """Resolve a path without links in one system call; None leaves it to the stepwise walk."""
        if not self._kernel_walk or not rest:
            return None
        above = "/".join([str(folder.real).rstrip("/"), *rest[:-1]])
        try:
            directory = open_without_links(above or "/", _THROUGH)
        except OSError:
            # A link, a missing system call, or a missing entry: the stepwise walk finds out which.
            return None
        location = Location(directory, rest[-1], f"{above}/{rest[-1]}")
        if not follow:
            return location
        try:
            found = location.status()
        except OSError:
            os.close(directory)
            raise
        if found is not None and stat.S_ISLNK(found.st_mode):
            os.close(directory)
            return None
        return Location(directory, location.name, location.path, found)


class _Walk:
    """One walk, component by component: the open directories, outermost first, and their names."""

    def __init__(self, resolver: PathResolver, shown: str, follow: bool) -> None:
        self._resolver = resolver
        self._shown = shown
        self._follow = follow
        self._links = 0
        self._folder = resolver.folders[0]
        self._open: list[int] = []
        self._names: list[str] = []

    def go(self, folder: Folder, rest: list[str]) -> Location:
        """Walk to the end; the caller closes the location's directory."""
        try:
            self._start(folder)
            while rest:
                name = rest.pop(0)
                if name in ("", "."):
                    continue
                if name == "..":
                    rest = self._up(rest)
                    continue
                last = not rest
                target = _link(self._open[-1], name) if self._follow or not last else None
                if target is not None:
                    rest = self._through(target, rest)
                elif last:
                    return Location(self._open.pop(), name, self._path(name))
                else:
                    self._down(name)
            return self._here()
        finally:
            for each in self._open:
                os.close(each)

    def _start(self, folder: Folder) -> None:
        while self._open:
            os.close(self._open.pop())
        self._folder, self._names = folder, []
        self._open.append(self._resolver.enter(folder))

    def _down(self, name: str) -> None:
        if len(self._open) > _DEEPEST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        try:
            inner = os.open(name, _THROUGH, dir_fd=self._open[-1])
        except OSError as error:
            # A link that appeared after the check is not followed: O_NOFOLLOW.
            if _link(self._open[-1], name) is not None:
                raise PathChanged(errno.ELOOP, os.strerror(errno.ELOOP)) from error
            raise
        self._open.append(inner)
        self._names.append(name)

    def _up(self, rest: list[str]) -> list[str]:
        """Go to the parent directory; from an allowed folder only into another allowed folder."""
        if self._names:
            self._names.pop()
            os.close(self._open.pop())
            return rest
        base = list(self._folder.real.parts[1:-1])
        while rest and rest[0] == "..":
            base, rest = base[:-1], rest[1:]
        return self._elsewhere([*base, *rest])

    def _through(self, target: str, rest: list[str]) -> list[str]:
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        parts = [each for each in target.split("/") if each]
        if target.startswith("/"):
            return self._elsewhere([*parts, *rest])
        return [*parts, *rest]

    def _elsewhere(self, parts: list[str]) -> list[str]:
        folder, rest = self._resolver.below(parts, f"a link in {self._shown} leads")
        self._start(folder)
        return rest

    def _here(self) -> Location:
        """Return the directory that the walk ended in: an allowed folder, or one reached by a link with ``..``."""
        if not self._names:
            return Location(self._open.pop(), ".", str(self._folder.real))
        os.close(self._open.pop())
        return Location(self._open.pop(), self._names[-1], self._path())

    def _path(self, *last: str) -> str:
        return os.path.join(str(self._folder.real), *self._names, *last)


def displayable(name: str) -> str:
    """Return a name that can be sent: bytes that are not UTF-8 become U+FFFD."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _enter_by_steps(real: str) -> int:
    here = os.open("/", _THROUGH)
    for name in _parts(real):
        try:
            inner = os.open(name, _THROUGH, dir_fd=here)
        finally:
            os.close(here)
        here = inner
    return here


def _link(directory: int, name: str) -> str | None:
    """Return the target of a link; None if the entry is not a link or does not exist."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _must_be_file(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISLNK(found.st_mode):
        raise PathChanged(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.ENOTSUP, "it is no regular file")


def _normal(path: str) -> str:
    return "/" + os.path.normpath(path).lstrip("/")


def _parts(path: str) -> list[str]:
    return [each for each in path.split("/") if each]
