"""The headers that mirror a stateless request: each must be present, readable, single, and match the body."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

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
    pairs,
    post,
    request,
    tool,
)

READ = request("resources/read", {"uri": "note://one"})
LIST = request("tools/list", {})


def sentinel(text: str) -> str:
    return f"=?base64?{b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize(
    ("message", "headers", "problem"),
    [
        pytest.param(LIST, {"mcp-method": None}, "Mcp-Method header is missing", id="no method"),
        pytest.param(LIST, {"mcp-method": "tools/call"}, "Mcp-Method", id="another method"),
        pytest.param(LIST, {"mcp-protocol-version": None}, "MCP-Protocol-Version", id="no version"),
        pytest.param(tool("add"), {"mcp-name": None}, "Mcp-Name header is missing", id="no name"),
        pytest.param(tool("add"), {"mcp-name": "steps"}, "Mcp-Name", id="another name"),
        pytest.param(tool("add"), {"mcp-name": "=?base64?/w==?="}, "Mcp-Name", id="Base64 of no UTF-8"),
        pytest.param(tool("add"), {"mcp-name": "add\u00e9"}, "Mcp-Name", id="bytes no header may have"),
    ],
)
async def test_a_header_that_does_not_match_the_body_is_refused(
    message: dict[str, Any], headers: dict[str, Any], problem: str
) -> None:
    call = await modern(Workshop().asgi(), message, **headers).whole()
    assert call.error == (400, -32020)
    assert problem in call.json["error"]["message"]
    assert call.json["id"] == 1


@pytest.mark.parametrize(
    ("message", "headers"),
    [
        pytest.param(tool("add"), {"mcp-name": "  add "}, id="name with white space around"),
        pytest.param(tool("add"), {"mcp-name": sentinel("add")}, id="name in Base64"),
        pytest.param(LIST, {"mcp-session-id": "x"}, id="a session id"),
    ],
)
async def test_a_header_that_matches_or_does_not_apply_is_served(
    message: dict[str, Any], headers: dict[str, Any]
) -> None:
    call = await modern(Workshop().asgi(), message, **headers).whole()
    assert (call.status, "result" in call.json, "mcp-session-id" in call.headers) == (200, True, False)


async def test_a_name_that_looks_like_base64_must_be_encoded() -> None:
    workshop = Workshop()
    name = "=?base64?YWRk?="
    workshop.server.tool(workshop.add, name=name)
    app = workshop.asgi()
    plain = await modern(app, tool(name), mcp_name=name).whole()
    encoded = await modern(app, tool(name), mcp_name=sentinel(name)).whole()
    assert (plain.error, encoded.status, workshop.count) == ((400, -32020), 200, 1)


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        pytest.param({"place": "eu"}, {"mcp-param-region": "eu"}, id="the same"),
        pytest.param({"place": "Z\u00fcrich"}, {"mcp-param-region": sentinel("Z\u00fcrich")}, id="not ASCII"),
        pytest.param({"place": ""}, {"mcp-param-region": ""}, id="empty"),
        pytest.param({"size": 42}, {"mcp-param-size": "42.0"}, id="the same number"),
        pytest.param({"place": None}, {}, id="null"),
    ],
)
async def test_a_mirrored_parameter_that_agrees_is_served(arguments: dict[str, Any], headers: dict[str, Any]) -> None:
    workshop = Workshop()
    call = await modern(workshop.asgi(), tool("region", **arguments), **headers).whole()
    assert (call.status, workshop.count) == (200, 1), call.body


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        pytest.param({"place": "eu"}, {}, id="missing"),
        pytest.param({"place": "eu"}, {"mcp-param-region": "us"}, id="another"),
        pytest.param({"place": "eu"}, {"mcp-param-region": ""}, id="empty"),
        pytest.param({"place": "e\u00fc"}, {"mcp-param-region": "e\u00fc"}, id="bytes no header may have"),
        pytest.param({}, {"mcp-param-region": "eu"}, id="not in the body"),
        pytest.param({"size": 42}, {"mcp-param-size": "42x"}, id="no number"),
        pytest.param({"size": 42}, {"mcp-param-size": "4" * 5000}, id="very many digits"),
        pytest.param({"place": "eu", "size": 1}, {"mcp-param-region": "eu"}, id="one of two"),
    ],
)
async def test_a_mirrored_parameter_that_differs_is_refused_before_the_tool_runs(
    arguments: dict[str, Any], headers: dict[str, Any]
) -> None:
    workshop = Workshop()
    call = await modern(workshop.asgi(), tool("region", **arguments), **headers).whole()
    assert (call.error, workshop.count) == ((400, -32020), 0)


async def test_handshake_clients_mirror_nothing_in_headers() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    call = await client.post(tool("region", place="eu"), mcp_method="nonsense", mcp_param_region="us").whole()
    assert (call.status, "result" in call.json, workshop.count) == (200, True, 1)


CHECKED = [
    *("host", "origin", "content-type", "content-length", "authorization", "dpop", "accept", "last-event-id"),
    *("mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name", "mcp-param-region"),
]


@pytest.mark.parametrize(
    ("verb", "name"), [*[("POST", name) for name in CHECKED], ("GET", "mcp-session-id"), ("DELETE", "origin")]
)
async def test_a_checked_header_must_not_be_repeated(verb: str, name: str) -> None:
    workshop = Workshop()
    headers = {**modern_headers("tools/call", "add"), "origin": "http://127.0.0.1:8000", name: "x"}
    given = dict(pairs(headers))
    given[b"host"] = b"127.0.0.1:8000"
    again = (name.encode(), given[name.encode()])
    call = await ask(workshop.asgi(), verb, headers=headers, twice=[again]).whole()
    assert (call.status, workshop.count) == (400, 0)
    assert name in call.json["error"]["message"]


async def test_other_headers_may_be_repeated() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    twice = [(b"x-forwarded-for", b"a"), (b"x-forwarded-for", b"b"), (b"cookie", b"a"), (b"cookie", b"a")]
    assert (await ask(Workshop().asgi(), body=body, twice=twice).whole()).status == 200


@pytest.mark.parametrize("session", [True, False], ids=["session", "none"])
async def test_a_stateless_body_in_a_handshake_post_is_not_served(session: bool) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    message = tool("add", meta=META)
    headers = (await SessionClient.open(app)).headers() if session else {"mcp-protocol-version": HANDSHAKE}
    call = await post(app, message, **headers).whole()
    assert (call.json["error"]["code"], workshop.count) == (-32020, 0)


async def test_a_server_without_stateless_revisions_reports_that() -> None:
    app = Workshop(revisions=[HANDSHAKE]).asgi()
    call = await modern(app, request("server/discover")).whole()
    assert call.error == (400, -32022)
    assert call.json["error"]["data"] == {"supported": [HANDSHAKE], "requested": STATELESS}


async def test_a_server_without_handshake_revisions_reports_that_and_keeps_no_session() -> None:
    app = Workshop(revisions=[STATELESS]).asgi()
    call = await post(app, initialize()).whole()
    assert call.json["error"]["data"] == {"supported": [STATELESS], "requested": HANDSHAKE}
    assert ("mcp-session-id" in call.headers, len(app.sessions.by_id)) == (False, 0)
