"""The floor over HTTP: a bare ASGI app on uvicorn that decodes, adds and encodes.

It looks at no header and answers both eras alike: enough for any client to connect and call `add`, and it would pass no
test of the protocol. `/stream` answers with an event stream that stays open and says nothing until `change` is called.
Arguments: the port.
"""

import asyncio
import sys
from typing import Any

import msgspec
import uvicorn

from benchmarks.servers.floor_server import FIXED, Request

JSON = [(b"content-type", b"application/json")]
SESSION = [(b"mcp-session-id", b"5f2b6c1e8a9d4e7f9b0c3d2a1e4f5b6c")]
EVENTS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
NOTICE = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'

decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode
changed = asyncio.Event()


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Serve one request."""
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"] == "/stream":
        await stream(send)
    elif scope["method"] != "POST":
        await answer(send, 405, b"")
    else:
        await call(send, decode(body))


async def call(send: Any, request: Request) -> None:
    """Answer one message."""
    if request.id is None:
        await answer(send, 202, b"")
        return
    result: Any
    if request.method == "tools/call":
        value = await TOOLS[request.params.name](**request.params.arguments)
        content = [{"type": "text", "text": str(value)}]
        result = {"content": content, "structuredContent": {"result": value}, "resultType": "complete"}
    else:
        result = FIXED.get(request.method)
    headers = SESSION if request.method == "initialize" else []
    await answer(send, 200, encode({"jsonrpc": "2.0", "id": request.id, "result": result}), *headers)


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def change() -> bool:
    """Wake every stream."""
    changed.set()
    return True


TOOLS: dict[str, Any] = {"add": add, "change": change}


async def answer(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole answer."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def stream(send: Any) -> None:
    """Open an event stream, say that something has changed once it has, and stay."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
    await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
    await changed.wait()
    await send({"type": "http.response.body", "body": NOTICE, "more_body": True})
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        proxy_headers=False,
        access_log=False,
        log_level="error",
    )
