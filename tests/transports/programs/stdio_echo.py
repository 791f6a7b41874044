"""A server on the package's own stdio link: answers every request with its params, and misbehaves on request."""

import asyncio
import os
import subprocess
import sys

from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import ErrorResponse, Incoming, InvalidMessage, Outbound, Request, Response
from trunkline.protocol.limits import Limits
from trunkline.transports.stdio import StdioLink
from trunkline.types import ErrorObject


def misbehave(method: str) -> None:
    if method == "print":
        sys.stdout.write("a stray print\n")
    elif method == "print-below":
        os.write(1, b"a stray write\n")
    elif method == "child":
        subprocess.run([sys.executable, "-S", "-c", "print('from a child', input())"], check=False)


class Echo:
    def __init__(self, link: StdioLink) -> None:
        self.link = link
        self.over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        if isinstance(incoming, Request):
            misbehave(incoming.method)
            self.link.send([Outbound(Response(incoming.id, incoming.params))])
        elif isinstance(incoming, InvalidMessage):
            error = ErrorObject(code=incoming.code, message=incoming.message)
            self.link.send([Outbound(ErrorResponse(incoming.id, error))])

    def eof_received(self, error: Exception | None = None, *, about: object = None) -> None:
        self.over.set_result(error)


async def main() -> None:
    link = StdioLink.claim(Limits(message_bytes=int(os.environ.get("MESSAGE_BYTES", 64 << 20)), exit_seconds=1.0))
    echo = Echo(link)
    link.attach(echo)
    error = await echo.over
    await link.aclose()
    sys.stdout.write(f"ended: {error!r}\n")


if __name__ == "__main__":
    if "PRINT_EARLY" in os.environ:
        sys.stdout.write("printed before the claim\n")
    if "uvloop" in sys.argv:
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())
