"""The floor: the bench tools on bare asyncio and msgspec, one task a call.

It checks nothing, ignores `_meta`, knows no revision and would pass no test of the protocol: it is what the event
loop, the JSON library and the pipe cost before anyone writes a framework. `uvloop` as argument runs it on uvloop,
`many` lists 500 tools.
"""

import asyncio
import sys
from typing import Any

import msgspec


class Params(msgspec.Struct):
    """What a call names and gives."""

    name: str = ""
    arguments: dict[str, Any] = {}


class Request(msgspec.Struct):
    """One line in."""

    method: str
    id: int | str | None = None
    params: Params = msgspec.field(default_factory=Params)


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def echo(text: str) -> str:
    """Give the text back."""
    return text


async def blob(size: int) -> str:
    """Make a text of the given size."""
    return "x" * size


TOOLS: dict[str, Any] = {"add": add, "echo": echo, "blob": blob}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
RESULT = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
ADD = {"name": "add", "description": "Add two numbers.", "inputSchema": NUMBERS, "outputSchema": RESULT}
MORE = range(499) if "many" in sys.argv else ()
INFO = {"name": "bench", "version": "1"}
FIXED: dict[str, Any] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO},
    "server/discover": {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    | {"ttlMs": 0, "cacheScope": "private", "_meta": {"io.modelcontextprotocol/serverInfo": INFO}},
    "tools/list": {"tools": [ADD, *({**ADD, "name": f"tool_{number:03}"} for number in MORE)]}
    | {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"},
}


class Floor(asyncio.Protocol):
    """Lines in, one task each, answers out in one write when the last request in flight is answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.closed = loop.create_future()
        self.parts: list[bytes] = []
        self.answers: list[bytes] = []
        self.in_flight = 0
        self.decode = msgspec.json.Decoder(Request).decode
        self.encode = msgspec.json.Encoder().encode
        self.out: asyncio.WriteTransport

    def data_received(self, data: bytes) -> None:
        """Cut lines and start a task for each."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self.parts, lines[0]))
            self.parts.clear()
        if rest:
            self.parts.append(rest)
        self.in_flight += len(lines)
        for line in lines:
            # The bench tools never suspend, so the loop's ready queue is all that must hold the task.
            self.loop.create_task(self.serve(line))

    def eof_received(self) -> None:
        """End the program."""
        self.closed.set_result(None)

    async def serve(self, line: bytes) -> None:
        """Answer one request."""
        request = self.decode(line)
        result: Any
        if request.method == "tools/call":
            value = await TOOLS[request.params.name](**request.params.arguments)
            content = [{"type": "text", "text": str(value)}]
            result = {"content": content, "structuredContent": {"result": value}, "resultType": "complete"}
        else:
            result = FIXED.get(request.method)
        self.in_flight -= 1
        if request.id is not None:
            self.answers += (self.encode({"jsonrpc": "2.0", "id": request.id, "result": result}), b"\n")
        if not self.in_flight and self.answers:
            self.out.write(b"".join(self.answers))
            self.answers.clear()


async def main() -> None:
    """Serve standard input until it ends."""
    loop = asyncio.get_running_loop()
    floor = Floor(loop)
    floor.out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    await loop.connect_read_pipe(lambda: floor, sys.stdin)
    await floor.closed


if __name__ == "__main__":
    if "uvloop" in sys.argv:
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())
