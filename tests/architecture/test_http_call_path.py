"""The path of one ``tools/call`` over HTTP through the package, held to a budget of files by a profiler.

The ASGI application is called in process, so that the HTTP server is not counted. Start-up is over before the count
begins.
"""

from __future__ import annotations

import json
import sys
from collections.abc import MutableMapping
from typing import Any

from tests.architecture.eras import ERAS, each_era
from tests.architecture.test_call_path import Profile, add_server
from tests.support import run_async

#: A call within a session has one file more: its routing and the session itself are rooms of their own, since any
#: worker may serve it.
MAX_FILES = {"stateless": 16, "handshake": 17}

_HEADERS = {
    "host": "127.0.0.1:8000",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


class HttpCaller:
    """Posts messages to an ASGI application, within the session that ``initialize`` opens."""

    def __init__(self, app: Any, era: str) -> None:
        self._app = app
        self._era = era
        self._session: str | None = None

    async def post(self, message: dict[str, Any], profile: Profile | None = None) -> dict[str, Any] | None:
        """Post a message and return the response's message, if it has one."""
        body = json.dumps(message).encode()
        headers = [(name.encode(), value.encode()) for name, value in self._headers(message).items()]
        headers.append((b"content-length", str(len(body)).encode()))
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "root_path": "",
            "query_string": b"",
            "scheme": "http",
            "headers": headers,
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 50000),
        }
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(event: MutableMapping[str, Any]) -> None:
            sent.append(event)

        sys.setprofile(profile)
        try:
            await self._app(scope, receive, send)
        finally:
            sys.setprofile(None)
        start = dict(sent[0]["headers"])
        self._session = start.get(b"mcp-session-id", b"").decode() or self._session
        content = b"".join(event.get("body", b"") for event in sent[1:])
        return json.loads(content) if content else None

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        if self._era == "stateless":
            return {
                **_HEADERS,
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": message["method"],
                "mcp-name": message["params"]["name"],
            }
        if self._session is None:
            return _HEADERS
        return {**_HEADERS, "mcp-protocol-version": "2025-11-25", "mcp-session-id": self._session}


async def profile_http_call(era: str) -> Profile:
    """Warm up with the messages of an era, then profile one more call like the last of them."""
    profile = Profile()
    app = add_server().asgi()
    caller = HttpCaller(app, era)
    lines = ERAS[era]
    for number, line in enumerate((*lines, lines[-1], lines[-1])):
        await caller.post({**line, **({"id": number} if "id" in line else {})})
    answer = await caller.post({**lines[-1], "id": 100}, profile)
    await app.aclose()
    assert answer is not None
    assert answer["id"] == 100
    assert answer["result"]["content"][0]["text"] == "3"
    return profile


@each_era
def test_one_http_call_stays_within_its_budget_of_files(era: str) -> None:
    profile = run_async(profile_http_call(era))
    path = {"transports/http/server/endpoint.py", "protocol/jsonrpc.py", "protocol/peer.py", "connection.py"}
    assert path <= profile.files
    assert len(profile.files) <= MAX_FILES[era], str(profile)
