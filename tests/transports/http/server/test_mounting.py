"""Inside other applications: mounted in Starlette and FastAPI, below a root path, and with the server's lifespan."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from tests.transports.http.serving_support import (
    HANDSHAKE,
    META,
    Workshop,
    ask,
    initialize,
    modern,
    modern_headers,
    post,
    tool,
)
from trunkline import Server
from trunkline.errors import ConfigError

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def add(client: TestClient, path: str) -> Any:
    """Call a tool over a test client, in the stateless revision."""
    headers = {name: value for name, value in modern_headers("tools/call", "add").items() if value is not None}
    return client.post(path, json=tool("add", meta=META), headers={**HEADERS, **headers})


def local(app: Any) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1:8000")


def starlette(endpoint: Any, at: str) -> Starlette:
    async def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    return Starlette(routes=[Route("/hello", hello), Mount(at, app=endpoint)], lifespan=endpoint.lifespan)


def fastapi(endpoint: Any, at: str) -> FastAPI:
    app = FastAPI(lifespan=endpoint.lifespan)

    @app.get("/hello")
    async def hello() -> str:
        return "hello"

    app.mount(at, endpoint)
    return app


@pytest.mark.parametrize(
    ("make", "path", "at", "url"),
    [
        pytest.param(starlette, "/", "/mcp", "/mcp/", id="the whole of a mount"),
        pytest.param(fastapi, "/mcp", "/", "/mcp", id="below the root"),
        pytest.param(starlette, "/mcp", "/tools", "/tools/mcp", id="below a mount"),
        pytest.param(fastapi, "/", "/", "/", id="at the root"),
    ],
)
def test_an_endpoint_is_served_where_it_is_mounted(make: Any, path: str, at: str, url: str) -> None:
    with local(make(Workshop().asgi(path=path), at)) as client:
        answer = add(client, url)
        assert (answer.status_code, answer.json()["result"]["structuredContent"]) == (200, {"result": 3})
        assert client.get("/hello").text.strip('"') == "hello"


def test_a_session_works_below_a_mount_and_ends_with_the_application() -> None:
    endpoint = Workshop().asgi()
    with local(fastapi(endpoint, "/tools")) as client:
        opened = client.post("/tools/mcp", json=initialize(), headers=HEADERS)
        session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}
        called = client.post("/tools/mcp", json=tool("steps"), headers={**HEADERS, **session})
        ended = client.delete("/tools/mcp", headers=session)
        gone = client.post("/tools/mcp", json=tool("add"), headers={**HEADERS, **session})
        client.post("/tools/mcp", json=initialize(), headers=HEADERS)
        open_sessions = len(endpoint.sessions.by_id)
    assert (opened.status_code, called.headers["content-type"], ended.status_code, gone.status_code) == (
        200, "text/event-stream", 204, 404,
    )  # fmt: skip
    assert "walked" in called.text
    assert (open_sessions, len(endpoint.sessions.by_id)) == (1, 0)


def test_a_stateless_request_works_without_a_lifespan() -> None:
    assert add(local(Workshop().asgi()), "/mcp").json()["result"]["structuredContent"] == {"result": 3}


def test_one_application_can_be_started_several_times() -> None:
    app = starlette(Workshop().asgi(), "/")
    answers = []
    for _ in range(2):
        with local(app) as client:
            answers.append(client.post("/mcp", json=initialize(), headers=HEADERS).status_code)
            answers.append(add(client, "/mcp").status_code)
    assert answers == [200] * 4


def living(seen: list[str]) -> Server:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[dict[str, int]]:
        seen.append("entered")
        yield {"x": 1}
        seen.append("left")

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def add() -> int:
        seen.append("called")
        return 3

    return server


def test_the_servers_lifespan_is_entered_once_and_left_with_the_application() -> None:
    seen: list[str] = []
    with local(starlette(living(seen).asgi(), "/")) as client:
        add(client, "/mcp")
        client.post("/mcp", json=initialize(), headers=HEADERS)
        add(client, "/mcp")
        during = list(seen)
    assert (during, seen) == (["entered", "called", "called"], ["entered", "called", "called", "left"])


def test_the_endpoint_is_an_application_with_a_lifespan_of_its_own() -> None:
    seen: list[str] = []
    with local(living(seen).asgi()) as client:
        add(client, "/mcp")
    assert seen == ["entered", "called", "left"]


async def test_another_kind_of_scope_is_refused() -> None:
    with pytest.raises(ConfigError, match="serves HTTP, not mail"):
        await Workshop().asgi()({"type": "mail"}, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/a/b/c", "/"])
async def test_an_endpoint_is_served_at_its_configured_path(path: str) -> None:
    app = Workshop().asgi(path=path)
    assert (await post(app, initialize(), path).whole()).status == 200
    assert (await post(app, initialize(), "/elsewhere").whole()).status == 404


async def test_the_root_path_is_not_part_of_the_path() -> None:
    app = Workshop().asgi()
    body = json.dumps(initialize()).encode()
    assert [(await ask(app, body=body, root_path=root).whole()).status for root in ("/api/v1", "/\u00e9")] == [200, 200]


async def test_an_asgi_server_that_does_not_prefix_the_path_with_the_root_works() -> None:
    app = Workshop().asgi()
    call = modern(app, tool("add"))
    call.scope["root_path"] = "/api"
    assert (await call.whole()).status == 200
