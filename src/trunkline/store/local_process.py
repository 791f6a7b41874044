"""The process that holds what the workers of one machine share without a store, and the folder of its socket."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trunkline.errors import ConfigError
from trunkline.store.interface import Store
from trunkline.store.local import STORE_BYTES, LocalEngine, serve_stores
from trunkline.store.memory import MemoryContents

__all__ = ["LocalStore", "private_socket_folder", "until_closed"]

#: Connections of all workers that open at once.
_BACKLOG = 1024


class LocalStore:
    """What the workers of one machine share without a store: a process beside them holds it in memory.

    The socket belongs to the supervisor, so that workers can connect to it whenever that process is started again.
    """

    def __init__(self, ready: bytes) -> None:
        """Listen at a path that only this user can access; ``ready`` is what its process writes once it serves.

        Raises:
            ConfigError: there is no folder for it.
        """
        self._folder = private_socket_folder()
        self._path = self._folder / "store"
        self._ready = ready
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(self._path))
            os.chmod(self._path, 0o600)
            self._listener.listen(_BACKLOG)
        except OSError as error:
            self.remove()
            raise _no_socket_folder(error) from error

    def store(self, name: str) -> Store:
        """Return the connection of a worker for the server of this name; called in the worker."""
        self._listener.close()
        return LocalEngine(lambda: asyncio.open_unix_connection(self._path), name=name)

    def remove(self) -> None:
        """Remove the socket; called when all processes have ended."""
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def work(self, lifeline: socket.socket) -> int:
        """Hold what is shared until the other end of the lifeline is closed, or SIGTERM; runs in its own process."""
        # For the workers, which are replaced: what they share stays.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with suppress(asyncio.CancelledError):
            asyncio.run(self._serve(lifeline))
        return 0

    async def _serve(self, lifeline: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        contents = MemoryContents(now=time.time, random=os.urandom, max_bytes=STORE_BYTES)
        serving = loop.create_task(serve_stores(contents, self._listener))
        loop.add_signal_handler(signal.SIGTERM, serving.cancel)
        gone = loop.create_task(until_closed(lifeline, serving.cancel))
        lifeline.setblocking(False)
        lifeline.send(self._ready)
        try:
            await serving
        finally:
            if gone.done():
                # The supervisor was killed, and removes nothing.
                self.remove()
            gone.cancel()


def private_socket_folder() -> Path:
    """Return a new folder for a socket, which only this user can access.

    Raises:
        ConfigError: there is none.
    """
    try:
        return Path(tempfile.mkdtemp(prefix="trunkline-"))
    except OSError as error:
        raise _no_socket_folder(error) from error


def _no_socket_folder(error: OSError) -> ConfigError:
    """Return the error for a temporary folder that cannot be used; a read-only container has none."""
    return ConfigError(
        "several workers need a temporary folder with a short path for a local socket: make /tmp writable, or set "
        f"TMPDIR to such a folder ({error.strerror or error})"
    )


async def until_closed(lifeline: socket.socket, then: Callable[[], object]) -> None:
    """Wait until the other end of a socket is closed, then call a function."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while await loop.sock_recv(lifeline, 16):
            pass
    then()
