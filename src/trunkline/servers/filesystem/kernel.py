"""Calls of the system that Python does not have: opening beneath a folder, renaming without replacing, birth times.

Each says so with ``ENOSYS`` where the system has no such call, and the caller has another way. It knows no folders.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from typing import Any

__all__ = ["birth_seconds", "inotify_add", "inotify_init", "open_beneath", "open_without_links", "rename_new"]

_NR_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_RENAME_NOREPLACE = 1
_AT_FDCWD, _AT_EMPTY_PATH, _AT_SYMLINK_NOFOLLOW = -100, 0x1000, 0x100
_STATX_BTIME = 0x800
#: Where ``struct statx`` has its mask and its time of birth.
_STATX_BYTES, _STATX_BIRTH = 256, 80
#: Numbers of system calls that all machines have in common since 2019; older ones differ, and are not used.
_KNOWN_MACHINES = ("aarch64", "loongarch64", "ppc64le", "riscv64", "s390x", "x86_64")


def open_beneath(directory: int, path: str, flags: int) -> int:
    """Open a path that must stay beneath a directory and go through no link at all.

    Raises:
        OSError: it does not, or the system has no such call (``ENOSYS``).
    """
    return _openat2(directory, path, flags, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS)


def open_without_links(path: str, flags: int) -> int:
    """Open an absolute path that must go through no link.

    Raises:
        OSError: it does, or the system has no such call (``ENOSYS``).
    """
    return _openat2(_AT_FDCWD, path, flags, _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS)


def rename_new(source: tuple[int, str], destination: tuple[int, str]) -> None:
    """Rename a directory's entry to one that must not exist.

    Raises:
        OSError: it does exist, or the system or its file system has no such call (``ENOSYS``, ``EINVAL``).
    """
    call = getattr(_libc(), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    _checked(call(source[0], os.fsencode(source[1]), destination[0], os.fsencode(destination[1]), _RENAME_NOREPLACE))


def birth_seconds(descriptor: int) -> float | None:
    """Give the time when an open file was made; None where the system does not know."""
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
    """Open a descriptor that tells of changes.

    Raises:
        OSError: there are too many, or the system has no such call (``ENOSYS``).
    """
    call = getattr(_libc(), "inotify_init1", None) if sys.platform.startswith("linux") else None
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _checked(call(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add(descriptor: int, directory: int, mask: int) -> int:
    """Watch an open directory; it is named by its descriptor, so nobody can put another in its place.

    Raises:
        OSError: it cannot be watched, or too many are.
    """
    return _checked(_libc().inotify_add_watch(descriptor, f"/proc/self/fd/{directory}".encode(), mask))


def _openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    if not sys.platform.startswith("linux") or os.uname().machine not in _KNOWN_MACHINES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    from ctypes import c_int, c_long, c_size_t, c_uint64

    how = (c_uint64 * 3)(flags | os.O_CLOEXEC, 0, resolve)
    arguments = (c_int(directory), os.fsencode(path), how, c_size_t(24))
    return _checked(_libc().syscall(c_long(_NR_OPENAT2), *arguments))


def _checked(answer: Any) -> int:
    """Give a system call's answer, or raise what went wrong."""
    if answer >= 0:
        return int(answer)
    from ctypes import get_errno

    number = get_errno()
    raise OSError(number, os.strerror(number))


@cache
def _libc() -> Any:
    # Loaded by the first call: ctypes takes longer to import than the rest of a server.
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
