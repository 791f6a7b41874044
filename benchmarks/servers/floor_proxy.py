"""The floor of a gateway: passes JSON-RPC bodies on to one server and back, and does nothing else.

No policy, no trail, no sessions, no names: the body goes to the server under an id of our own, the answer comes back
under the caller's. Arguments: the port; ``stdio`` or ``http``; the server's command as JSON, or its URL; a folder.
"""

import asyncio
import json
import sys
from typing import Any

import msgspec
import uvicorn

JSON = [(b"content-type", b"application/json")]
READY = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


class Pipe:
    """A server on stdio: requests by an id of ours."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[bytes]] = {}
        self.last = 1_000

    async def open(self, command: list[str]) -> None:
        """Start the server."""
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=1 << 26)
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            message = msgspec.json.decode(line)
            future = self.waiting.pop(message.get("id"), None)
            if future is not None:
                future.set_result(message)

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Pass a request on and wait for its answer."""
        assert self.process.stdin is not None
        self.last += 1
        own, theirs = self.last, message["id"]
        future = self.waiting[own] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(msgspec.json.encode({**message, "id": own}) + b"\n")
        answer: Any = await future
        return {**answer, "id": theirs}

    def tell(self, message: dict[str, Any]) -> None:
        """Pass a notification on."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(message) + b"\n")


class Proxy:
    """The ASGI application."""

    def __init__(self, kind: str, where: str) -> None:
        self.kind, self.where = kind, where
        self.pipe: Pipe | None = None
        self.web: Any = None
        self.lock = asyncio.Lock()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass one POST on."""
        if scope["type"] != "http":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            return
        body = b""
        while True:
            event = await receive()
            body += event["body"]
            if not event.get("more_body"):
                break
        status, headers, answer = await (self.by_pipe(body) if self.kind == "stdio" else self.by_web(scope, body))
        head = [*JSON, *headers, (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    async def by_pipe(self, body: bytes) -> tuple[int, list[Any], bytes]:
        """Pass a body on to a process."""
        async with self.lock:
            if self.pipe is None:
                self.pipe = Pipe()
                await self.pipe.open(json.loads(self.where))
        message = msgspec.json.decode(body)
        if "id" not in message:
            self.pipe.tell(message)
            return 202, [], b""
        session = [(b"mcp-session-id", b"floor")] if message["method"] == "initialize" else []
        return 200, session, msgspec.json.encode(await self.pipe.ask(message))

    async def by_web(self, scope: Any, body: bytes) -> tuple[int, list[Any], bytes]:
        """Pass a body on to a URL, with the headers that matter."""
        import aiohttp

        if self.web is None:
            self.web = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)
        kept = {
            name.decode(): value.decode()
            for name, value in scope["headers"]
            if name.startswith(b"mcp-") or name in (b"content-type", b"accept")
        }
        async with self.web.post(self.where, data=body, headers=kept) as response:
            session = response.headers.get("mcp-session-id")
            headers = [] if session is None else [(b"mcp-session-id", session.encode())]
            return response.status, headers, await response.read()


if __name__ == "__main__":
    uvicorn.run(
        Proxy(sys.argv[2], sys.argv[3]),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="error",
    )
