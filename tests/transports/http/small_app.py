"""A small ASGI application, served in the test's own loop and called over raw sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.serve import serve

__all__ = ["GET", "Served", "SmallApp", "ask", "served"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: A whole request that ends its connection.
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class SmallApp:
    """Answers by path: it echoes, waits, answers early, watches for the client to leave, or sends without end."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.release = asyncio.Event()
        self.draining = asyncio.Event()
        self.full = asyncio.Event()
        self.tasks: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.seen.append(scope["path"])
        try:
            await self.answer(scope, receive, send)
        finally:
            self.tasks.discard(task)

    async def live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.seen.append("the end")
        await send({"type": "lifespan.shutdown.complete"})

    async def drain(self, seconds: float) -> None:
        self.draining.set()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=seconds)
        for task in tuple(self.tasks):
            task.cancel()

    async def answer(self, scope: Message, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case _ if self.draining.is_set():
                await say(send, "draining", status=503)
            case "/early":
                await say(send, "early")
            case "/wait":
                self.told.put_nowait("waiting")
                await self.release.wait()
                await say(send, "released")
            case "/watch":
                self.told.put_nowait("watching")
                await until_left(receive)
                self.told.put_nowait("left")
            case "/large":
                await self.send_without_end(receive, send)
            case "/headers":
                await read(receive)
                await say(send, " ".join(name.decode() for name, _ in scope["headers"]))
            case _:
                body = await read(receive)
                self.told.put_nowait("cut" if body is None else "whole")
                await say(send, f"{scope['method']} {scope['path']} {len(body or b'')}")

    async def send_without_end(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        leaving = asyncio.create_task(until_left(receive))
        # No client buffers so much: when a piece does not leave in half a second, it has stopped reading.
        try:
            while not leaving.done():
                async with asyncio.timeout(0.5):
                    await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)
        except TimeoutError:
            self.full.set()
        await leaving
        self.told.put_nowait("left")


async def read(receive: Receive) -> bytes | None:
    """Read a body; give nothing if the client left before its end."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def say(send: Send, text: str, *, status: int = 200) -> None:
    headers = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


class Served(NamedTuple):
    """A server that runs: its application, its URL, and what ends it."""

    app: SmallApp
    url: str
    stopping: asyncio.Event
    task: asyncio.Task[None]

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, *pieces: bytes) -> bytes:
        return await ask(self.port, *pieces)


async def ask(port: int, *pieces: bytes) -> bytes:
    """Send bytes on a new connection, each piece when the one before has gone; read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        return await reader.read()
    finally:
        writer.close()


@asynccontextmanager
async def served(limits: Limits | None = None, app: SmallApp | None = None, **options: Any) -> AsyncIterator[Served]:
    """Serve a small application on a free port; stop it at the end."""
    app = app or SmallApp()
    stopping = asyncio.Event()
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    limits = limits or Limits(drain_seconds=1)
    task = asyncio.create_task(
        serve(app, limits=limits, stopping=stopping, **{"port": 0, "started": url.set_result, **options})
    )
    task.add_done_callback(lambda _: url.done() or url.cancel())
    with suppress(asyncio.CancelledError):
        await url
    if url.cancelled():
        task.result()
    try:
        yield Served(app, url.result(), stopping, task)
    finally:
        app.release.set()
        stopping.set()
        await task
