"""A server made with the package, over stdio or HTTP; over HTTP it can lie about what it answers.

The lies are told below the protocol: wrong statuses, bodies that end too soon or never, and what is no JSON.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from typing import Any

from trunkline import Server
from trunkline.protocol.revisions import REVISION_NAMES, find_revision

__all__ = ["main"]


def make_server(name: str, era: str, ledger: str, seed: str) -> Server:
    """Make a server of one era, or of both."""
    chance = random.Random(seed)
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    spoken = [each for each in REVISION_NAMES if era == "both" or _handshake(each) == (era == "handshake")]
    server = Server(name, revisions=spoken)

    @server.tool
    async def echo(call: str, value: str) -> str:
        """Give back what it is given, after a moment."""
        os.write(file, f"{name} {call}\n".encode())
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.002, 0.01, 0.2)))
        return f"{name} {call} {value}"

    return server


def _handshake(revision: str) -> bool:
    found = find_revision(revision)
    return found is not None and found.handshake


class Lying:
    """Stands before an ASGI application and answers some requests in its place."""

    def __init__(self, app: Any, share: float, seed: str) -> None:
        """Lie to this share of the requests."""
        self._app = app
        self._share = share
        self._chance = random.Random(seed)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, or have it answered."""
        if scope["type"] != "http" or self._chance.random() >= self._share:
            await self._app(scope, receive, send)
            return
        status, kind, body = self._chance.choice(_LIES)
        headers = [(b"content-type", kind)]
        if body is None:
            # Less than it says: the server closes the connection on its own.
            headers.append((b"content-length", b"1000"))
            body = b'{"jsonrpc": "2.0", "id"'
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if kind == b"text/event-stream":
            for _ in range(self._chance.randrange(1, 2000)):
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": body})


_JSON = b"application/json"
_LIES: tuple[tuple[int, bytes, bytes | None], ...] = (
    (500, b"text/html", b"<h1>Internal Server Error</h1>"),
    (503, _JSON, b"{}"),
    (404, b"text/plain", b"no"),
    (200, _JSON, b"nonsense"),
    (200, _JSON, b""),
    (200, _JSON, b"[]"),
    (200, _JSON, None),
    (200, b"text/html", b"<html>log in here</html>"),
    (200, b"text/event-stream", b": nothing\n\ndata: nonsense\n\n"),
    (200, b"text/event-stream", b'data: {"jsonrpc": "2.0", "id": 777, "result": {"content": []}}\n\n'),
    (202, b"text/plain", b""),
    (301, b"text/plain", b"elsewhere"),
)


def main(arguments: list[str]) -> None:
    """Run one; the arguments are name, era, ledger, seed, and for HTTP a port and the share of lies."""
    name, era, ledger, seed, *web = arguments
    server = make_server(name, era, ledger, seed)
    if not web:
        server.run()
        return
    import uvicorn

    app: Any = Lying(server.asgi(), float(web[1]), seed)
    uvicorn.run(app, host="127.0.0.1", port=int(web[0]), log_level="critical", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main(sys.argv[1:])
