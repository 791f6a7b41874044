"""A loopback double of the Docker engine's API on a Unix socket: containers, multiplexed logs, a record of requests."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

__all__ = ["EngineDouble", "engine_double", "frame"]

_CONTAINER = re.compile(r"/containers/([^/]+)(?:/(\w+))?")
_IMAGE = re.compile(r"/images/(.+)/json")
_LONG = "f" * 52
_IMAGE_ID = "sha256:" + "1" * 64
_NOBODYS_ID = "sha256:" + "2" * 64


def frame(kind: int, content: bytes) -> bytes:
    """Write one frame of a log stream."""
    return bytes([kind, 0, 0, 0]) + len(content).to_bytes(4) + content


class EngineDouble:
    """The state of the double, and what it was asked."""

    def __init__(self) -> None:
        """Begin with two containers, one of them made by the server under test."""
        self.host = ""
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.image_config: dict[str, Any] = {"Labels": None, "Volumes": None}
        self.readings: list[dict[str, Any]] = []
        self.log = frame(1, b"out 1\n") + frame(2, b"err 1\n") + frame(1, b"out 2\n")
        self.exit_code: int | None = 0
        self.wait_answer: dict[str, Any] | None = None
        self.start_status = 204
        self.drop_creation = False
        self.creating = asyncio.Event()
        self.may_create = asyncio.Event()
        self.may_create.set()
        self.floods = False
        self.is_podman = False
        self.attachment: bytes | None = b""
        self.waiting = asyncio.Event()
        self.removed = asyncio.Event()
        self.containers: dict[str, dict[str, Any]] = {}
        self.add("web", {"Env": ["PATH=/bin", "DB_PASSWORD=hush", "URL=postgres://u:hush@db/x"], "Labels": {}})
        self.add("own", {"Env": [], "Labels": {"dev.trunkline.server": "docker", "dev.trunkline.run": "1"}})
        for each in self.containers.values():
            each["State"]["Status"] = "running"

    def add(self, name: str, config: dict[str, Any], host: dict[str, Any] | None = None) -> str:
        """Add a container."""
        identity = f"{len(self.containers):012x}{_LONG}"
        self.containers[identity] = {
            "Id": identity,
            "Name": f"/{name}",
            "Image": _IMAGE_ID,
            "State": {"Status": "created", "ExitCode": 0},
            "Config": {"Image": "alpine:3.20", "Cmd": ["run", "--password", "hush", "--token=hush"], **config},
            "HostConfig": host or {},
        }
        return identity

    def names(self) -> list[str]:
        """Return the names of the existing containers."""
        return [each["Name"][1:] for each in self.containers.values()]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer as the engine would."""
        self.asked.append(f"{request.method} {request.raw_path}")
        path = request.path
        if path == "/containers/json":
            return _json(self._rows(request))
        if path == "/images/json":
            unnamed = {"Id": _NOBODYS_ID, "RepoTags": ["<none>:<none>"], "Size": 7, "Created": 4}
            return _json([{"Id": _IMAGE_ID, "RepoTags": ["alpine:3.20"], "Size": 7, "Created": 5}, 7, unnamed])
        if image := _IMAGE.fullmatch(path):
            here = image[1] in ("alpine:3.20", _IMAGE_ID)
            return _json({"Id": _IMAGE_ID, "Config": self.image_config}) if here else _no_image(image[1])
        if path == "/containers/create":
            return await self._create(request)
        found = _CONTAINER.fullmatch(path)
        container = self._find(found[1]) if found else None
        if found is None or container is None:
            return _json({"message": f"No such container: {path}"}, status=404)
        return await self._act(request, container, found[2])

    async def _create(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        name = request.query["name"]
        if body["Image"] != "alpine:3.20":
            return _no_image(body["Image"])
        if name in self.names():
            return _json({"message": f"Conflict. The container name {name} is already in use"}, status=409)
        self.creating.set()
        await self.may_create.wait()
        labels = {**(self.image_config.get("Labels") or {}), **body["Labels"]}
        identity = self.add(name, {"Labels": labels}, body["HostConfig"])
        if self.drop_creation and request.transport is not None:
            request.transport.close()
        answer = _json({"Id": identity, "Warnings": []}, status=201)
        answer.headers.update({"Libpod-API-Version": "4.3.1"} if self.is_podman else {})
        return answer

    async def _act(self, request: web.BaseRequest, container: dict[str, Any], action: str | None) -> web.StreamResponse:
        if request.method == "DELETE":
            del self.containers[container["Id"]]
            self.removed.set()
            return web.Response(status=204)
        if action == "json":
            return _json(container)
        if action == "logs":
            flood = self.floods and request.query.get("tail") != "100"
            return web.Response(body=frame(1, b"x" * 9_000_000) if flood else self.log)
        if action == "attach":
            return _json({}, status=500) if self.attachment is None else web.Response(body=self.attachment)
        if action == "stats":
            return _json(self.readings.pop(0) if self.readings else _STATS if self._is_up(container) else _NOTHING)
        if action == "wait":
            self.waiting.set()
            if self.exit_code is None:
                await asyncio.sleep(3600)
            return _json(self.wait_answer or {"StatusCode": self.exit_code})
        if action == "start" and self.start_status != 204:
            return _json({"message": "exec: no such file"}, status=self.start_status)
        before = self._is_up(container)
        container["State"]["Status"] = {"start": "running", "restart": "running"}.get(action or "", "exited")
        return web.Response(status=304 if action == ("start" if before else "stop") else 204)

    def _find(self, ref: str) -> dict[str, Any] | None:
        return next((each for each in self.containers.values() if ref in (each["Id"], each["Name"][1:])), None)

    def _is_up(self, container: dict[str, Any]) -> bool:
        state = container["State"]
        return isinstance(state, dict) and state.get("Status") == "running"

    def _rows(self, request: web.BaseRequest) -> list[dict[str, Any]]:
        wanted = request.query.get("all") == "true" or "limit" in request.query
        rows = [self._row(each) for each in self.containers.values() if wanted or self._is_up(each)]
        return rows[: int(request.query.get("limit", len(rows)))]

    def _row(self, container: dict[str, Any]) -> dict[str, Any]:
        return {
            "Id": container["Id"],
            "Names": [container["Name"]],
            "Image": "alpine:3.20",
            "ImageID": container["Image"],
            "State": container["State"]["Status"],
            "Labels": container["Config"]["Labels"],
            "Ports": [{"PrivatePort": 80, "PublicPort": 8080, "Type": "tcp", "IP": "127.0.0.1"}],
        }


_STATS = {
    "cpu_stats": {"cpu_usage": {"total_usage": 300}, "system_cpu_usage": 2000, "online_cpus": 2},
    "precpu_stats": {"cpu_usage": {"total_usage": 100}, "system_cpu_usage": 1000},
    "memory_stats": {"usage": 500, "limit": 1000, "stats": {"inactive_file": 100}},
    "networks": {"eth0": {"rx_bytes": 1, "tx_bytes": 2}, "eth1": {"rx_bytes": 10, "tx_bytes": 20}},
    "blkio_stats": {"io_service_bytes_recursive": [{"op": "Read", "value": 5}, {"op": "write", "value": 6}]},
    "pids_stats": {"current": 3},
}


#: What the engine answers about a container that does not run.
_NOTHING = {"read": "0001-01-01T00:00:00Z", "cpu_stats": {"cpu_usage": {"total_usage": 0}}, "pids_stats": {}}


def _no_image(name: str) -> web.Response:
    return _json({"message": f"No such image: {name}"}, status=404)


def _json(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=json.dumps(value).encode(), content_type="application/json")


@asynccontextmanager
async def engine_double() -> AsyncIterator[EngineDouble]:
    """Serve the double on its own socket for the duration of the block."""
    double = EngineDouble()
    runner = web.ServerRunner(web.Server(double.answer), shutdown_timeout=0.1)
    await runner.setup()
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        path = Path(folder) / "docker.sock"
        await web.UnixSite(runner, str(path)).start()
        double.host = f"unix://{path}"
        try:
            yield double
        finally:
            await runner.cleanup()
