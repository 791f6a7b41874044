"""The floor of the shop: the same tools behind a bare ASGI app that checks nothing. Argument: the port.

What it costs is the tools' own work: their HTTP client, their Redis client and uvicorn.
"""

import sys
from typing import Any

import uvicorn

from benchmarks.servers.asgi_floor import SESSION, answer, decode, encode
from benchmarks.servers.floor_server import FIXED
from benchmarks.servers.shop_tools import TOOLS

BY_NAME = {tool.__name__: tool for tool in TOOLS}
TOOL_LIST = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in BY_NAME]}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Serve one request."""
    body = (await receive())["body"]
    if scope["method"] == "DELETE":
        await answer(send, 200, b"")
        return
    request = decode(body)
    if request.id is None:
        await answer(send, 202, b"")
        return
    result: Any = TOOL_LIST if request.method == "tools/list" else FIXED.get(request.method)
    if request.method == "tools/call":
        text = await BY_NAME[request.params.name](**request.params.arguments)
        result = {"content": [{"type": "text", "text": text}]}
    headers = SESSION if request.method == "initialize" else []
    await answer(send, 200, encode({"jsonrpc": "2.0", "id": request.id, "result": result}), *headers)


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
