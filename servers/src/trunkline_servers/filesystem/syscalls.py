"""System calls that Python does not offer: opening without following links, renaming without replacing, birth times.

Each raises ``ENOSYS`` where the system lacks the call, and the caller has a fallback. This module knows no folders.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from typing import Any

__all__ = ["birth_seconds", "inotify_add", "inotify_init", "open_without_links", "rename_new"]

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
