"""A real container engine for one module: Docker's or Podman's, on its own socket, always stopped at the end.

It runs in namespaces of its own for mounts and processes, with nothing of the machine's engines in sight: its state is
in memory, it touches no network, and whatever it started ends with it. Where it cannot be had (no engine, no root, no
right to make namespaces or control groups, no busybox for an image), tests that want it are skipped and say why.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest

from tests.support import run_async
from trunkline import Client
from trunkline_servers.docker import make_server

__all__ = ["IMAGE", "RealEngine", "docker_engine", "podman_engine", "run"]

IMAGE = "tiny:latest"

_SECONDS = 120.0
_APPLETS = ("sh", "cat", "echo", "sleep", "id", "yes", "head", "true", "seq", "printf", "pwd", "tail", "mount", "ls")
#: Fresh folders in place of the machine's own, if those are there.
_COVERED = ("/run", "/etc/docker", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/cni")
_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_DOCKER = """exec dockerd --config-file {home}/docker.json --host unix://{home}/engine.sock --data-root {home}/data \
--exec-root {home}/exec --pidfile {home}/engine.pid --storage-driver vfs --bridge none --iptables=false \
--ip6tables=false --ip-forward=false --ip-masq=false --exec-opt native.cgroupdriver=cgroupfs"""
_PODMAN = """exec podman --root {home}/data --runroot {home}/exec --tmpdir {home}/tmp --storage-driver vfs \
--cgroup-manager cgroupfs --events-backend file {runtime} system service --time 0 unix://{home}/engine.sock"""
#: Its own limits would be above what a process without the right to raise them has.
_PODMAN_CONF = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'


class RealEngine(NamedTuple):
    """An engine that runs and has one image."""

    socket: Path

    @property
    def host(self) -> str:
        """Its address."""
        return f"unix://{self.socket}"

    def ask(self, tool: str, arguments: Mapping[str, Any], *, revision: str = "2026-07-28", **options: Any) -> Any:
        """Call a tool of a server in front of it, and give the structured answer."""

        async def main() -> Any:
            async with Client(make_server(self.host, **options), revision=revision) as client:
                return (await client.call_tool(tool, dict(arguments))).structured_content

        return run_async(main(), seconds=_SECONDS)

    def raw(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Ask the engine itself."""
        connection = http.client.HTTPConnection("engine", timeout=_SECONDS)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(_SECONDS)
        try:
            connection.sock.connect(str(self.socket))
            content = body if isinstance(body, bytes) else json.dumps({} if body is None else body)
            kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
            target = f"{path}?{urlencode(query, quote_via=quote)}"
            connection.request(method, target, None if method == "GET" else content, {"Content-Type": kind})
            reply = connection.getresponse()
            read = reply.read()
        finally:
            connection.close()
        assert reply.status < 400, read
        return json.loads(read) if reply.headers.get_content_type() == "application/json" and read else read

    def create(self, name: str, command: list[str], *, image: str = IMAGE, **members: Any) -> None:
        """Create a container that the server did not create."""
        host = {"NetworkMode": "none", **members.pop("HostConfig", {})}
        body = {"Image": image, "Cmd": command, "HostConfig": host, **members}
        self.raw("POST", "/containers/create", body, name=name)

    def names(self, **query: str) -> list[str]:
        """Return the names of the existing containers."""
        return sorted(row["Names"][0].lstrip("/") for row in self.raw("GET", "/containers/json", all="true", **query))

    def clear(self) -> None:
        """Remove every container."""
        for name in self.names():
            self.raw("DELETE", f"/containers/{name}", force="true", v="true")

    def finished(self, name: str) -> None:
        """Wait until a container has ended."""
        self.raw("POST", f"/containers/{name}/wait")

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(_SECONDS):
            while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)


def run(engine: RealEngine, script: str, **arguments: Any) -> Any:
    """Run a line of a shell in a new container."""
    return engine.ask("run", {"image": IMAGE, "command": ["sh", "-c", script], **arguments})


@contextmanager
def docker_engine() -> Iterator[RealEngine]:
    """Run Docker's engine for the duration of the block."""
    with _running("dockerd", _DOCKER) as engine:
        yield engine


@contextmanager
def podman_engine() -> Iterator[RealEngine]:
    """Run Podman's service for the duration of the block."""
    with _running("podman", _PODMAN.replace("{runtime}", "--runtime runc" if shutil.which("runc") else "")) as engine:
        yield engine


@contextmanager
def _running(program: str, command: str) -> Iterator[RealEngine]:
    for needed in (program, "busybox", "unshare"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    if os.geteuid() != 0:
        pytest.skip(f"{program} is started by root alone")
    # A Unix socket's path is short.
    with tempfile.TemporaryDirectory(prefix="engine-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "docker.json").write_text("{}")
        (home / "podman.conf").write_text(_PODMAN_CONF)
        cover = " && ".join(f"{{ [ ! -d {each} ] || mount -t tmpfs none {each}; }}" for each in _COVERED)
        script = f"{cover} && mkdir {home}/data && mount -t tmpfs none {home}/data && {command.format(home=home)}"
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [*_NAMESPACES, "sh", "-c", script],
                cwd=home,  # an engine leaves small files where it stands
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "HOME": folder, "CONTAINERS_CONF": str(home / "podman.conf")},
            )
        try:
            engine = RealEngine(home / "engine.sock")
            _wait(process, engine, home / "log")
            _try(program, engine)
            yield engine
            engine.clear()
        finally:
            # What it started is in its namespace and ends with it.
            process.kill()
            process.wait(_SECONDS)


def _wait(process: subprocess.Popen[bytes], engine: RealEngine, log: Path) -> None:
    """Wait until it answers."""
    end = time.monotonic() + _SECONDS
    while True:
        try:
            engine.raw("GET", "/_ping")
            return
        except OSError:
            if process.poll() is not None:
                pytest.skip(f"the engine cannot be started here: {log.read_text(errors='replace')[-300:]}")
            assert time.monotonic() < end, "the engine did not become ready"
            time.sleep(0.02)


def _try(program: str, engine: RealEngine) -> None:
    """Load an image, and return whether the engine can run a container at all."""
    engine.raw("POST", "/images/create", _image(), fromSrc="-", repo="tiny", tag="latest", changes='CMD ["true"]')
    try:
        limits = {"Memory": 64 << 20, "PidsLimit": 64, "NanoCpus": 10**9, "Init": True}
        engine.create("trial", ["true"], HostConfig=limits)
        engine.raw("POST", "/containers/trial/start")
        ended = engine.raw("POST", "/containers/trial/wait")
    except AssertionError as error:
        pytest.skip(f"{program} can run no container here: {error!s:.300}")
    if ended["StatusCode"] != 0:
        pytest.skip(f"{program} can run no container of busybox here (is it a static one?)")
    engine.clear()


def _image() -> bytes:
    """Make the files of an image: one program under many names."""
    found = shutil.which("busybox")
    assert found is not None
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for folder, mode in (("bin", 0o755), ("tmp", 0o1777), ("data", 0o777)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        tar.add(os.path.realpath(found), "bin/busybox")
        for name in _APPLETS:
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return packed.getvalue()
