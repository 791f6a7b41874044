"""A client of ours over HTTP: what it sends with each message, and what it makes of statuses, streams and sessions."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.interaction.rows import ALL, SESSIONS, SINCE_2025_03, STATELESS, http_behaviour, sse_behaviour
from tests.interaction.script import SILENCE, Failure
from tests.interaction.web_script import SESSION, Asked, PairScript, Response, WebScript
from tests.interaction.wire import META, Wire
from trunkline import Client, TrunklineError
from trunkline.errors import RemoteProtocolError

DONE = {"content": [{"type": "text", "text": "done"}]}


def script_of(wire: Wire, table: dict[str, Any] | None = None, **setting: Any) -> WebScript:
    """Return a scripted server over HTTP."""
    script = wire.script(table, **setting)
    assert isinstance(script, WebScript)
    return script


def answer_of(message: Any, result: Any = None) -> bytes:
    """Write the answer to a request."""
    return json.dumps(
        {"jsonrpc": "2.0", "id": message["id"], "result": result or {**DONE, "resultType": "complete"}}
    ).encode()


def calls(script: WebScript) -> list[Asked]:
    """Return the requests that call a tool."""
    return [asked for asked in script.asked if asked.verb == "POST" and asked.message.get("method") == "tools/call"]


# --- every message ---------------------------------------------------------------------------------------------------


@http_behaviour("http.client-accept", "2025-11-25 basic/transports#sending-messages-to-the-server", SINCE_2025_03)
async def test_a_client_accepts_json_and_streams_in_every_post(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    async with script.client() as client:
        await client.call_tool("work", {})
    accepted = {(asked.verb, asked.headers.get("accept")) for asked in script.asked if asked.verb != "DELETE"}
    assert {verb for verb, _ in accepted} - {"GET"} == {"POST"}
    assert ("POST", "application/json, text/event-stream") in accepted
    assert all("text/event-stream" in str(accept) for _, accept in accepted)


@http_behaviour("http.client-one-message", "2025-11-25 basic/transports#sending-messages-to-the-server", SINCE_2025_03)
async def test_each_message_is_a_post_of_its_own_with_one_object(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    async with script.client() as client:
        await asyncio.gather(*(client.call_tool("work", {}) for _ in range(5)))
    posts = [asked for asked in script.asked if asked.verb == "POST"]
    assert [type(asked.message) for asked in posts] == [dict] * len(posts)
    assert {asked.headers["content-type"] for asked in posts} == {"application/json"}


@http_behaviour("http.client-both", "2025-11-25 basic/transports#sending-messages-to-the-server", SINCE_2025_03)
@pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])
async def test_a_client_accepts_a_response_as_json_or_stream(wire: Wire, streamed: bool) -> None:
    script = script_of(wire, {"tools/call": DONE})
    script.streamed = streamed
    async with script.client() as client:
        assert (await client.call_tool("work", {})).text == "done"


@http_behaviour("http.client-comments", "2026-07-28 basic/transports/streamable-http#receiving-messages", SINCE_2025_03)
async def test_a_client_skips_comments_empty_events_and_unknown_fields(wire: Wire) -> None:
    script = script_of(wire)

    def noisy(asked: Asked, response: Response) -> bool:
        if asked.verb != "POST" or asked.message.get("method") != "tools/call":
            return False
        response.begin()
        response.raw(b": keep-alive\r\n\r\n:\n\ndata:\n\nunheard: of\n\nid\n\n")
        response.event(answer_of(asked.message))
        response.end()
        return True

    script.intercept = noisy
    async with script.client() as client:
        assert (await client.call_tool("work", {})).text == "done"


@http_behaviour("http.client-elsewhere", "2025-11-25 basic/transports#sending-messages-to-the-server", SINCE_2025_03)
async def test_an_answer_to_another_request_never_reaches_it(wire: Wire) -> None:
    script = script_of(wire)
    script.table["tools/call"] = SILENCE
    async with script.client() as client:
        first = asyncio.ensure_future(client.call_tool("one", {}))
        one = await script.heard("tools/call")
        second = asyncio.ensure_future(client.call_tool("two", {}))
        two = await script.heard("tools/call", count=2)
        response = next(each for each in script.waiting if each.id == two["id"])
        response.event(answer_of(one))
        response.end()
        with pytest.raises(TrunklineError):
            await second
        script.answer(one, DONE)
        assert (await first).text == "done"


@http_behaviour("http.client-status", "2025-11-25 basic/transports#sending-messages-to-the-server", SINCE_2025_03)
@pytest.mark.parametrize("status", [400, 403, 500, 503])
async def test_a_status_without_a_message_fails_its_call_alone(wire: Wire, status: int) -> None:
    script = script_of(wire, {"tools/call": DONE})
    async with script.client() as client:
        script.intercept = lambda asked, response: response.plain(status)
        with pytest.raises(TrunklineError, match=str(status)):
            await client.call_tool("work", {})
        script.intercept = None
        assert (await client.call_tool("work", {})).text == "done"


@http_behaviour("http.client-redirect", "2025-11-25 basic/transports#security-warning", SINCE_2025_03)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_client_does_not_follow_to_another_server(wire: Wire, status: int) -> None:
    script, elsewhere = script_of(wire), script_of(wire, {"tools/call": DONE})
    async with script.client() as client:
        target = elsewhere.url
        script.intercept = lambda asked, response: response.plain(status, location=target)
        with pytest.raises(TrunklineError):
            await client.call_tool("work", {})
        script.intercept = None
    assert elsewhere.asked == []
    elsewhere.end()


# --- sessions --------------------------------------------------------------------------------------------------------


@http_behaviour("http.client-session", "2025-11-25 basic/transports#session-management", SESSIONS)
async def test_a_client_names_its_session_in_all_it_sends_and_ends_it(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    async with script.client() as client:
        await client.call_tool("work", {})
    named = [(asked.verb, asked.headers.get("mcp-session-id")) for asked in script.asked]
    assert (named[0], {id for _, id in named[1:]}) == (("POST", None), {SESSION})
    assert named[-1] == ("DELETE", SESSION)


@http_behaviour("http.client-session-none", "2025-11-25 basic/transports#session-management", SESSIONS)
async def test_a_client_without_a_session_names_none_and_ends_none(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    script.session = None
    async with script.client() as client:
        await client.call_tool("work", {})
    assert [asked for asked in script.asked if "mcp-session-id" in asked.headers or asked.verb == "DELETE"] == []


@http_behaviour("http.client-version", "2025-11-25 basic/transports#protocol-version-header", ALL[2:4])
async def test_a_client_sends_the_agreed_version_with_every_later_request(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    async with script.client() as client:
        await client.call_tool("work", {})
    assert {asked.headers.get("mcp-protocol-version") for asked in script.asked[1:]} == {wire.revision}


@http_behaviour("http.client-session-lost", "2025-11-25 basic/transports#session-management", SESSIONS)
async def test_a_client_whose_session_is_gone_opens_a_new_one_and_calls_again(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    gone = iter([True])

    def forget(asked: Asked, response: Response) -> bool:
        if asked.verb != "POST" or asked.message.get("method") != "tools/call" or not next(gone, False):
            return False
        script.session = "another-session"
        response.plain(404)
        return True

    async with script.client() as client:
        script.intercept = forget
        assert (await client.call_tool("work", {})).text == "done"
    opened = [asked for asked in script.asked if asked.verb == "POST" and asked.message.get("method") == "initialize"]
    assert [asked.headers.get("mcp-session-id") for asked in opened] == [None, None]
    assert [asked.headers.get("mcp-session-id") for asked in calls(script)] == [SESSION, "another-session"]


@http_behaviour(
    "http.client-get-refused", "2025-11-25 basic/transports#listening-for-messages-from-the-server", SESSIONS
)
async def test_a_server_without_a_stream_is_no_trouble(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    script.intercept = lambda asked, response: asked.verb != "POST" and response.plain(405)
    async with script.client() as client:
        assert (await client.call_tool("work", {})).text == "done"
    assert {asked.verb for asked in script.asked} == {"POST", "GET", "DELETE"}


@http_behaviour("http.client-get-late", "2025-11-25 basic/transports#listening-for-messages-from-the-server", SESSIONS)
async def test_a_client_opens_its_stream_only_after_initialized(wire: Wire) -> None:
    script = script_of(wire)
    async with script.client():
        verbs = [asked.verb for asked in script.asked]
        assert (verbs.index("GET"), script.methods) == (2, ["initialize", "notifications/initialized"])


# --- streams that break ----------------------------------------------------------------------------------------------


def breaking(script: WebScript, *, retry: int | None = 1, cuts: int = 1) -> None:
    """Break the response of a call after an event with an id, and answer where it is taken up again."""
    left = iter(range(cuts))

    def intercept(asked: Asked, response: Response) -> bool:
        last = asked.headers.get("last-event-id")
        if asked.verb == "GET" and last is not None:
            response.begin()
            if next(left, None) is None:
                response.event(answer_of(calls(script)[0].message), id="last")
            else:
                response.event(b"", id=f"{last}+", retry=retry)
            response.end()
            return True
        if asked.verb == "POST" and asked.message.get("method") == "tools/call" and next(left, None) is not None:
            response.event(b"", id="first", retry=retry)
            response.end()
            return True
        return False

    script.intercept = intercept


@http_behaviour("http.client-resumes", "2025-11-25 basic/transports#resumability-and-redelivery", SESSIONS)
@pytest.mark.parametrize("cuts", [1, 2, 3])
async def test_a_client_resumes_a_stream_after_the_last_event(wire: Wire, cuts: int) -> None:
    script = script_of(wire)
    breaking(script, cuts=cuts)
    async with script.client() as client:
        assert (await client.call_tool("work", {})).text == "done"
    resumed = [asked.headers["last-event-id"] for asked in script.asked if "last-event-id" in asked.headers]
    assert (resumed, len(calls(script))) == (["first", "first+", "first++"][:cuts], 1)


@http_behaviour("http.client-retry", "2025-11-25 basic/transports#sending-messages-to-the-server", ALL[3:4])
async def test_a_client_waits_as_long_as_it_was_asked_to(wire: Wire) -> None:
    script = script_of(wire)
    breaking(script, retry=80)
    now = asyncio.get_running_loop().time
    async with script.client() as client:
        began = now()
        await client.call_tool("work", {})
        assert now() - began >= 0.08


@http_behaviour("http.client-cut-off", "2025-11-25 basic/transports#resumability-and-redelivery", SINCE_2025_03)
async def test_a_call_whose_stream_cannot_be_taken_up_fails(wire: Wire) -> None:
    script = script_of(wire)

    def cut(asked: Asked, response: Response) -> bool:
        if asked.verb != "POST" or asked.message.get("method") != "tools/call":
            return False
        response.begin()
        response.end()
        return True

    script.intercept = cut
    async with script.client() as client:
        with pytest.raises(TrunklineError):
            await client.call_tool("work", {})
    assert [asked for asked in script.asked if "last-event-id" in asked.headers] == []


@http_behaviour("http.client-listens-on", "2025-11-25 basic/transports#resumability-and-redelivery", SESSIONS)
async def test_a_client_resumes_the_stream_of_its_session(wire: Wire) -> None:
    script = script_of(wire)
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with script.client(on_notification=lambda *news: heard.put_nowait(news)):
        assert script.standing is not None
        log = {"jsonrpc": "2.0", "method": "acme/news", "params": {"n": 1}}
        script.standing.event(json.dumps(log).encode(), id="one", retry=1)
        assert (await heard.get()) == ("acme/news", {"n": 1})
        script.standing.end()
        script.standing = None
        script.tell("acme/news", {"n": 2})
        assert (await heard.get()) == ("acme/news", {"n": 2})
        assert [asked.headers.get("last-event-id") for asked in script.asked if asked.verb == "GET"] == [None, "one"]


# --- where there are no sessions -------------------------------------------------------------------------------------


@http_behaviour("http.client-posts-only", "2026-07-28 basic/transports/streamable-http#sending-messages", STATELESS)
async def test_a_client_posts_and_nothing_else_and_names_no_session(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    async with script.client() as client:
        await client.call_tool("work", {})
    assert {asked.verb for asked in script.asked} == {"POST"}
    assert [asked for asked in script.asked if {"mcp-session-id", "last-event-id"} & set(asked.headers)] == []


@http_behaviour(
    "http.client-mirrors", "2026-07-28 basic/transports/streamable-http#standard-request-headers", STATELESS
)
@pytest.mark.parametrize(
    ("method", "name"), [("tools/call", "work"), ("prompts/get", "greet"), ("resources/read", "note://one")]
)
async def test_a_client_mirrors_method_name_and_version_in_headers(wire: Wire, method: str, name: str) -> None:
    results = {"tools/call": DONE, "prompts/get": {"messages": []}, "resources/read": {"contents": []}}
    script = script_of(wire, results)
    async with script.client() as client:
        work = {
            "tools/call": client.call_tool,
            "prompts/get": client.get_prompt,
            "resources/read": client.read_resource,
        }
        await work[method](name)  # type: ignore[operator]
    headers = script.asked[-1].headers
    assert (headers["mcp-method"], headers["mcp-name"]) == (method, name)
    assert headers["mcp-protocol-version"] == script.asked[-1].message["params"]["_meta"][f"{META}protocolVersion"]


@http_behaviour(
    "http.client-mirrors-always", "2026-07-28 basic/transports/streamable-http#standard-request-headers", STATELESS
)
async def test_every_post_has_the_method_in_a_header(wire: Wire) -> None:
    script = script_of(wire, {"tools/list": {"tools": []}, "tools/call": DONE})
    async with script.client() as client:
        await client.list_tools()
        await client.call_tool("work", {})
    assert [asked.headers["mcp-method"] for asked in script.asked] == script.methods


@http_behaviour("http.client-encodes", "2026-07-28 basic/transports/streamable-http#value-encoding", STATELESS)
@pytest.mark.parametrize("name", ["žluť", " padded ", "line\nbreak", "=?base64?literal?=", "tab\tinside", "ok name"])
async def test_a_client_encodes_what_a_header_cannot_carry(wire: Wire, name: str) -> None:
    script = script_of(wire, {"tools/call": DONE})
    async with script.client() as client:
        await client.call_tool(name, {})
    sent = script.asked[-1].headers["mcp-name"]
    plain = base64.b64decode(sent[9:-2]).decode() if sent.startswith("=?base64?") else sent
    assert (plain, sent.isascii(), sent.isprintable()) == (name, True, True)


def mirrored(**properties: Any) -> dict[str, Any]:
    """Return a list with one tool whose arguments are mirrored."""
    schema = {"type": "object", "properties": properties}
    return {"tools": [{"name": "work", "inputSchema": schema}], "ttlMs": 60_000, "cacheScope": "private"}


REGION = {"type": "string", "x-mcp-header": "Region"}


@http_behaviour("http.client-params", "2026-07-28 basic/transports/streamable-http#client-behavior", STATELESS)
@pytest.mark.parametrize(
    ("schema", "value", "header"),
    [
        ({"type": "string"}, "us-west1", "us-west1"),
        ({"type": "string"}, "žluť", "=?base64?xb5sdcWl?="),
        ({"type": "string"}, " x", "=?base64?IHg=?="),
        ({"type": "integer"}, -7, "-7"),
        ({"type": "boolean"}, True, "true"),
        ({"type": ["string", "null"]}, None, None),
    ],
    ids=str,
)
async def test_a_client_mirrors_the_arguments_that_a_tool_names(
    wire: Wire, schema: Any, value: Any, header: str | None
) -> None:
    listed = mirrored(x={**schema, "x-mcp-header": "Thing"})
    script = script_of(wire, {"tools/call": DONE, "tools/list": listed})
    async with script.client() as client:
        await client.list_tools()
        await client.call_tool("work", {"x": value})
        await client.call_tool("work", {})
    assert [asked.headers.get("mcp-param-thing") for asked in calls(script)] == [header, None]


@http_behaviour("http.client-params-nested", "2026-07-28 basic/transports/streamable-http#schema-extension", STATELESS)
async def test_a_client_mirrors_an_argument_inside_another(wire: Wire) -> None:
    listed = mirrored(place={"type": "object", "properties": {"region": REGION}})
    script = script_of(wire, {"tools/call": DONE, "tools/list": listed})
    async with script.client() as client:
        await client.list_tools()
        await client.call_tool("work", {"place": {"region": "north"}})
    assert calls(script)[0].headers["mcp-param-region"] == "north"


@http_behaviour("http.client-params-invalid", "2026-07-28 basic/transports/streamable-http#schema-extension", STATELESS)
@pytest.mark.parametrize(
    "properties",
    [
        {"x": {"type": "string", "x-mcp-header": ""}},
        {"x": {"type": "string", "x-mcp-header": "has space"}},
        {"x": {"type": "string", "x-mcp-header": "a:b"}},
        {"x": {"type": "string", "x-mcp-header": "Line\nBreak"}},
        {"x": {"type": "object", "x-mcp-header": "Thing"}},
        {"x": {"type": "array", "items": {"type": "string", "x-mcp-header": "Thing"}}},
        {"x": {"type": "string", "x-mcp-header": "Same"}, "y": {"type": "string", "x-mcp-header": "same"}},
    ],
    ids=str,
)
async def test_a_client_leaves_a_tool_out_that_names_headers_wrongly(wire: Wire, properties: Any) -> None:
    good = {"name": "good", "inputSchema": {"type": "object"}}
    listed = mirrored(**properties)
    listed["tools"].append(good)
    script = script_of(wire, {"tools/list": listed})
    async with script.client() as client:
        assert [tool.name for tool in await client.list_tools()] == ["good"]


@http_behaviour("http.client-params-again", "2026-07-28 basic/transports/streamable-http#client-behavior", STATELESS)
async def test_a_client_whose_headers_are_outdated_reads_the_list_and_calls_again(wire: Wire) -> None:
    lists = iter([mirrored(region={"type": "string"}), mirrored(region=REGION)])
    refused = iter([True])
    script = script_of(wire, {"tools/list": lambda params: next(lists)})
    script.table["tools/call"] = lambda params: (
        Failure(-32020, "Mcp-Param-Region is missing") if next(refused, False) else DONE
    )
    async with script.client() as client:
        assert (await client.call_tool("work", {"region": "north"})).text == "done"
    assert [asked.headers.get("mcp-param-region") for asked in calls(script)] == [None, "north"]


@http_behaviour("http.client-hangs-up", "2026-07-28 basic/transports/streamable-http#cancellation", STATELESS)
async def test_a_client_cancels_by_disconnecting_without_a_notification(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": SILENCE})
    async with script.client() as client:
        call = asyncio.ensure_future(client.call_tool("work", {}))
        await script.heard("tools/call")
        call.cancel()
        await script.heard("notifications/cancelled")
    assert "notifications/cancelled" not in [asked.message["method"] for asked in script.asked]


# --- finding out which server it is ----------------------------------------------------------------------------------


@http_behaviour("http.client-legacy", "2026-07-28 basic/transports/streamable-http#backward-compatibility", SESSIONS)
@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize("body", [b"", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad session"}}'])
async def test_a_client_falls_back_to_the_handshake_where_its_probe_is_rejected(
    wire: Wire, status: int, body: bytes
) -> None:
    script = script_of(wire)

    def refuse(asked: Asked, response: Response) -> bool:
        if asked.verb != "POST" or asked.message.get("method") != "server/discover":
            return False
        response.plain(status, body)
        return True

    script.intercept = refuse
    async with script.client(revision="auto") as client:
        assert client.revision == wire.revision


@http_behaviour("http.client-modern", "2026-07-28 basic/transports/streamable-http#backward-compatibility", STATELESS)
async def test_a_client_does_not_fall_back_from_a_refusal_that_names_versions(wire: Wire) -> None:
    supported = {"supported": ["2099-01-01"], "requested": ALL[-1]}
    script = script_of(wire, {"server/discover": Failure(-32022, "no", supported)})
    with pytest.raises(TrunklineError):
        await script.client(revision="auto").__aenter__()
    assert [asked.verb for asked in script.asked] == ["POST"]


# --- the old transport -----------------------------------------------------------------------------------------------


@sse_behaviour("sse.client-falls-back", "2025-11-25 basic/transports#backwards-compatibility", ALL[:1])
@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_client_falls_back_to_the_old_transport_by_itself(wire: Wire, status: int) -> None:
    script = wire.script({"tools/call": DONE})
    assert isinstance(script, PairScript)
    script.intercept = lambda asked, response: (
        asked.verb == "POST" and asked.target == "/mcp" and response.plain(status)
    )
    async with Client(script.url) as client:
        assert (client.revision, (await client.call_tool("work", {})).text) == (wire.revision, "done")


@sse_behaviour("sse.client-posts", "2024-11-05 basic/transports#http-with-sse", ALL[:1])
async def test_a_client_posts_everything_to_the_address_it_was_given(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    async with script.client() as client:
        await client.call_tool("work", {})
    opened, *posts = script.asked
    assert (opened.verb, opened.headers["accept"]) == ("GET", "text/event-stream")
    assert {(asked.verb, asked.target) for asked in posts} == {("POST", "/messages?of=this")}


@sse_behaviour("sse.client-waits", "2024-11-05 basic/transports#http-with-sse", ALL[:1])
async def test_a_client_posts_nothing_before_it_has_an_address(wire: Wire) -> None:
    script = script_of(wire)
    held: list[Response] = []

    def hold(asked: Asked, response: Response) -> bool:
        if asked.verb == "GET":
            response.begin()
            held.append(response)
        return asked.verb == "GET"

    script.intercept = hold
    entering = asyncio.ensure_future(script.client().__aenter__())
    await script.until_asked("GET")
    assert [asked.verb for asked in script.asked] == ["GET"]
    held[0].event(b"/messages?of=this", event="endpoint")
    script.standing = held[0]
    await (await entering).aclose()


@sse_behaviour("sse.client-foreign-address", "2024-11-05 basic/transports#http-with-sse", ALL[:1])
@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:9/messages", "https://evil.example/messages", "//evil.example/x", "file:///etc/passwd"],
)
async def test_a_client_posts_to_no_other_server(wire: Wire, address: str) -> None:
    script = script_of(wire)
    script.address = address
    with pytest.raises(RemoteProtocolError):
        await script.client().__aenter__()
    assert [asked.verb for asked in script.asked] == ["GET"]


@sse_behaviour("sse.client-absolute-address", "2024-11-05 basic/transports#http-with-sse", ALL[:1])
async def test_a_client_accepts_an_absolute_address_on_the_same_origin(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": DONE})
    script.address = script.url.replace("/mcp", "/post/here")
    async with script.client() as client:
        assert (await client.call_tool("work", {})).text == "done"


@sse_behaviour("sse.client-lost", "2024-11-05 basic/transports#http-with-sse", ALL[:1])
async def test_calls_fail_at_once_when_the_stream_ends(wire: Wire) -> None:
    script = script_of(wire, {"tools/call": SILENCE})
    async with script.client() as client:
        call = asyncio.ensure_future(client.call_tool("work", {}))
        await script.heard("tools/call")
        assert script.standing is not None
        script.standing.end()
        with pytest.raises(TrunklineError):
            await call
