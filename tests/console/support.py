"""A real console over a host with servers in this process, and a small client of its API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import pytest

import trunkline.types as t
from tests.support import BOUND
from trunkline import Server
from trunkline.console.console import Console, ConsoleOptions
from trunkline.console.inbox import Inbox
from trunkline.console.serve import ConsoleAddress, open_console
from trunkline.console.web import STATIC
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.host import Host

__all__ = ["ApiClient", "ApiFailure", "OpenConsole", "library", "on_console", "policy", "refused", "write_page"]

T = TypeVar("T")


class ApiFailure(Exception):
    """A response that is an error."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {error}")
        self.status = status
        self.code = error.get("code")
        self.message = error.get("message")
        self.fix = error.get("fix")


async def refused(request: Awaitable[Any]) -> ApiFailure:
    """Send a request whose response must be an error, and return the error."""
    with pytest.raises(ApiFailure) as caught:
        await request
    return caught.value


class ApiClient:
    """Speaks to a console as a page does; one object is one browser window."""

    def __init__(self, http: aiohttp.ClientSession, address: ConsoleAddress, window: str) -> None:
        self.http = http
        self.address = address
        self.window = window
        #: The events that came, in order; ``listen`` fills it.
        self.events: list[dict[str, Any]] = []
        self._arrived = asyncio.Event()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        return {"Authorization": f"Bearer {self.address.token}", "X-Console-Window": self.window}

    async def request(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send a request, and return the JSON of the response.

        Raises:
            ApiFailure: it is an error.
        """
        async with self.http.request(
            method, f"{self.address.origin}/api{path}", params=query, headers=self.headers, json=body
        ) as response:
            raw = await response.read()
            if response.status >= 400:
                raise ApiFailure(response.status, json.loads(raw)["error"])
            return json.loads(raw)

    async def get(self, path: str, **query: Any) -> Any:
        """Send a GET request."""
        return await self.request("GET", path, **query)

    async def post(self, path: str, body: Any = None) -> Any:
        """Send a POST request."""
        return await self.request("POST", path, body)

    async def put(self, path: str, body: Any = None) -> Any:
        """Send a PUT request."""
        return await self.request("PUT", path, body)

    async def delete(self, path: str) -> Any:
        """Send a DELETE request."""
        return await self.request("DELETE", path)

    async def download(self, path: str, body: Any = None) -> tuple[bytes, str]:
        """Return the content of a file, and its media type."""
        method = "GET" if body is None else "POST"
        url = f"{self.address.origin}/api{path}"
        async with self.http.request(method, url, headers=self.headers, json=body) as response:
            assert response.status == 200, await response.text()
            return await response.read(), response.headers["content-type"]

    # --- events ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[ApiClient]:
        """Collect events while the context is open; the stream is open when this returns."""
        async with self.http.get(f"{self.address.origin}/api/events", headers=self.headers) as response:
            assert response.status == 200
            task = asyncio.create_task(self._collect(response))
            try:
                await self.event("hello")
                yield self
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _collect(self, response: aiohttp.ClientResponse) -> None:
        buffer = b""
        async for chunk in response.content.iter_any():
            *whole, buffer = (buffer + chunk).split(b"\n\n")
            for part in whole:
                if part.startswith(b"data: "):
                    self.events.append(json.loads(part[6:]))
                    self._arrived.set()

    async def event(self, type: str, matches: Callable[[dict[str, Any]], bool] = lambda event: True) -> dict[str, Any]:
        """Return the first event of a type that matches, also one that came before; wait for it."""

        def found() -> dict[str, Any] | None:
            return next((each for each in self.events if each["type"] == type and matches(each)), None)

        async with asyncio.timeout(BOUND):
            while (event := found()) is None:
                self._arrived.clear()
                await self._arrived.wait()
        return event

    async def item(self, kind: str, matches: Callable[[dict[str, Any]], bool] = lambda item: True) -> dict[str, Any]:
        """Return the first inbox item of a kind that matches; wait for it."""
        event = await self.event("inbox", lambda each: each["item"]["kind"] == kind and matches(each["item"]))
        item: dict[str, Any] = event["item"]
        return item

    async def call(self, kind: str, id: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Start a call, wait until it ends, and return its view with the result; the client must listen."""
        started = await self.post("/calls", {"kind": kind, "id": id, "arguments": dict(arguments or {})})
        return await self.finished(started["call"]["id"])

    async def finished(self, call: str) -> dict[str, Any]:
        """Wait until a call ends, and return its view with the result."""
        await self.event("call", lambda each: each["call"]["id"] == call and each["call"]["state"] != "running")
        view: dict[str, Any] = (await self.get(f"/calls/{quote(call, safe='')}"))["call"]
        return view


class OpenConsole:
    """A console on a free port, its host, and its clients."""

    def __init__(self, console: Console, address: ConsoleAddress, http: aiohttp.ClientSession) -> None:
        self.console = console
        self.host = console.host
        self.inbox = console.inbox
        self.address = address
        self.http = http
        self._windows = 0

    def client(self, window: str | None = None) -> ApiClient:
        """Return a client that counts as one more browser window."""
        self._windows += 1
        return ApiClient(self.http, self.address, window or f"window-{self._windows}")


@asynccontextmanager
async def on_console(
    servers: object,
    folder: Path,
    *,
    policy: Policy | None = None,
    mode: Any = "console",
    static: Path = STATIC,
    **options: Any,
) -> AsyncIterator[OpenConsole]:
    """Open a host of these servers and its console; None: it finds its files. Options are those of ``Host.open``."""
    inbox = Inbox()
    given = {
        "folder": folder / "state",
        "policy": Policy(()) if policy is None else policy,
        "consent": inbox.approve,
        "review": inbox.review,
        "forms": inbox.elicit,
        **options,
    }
    async with (
        Host.open(*(() if servers is None else (servers,)), **given) as host,
        open_console(host, ConsoleOptions(mode=mode, title="test"), inbox=inbox, static=static) as running,
        aiohttp.ClientSession() as http,
    ):
        yield OpenConsole(running.console, running.address, http)


def policy(text: str) -> Policy:
    """Parse a policy."""
    return parse_policy(text, file="policy.toml")


def write_page(folder: Path) -> Path:
    """Write a page with one file, for tests of the server that do not need the real one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text("<!doctype html><title>Console</title>")
    (folder / "js").mkdir(exist_ok=True)
    (folder / "js" / "main.js").write_text("export {}")
    return folder


def library(name: str = "library") -> Server:
    """Make a server with one of everything."""
    made = Server(name)

    @made.tool
    async def lend(title: str, days: int = 7) -> dict[str, int]:
        """Lend a book."""
        return {title: days}

    @made.tool(annotations=t.ToolAnnotations(read_only_hint=True))
    async def find(title: str) -> str:
        """Find a book."""
        return f"shelf 7: {title}"

    @made.resource("book://1", mime_type="text/plain")
    async def book() -> str:
        """The first book."""
        return "Emma"

    @made.resource("shelf://{number}")
    async def shelf(number: int) -> str:
        return f"shelf {number}"

    @made.prompt
    async def recommend(genre: str) -> str:
        """Recommend a book."""
        return f"Recommend a {genre}"

    @made.completion("recommend", "genre")
    async def genres(value: str) -> list[str]:
        return [each for each in ("novel", "poem") if each.startswith(value)]

    return made
