"""A gateway with several workers in processes of its own, and a client whose requests reach any of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from trunkline import Client
from trunkline.errors import TrunklineError
from trunkline.host.audit.reader import verify
from trunkline.protocol.revisions import NEWEST

__all__ = ["KEY", "PROGRAM", "GatewayProcess", "free_port", "gateway_process", "process_name", "until"]

KEY = "7b" * 32
PROGRAM = Path(__file__).parent / "program.py"
SERVERS = {"one": "handshake", "two": "handshake", "new": "stateless"}
#: As long as a busy machine may take for anything here.
PATIENCE = 60.0


class GatewayProcess:
    """A running gateway."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, port: int, log: Path) -> None:
        self.process = process
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}/mcp"
        self._log = log

    @property
    def log(self) -> str:
        """What it wrote to stderr."""
        return self._log.read_text()

    def client(self, revision: str = NEWEST.name, **options: Any) -> Client:
        """Return a client; each has connections of its own, which reach any worker."""
        return Client(self.url, revision=revision, **options)

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> str:
        """Call a tool with a client of its own; return the text of its result."""
        async with self.client(**options) as client:
            result = await client.call_tool(name, dict(arguments or {}))
            assert not result.is_error, result
            return str(result.content[0].text)  # type: ignore[union-attr]

    async def seen(self, server: str, name: str) -> int:
        """Return what the shared process of a server has counted, also while workers are restarted."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return int(json.loads(await self.call(f"{server}__seen"))[name])
                except (TrunklineError, AssertionError):
                    await asyncio.sleep(0.05)

    async def until_seen(self, server: str, name: str, value: int) -> None:
        """Wait until the shared process of a server has counted so many."""
        async with asyncio.timeout(PATIENCE):
            while await self.seen(server, name) < value:  # noqa: ASYNC110 - counted in another process
                await asyncio.sleep(0.02)

    def children(self) -> list[psutil.Process]:
        """Return the broker and the workers."""
        return list(psutil.Process(self.process.pid).children())

    def broker(self) -> psutil.Process:
        """Return the broker."""
        return next(each for each in self.children() if process_name(each) == "tl-broker")

    def workers(self) -> list[int]:
        """Return the workers."""
        return [each.pid for each in self.children() if process_name(each).startswith("tl-worker-")]

    def servers(self, name: str) -> list[int]:
        """Return the processes of a server, wherever they are."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [each.pid for each in found if _is_server(each, name)]

    def descendants(self) -> list[psutil.Process]:
        """Return all processes of the gateway."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def stop(self) -> int:
        """Stop it as a service manager does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    @property
    def trail(self) -> Path:
        """The audit trail."""
        return self.folder / "home" / "audit.jsonl"

    def verify_trail(self) -> int:
        """Verify the chain of the audit trail; return how many entries it has."""
        found = verify(self.trail)
        assert found.ok, found
        return found.entries


def process_name(process: psutil.Process) -> str:
    """Return the name of a process; empty if it has just ended."""
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _is_server(process: psutil.Process, name: str) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return str(PROGRAM) in words and name in words


@contextmanager
def gateway_process(
    folder: Path,
    *options: str,
    workers: int = 3,
    key: str | None = None,
    servers: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[GatewayProcess]:
    """Run a gateway over two handshake servers and a stateless one; end it, and check that nothing is left."""
    servers = SERVERS if servers is None else servers
    home = folder / "home"
    project = folder / "project"
    project.mkdir(parents=True, exist_ok=True)
    entries = {
        name: {"command": sys.executable, "args": [str(PROGRAM), name, era], **(settings or {})}
        for name, era in servers.items()
    }
    config = project / "mcp.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    policy = project / "policy.toml"
    rules = "".join(f'[[rule]]\neffect = "allow"\nserver = "{name}"\ntool = "*"\n' for name in servers)
    policy.write_text(rules)
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRUNKLINE_HOME": str(home)}
    environment.pop("TRUNKLINE_STATE_KEY", None)
    if key is not None:
        environment["TRUNKLINE_STATE_KEY"] = key
    run = [sys.executable, "-m", "trunkline", "serve", "-c", str(config), "--http", str(port), "--no-auth"]
    run += ["--workers", str(workers), "--policy", str(policy), *options]
    log = folder / "log"
    with log.open("w") as written:
        process = subprocess.Popen(run, stdout=written, stderr=subprocess.STDOUT, text=True, env=environment)
    gateway = GatewayProcess(process, folder, port, log)
    try:
        _until(lambda: "workers serve" in gateway.log or process.poll() is not None)
        assert process.poll() is None, gateway.log
        started = gateway.descendants()
        yield gateway
        if process.poll() is None:
            started = gateway.descendants()
            assert gateway.stop() == 0, gateway.log
            _until(lambda: not [each for each in started if each.is_running() and each.status() != "zombie"])
    finally:
        process.kill()
        process.wait(120)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds, for a bounded time."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is observed has no event
            await asyncio.sleep(0.02)
