"""The client over Streamable HTTP: the headers it sends, the forms of a response, and what a failure affects."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.transports.http.scripted_http import (
    Got,
    HttpScript,
    Status,
    Writer,
    break_off,
    handshake_script,
    stateless_script,
    streaming,
)
from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.errors import (
    AuthRequired,
    ConnectionLost,
    HttpError,
    InvalidParams,
    LocalProtocolError,
    RemoteProtocolError,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST, REVISIONS

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "3"}]}


def progress(got: Got, value: int) -> dict[str, Any]:
    token = got.message["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": value}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def answer(got: Got, result: Any = DONE) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": got.id, "result": result}


async def called(script: HttpScript, **options: Any) -> Any:
    """Call a tool once and return its result."""
    async with script, Client(script.url, **options) as client:
        return await client.call_tool("add", {"a": 1})


# --- headers ---------------------------------------------------------------------------------------------------------


async def test_a_stateless_request_has_its_headers_and_no_session() -> None:
    script = stateless_script()
    assert (await called(script)).text == "3"
    headers = script.of("tools/call")[0].headers
    assert (
        headers.items()
        >= {
            "mcp-protocol-version": NEWEST.name,
            "mcp-method": "tools/call",
            "mcp-name": "add",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "accept-encoding": "gzip, deflate",
        }.items()
    )
    assert headers["user-agent"].startswith("trunkline/")
    assert "mcp-session-id" not in headers


async def test_a_custom_method_is_named_in_the_headers_too() -> None:
    script = stateless_script({"acme/x": {"resultType": "complete", "y": 1}})
    async with script, Client(script.url) as client:
        assert await client.request("acme/x", {"name": "n"}) == {"resultType": "complete", "y": 1}
    got = script.of("acme/x")[0]
    assert (got.headers["mcp-method"], "mcp-name" in got.headers) == ("acme/x", False)


async def test_a_method_that_does_not_fit_in_a_header_is_not_sent() -> None:
    script = stateless_script()
    async with script, Client(script.url) as client:
        with pytest.raises(LocalProtocolError, match="cannot be sent"):
            await client.request("acme/ü")
    assert script.names == ["server/discover"]


@pytest.mark.parametrize("revision", [row.name for row in REVISIONS[:2]])
async def test_a_revision_without_the_version_header_sends_none(revision: str) -> None:
    script = handshake_script(revision=revision)
    await called(script, revision=revision)
    assert ["mcp-protocol-version" in got.headers for got in script.requests] == [False] * len(script.requests)


async def test_headers_and_a_token_of_the_user_are_sent_with_every_request() -> None:
    script = handshake_script({"tools/list": {"tools": []}})
    await called(script, headers={"X-Tenant": "7", "User-Agent": "mine/1"}, auth="secret")
    sent = {
        (got.headers["x-tenant"], got.headers["authorization"], got.headers["user-agent"]) for got in script.requests
    }
    assert sent == {("7", "Bearer secret", "mine/1")}
    assert {got.verb for got in script.requests} == {"POST", "GET", "DELETE"}


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Status(200, b"<html>", type="text/html"), "neither JSON nor a stream"),
        (Status(200), "without a message"),
        (Status(202), "status 202"),
        (Status(200, b"{", type="application/json"), "not a JSON-RPC message"),
        (Status(200, b'{"jsonrpc":"2.0","method":"x"}', type="application/json"), "does not answer"),
        (Status(200, b'{"jsonrpc":"2.0","id":99,"result":{}}', type="application/json"), "with the id 99"),
        (Status(200, b"x", {"Content-Encoding": "br"}, "application/json"), "br"),
        (
            Status(200, b"not gzip at all", {"Content-Encoding": "gzip"}, "application/json"),
            "cannot be decompressed: it is not valid gzip",
        ),
    ],
    ids=["html", "nothing", "accepted", "half", "other", "another id", "brotli", "not-gzip"],
)
async def test_an_invalid_answer_fails_its_request(reply: Status, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        await called(stateless_script({"tools/call": reply}))


async def test_an_unreadable_answer_in_a_stream_fails_its_request() -> None:
    def both(got: Got) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": got.id, "result": {}, "error": {"code": 1, "message": "x"}}

    with pytest.raises(RemoteProtocolError, match="both result and error"):
        await called(stateless_script({"tools/call": streaming(both, stay=True)}))


async def test_an_array_of_messages_is_accepted_in_a_revision_with_batches() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.json([progress(got, 1), answer(got)])

    heard: list[float] = []
    revision = REVISIONS[1].name
    script = handshake_script({"tools/call": reply}, revision=revision)
    async with script, Client(script.url, revision=revision) as client:
        result = await client.call_tool("add", on_progress=lambda value, total, message: heard.append(value))
        assert (result.text, heard) == ("3", [1])


async def test_an_array_is_an_error_in_a_revision_without_batches() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.json([answer(got)])

    with pytest.raises(RemoteProtocolError, match="is a batch"):
        await called(stateless_script({"tools/call": reply}))


async def test_a_stateless_server_that_sends_a_request_gets_no_answer() -> None:
    asking = streaming(b"data: not a message\n\n", {"jsonrpc": "2.0", "id": 7, "method": "roots/list"}, answer)
    script = stateless_script({"tools/call": asking})
    assert (await called(script, roots=[])).text == "3"
    assert script.names == ["server/discover", "tools/list", "tools/call"]


# --- limits ----------------------------------------------------------------------------------------------------------

SMALL = Limits(message_bytes=4096)


def squeezed(got: Got) -> bytes:
    return json.dumps(answer(got, {"content": [{"type": "text", "text": "x" * 1000}]})).encode()


async def test_a_compressed_answer_is_read() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.status(Status(200, gzip.compress(squeezed(got)), {"Content-Encoding": "gzip"}, "application/json"))

    assert len((await called(stateless_script({"tools/call": reply}), limits=SMALL)).text) == 1000


async def test_compressed_events_are_read() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        packer = zlib.compressobj(wbits=31)
        writer.stream({"Content-Encoding": "gzip"})
        writer.raw(packer.compress(b"data: " + squeezed(got) + b"\n\n") + packer.flush(zlib.Z_SYNC_FLUSH))
        await writer.until_left()

    assert len((await called(stateless_script({"tools/call": reply}))).text) == 1000


async def declared(got: Got, writer: Writer) -> None:
    writer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n")
    await writer.until_left()


async def chunked(got: Got, writer: Writer) -> None:
    writer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.raw(b"1388\r\n" + b"x" * 5000 + b"\r\n")
    await writer.until_left()


async def bomb(got: Got, writer: Writer) -> None:
    body = gzip.compress(b" " * 50_000_000)
    writer.status(Status(200, body, {"Content-Encoding": "gzip"}, "application/json"))


async def event_bomb(got: Got, writer: Writer) -> None:
    writer.stream({"Content-Encoding": "gzip"})
    writer.raw(gzip.compress(b"data: " + b"x" * 50_000_000))
    await writer.until_left()


LONG_EVENT = streaming(b"data: " + b"x" * 5000, stay=True)


@pytest.mark.parametrize(
    "reply",
    [declared, chunked, bomb, LONG_EVENT, event_bomb],
    ids=["declared", "chunked", "bomb", "event", "event bomb"],
)
async def test_an_answer_over_the_limit_fails_its_request_alone(reply: Callable[..., Any]) -> None:
    script = stateless_script({"tools/call": [reply, DONE]})
    async with script, Client(script.url, limits=SMALL) as client:
        with pytest.raises(RemoteProtocolError, match="longer than 4096"):
            await client.call_tool("add")
        assert (client.state, (await client.call_tool("add")).text) == (ClientState.ACTIVE, "3")


async def test_a_message_of_megabytes_is_sent_whole() -> None:
    script = stateless_script()
    async with script, Client(script.url) as client:
        await client.call_tool("add", {"a": "x" * 3_000_000})
    assert len(script.of("tools/call")[0].message["params"]["arguments"]["a"]) == 3_000_000


# --- statuses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [None, "own"])
async def test_a_jsonrpc_error_is_the_answer_whatever_the_status(id: str | None) -> None:
    async def reply(got: Got, writer: Writer) -> None:
        message = {"jsonrpc": "2.0", "id": id and got.id, "error": {"code": -32602, "message": "no such tool"}}
        writer.json(message, 400)

    with pytest.raises(InvalidParams, match="no such tool"):
        await called(stateless_script({"tools/call": reply}))


async def test_a_jsonrpc_error_for_another_request_is_treated_as_a_status() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.json({"jsonrpc": "2.0", "id": 99, "error": {"code": -32602, "message": "no"}}, 400)

    with pytest.raises(HttpError) as failure:
        await called(stateless_script({"tools/call": reply}))
    assert failure.value.status == 400


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Status(401, headers={"WWW-Authenticate": "Bearer"}), "auth="),
        (Status(403, b"Invalid Origin"), "Invalid Origin"),
        (Status(404), "/mcp"),
        (Status(413), "larger"),
        (Status(429, headers={"Retry-After": "7"}), "after: 7"),
        (Status(503, headers={"Retry-After": "9"}), "after: 9"),
        (Status(500, b"<html>secret"), "500 Some Reason$"),
        (Status(418, b"a\x00b" + b"y" * 500), "…"),
    ],
    ids=["401", "403", "404", "413", "429", "503", "500", "418"],
)
async def test_an_error_status_is_reported_with_advice(reply: Status, words: str) -> None:
    with pytest.raises(HttpError, match=words) as failure:
        await called(stateless_script({"tools/call": reply}))
    assert failure.value.status == reply.status
    assert failure.value.reason == "Some Reason"
    assert isinstance(failure.value, AuthRequired) is (reply.status == 401)


async def test_a_query_is_never_shown() -> None:
    script = stateless_script({"tools/call": Status(500)})
    async with script, Client(f"{script.url}?key=secret") as client:
        with pytest.raises(HttpError) as failure:
            await client.call_tool("add")
    assert script.requests[0].path == "/mcp?key=secret"
    assert "secret" not in str(failure.value)


# --- the network -----------------------------------------------------------------------------------------------------


async def test_an_unreachable_server_is_named_with_its_port() -> None:
    async with stateless_script() as script:
        pass
    with pytest.raises(ConnectionLost) as failure:
        await Client(script.url).__aenter__()
    assert str(script.port) in str(failure.value)
    assert "127.0.0.1" in str(failure.value)


@pytest.mark.parametrize(
    ("scheme", "error", "words"),
    [("http", RemoteProtocolError, "HTTP"), ("https", ConnectionLost, "ca_file=")],
    ids=["http", "https"],
)
async def test_a_server_that_does_not_speak_http_is_named(scheme: str, error: type[Exception], words: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(error, match=words):
        await Client(f"{scheme}://127.0.0.1:{port}").__aenter__()
    server.close()


async def test_a_name_that_does_not_resolve_is_named() -> None:
    with pytest.raises(ConnectionLost, match=r"nowhere\.invalid"):
        await Client("http://nowhere.invalid:1/mcp", proxy="").__aenter__()


async def cut_head(got: Got, writer: Writer) -> None:
    writer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    await writer.flush()
    writer.break_off()


@pytest.mark.parametrize("reply", [break_off, cut_head, streaming(None, id="1")], ids=["all", "head", "stream"])
async def test_a_broken_exchange_fails_only_its_request(reply: Callable[..., Any]) -> None:
    script = stateless_script({"tools/call": [reply, DONE]})
    async with script, Client(script.url) as client:
        with pytest.raises(ConnectionLost):
            await client.call_tool("add")
        assert (client.state, (await client.call_tool("add")).text) == (ClientState.ACTIVE, "3")


async def test_a_read_whose_exchange_breaks_is_retried_once() -> None:
    script = stateless_script({"prompts/list": [break_off, {"resultType": "complete", "prompts": []}]})
    async with script, Client(script.url) as client:
        assert await client.list_prompts() == []
    assert script.names == ["server/discover", "prompts/list", "prompts/list"]


async def test_a_stateless_server_that_restarts_is_simply_called_again() -> None:
    script = stateless_script()
    async with script:
        client = await Client(script.url).__aenter__()
        await client.call_tool("add")
    async with script:
        text = (await client.call_tool("add")).text
        await client.aclose()
    assert (text, script.names) == ("3", ["server/discover", "tools/list", "tools/call", "tools/call"])


# --- cancelling ------------------------------------------------------------------------------------------------------


async def test_closing_cancels_requests_in_flight() -> None:
    left = asyncio.Event()
    script = stateless_script({"tools/call": streaming(left=left)})
    async with script:
        client = await Client(script.url).__aenter__()
        task = asyncio.ensure_future(client.call_tool("add"))
        await script.until(lambda: script.of("tools/call"))
        await asyncio.gather(client.aclose(), client.aclose())
        with pytest.raises(ConnectionLost):
            await task
        await left.wait()


# --- streams that do not end -----------------------------------------------------------------------------------------


async def test_a_stream_that_continues_after_the_answer_is_closed() -> None:
    left = asyncio.Event()
    script = stateless_script({"tools/call": streaming(answer, left=left)})
    async with script, Client(script.url) as client:
        assert (await client.call_tool("add")).text == "3"
        await left.wait()


async def test_a_connection_is_reused_after_json_and_after_a_stream() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        event = b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % int(got.id)
        writer.raw(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))

    script = stateless_script({"tools/call": reply})
    async with script, Client(script.url) as client:
        await client.call_tool("add")
        await client.call_tool("add")
        await client.list_tools()
        assert script.connections == 1
