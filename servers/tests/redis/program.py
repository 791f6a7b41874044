"""A real redis-server for one test or module: on a Unix socket in its own folder, always stopped at the end."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["RedisProgram", "needs_redis", "redis_program"]

_BINARY = shutil.which("redis-server")

needs_redis = pytest.mark.skipif(_BINARY is None, reason="redis-server is not installed")


class RedisProgram:
    """One redis-server that can be stopped and started again at the same address."""

    def __init__(self, folder: Path, *, password: str | None) -> None:
        """Initialize with the folder of its socket."""
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._folder = folder
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        assert _BINARY is not None
        options = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._folder)]
        options += ["--save", "", "--appendonly", "no"]
        options += ["--requirepass", self._password] if self._password else []
        self._process = subprocess.Popen([_BINARY, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not self._answers():
            assert time.monotonic() < deadline, "redis-server did not start in time"
            assert self._process.poll() is None, "redis-server ended"
            time.sleep(0.01)

    def stop(self) -> None:
        """End it and wait for it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(120)
            self.socket.unlink(missing_ok=True)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0


@contextmanager
def redis_program(*, password: str | None = None) -> Iterator[RedisProgram]:
    """Run a redis-server for the duration of the block."""
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        program = RedisProgram(Path(folder), password=password)
        program.start()
        try:
            yield program
        finally:
            program.stop()
