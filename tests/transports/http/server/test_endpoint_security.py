"""Attacks on an endpoint in its default configuration: rebinding, cross-site posts, bodies, folded keys, access."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.transports.http.serving_support import (
    META,
    STATELESS,
    SessionClient,
    Workshop,
    ask,
    authenticate,
    initialize,
    modern,
    modern_headers,
    post,
    request,
    running,
    tool,
)
from trunkline.protocol.caller import Principal
from trunkline.protocol.limits import Limits

CALL = json.dumps(tool("add", meta=META)).encode()


# --- rebinding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"host": "evil.example"}, 403, id="foreign host"),
        pytest.param({"host": "127.1"}, 400, id="malformed host"),
        pytest.param({"host": None}, 400, id="no host"),
        pytest.param({"origin": "http://evil.example"}, 403, id="foreign origin"),
        pytest.param({"origin": "http://evil.example", "host": "evil.example"}, 403, id="rebound"),
    ],
)
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE", "OPTIONS", "PUT"])
async def test_a_foreign_host_or_origin_is_refused_with_every_verb(
    headers: dict[str, str | None], status: int, verb: str
) -> None:
    workshop = Workshop()
    given = {**modern_headers("tools/call", "add"), **headers}
    call = await ask(workshop.asgi(), verb, body=CALL, headers=given).whole()
    assert (call.status, workshop.count) == (status, 0)
    assert "access-control-allow-origin" not in call.headers


@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}], ids=["host", "origin"]
)
@pytest.mark.parametrize(
    ("verb", "path", "address"),
    [
        ("POST", "/mcp", "0.0.0.0"),
        ("GET", "/mcp/sse", "192.168.1.7"),
        ("POST", "/mcp/messages", "::"),
        ("GET", "/elsewhere", "127.0.0.1"),
    ],
)
async def test_a_foreign_host_or_origin_is_refused_on_every_route_and_address(
    headers: dict[str, str | None], verb: str, path: str, address: str
) -> None:
    call = ask(Workshop().asgi(), verb, path, body=CALL, headers=headers, server=(address, 8000))
    assert (await call.whole()).status == 403


async def test_a_public_name_can_be_given() -> None:
    app = Workshop().asgi(allowed_hosts=["mcp.example.com"], allowed_origins=["https://app.example.com"])
    headers = {**modern_headers("tools/call", "add"), "host": "mcp.example.com", "origin": "https://app.example.com"}
    call = await ask(app, body=CALL, headers=headers).whole()
    assert (call.status, "access-control-allow-origin" in call.headers) == (200, False)


async def test_hosts_are_checked_the_same_after_more_of_them_than_are_remembered() -> None:
    app = Workshop().asgi()
    hosts = [f"localhost:{port}" for port in range(1, 600)]
    accepted = {(await ask(app, "PUT", headers={"host": host}).whole()).status for host in hosts * 2}
    denied = {(await ask(app, "PUT", headers={"host": host}).whole()).status for host in ("evil.example",) * 2}
    assert (accepted, denied) == ({405}, {403})


async def test_an_accepted_address_of_one_connection_is_checked_again_on_another() -> None:
    app = Workshop().asgi()
    arrived = [("192.0.2.7", 80), ("192.0.2.8", 80)]
    calls = [ask(app, "PUT", headers={"host": "192.0.2.7"}, server=server) for server in arrived]
    assert [(await call.whole()).status for call in calls] == [405, 403]


async def test_an_accepted_host_and_an_accepted_origin_are_checked_together() -> None:
    app = Workshop().asgi(allowed_hosts=["mcp.example.com"])
    heads = [
        {"host": "localhost", "origin": "http://localhost:3000"},
        {"host": "mcp.example.com"},
        {"host": "mcp.example.com", "origin": "http://localhost:3000"},
    ]
    assert [(await ask(app, "PUT", headers=head).whole()).status for head in heads] == [405, 405, 403]


# --- cross-site ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["text/plain", "multipart/form-data; boundary=x", "application/json; charset=utf-16", None]
)
@pytest.mark.parametrize("handshake", [True, False], ids=["session", "stateless"])
async def test_a_post_that_needs_no_preflight_runs_nothing(kind: str | None, handshake: bool) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    if handshake:
        call = await (await SessionClient.open(app)).post(tool("add"), content_type=kind).whole()
    else:
        call = await modern(app, tool("add"), content_type=kind).whole()
    assert (call.error, workshop.count) == ((415, -32600), 0)


@pytest.mark.parametrize(
    ("verb", "origin"), [("POST", "https://evil.example"), ("OPTIONS", "http://localhost:9999"), ("GET", "null")]
)
async def test_no_page_may_read_responses_unless_listed(verb: str, origin: str) -> None:
    headers = {**modern_headers("tools/call", "add"), "origin": origin, "access-control-request-method": "POST"}
    call = await ask(Workshop().asgi(), verb, body=CALL, headers=headers).whole()
    assert not [name for name in call.headers if name.startswith("access-control")]


CORS = {"allowed_origins": ["https://app.example"], "cors_origins": ["https://app.example"]}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/messages", "/mcp/sse"])
async def test_a_listed_page_may_send_a_preflight(path: str) -> None:
    headers: dict[str, str | None] = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type, mcp-session-id, x-evil",
    }
    call = await ask(Workshop().asgi(**CORS), "OPTIONS", path, headers=headers).whole()
    assert (call.status, call.headers["access-control-allow-origin"]) == (204, "https://app.example")
    assert "x-evil" not in call.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in call.headers
    assert [name for name, _ in call.raw_headers].count(b"access-control-allow-origin") == 1


@pytest.mark.parametrize("name", ["add", "steps", "nope"], ids=["JSON", "stream", "error"])
async def test_a_listed_page_may_read_every_response(name: str) -> None:
    call = modern(Workshop().asgi(**CORS), tool(name), origin="https://app.example",
                  meta={"io.modelcontextprotocol/logLevel": "info"})  # fmt: skip
    await call.whole()
    assert call.headers["access-control-allow-origin"] == "https://app.example"
    assert "Mcp-Session-Id" in call.headers["access-control-expose-headers"]
    assert [name for name, _ in call.raw_headers].count(b"access-control-allow-origin") == 1


async def test_a_listed_page_may_read_errors_and_its_session_id() -> None:
    app = Workshop().asgi(**CORS)
    opened = await post(app, initialize(), origin="https://app.example").whole()
    refused = await post(app, b"{", origin="https://app.example").whole()
    assert {call.headers["access-control-allow-origin"] for call in (opened, refused)} == {"https://app.example"}


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"jsonrpc":"2.0","id":1,"Method":"tools/call","params":%b}', id="another case"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method\\u0000":"tools/call","params":%b}', id="NUL at the end"),
        pytest.param('{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":%b}'.encode(), id="long s"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping","\\u006dethod":"tools/call","params":%b}', id="twice"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{},"params":%b}', id="two params"),
    ],
)
@pytest.mark.parametrize("handshake", [True, False], ids=["session", "stateless"])
async def test_a_similar_or_repeated_name_calls_no_tool(body: bytes, handshake: bool) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    params = json.dumps({"name": "add", "arguments": {}, "_meta": META} if not handshake else {"name": "add"}).encode()
    message = body.replace(b"%b", params)
    if handshake:
        await (await SessionClient.open(app)).post(message).whole()
    else:
        call = await post(app, message, **modern_headers("tools/call", "add")).whole()
        assert call.status == 400
    assert workshop.count == 0


async def test_a_tool_is_called_by_its_exact_name_only() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    calls = [await client.post(tool(name)).whole() for name in ("Add", "add\x00", " add", "a\u200bdd")]
    assert ([call.json["error"]["code"] for call in calls], workshop.count) == ([-32602] * 4, 0)


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [STATELESS, None], ids=["stateless", "handshake"])
async def test_a_body_with_a_declared_length_over_the_limit_is_refused_unread(version: str | None) -> None:
    headers = {"content-length": str(64 << 20), "mcp-protocol-version": version}
    call = ask(Workshop().asgi(), body=[b"x", b"never asked for"], headers=headers)
    await call.whole()
    assert (call.error, call.headers["connection"], len(call._pieces)) == ((413, -32600), "close", 2)


async def test_a_body_without_a_length_is_read_up_to_the_limit() -> None:
    pieces = [b" " * 65536] * 1024
    call = ask(Workshop(Limits(body_bytes=1 << 20)).asgi(), body=pieces)
    await call.whole()
    assert (call.error, len(call._pieces)) == ((413, -32600), 1024 - 17)


@pytest.mark.parametrize("extra", [0, 1])
async def test_the_limit_of_a_body_is_exact(extra: int) -> None:
    body = json.dumps(initialize()).encode()
    app = Workshop(Limits(body_bytes=len(body) + 10)).asgi()
    call = await ask(app, body=body + b" " * (10 + extra)).whole()
    assert call.status == (413 if extra else 200)


@pytest.mark.parametrize("length", ["-1", "1e9", "x", "", "0" * 50, "\u00b2"])
async def test_an_invalid_content_length_is_ignored(length: str) -> None:
    body = json.dumps(initialize()).encode()
    assert (await ask(Workshop().asgi(), body=body, headers={"content-length": length}).whole()).status == 200


async def test_a_body_in_pieces_is_read_whole() -> None:
    body = json.dumps(initialize()).encode()
    pieces = [body[n : n + 1] for n in range(len(body))]
    assert (await ask(Workshop().asgi(), body=pieces).whole()).status == 200


async def test_a_body_that_takes_too_long_is_refused() -> None:
    app = Workshop(Limits(body_seconds=0.05)).asgi()
    call = ask(app, body=[])
    call.receive = _unfinished(b"{")  # type: ignore[method-assign]
    assert (await call.whole()).status == 408


async def test_a_client_that_disconnects_within_its_body_runs_nothing() -> None:
    workshop = Workshop()
    call = ask(workshop.asgi(), body=[CALL], headers=modern_headers("tools/call", "add"))
    call.receive = _unfinished(CALL, {"type": "http.disconnect"})  # type: ignore[method-assign]
    await call.ended()
    assert (call.status, workshop.count) == (400, 0)


def _unfinished(body: bytes, *then: dict[str, str]) -> Any:
    """Receive a piece of a body, then these messages, then nothing."""
    messages = [{"type": "http.request", "body": body, "more_body": True}, *then]

    async def receive() -> Any:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    return receive


async def test_a_large_body_over_a_socket_is_refused_and_the_server_goes_on() -> None:
    workshop = Workshop(Limits(body_bytes=1 << 20))
    async with running(workshop.asgi()) as served:
        reader, writer = await served.connect()
        writer.write(b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                     b"transfer-encoding: chunked\r\n\r\n")  # fmt: skip
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        for _ in range(20):
            writer.write(chunk)
        status = await reader.readline()
        writer.close()
        message = tool("add", meta=META)
        reader, writer = await served.post(message, modern_headers("tools/call", "add"))
        again = await reader.readline()
        writer.close()
    assert (status.split()[1], again.split()[1]) == (b"413", b"200")


# --- who may call ----------------------------------------------------------------------------------------------------


async def _async(headers: Any) -> Principal | None:
    await asyncio.sleep(0)
    return authenticate(headers)


def _truthy(headers: Any) -> Any:
    return "somebody"


@pytest.mark.parametrize("auth", [authenticate, _async], ids=["function", "coroutine"])
async def test_the_authenticated_principal_reaches_the_handler(auth: Any) -> None:
    app = Workshop().asgi(auth=auth)
    call = await modern(app, tool("who"), authorization="Bearer ada").whole()
    client = await SessionClient.open(app, token="bob")
    texts = [each.json["result"]["content"][0]["text"] for each in (call, await client.post(tool("who")).whole())]
    assert texts == ["ada", "bob"]


@pytest.mark.parametrize(
    ("auth", "token"),
    [
        *[(authenticate, token) for token in (None, "", "Bearer", "Basic ada", "Bearer broken")],
        pytest.param(_async, "Bearer broken", id="coroutine"),
        pytest.param(_truthy, "Bearer ada", id="a principal of another type"),
    ],
)
async def test_an_unauthenticated_request_runs_nothing(auth: Any, token: str | None) -> None:
    workshop = Workshop()
    app = workshop.asgi(auth=auth)
    call = await modern(app, tool("add"), authorization=token).whole()
    opened = await post(app, initialize(), authorization=token).whole()
    assert (call.status, call.headers["www-authenticate"], workshop.count) == (401, "Bearer", 0)
    assert (opened.status, len(app.sessions.by_id)) == (401, 0)


async def test_the_authentication_of_the_server_is_used() -> None:
    app = Workshop(auth=authenticate).asgi()
    assert (await modern(app, tool("add")).whole()).status == 401


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_every_request_of_a_session_is_authenticated(verb: str) -> None:
    app = Workshop().asgi(auth=authenticate)
    client = await SessionClient.open(app, token="ada")
    client.token = "broken"
    call = {"POST": lambda: client.post(tool("add")), "GET": client.get, "DELETE": client.delete}[verb]()
    assert (await call.whole()).status == 401
    assert list(app.sessions.by_id) == [client.id]


async def test_without_authentication_a_token_changes_nothing() -> None:
    call = await modern(Workshop().asgi(), tool("who"), authorization="Bearer ada").whole()
    assert call.json["result"]["content"][0]["text"] == "nobody"


# --- one bad client among others -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(request("tools/call", {"name": "add", "arguments": []}), id="arguments of another type"),
        pytest.param(request("tools/call", []), id="params as an array"),
        pytest.param(request("logging/setLevel", {"level": "loud"}), id="unknown level"),
        pytest.param({"jsonrpc": "2.0", "method": "notifications/initialized", "params": 5}, id="odd notification"),
        pytest.param({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}}, id="cancel"),
    ],
)
async def test_a_bad_message_leaves_its_session_and_others_working(bad: Any) -> None:
    app = Workshop().asgi()
    client, other = await SessionClient.open(app, ready=False), await SessionClient.open(app)
    await client.post(bad).whole()
    answers = [await each.post(tool("add")).whole() for each in (client, other)]
    assert [call.json["result"]["content"][0]["text"] for call in answers] == ["3", "3"]
