"""An API on the loopback that records the requests that the server sends.

It answers with what a test laid down for a method and path, else with an account of the request; a request that no
client should send (a second host, a path with dots, a body without its length) is answered 400.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote

from aiohttp import web

__all__ = ["Answer", "Double", "Heard", "running_double"]


class Answer(NamedTuple):
    """What the double says."""

    body: bytes | str | dict[str, Any] | list[Any] = b""
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}

    def response(self) -> web.Response:
        """Return it as an aiohttp response."""
        if isinstance(self.body, dict | list):
            return web.json_response(self.body, status=self.status, headers=self.headers)
        data = self.body.encode() if isinstance(self.body, str) else self.body
        head = {"content-type": self.content_type, **self.headers}
        return web.Response(body=data, status=self.status, headers=head)


class Heard(NamedTuple):
    """A request as it came: path and query are not decoded."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The query as a server reads it."""
        parts = [part.partition("=") for part in self.query.split("&") if part]
        return [(unquote(name), unquote(value)) for name, _, value in parts]


class Double:
    """The API and what it heard."""

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        """Initialize with the responses by ``"METHOD /path"``."""
        self.answers = dict(answers or {})
        self.heard: list[Heard] = []
        self.url = ""

    @property
    def last(self) -> Heard:
        """The last request."""
        return self.heard[-1]

    async def handle(self, request: web.Request) -> web.Response:
        """Note a request and answer it."""
        path, _, query = request.raw_path.partition("?")
        headers = {name.lower(): value for name, value in request.headers.items()}
        heard = Heard(request.method, path, query, headers, await request.read())
        self.heard.append(heard)
        steps = unquote(path).split("/")
        if ".." in steps or "." in steps or request.headers.getall("Host") != [self.url.removeprefix("http://")]:
            return Answer({"message": "no client should send this"}, 400).response()
        laid_down = self.answers.get(f"{request.method} {path}")
        if laid_down is not None:
            return laid_down.response()
        account = {"method": heard.method, "path": path, "query": query, "body": heard.body.decode(errors="replace")}
        return Answer(account).response()


@asynccontextmanager
async def running_double(answers: Mapping[str, Answer] | None = None) -> AsyncIterator[Double]:
    """Run an API at a port that is free."""
    double = Double(answers)
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_route("*", "/{rest:.*}", double.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        double.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield double
    finally:
        await runner.cleanup()
