"""A real redis-server for tests: on a free port of loopback, with its file in a folder of its own, always stopped."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["RedisServer", "needs_redis", "redis_server"]

_BINARY = shutil.which("redis-server")

needs_redis = pytest.mark.skipif(_BINARY is None, reason="redis-server is not installed; run: make services")


class RedisServer:
    """One redis-server that can be stopped, paused and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        """Choose a free port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, with AOF ``always``, and wait until it has loaded its file."""
        assert _BINARY is not None
        settings = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", ""]
        settings += ["--appendonly", "yes", "--appendfsync", "always", *options]
        self._process = subprocess.Popen([_BINARY, *settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < deadline, "redis-server did not start in time"
            assert self._process.poll() is None, "redis-server ended"
            time.sleep(0.01)

    def stop(self) -> None:
        """Kill it: what it acknowledged is in its file."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(120)
            self._process = None

    def pause(self) -> None:
        """Let it answer nothing; its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def forget(self) -> None:
        """Delete its files, as if it had never written them."""
        shutil.rmtree(self._folder / "appendonlydir", ignore_errors=True)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                probe.settimeout(1)
                probe.sendall(b"PING\r\n")
                return probe.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """Run a redis-server."""
    with tempfile.TemporaryDirectory(prefix="trunkline-redis-") as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
