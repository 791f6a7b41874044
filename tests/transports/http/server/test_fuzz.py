"""Anything at all, sent to an endpoint: it answers, completely and with a known status, and serves the next request.

What was found to be interesting is kept in ``corpus/`` and replayed: a file of ``endpoint`` is a whole HTTP request,
one of ``headers`` the value of a header, one of ``sse`` a stream of events.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tests
from tests.support import run_async
from tests.transports.http.serving_support import (
    BATCHING,
    HANDSHAKE,
    META,
    STATELESS,
    Call,
    SessionClient,
    Workshop,
    initialize,
    modern,
    tool,
)
from trunkline.errors import RemoteProtocolError
from trunkline.protocol.headers import (
    HeaderParameter,
    compare_headers,
    compare_parameter_headers,
    decode_value,
    encode_value,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.sse import EventReader

CORPUS = Path(tests.__file__).parent / "transports" / "http" / "corpus"
LIMITS = Limits(body_bytes=20_000, body_seconds=1, comment_seconds=1, streams=50, sessions=50)

#: Stands for the id of a session that is open.
SESSION = b"{session}"


def recorded(kind: str) -> dict[str, bytes]:
    """Return the recorded inputs of a kind by their names."""
    return {file.name: file.read_bytes() for file in sorted((CORPUS / kind).iterdir())}


Head = list[tuple[bytes, bytes]]


async def served(verb: str, path: str, query: bytes, headers: Head, pieces: list[bytes]) -> Call:
    """Send one request to a fresh endpoint beside an open session; see that both go on."""
    workshop = Workshop(LIMITS)
    app = workshop.asgi()
    client = await SessionClient.open(app, BATCHING)
    given = [(name, value.replace(SESSION, client.id.encode())) for name, value in headers]
    call = Call(app, verb, path, headers=given, body=pieces or [b""], query=query)
    done, _ = await asyncio.wait([call.task], timeout=0.05)
    if not done:
        # A stream that stays open, or a tool that waits: let it go.
        call.hang_up()
        workshop.proceed.set()
        await asyncio.wait([call.task], timeout=20)
    call.task.result()
    beside = await modern(app, tool("add")).whole()
    assert beside.json["result"]["structuredContent"] == {"result": 3}
    await app.aclose()
    return call


def check(call: Call) -> None:
    """Check that the response is valid HTTP and JSON-RPC."""
    if call.status is None:
        # Hung up on before the first byte.
        return
    assert 200 <= call.status < 600
    assert call.status != 500, call.body
    kind = call.headers.get("content-type")
    if kind == "application/json":
        assert call.complete
        message = json.loads(call.body)
        assert isinstance(message, list) or {"jsonrpc", "id"} <= message.keys()
        assert call.status < 300 or "error" in message
    elif kind is None:
        assert (call.complete, call.body, call.status in (202, 204)) == (True, b"", True)
    else:
        assert kind == "text/event-stream"


VALUES: st.SearchStrategy[bytes] = st.one_of(
    st.sampled_from([b"", b"*/*", b"null", SESSION, b"127.0.0.1", b"localhost:8000", b"evil.example", b"1-1", b"2-0"]),
    st.sampled_from([name.encode() for name in (STATELESS, HANDSHAKE, BATCHING, "1999-01-01")]),
    st.sampled_from([b"application/json", b"text/event-stream", b"application/json, text/event-stream", b"text/plain"]),
    st.sampled_from([b"tools/call", b"add", b"=?base64?YWRk?=", b"=?base64?!?=", b"99999999999999999999", b"Bearer x"]),
    st.binary(max_size=30).filter(lambda value: not {0, 10, 13} & set(value)),
)
NAMES = st.sampled_from(
    [
        *(b"host", b"origin", b"accept", b"content-type", b"content-length", b"authorization", b"last-event-id"),
        *(b"mcp-protocol-version", b"mcp-session-id", b"mcp-method", b"mcp-name", b"mcp-param-region", b"x-other"),
        *(b"access-control-request-method", b"access-control-request-headers"),
    ]
)
USUAL: Head = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
]
HEADERS = st.builds(
    lambda usual, others: [*(USUAL if usual else []), *others],
    st.sampled_from([True, True, True, False]),
    st.lists(st.tuples(NAMES, VALUES), max_size=6, unique_by=lambda pair: pair[0]),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
METHODS = st.sampled_from(
    [
        *("initialize", "ping", "tools/list", "tools/call", "resources/read", "resources/subscribe"),
        *("logging/setLevel", "completion/complete", "server/discover", "subscriptions/listen", "prompts/get"),
        *("nope", "", "notifications/initialized", "notifications/cancelled", "notifications/progress"),
    ]
)
PARAMS: st.SearchStrategy[Any] = st.one_of(
    JSON,
    st.sampled_from([initialize()["params"], {"_meta": META}, {"name": "add", "arguments": {}}, {"requestId": 1}]),
    st.builds(
        lambda name, arguments, meta: {"name": name, "arguments": arguments, "_meta": meta},
        st.sampled_from(["add", "steps", "wait", "ask_name", "region", "nope"]),
        JSON,
        st.sampled_from([META, {}, None]),
    ),
)
MESSAGES: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.just("2.0"),
            "id": JSON,
            "method": METHODS,
            "params": PARAMS,
            "result": JSON,
            "error": JSON,
        },
    ),
    st.builds(
        lambda id, method, params: {"jsonrpc": "2.0", "id": id, "method": method, "params": params},
        st.integers() | st.text(max_size=5),
        METHODS,
        PARAMS,
    ),
    JSON,
)
BODIES: st.SearchStrategy[list[bytes]] = st.one_of(
    MESSAGES.map(lambda message: [json.dumps(message).encode("utf-8", "surrogatepass")]),
    st.lists(MESSAGES, max_size=4).map(lambda batch: [json.dumps(batch).encode("utf-8", "surrogatepass")]),
    st.lists(st.binary(max_size=50), max_size=4),
    st.sampled_from([[b" " * 10_000] * 3, [b"[" * 5000], [b'{"a":' * 3000], [b"1" * 19_000]]),
)
PATHS = st.sampled_from(
    ["/mcp", "/mcp", "/mcp", "/mcp/", "/mcp/sse", "/mcp/messages", "/", "", "/\ud800", "//mcp", "*"]
)


@settings(max_examples=60)
@given(
    verb=st.sampled_from(["POST", "POST", "POST", "GET", "DELETE", "OPTIONS", "PUT", "", "\u00e9"]),
    path=PATHS,
    query=st.sampled_from([b"", b"session_id=x", b"&" * 300, b"%", b"\xff=\xff"]) | st.binary(max_size=30),
    headers=HEADERS,
    pieces=BODIES,
)
@example(verb="POST", path="/mcp/messages", query=b"&a=1" * 20, headers=USUAL, pieces=[b"{}"])
@example(verb="GET", path="/mcp", query=b"", headers=[*USUAL, (b"mcp-session-id", SESSION)], pieces=[])
def test_any_input_is_answered_and_the_next_request_is_served(
    verb: str, path: str, query: bytes, headers: Head, pieces: list[bytes]
) -> None:
    check(run_async(served(verb, path, query, headers, pieces)))


@pytest.mark.parametrize("name", recorded("endpoint"))
async def test_a_recorded_request_is_answered(name: str) -> None:
    head, _, body = recorded("endpoint")[name].partition(b"\n\n")
    first, *lines = head.split(b"\n")
    verb, target = first.decode("latin-1").split(" ", 1)
    path, _, query = target.partition("?")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    check(await served(verb, path, query.encode("latin-1"), [*USUAL, *headers], [body]))


REGION = (HeaderParameter("Mcp-Param-Region", ("place",)), HeaderParameter("Mcp-Param-Size", ("at", "size")))


def judge_header(value: str) -> None:
    """Read a value wherever one is read; what is wrong is a sentence or a ValueError, nothing else."""
    try:
        text = decode_value(value)
    except ValueError:
        text = None
    if text is not None:
        assert decode_value(encode_value(text)) == text
    headers = {"MCP-Method": value, "mcp-name": value, "mcp-param-region": value, "mcp-param-size": value}
    for arguments in ({"place": value}, {"at": {"size": 5}}, {"place": 1.5}, {}, None, {"at": value}):
        assert isinstance(
            compare_headers(headers, "tools/call", name="add", arguments=arguments, parameters=REGION), str | None
        )
        assert isinstance(compare_parameter_headers(headers, arguments, parameters=REGION), str | None)


def test_recorded_header_values_are_checked_without_an_exception() -> None:
    for raw in recorded("headers").values():
        judge_header(raw.decode("latin-1"))


def read(pieces: list[bytes]) -> list[Any]:
    reader = EventReader(max_event=5000)
    events: list[Any] = []
    try:
        for piece in pieces:
            events += reader.feed(piece)
    except RemoteProtocolError:
        events.append("too long")
    return events


def cut(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def test_recorded_streams_are_parsed_the_same_however_they_are_split() -> None:
    cases = [(name, raw, size) for name, raw in recorded("sse").items() for size in (1, 2, 7)]
    assert [(name, size) for name, raw, size in cases if read(cut(raw, size)) != read([raw])] == []
