"""Writing whole files, creating folders and moving. A name holds the old or the new content, never a part of either.

A file is written beside its destination and renamed over it, through the open directory. So a name that has become a
link is replaced, not followed, and other hard links to the same file keep the old content. A move never replaces.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from trunkline.errors import ToolError
from trunkline.servers.filesystem.kernel import rename_new
from trunkline.servers.filesystem.limits import shown_size
from trunkline.servers.filesystem.walking import Ground, Place, Swapped

__all__ = ["make_folders", "move", "replace_file", "same_file"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Errors that mean the system cannot rename without replacing here.
_NO_SUCH_RENAME = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def replace_file(place: Place, data: bytes, *, most: int, seen: os.stat_result | None = None) -> None:
    """Write a file at a location, keeping the mode of an existing one.

    Args:
        place: The destination.
        data: The whole content.
        most: Most bytes that are allowed.
        seen: The status of the file that the content is based on; if it has changed, nothing is written.

    Raises:
        ToolError: the entry is not a regular file, or has changed, or the content is too large.
    """
    if len(data) > most:
        raise ToolError(
            f"{shown_size(len(data))} are more than {shown_size(most)}, the most that is written at once: write less, "
            "or start the server with a larger --max-file-bytes."
        )
    before = place.status()
    if before is not None and not stat.S_ISREG(before.st_mode):
        what = "folder" if stat.S_ISDIR(before.st_mode) else "link, device, pipe or socket"
        raise ToolError(f"{place.path} is a {what}, and no file that can be written.")
    name = f".{os.urandom(12).hex()}.tmp"
    try:
        _write_new(place.directory, name, data, before)
        if seen is not None and not same_file(seen, place.status()):
            raise ToolError(
                f"{place.path} was changed by another program meanwhile; nothing was written. Read it again."
            )
        os.rename(name, place.name, src_dir_fd=place.directory, dst_dir_fd=place.directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=place.directory)
        raise
    _settle(place.directory)


def same_file(one: os.stat_result, other: os.stat_result | None) -> bool:
    """Return True if both describe the same file, unchanged as far as can be seen."""
    return other is not None and _signature(one) == _signature(other)


def make_folders(ground: Ground, path: str) -> None:
    """Create a folder and its missing parents, all or none.

    Raises:
        ToolError: an entry other than a folder exists there.
    """
    absolute = ground.absolute(path)
    folder, rest = ground.below([each for each in absolute.split("/") if each], f"{absolute} is")
    made: list[str] = []
    here = str(folder.given if absolute.startswith(f"{folder.given}/") else folder.real)
    try:
        for name in rest:
            here = os.path.join(here, name)
            if ground.use(here, _make_folder):
                made.append(here)
    except BaseException:
        for each in reversed(made):
            with suppress(OSError):
                ground.use(each, lambda place: os.rmdir(place.name, dir_fd=place.directory))
        raise


def move(source: Place, destination: Place) -> None:
    """Move an entry to a free name; a link itself is moved, not its target.

    Raises:
        ToolError: the name is taken, or one of the two is an allowed folder itself.
    """
    found = source.status()
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source.path)
    if "." in (source.name, destination.name):
        raise ToolError("An allowed folder itself is not moved, and nothing is moved in its place.")
    try:
        _rename(source, destination, stat.S_ISDIR(found.st_mode))
    except FileExistsError:
        raise ToolError(f"{destination.path} exists already; nothing was moved. Choose another name.") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ToolError(f"{source.path} is not moved into itself: choose a folder outside of it.") from error
    _settle(destination.directory)
    _settle(source.directory)


def _rename(source: Place, destination: Place, is_folder: bool) -> None:
    try:
        rename_new((source.directory, source.name), (destination.directory, destination.name))
    except OSError as error:
        if error.errno not in _NO_SUCH_RENAME:
            raise
        _rename_by_steps(source, destination, is_folder)


def _rename_by_steps(source: Place, destination: Place, is_folder: bool) -> None:
    """Rename without replacing where the system lacks the call: create the new name, then remove the old one."""
    fds = {"src_dir_fd": source.directory, "dst_dir_fd": destination.directory}
    if not is_folder:
        os.link(source.name, destination.name, follow_symlinks=False, **fds)
        try:
            os.unlink(source.name, dir_fd=source.directory)
        except OSError:
            with suppress(OSError):
                os.unlink(destination.name, dir_fd=destination.directory)
            raise
        return
    os.mkdir(destination.name, dir_fd=destination.directory)
    try:
        # This replaces only an empty folder: it fails if an entry appeared in it meanwhile.
        os.rename(source.name, destination.name, **fds)
    except OSError:
        with suppress(OSError):
            os.rmdir(destination.name, dir_fd=destination.directory)
        raise


def _make_folder(place: Place) -> bool:
    """Create one folder; return True if it did not exist before."""
    if place.status() is None:
        # Another process may create it at the same time.
        with suppress(FileExistsError):
            os.mkdir(place.name, dir_fd=place.directory)
            _settle(place.directory)
            return True
    found = place.status()
    if found is not None and stat.S_ISLNK(found.st_mode):
        raise Swapped(errno.ELOOP, os.strerror(errno.ELOOP))
    if found is not None and not stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{place.path} exists already and is not a folder.")
    return False


def _write_new(directory: int, name: str, data: bytes, like: os.stat_result | None) -> None:
    descriptor = os.open(name, _NEW, 0o666 if like is None else 0o600, dir_fd=directory)
    try:
        if like is not None:
            _make_like(descriptor, like)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_like(descriptor: int, like: os.stat_result) -> None:
    """Copy owner, group and mode of the old file to the new one, as far as the system permits."""
    now, mode = os.fstat(descriptor), stat.S_IMODE(like.st_mode) & 0o777
    if (like.st_uid, like.st_gid) != (now.st_uid, now.st_gid):
        try:
            os.fchown(descriptor, like.st_uid, like.st_gid)
        except PermissionError:
            # A process that may not change the owner may still be allowed to change the group.
            with suppress(PermissionError):
                os.fchown(descriptor, -1, like.st_gid)
    if os.fstat(descriptor).st_gid != like.st_gid:
        # The permissions of the old group do not apply to the new one.
        mode &= ~0o070 | (mode & 0o007) << 3
    # Some file systems have no modes.
    with suppress(PermissionError):
        os.fchmod(descriptor, mode)


def _settle(directory: int) -> None:
    """Flush a directory to disk so that its entries survive a crash; some file systems cannot, and need not."""
    with suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _signature(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
