"""A loopback double of the npm registry: a few packages, search, advisories, and a record of requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from aiohttp import web

__all__ = ["RegistryDouble", "registry_double"]


def _version(name: str, version: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "version": version, "dist": {"tarball": f"http://x/{name}-{version}.tgz"}, **more}


_PACKAGES: dict[str, dict[str, Any]] = {
    "left": {
        "dist-tags": {"latest": "2.1.0", "next": "3.0.0-beta.1"},
        "versions": {
            "1.0.0": _version("left", "1.0.0", deprecated="old"),
            "1.2.0": _version("left", "1.2.0"),
            "1.10.0": _version("left", "1.10.0"),
            "2.1.0": _version("left", "2.1.0", scripts={"postinstall": "node x"}, description="Pads", license="MIT"),
            "3.0.0-beta.1": _version("left", "3.0.0-beta.1"),
        },
    },
    "@scope/right": {"dist-tags": {"latest": "0.3.1"}, "versions": {"0.3.1": _version("@scope/right", "0.3.1")}},
}


class RegistryDouble:
    """What the double was asked, and what it is told to answer."""

    def __init__(self) -> None:
        """Start with nothing asked."""
        self.url = ""
        self.paths: list[str] = []
        self.tokens: list[str | None] = []
        self.bodies: list[Any] = []
        self.advisories: dict[str, Any] = {}
        self.raw: bytes | None = None
        self.is_mirror = False
        self.redirect: str | None = None
        self.refusal: tuple[int, Any] | None = None

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer as the registry would."""
        self.paths.append(request.raw_path)
        self.tokens.append(request.headers.get("authorization"))
        if self.redirect is not None:
            return web.Response(status=302, headers={"location": self.redirect})
        if self.refusal is not None:
            return _json(self.refusal[1], status=self.refusal[0])
        if self.raw is not None:
            return web.Response(body=self.raw)
        if self.is_mirror and request.path.startswith("/-/"):
            return web.Response(status=405)
        if request.path == "/-/v1/search":
            return _json({"total": 41, "objects": [{"package": {"name": "left", "version": "2.1.0"}}, {"package": 7}]})
        if request.path.endswith("/advisories/bulk"):
            self.bodies.append(await request.json())
            return _json(self.advisories)
        return self._package(request.raw_path)

    def _package(self, raw_path: str) -> web.StreamResponse:
        name, *version = [unquote(part) for part in raw_path[1:].split("/")]
        package = _PACKAGES.get(name)
        if package is None or len(version) > 1:
            return _json({"error": "Not found"}, status=404)
        if not version:
            return _json(package)
        tagged = package["dist-tags"].get(version[0], version[0])
        found = package["versions"].get(tagged)
        return _json(found) if found else _json("version not found", status=404)


def _json(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=json.dumps(value).encode(), content_type="application/json")


@asynccontextmanager
async def registry_double() -> AsyncIterator[RegistryDouble]:
    """Serve the double on a free port for the duration of the block."""
    double = RegistryDouble()
    server = web.Server(double.answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    double.url = f"http://{host}:{port}"
    try:
        yield double
    finally:
        await runner.cleanup()
