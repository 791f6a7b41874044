"""Routing by HTTP method, version header and session id, with the status and the JSON-RPC code of each."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from tests.transports.http.serving_support import (
    HANDSHAKE,
    META,
    STATELESS,
    SessionClient,
    Workshop,
    ask,
    initialize,
    modern,
    modern_headers,
    notification,
    post,
    request,
    tool,
)
from trunkline import Context
from trunkline.errors import MissingCapability, RequestFailed
from trunkline.protocol.revisions import HANDSHAKE_NAMES

UNKNOWN = "1999-01-01"
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {}}
FAILURE = {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}
LIST = request("tools/list")
NOTICE = notification("notifications/initialized")
#: In place of a session id: that of a session which is open, of one which has ended, or none at all.
OPEN, ENDED, NONE = "open", "ended", None


async def sent(
    verb: str, version: str | None, session: str | None, body: Any = None, *, path: str = "/mcp", **options: Any
) -> Any:
    """Send a request to a fresh endpoint, and return the response; the client disconnects from streams."""
    app = Workshop().asgi(**options)
    id: str | None = session
    if session in (OPEN, ENDED):
        client = await SessionClient.open(app)
        id = client.id
        if session == ENDED:
            await client.delete().whole()
    headers = {"mcp-protocol-version": version, "mcp-session-id": id}
    call = ask(app, verb, path, headers=headers) if body is None else post(app, body, path, **headers)
    await call.head()
    call.hang_up()
    await call.ended()
    await app.aclose()
    return call


# --- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "session", "body", "status", "code"),
    [
        # A stateless or unknown revision: the request is served on its own, whatever session it names.
        pytest.param(STATELESS, NONE, NOTICE, 202, None, id="stateless notification"),
        pytest.param(STATELESS, OPEN, NOTICE, 202, None, id="stateless notification, session ignored"),
        pytest.param(STATELESS, NONE, ANSWER, 400, -32600, id="stateless answer"),
        pytest.param(STATELESS, NONE, [LIST], 400, -32600, id="stateless batch"),
        pytest.param(STATELESS, NONE, LIST, 400, -32602, id="stateless header, body names none"),
        pytest.param(STATELESS, NONE, initialize(), 400, -32602, id="stateless header, initialize"),
        pytest.param(UNKNOWN, NONE, LIST, 400, -32022, id="unknown"),
        pytest.param(UNKNOWN, OPEN, LIST, 400, -32022, id="unknown, with a session"),
        pytest.param(UNKNOWN, NONE, initialize(), 400, -32022, id="unknown, initialize"),
        pytest.param(UNKNOWN, NONE, NOTICE, 400, -32600, id="unknown, notification"),
        pytest.param("", NONE, LIST, 400, -32022, id="empty"),
        # None, or a handshake revision, without a session.
        pytest.param(NONE, NONE, initialize(), 200, None, id="initialize"),
        pytest.param(HANDSHAKE, NONE, initialize(), 200, None, id="initialize with the header"),
        pytest.param(NONE, NONE, request("tools/list", {"_meta": META}), 400, -32020, id="no header, body has one"),
        pytest.param(HANDSHAKE, NONE, request("tools/list", {"_meta": META}), 400, -32020, id="other than the body"),
        pytest.param(NONE, NONE, LIST, 400, -32602, id="request without a session"),
        pytest.param(NONE, NONE, NOTICE, 400, -32600, id="notification without a session"),
        pytest.param(NONE, NONE, ANSWER, 400, -32600, id="answer without a session"),
        pytest.param(NONE, NONE, [LIST], 400, -32600, id="batch without a session"),
        pytest.param(NONE, NONE, request("ping"), 200, None, id="ping without a session"),
        # A session of this client.
        pytest.param(NONE, OPEN, LIST, 200, None, id="session"),
        pytest.param(HANDSHAKE, OPEN, LIST, 200, None, id="session with the header"),
        pytest.param(HANDSHAKE_NAMES[2], OPEN, LIST, 400, -32600, id="session of another revision"),
        pytest.param(HANDSHAKE_NAMES[0], OPEN, NOTICE, 400, -32600, id="notification in another revision"),
        pytest.param(HANDSHAKE, OPEN, NOTICE, 202, None, id="session notification"),
        pytest.param(HANDSHAKE, OPEN, ANSWER, 202, None, id="session answer"),
        pytest.param(HANDSHAKE, OPEN, [LIST], 400, -32600, id="session batch"),
        pytest.param(HANDSHAKE, OPEN, initialize(), 200, -32600, id="second initialize"),
        pytest.param(HANDSHAKE, OPEN, request("nope"), 200, -32601, id="session, unknown method"),
        # A session that is not, or not any more.
        pytest.param(HANDSHAKE, ENDED, LIST, 404, -32600, id="ended session"),
        pytest.param(HANDSHAKE, "unknown", LIST, 404, -32600, id="unknown session"),
        pytest.param(NONE, "", LIST, 404, -32600, id="empty session id"),
        pytest.param(NONE, "unknown", initialize(), 404, -32600, id="initialize with an unknown session"),
    ],
)
async def test_a_post_is_routed_by_its_version_and_session(
    version: str | None, session: str | None, body: Any, status: int, code: int | None
) -> None:
    call = await sent("POST", version, session, body)
    assert call.status == status, call.body
    assert (call.json.get("error", {}).get("code") if call.body else None) == code


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
@pytest.mark.parametrize(
    ("version", "session", "get", "delete"),
    [
        pytest.param(STATELESS, NONE, 405, 405, id="stateless"),
        pytest.param(STATELESS, OPEN, 405, 405, id="stateless with a session"),
        pytest.param(UNKNOWN, NONE, 400, 400, id="unknown"),
        pytest.param(UNKNOWN, OPEN, 400, 400, id="unknown with a session"),
        pytest.param(NONE, OPEN, 200, 204, id="session"),
        pytest.param(HANDSHAKE, OPEN, 200, 204, id="session with the header"),
        pytest.param(HANDSHAKE_NAMES[2], OPEN, 400, 400, id="session of another revision"),
        pytest.param(HANDSHAKE, ENDED, 404, 404, id="ended session"),
        pytest.param(NONE, "unknown", 404, 404, id="unknown session"),
        pytest.param(HANDSHAKE, NONE, 400, 400, id="no session id"),
        pytest.param(NONE, NONE, 200, 400, id="neither"),
    ],
)
async def test_a_get_or_delete_belongs_to_a_session(
    verb: str, version: str | None, session: str | None, get: int, delete: int
) -> None:
    call = await sent(verb, version, session)
    assert call.status == {"GET": get, "DELETE": delete}[verb], call.body


@pytest.mark.parametrize(
    ("verb", "version"),
    [("GET", STATELESS), ("DELETE", STATELESS), ("PUT", STATELESS), ("GET", None), ("HEAD", None), ("OPTIONS", None)],
)
async def test_an_unused_http_method_is_answered_with_the_allowed_ones(verb: str, version: str | None) -> None:
    call = await sent(verb, version, None, sse=False)
    assert (call.status, call.headers["allow"]) == (405, "POST" if verb in ("GET", "DELETE") else "POST, GET, DELETE")


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        *[("POST", path) for path in ("/", "/mcpx", "/mcp/x", "/mcp//", "/MCP", "/mcp/sse/", "", "/caf\u00e9\udcff")],
        *[(verb, "/mcpx") for verb in ("GET", "DELETE", "OPTIONS")],
    ],
)
async def test_other_paths_are_not_found(verb: str, path: str) -> None:
    call = await sent(verb, None, None, path=path)
    assert (call.status, call.json["error"]["code"], call.json["id"]) == (404, -32600, None)


async def test_a_slash_at_the_end_of_the_path_makes_no_difference() -> None:
    assert (await sent("POST", None, None, initialize(), path="/mcp/")).status == 200


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_without_sessions_get_and_delete_are_not_used(verb: str) -> None:
    assert (await sent(verb, HANDSHAKE, "any", stateless_http=True)).status == 405


async def test_a_websocket_is_refused() -> None:
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        said.append(message)

    await Workshop().asgi()({"type": "websocket", "path": "/mcp", "headers": []}, receive, send)
    assert [message["type"] for message in said] == ["websocket.close"]


# --- statuses of stateless errors ------------------------------------------------------------------------------------


def failing(error: Exception, *, tell: bool = False) -> Any:
    """Make an endpoint with a method that fails, perhaps after it told something."""
    workshop = Workshop()

    async def fail(params: dict[str, Any], ctx: Context) -> None:
        if tell:
            await ctx.notify("x/told", {})
        raise error

    workshop.server.method("x/fail")(fail)
    return workshop.asgi()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        *[(RequestFailed("m", code=code), 400, code) for code in (-32700, -32600, -32602, -32020, -32022)],
        *[(RequestFailed("m", code=code), 200, code) for code in (-32603, -32000, 7)],
        pytest.param(RequestFailed("m", code=-32601), 404, -32601, id="method not found"),
        pytest.param(MissingCapability("m", capability="sampling"), 400, -32021, id="missing capability"),
        pytest.param(ValueError("secret"), 200, -32603, id="a handler that fails"),
    ],
)
async def test_the_status_of_a_stateless_error_follows_its_code(error: Exception, status: int, code: int) -> None:
    call = await modern(failing(error), request("x/fail", {})).whole()
    assert call.error == (status, code)
    assert b"secret" not in call.body


async def test_an_error_after_the_first_event_has_status_200() -> None:
    call = await modern(failing(RequestFailed("m", code=-32601), tell=True), request("x/fail", {})).whole()
    assert call.status == 200
    assert [message.get("error", {}).get("code") for message in call.messages] == [None, -32601]


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        pytest.param(request("nope", {}), 404, -32601, id="unknown method"),
        pytest.param(request("initialize", initialize()["params"]), 404, -32601, id="method of sessions"),
        pytest.param(request("ping", {}), 404, -32601, id="ping"),
        pytest.param(request("prompts/list", {}), 404, -32601, id="nothing of the kind is offered"),
        pytest.param(tool("nope"), 400, -32602, id="unknown tool"),
        pytest.param(request("tools/list", {"cursor": "garbage"}), 400, -32602, id="garbage cursor"),
        pytest.param(request("tools/list", {"cursor": 5}), 400, -32602, id="params of another type"),
        pytest.param(request("resources/read", {"uri": "note://none"}), 400, -32602, id="unknown resource"),
        pytest.param(tool("add", a="x"), 200, None, id="a tool's own error is a result"),
    ],
)
async def test_each_error_of_a_stateless_request_has_its_status(
    message: dict[str, Any], status: int, code: int | None
) -> None:
    call = await modern(Workshop().asgi(), message).whole()
    assert (call.status, call.json.get("error", {}).get("code")) == (status, code)


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        pytest.param({t.META_PROTOCOL_VERSION: UNKNOWN, t.META_CLIENT_CAPABILITIES: {}}, -32022, id="unknown revision"),
        pytest.param({t.META_PROTOCOL_VERSION: HANDSHAKE, t.META_CLIENT_CAPABILITIES: {}}, -32020, id="handshake"),
        pytest.param({t.META_PROTOCOL_VERSION: STATELESS}, -32602, id="no capabilities"),
        pytest.param({t.META_CLIENT_CAPABILITIES: {}}, -32602, id="no revision"),
    ],
)
async def test_an_invalid_stateless_envelope_is_refused(meta: dict[str, Any], code: int) -> None:
    version = UNKNOWN if code == -32022 else STATELESS
    headers = {**modern_headers("tools/list"), "mcp-protocol-version": version}
    call = await post(Workshop().asgi(), request("tools/list", {"_meta": meta}), **headers).whole()
    assert call.error == (400, code)


async def test_an_unsupported_revision_is_answered_with_the_supported_ones() -> None:
    meta = {t.META_PROTOCOL_VERSION: UNKNOWN}
    app = Workshop().asgi()
    call = await modern(app, request("tools/list"), meta=meta, mcp_protocol_version=UNKNOWN).whole()
    assert call.json["error"]["data"] == {"supported": [STATELESS, *reversed(HANDSHAKE_NAMES)], "requested": UNKNOWN}


# --- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [0, -5, 2**53, "", "1", "\u00e9"], ids=repr)
async def test_an_answer_has_the_id_of_its_request(id: Any) -> None:
    app = Workshop().asgi()
    answered = [(await modern(app, request(method, {}, id=id)).whole()).json["id"] for method in ("tools/list", "nope")]
    assert [(type(each), each) for each in answered] == [(type(id), id)] * 2


TOO_DEEP = b'{"jsonrpc":"2.0","id":7,"method":"x","params":%b}' % (b"[" * 300 + b"]" * 300)


@pytest.mark.parametrize(
    ("body", "code", "id"),
    [
        pytest.param(b"", -32700, None, id="nothing"),
        pytest.param(b"{", -32700, None, id="cut off"),
        pytest.param(b'\xff{"jsonrpc":"2.0"}', -32700, None, id="no UTF-8"),
        pytest.param('{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"), -32700, None, id="UTF-16"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping"} x', -32700, None, id="trailing bytes"),
        pytest.param(b"null", -32600, None, id="null"),
        pytest.param(b'{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7, id="another version"),
        pytest.param(b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None, id="boolean id"),
        pytest.param(b'{"jsonrpc":"2.0","id":7}', -32600, 7, id="no method"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}', -32600, None, id="two ids"),
        pytest.param(TOO_DEEP, -32700, 7, id="too deep"),
    ],
)
@pytest.mark.parametrize(
    ("version", "session"), [(STATELESS, NONE), (HANDSHAKE, NONE), (HANDSHAKE, OPEN)], ids=["stateless", "none", "open"]
)
async def test_an_invalid_message_is_refused_with_its_id_if_it_has_one(
    body: bytes, code: int, id: Any, version: str, session: str | None
) -> None:
    call = await sent("POST", version, session, body)
    assert (call.status, call.json["error"]["code"], call.json["id"]) == (400, code, id)
