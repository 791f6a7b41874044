"""The owner-only socket by which ``trunkline console`` finds a running host of the same configuration.

A host listens on a Unix socket in the user's state folder, named after its configuration. A request returns the address
of the host's console, with its token, and starts the console if it is not running; this module is not part of the
console, so that a host can listen without importing the console. Only the user can access the folder and the socket,
and where the kernel identifies the peer process, other users get no answer. Of several hosts with one configuration,
the first owns the socket; a stale socket of an ended process is replaced. A host that cannot bind a socket runs
without one.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
import stat
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from trunkline.errors import ConfigError
from trunkline.host.state_files import locked, private_folder

__all__ = ["console_socket", "find_console"]

log = logging.getLogger("trunkline.host")

_FOLDER = "consoles"
_REQUEST = b'{"want": "console"}\n'
_MOST_BYTES = 4096  # A request is twenty bytes, and an answer an address.
_READ_SECONDS = 5.0  # Both sides write their line at once.
_START_SECONDS = 20.0  # The first request imports the console and binds a port.
_LONGEST_PATH = 100  # 108 bytes on Linux, 104 on macOS.


# --- the host --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def console_socket(folder: Path, fingerprint: str, address: Callable[[], Awaitable[str]]) -> AsyncIterator[bool]:
    """Answer requests for the address of a console while the context is active; yield True if the socket is bound.

    ``address`` returns the address, and starts the console if necessary.
    """
    listening = await asyncio.to_thread(_listen, folder / _FOLDER, fingerprint)
    if listening is None:
        yield False
        return
    path, bound, inode = listening

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _answer(reader, writer, address)

    server = await asyncio.start_unix_server(answer, sock=bound, limit=_MOST_BYTES)
    try:
        yield True
    finally:
        server.close()
        with suppress(OSError):
            if os.stat(path).st_ino == inode:
                os.unlink(path)


def _listen(folder: Path, fingerprint: str) -> tuple[Path, socket.socket, int] | None:
    """Bind the socket; return None if another host owns it, or it cannot be bound."""
    if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
        return None
    path = folder / f"{fingerprint}.sock"
    try:
        private_folder(folder.parent)
        private_folder(folder)
        os.chmod(folder, 0o700)
        with locked(str(path)), _reachable(path) as name:
            if _is_alive(name):
                return None
            with suppress(FileNotFoundError):
                os.unlink(path)
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                bound.bind(name)
                os.chmod(path, 0o600)
                bound.listen(16)
                return path, bound, os.stat(path).st_ino
            except BaseException:
                bound.close()
                raise
    except (OSError, ConfigError) as error:
        log.info("a console cannot attach to this host: %s", error)
        return None


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """Yield a path of the socket that fits the kernel's limit."""
    if len(os.fsencode(path)) <= _LONGEST_PATH or sys.platform != "linux":
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def _is_alive(name: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # The kernel answers at once: it refuses, or queues the connection.
        probe.settimeout(1.0)
        return probe.connect_ex(name) in (0, errno.EAGAIN)


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Callable[[], Awaitable[str]]
) -> None:
    try:
        if not _is_own(writer.get_extra_info("socket")):
            return
        async with asyncio.timeout(_READ_SECONDS):
            line = await reader.readline()
        if line.strip() != _REQUEST.strip():
            return
        try:
            reply = {"url": await address()}
        except Exception as error:  # noqa: BLE001 - the client gets the message, and the host keeps running
            log.warning("the console cannot be started: %s", error)
            reply = {"error": str(error)}
        writer.write(json.dumps(reply).encode() + b"\n")
        async with asyncio.timeout(_READ_SECONDS):
            await writer.drain()
    except (OSError, TimeoutError, ValueError):
        log.debug("a request for the console ended early", exc_info=True)
    finally:
        writer.close()


def _is_own(other: socket.socket | None) -> bool:
    """Return True if the process at the other end belongs to this user, as far as the kernel tells."""
    if other is None:
        return False
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        # The permissions of the folder protect the socket.
        return True
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", other.getsockopt(socket.SOL_SOCKET, option, size))
    return bool(uid == os.geteuid())


# --- the command -----------------------------------------------------------------------------------------------------


async def find_console(folder: Path, fingerprint: str) -> str | None:
    """Return the address of the console of a running host; None if there is none.

    Raises:
        ConfigError: the host cannot start its console.
    """
    path = folder / _FOLDER / f"{fingerprint}.sock"
    if not hasattr(socket, "AF_UNIX") or not _is_owned(path):
        return None
    try:
        with _reachable(path) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=_MOST_BYTES)
    except OSError:
        # A stale socket of an ended process.
        return None
    try:
        if not _is_own(writer.get_extra_info("socket")):
            return None
        writer.write(_REQUEST)
        async with asyncio.timeout(_START_SECONDS):
            await writer.drain()
            reply = json.loads(await reader.readline() or b"{}")
    except (OSError, TimeoutError, ValueError):
        return None
    finally:
        writer.close()
    if "error" in reply:
        raise ConfigError(f"The running host with this configuration cannot start its console: {reply['error']}")
    url = reply.get("url")
    # Open only loopback addresses in the user's browser.
    return url if isinstance(url, str) and url.startswith("http://127.0.0.1:") else None


def _is_owned(path: Path) -> bool:
    """Return True if a socket and its folder belong to this user alone."""
    try:
        folder, found = os.stat(path.parent), os.lstat(path)
    except OSError:
        return False
    private = folder.st_uid == os.geteuid() and not stat.S_IMODE(folder.st_mode) & 0o077
    return private and stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
