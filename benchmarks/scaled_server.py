"""Servers with several workers, and the Redis behind them: started, measured as a whole, ended."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.driver import ServerFailed, cpu_ns, resident_kb
from benchmarks.http_driver import START_SECONDS, HttpServer
from benchmarks.http_work import HttpRequests
from benchmarks.subjects import HERE, ROOT

if TYPE_CHECKING:
    import redis

__all__ = ["Redis", "Scaled", "bare_writes", "redis_server", "scaled", "scaled_command", "worker_environment"]

#: Any key: it only has to be the same for all workers.
_KEY = "5a" * 32


class Redis:
    """A redis-server on a port of loopback."""

    def __init__(self, port: int, pid: int) -> None:
        """Observe a server that has started."""
        self.port = port
        self.pid = pid
        self.url = f"redis://127.0.0.1:{port}/0"

    def used_bytes(self) -> int:
        """Return the memory of its data."""
        return int(self.info("memory")["used_memory"])

    def commands(self) -> int:
        """Return how many commands it has processed."""
        return int(self.info("stats")["total_commands_processed"])

    def info(self, section: str) -> dict[str, Any]:
        """Return a section of what it reports about itself."""
        with self.client() as client:
            found = client.info(section)
        assert isinstance(found, dict)
        return found

    def client(self) -> redis.Redis:
        """Return a new client."""
        import redis

        return redis.Redis(port=self.port)


@contextmanager
def redis_server(*options: str) -> Iterator[Redis]:
    """Run a redis-server as `deploy/redis.conf` and the options set it up.

    Raises:
        ServerFailed: it is not installed, or does not start.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise ServerFailed("redis-server is not installed; run: make services")
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        command = [program, str(ROOT / "deploy" / "redis.conf"), "--port", str(port), "--dir", folder, *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_for_port(port, process)
            yield Redis(port, process.pid)
        finally:
            process.kill()
            process.wait()


class Scaled(HttpServer):
    """A server with its workers."""

    def processes(self) -> list[int]:
        """Return the process ids of the server and its workers."""
        return [self.pid, *self.workers()]

    def workers(self) -> list[int]:
        """Return the process ids of the workers; the server itself if it has none."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii")
        return [int(pid) for pid in children.split()] or [self.pid]

    def cpu(self) -> dict[int, int]:
        """Return the processor time of each process in nanoseconds."""
        return {pid: cpu_ns(pid) for pid in set(self.processes())}

    def resident(self) -> int:
        """Return the resident memory of the workers together, in bytes."""
        return sum(resident_kb(pid) for pid in self.workers()) * 1024

    def open_session(self, requests: HttpRequests) -> str:
        """Open a session of a handshake revision and return its id.

        Raises:
            ServerFailed: there is none.
        """
        answer = self.ask(requests.initialize())
        session = answer.headers.get("mcp-session-id")
        if session is None:
            raise self.failure(f"opened no session: {answer.body[:200]!r}")
        self.ask(requests.initialized(session))
        return session


def worker_environment() -> dict[str, str]:
    """Return the environment of a server: small, with the key of the store."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "TRUNKLINE_STATE_KEY": _KEY}


def scaled_command() -> list[str]:
    """Return the command of the server, to which its port and its options are added."""
    return [sys.executable, str(HERE / "servers" / "scaled.py")]


def scaled(**options: Any) -> Scaled:
    """Start the server with options of ``run``, and wait until all its workers take connections."""
    server = Scaled(scaled_command(), json.dumps(options), env=worker_environment())
    wanted = options.get("workers", 1)
    until = time.monotonic() + START_SECONDS
    while len(server.workers()) < wanted and time.monotonic() < until:
        time.sleep(0.05)
    # Connections reach any worker: each has most likely answered then.
    requests = HttpRequests("2026-07-28", port=server.port)
    for _ in range(4 * wanted):
        server.ask(requests.list_tools(None))
    return server


def bare_writes() -> Scaled:
    """Start the program that only writes."""
    return Scaled([sys.executable, str(HERE / "servers" / "bare_writes.py")], env=worker_environment())


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise ServerFailed("redis-server did not start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
