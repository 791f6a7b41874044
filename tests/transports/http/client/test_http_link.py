"""The client over Streamable HTTP: the headers it sends, the forms of a response, and what a failure affects."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import run_async
from tests.transports.http.scripted_http import (
    Got,
    HttpScript,
    Status,
    Writer,
    handshake_script,
    stateless_script,
)
from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.errors import (
    AuthRequired,
    ConnectionLost,
    HttpError,
    InvalidParams,
    LocalProtocolError,
    MethodNotFound,
    RemoteProtocolError,
    RequestTimeout,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISIONS

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "3"}]}


def progress(got: Got, value: int) -> dict[str, Any]:
    token = got.message["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": value}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def answer(got: Got, result: Any = DONE) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": got.id, "result": result}


def call(script: HttpScript, **options: Any) -> Any:
    """Call a tool once and give what came of it."""

    async def main() -> Any:
        async with script, Client(script.url, **options) as client:
            return await client.call_tool("add", {"a": 1})

    return run_async(main())


# --- headers ---------------------------------------------------------------------------------------------------------


def test_a_stateless_request_has_revision_method_and_name_in_its_headers() -> None:
    script = stateless_script()
    assert call(script).text == "3"
    got = script.of("tools/call")[0]
    said = {name: got.headers[name] for name in ("mcp-protocol-version", "mcp-method", "mcp-name", "content-type")}
    assert said == {
        "mcp-protocol-version": NEWEST.name,
        "mcp-method": "tools/call",
        "mcp-name": "add",
        "content-type": "application/json",
    }
    assert got.headers["accept"] == "application/json, text/event-stream"
    assert got.headers["accept-encoding"] == "gzip, deflate"
    assert got.headers["user-agent"].startswith("trunkline/")
    assert "mcp-session-id" not in got.headers


def test_a_name_that_does_not_fit_in_a_header_is_sent_as_base64() -> None:
    async def main() -> str:
        script = stateless_script({"resources/read": {"resultType": "complete", "contents": []}})
        async with script, Client(script.url) as client:
            await client.read_resource("file:///ü")
        return script.of("resources/read")[0].headers["mcp-name"]

    assert run_async(main()) == "=?base64?ZmlsZTovLy/DvA==?="


def test_a_custom_method_is_named_in_the_headers_too() -> None:
    async def main() -> tuple[str, bool]:
        script = stateless_script({"acme/x": {"resultType": "complete", "y": 1}})
        async with script, Client(script.url) as client:
            assert await client.request("acme/x", {"name": "n"}) == {"resultType": "complete", "y": 1}
        got = script.of("acme/x")[0]
        return got.headers["mcp-method"], "mcp-name" in got.headers

    assert run_async(main()) == ("acme/x", False)


def test_a_known_method_sent_as_a_raw_request_is_named_by_its_params() -> None:
    async def main() -> str:
        script = stateless_script()
        async with script, Client(script.url) as client:
            await client.request("tools/call", {"name": "add", "arguments": {}})
        return script.of("tools/call")[0].headers["mcp-name"]

    assert run_async(main()) == "add"


async def test_a_method_that_does_not_fit_in_a_header_is_not_sent() -> None:
    script = stateless_script()
    async with script, Client(script.url) as client:
        with pytest.raises(LocalProtocolError, match="cannot be sent"):
            await client.request("acme/ü")
    assert script.names == ["server/discover"]


def test_a_custom_notification_is_posted() -> None:
    async def main() -> str:
        script = stateless_script()
        async with script, Client(script.url) as client:
            await client.notify("acme/told", {"x": 1})
            await script.until(lambda: script.of("acme/told"))
        return script.of("acme/told")[0].headers["mcp-method"]

    assert run_async(main()) == "acme/told"


def test_the_version_header_is_sent_only_after_the_handshake() -> None:
    script = handshake_script()
    call(script, revision="legacy")
    said = {got.method: got.headers.get("mcp-protocol-version") for got in script.requests if got.method}
    assert said == {
        "initialize": None,
        "notifications/initialized": NEWEST_HANDSHAKE.name,
        "tools/call": NEWEST_HANDSHAKE.name,
    }
    assert "mcp-method" not in script.of("tools/call")[0].headers


@pytest.mark.parametrize("revision", [row.name for row in REVISIONS[:2]])
def test_a_revision_without_the_version_header_sends_none(revision: str) -> None:
    script = handshake_script(revision=revision)
    call(script, revision=revision)
    assert ["mcp-protocol-version" in got.headers for got in script.requests] == [False] * len(script.requests)


def test_headers_and_a_token_of_the_user_are_sent_with_every_request() -> None:
    script = handshake_script({"tools/list": {"tools": []}})
    call(script, headers={"X-Tenant": "7", "User-Agent": "mine/1"}, auth="secret")
    sent = {
        (got.headers["x-tenant"], got.headers["authorization"], got.headers["user-agent"]) for got in script.requests
    }
    assert sent == {("7", "Bearer secret", "mine/1")}
    assert {got.verb for got in script.requests} == {"POST", "GET", "DELETE"}


# --- answers ---------------------------------------------------------------------------------------------------------


def test_an_answer_may_arrive_on_a_stream_after_progress() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.raw(b": a comment\n\n")
        writer.event(progress(got, 1), event="anything")
        writer.event(progress(got, 2))
        writer.event(answer(got))

    async def main() -> tuple[str, list[float]]:
        heard: list[float] = []
        script = stateless_script({"tools/call": reply})
        async with script, Client(script.url) as client:
            result = await client.call_tool("add", on_progress=lambda value, total, message: heard.append(value))
            return result.text, heard

    assert run_async(main()) == ("3", [1, 2])


def test_an_event_that_is_not_a_message_is_ignored() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.raw(b"event: ping\ndata: 2026\n\ndata: not json\n\n")
        writer.event(answer(got))

    assert call(stateless_script({"tools/call": reply})).text == "3"


def test_an_answer_with_the_id_of_another_request_reaches_neither() -> None:
    async def main() -> tuple[str, str]:
        waiting = asyncio.Event()

        async def slow(got: Got, writer: Writer) -> None:
            waiting.set()
            await script.until(lambda: script.of("prompts/list"))
            await asyncio.wait_for(refused.wait(), 20)
            writer.result(got, DONE)

        async def foreign(got: Got, writer: Writer) -> None:
            writer.json({"jsonrpc": "2.0", "id": script.of("tools/call")[0].id, "result": {"prompts": []}})

        refused = asyncio.Event()
        script = stateless_script({"tools/call": slow, "prompts/list": foreign})
        async with script, Client(script.url) as client:
            first = asyncio.ensure_future(client.call_tool("add"))
            await waiting.wait()
            with pytest.raises(RemoteProtocolError, match="with the id") as failure:
                await client.list_prompts()
            refused.set()
            return (await first).text, str(failure.value)

    text, words = run_async(main())
    assert text == "3"
    assert "answered request" in words


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Status(200, b"<html>", type="text/html"), "neither JSON nor a stream"),
        (Status(200), "without a message"),
        (Status(202), "status 202"),
        (Status(200, b"{", type="application/json"), "not a JSON-RPC message"),
        (Status(200, b'{"jsonrpc":"2.0","method":"x"}', type="application/json"), "does not answer"),
        (Status(200, b"x", {"Content-Encoding": "br"}, "application/json"), "br"),
        (
            Status(200, b"not gzip at all", {"Content-Encoding": "gzip"}, "application/json"),
            "cannot be decompressed: it is not valid gzip",
        ),
    ],
    ids=["html", "nothing", "accepted", "half", "other", "brotli", "not-gzip"],
)
def test_an_invalid_answer_fails_its_request(reply: Status, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        call(stateless_script({"tools/call": reply}))


def test_an_unreadable_answer_in_a_stream_fails_its_request() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.event({"jsonrpc": "2.0", "id": got.id, "result": {}, "error": {"code": 1, "message": "x"}})
        await writer.until_left()

    with pytest.raises(RemoteProtocolError, match="both result and error"):
        call(stateless_script({"tools/call": reply}))


def test_an_array_of_messages_is_accepted_in_a_revision_with_batches() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.json([progress(got, 1), answer(got)])

    async def main() -> tuple[str, list[float]]:
        heard: list[float] = []
        revision = REVISIONS[1].name
        script = handshake_script({"tools/call": reply}, revision=revision)
        async with script, Client(script.url, revision=revision) as client:
            result = await client.call_tool("add", on_progress=lambda value, total, message: heard.append(value))
            return result.text, heard

    assert run_async(main()) == ("3", [1])


def test_an_array_is_an_error_in_a_revision_without_batches() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.json([answer(got)])

    with pytest.raises(RemoteProtocolError, match="is a batch"):
        call(stateless_script({"tools/call": reply}))


def test_a_stateless_server_that_sends_a_request_gets_no_answer() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.event({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})
        writer.event(answer(got))

    script = stateless_script({"tools/call": reply})
    assert call(script, roots=[]).text == "3"
    assert script.names == ["server/discover", "tools/list", "tools/call"]


def test_a_handshake_server_that_asks_on_a_stream_is_answered_by_a_post() -> None:
    async def main() -> tuple[str, dict[str, Any]]:
        async def reply(got: Got, writer: Writer) -> None:
            writer.stream()
            writer.event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
            await writer.flush()
            await script.until(lambda: answers())
            writer.event(answer(got))

        def answers() -> list[Got]:
            return [got for got in script.requests if got.message.get("id") == "q"]

        script = handshake_script({"tools/call": reply})
        async with script, Client(script.url, roots=["/x"]) as client:
            result = await client.call_tool("add")
        assert answers()[0].headers["mcp-session-id"] == "session-1"
        return result.text, answers()[0].message["result"]

    assert run_async(main()) == ("3", {"roots": [{"uri": "file:///x", "name": "x"}]})


# --- limits ----------------------------------------------------------------------------------------------------------

SMALL = Limits(message_bytes=4096)


def squeezed(got: Got) -> bytes:
    text = "x" * 1000
    body = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%b"}]}}' % (
        int(got.id),
        text.encode(),
    )
    return body


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
        ("deflate", zlib.compress),
        ("deflate", lambda data: zlib.compress(data, wbits=-15)),
        ("identity", bytes),
    ],
    ids=["gzip", "two-parts", "deflate", "raw-deflate", "identity"],
)
def test_a_compressed_answer_is_read(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.status(Status(200, pack(squeezed(got)), {"Content-Encoding": encoding}, "application/json"))

    assert len(call(stateless_script({"tools/call": reply}), limits=SMALL).text) == 1000


def test_compressed_events_are_read() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        packer = zlib.compressobj(wbits=31)
        writer.stream({"Content-Encoding": "gzip"})
        writer.raw(packer.compress(b"data: " + squeezed(got) + b"\n\n") + packer.flush(zlib.Z_SYNC_FLUSH))
        await writer.until_left()

    assert len(call(stateless_script({"tools/call": reply})).text) == 1000


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


async def long_event(got: Got, writer: Writer) -> None:
    writer.stream()
    writer.raw(b"data: " + b"x" * 5000)
    await writer.until_left()


async def event_bomb(got: Got, writer: Writer) -> None:
    writer.stream({"Content-Encoding": "gzip"})
    writer.raw(gzip.compress(b"data: " + b"x" * 50_000_000))
    await writer.until_left()


@pytest.mark.parametrize("reply", [declared, chunked, bomb, long_event, event_bomb])
def test_an_answer_over_the_limit_fails_its_request_alone(reply: Callable[..., Any]) -> None:
    async def main() -> tuple[ClientState, str]:
        script = stateless_script({"tools/call": [reply, DONE]})
        async with script, Client(script.url, limits=SMALL) as client:
            with pytest.raises(RemoteProtocolError, match="longer than 4096"):
                await client.call_tool("add")
            return client.state, (await client.call_tool("add")).text

    assert run_async(main()) == (ClientState.ACTIVE, "3")


def test_a_message_of_megabytes_is_sent_whole() -> None:
    async def main() -> int:
        script = stateless_script()
        async with script, Client(script.url) as client:
            await client.call_tool("add", {"a": "x" * 3_000_000})
        return len(script.of("tools/call")[0].message["params"]["arguments"]["a"])

    assert run_async(main()) == 3_000_000


# --- statuses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [None, "own"])
def test_a_jsonrpc_error_is_the_answer_whatever_the_status(id: str | None) -> None:
    async def reply(got: Got, writer: Writer) -> None:
        message = {"jsonrpc": "2.0", "id": id and got.id, "error": {"code": -32602, "message": "no such tool"}}
        writer.json(message, 400)

    with pytest.raises(InvalidParams, match="no such tool"):
        call(stateless_script({"tools/call": reply}))


def test_an_unknown_method_is_reported_as_such_although_its_status_is_404() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.json({"jsonrpc": "2.0", "id": got.id, "error": {"code": -32601, "message": "Method not found"}}, 404)

    with pytest.raises(MethodNotFound):
        call(stateless_script({"tools/call": reply}))


def test_a_jsonrpc_error_for_another_request_is_treated_as_a_status() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.json({"jsonrpc": "2.0", "id": 99, "error": {"code": -32602, "message": "no"}}, 400)

    with pytest.raises(HttpError) as failure:
        call(stateless_script({"tools/call": reply}))
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
def test_an_error_status_is_reported_with_advice(reply: Status, words: str) -> None:
    with pytest.raises(HttpError, match=words) as failure:
        call(stateless_script({"tools/call": reply}))
    assert failure.value.status == reply.status
    assert failure.value.reason == "Some Reason"
    assert isinstance(failure.value, AuthRequired) is (reply.status == 401)


def test_a_query_is_never_shown() -> None:
    async def main() -> str:
        script = stateless_script({"tools/call": Status(500)})
        async with script, Client(f"{script.url}?key=secret") as client:
            with pytest.raises(HttpError) as failure:
                await client.call_tool("add")
        assert script.requests[0].path == "/mcp?key=secret"
        return str(failure.value)

    assert "secret" not in run_async(main())


def test_a_failure_affects_only_its_own_request() -> None:
    async def main() -> tuple[str, ClientState]:
        waits = asyncio.Event()

        async def slow(got: Got, writer: Writer) -> None:
            await waits.wait()
            writer.result(got, DONE)

        script = stateless_script({"tools/call": slow, "prompts/list": Status(500)})
        async with script, Client(script.url) as client:
            first = asyncio.ensure_future(client.call_tool("add"))
            await script.until(lambda: script.of("tools/call"))
            with pytest.raises(HttpError):
                await client.list_prompts()
            waits.set()
            return (await first).text, client.state

    assert run_async(main()) == ("3", ClientState.ACTIVE)


# --- the network -----------------------------------------------------------------------------------------------------


def test_an_unreachable_server_is_named_with_its_port() -> None:
    async def main() -> str:
        async with stateless_script() as script:
            pass
        with pytest.raises(ConnectionLost) as failure:
            await Client(script.url).__aenter__()
        assert str(script.port) in str(failure.value)
        return str(failure.value)

    assert "127.0.0.1" in run_async(main())


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


async def cut(got: Got, writer: Writer) -> None:
    writer.break_off()


async def cut_head(got: Got, writer: Writer) -> None:
    writer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    await writer.flush()
    writer.break_off()


async def cut_stream(got: Got, writer: Writer) -> None:
    writer.stream()
    writer.event(id="1")


@pytest.mark.parametrize("reply", [cut, cut_head, cut_stream])
def test_a_broken_exchange_fails_only_its_request(reply: Callable[..., Any]) -> None:
    async def main() -> tuple[ClientState, str]:
        script = stateless_script({"tools/call": [reply, DONE]})
        async with script, Client(script.url) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("add")
            return client.state, (await client.call_tool("add")).text

    assert run_async(main()) == (ClientState.ACTIVE, "3")


def test_a_read_whose_exchange_breaks_is_retried_once() -> None:
    async def main() -> list[str]:
        script = stateless_script({"prompts/list": [cut, {"resultType": "complete", "prompts": []}]})
        async with script, Client(script.url) as client:
            assert await client.list_prompts() == []
        return script.names

    assert run_async(main()) == ["server/discover", "prompts/list", "prompts/list"]


def test_a_stateless_server_that_restarts_is_simply_called_again() -> None:
    async def main() -> tuple[str, list[str]]:
        script = stateless_script()
        async with script:
            client = await Client(script.url).__aenter__()
            await client.call_tool("add")
        async with script:
            text = (await client.call_tool("add")).text
            await client.aclose()
        return text, script.names

    assert run_async(main()) == ("3", ["server/discover", "tools/list", "tools/call", "tools/call"])


# --- cancelling ------------------------------------------------------------------------------------------------------


def hanging(left: asyncio.Event) -> Callable[[Got, Writer], Any]:
    async def reply(got: Got, writer: Writer) -> None:
        writer.stream()
        await writer.until_left()
        left.set()

    return reply


def test_a_stateless_cancellation_closes_the_exchange_and_posts_nothing() -> None:
    async def main() -> list[str]:
        left = asyncio.Event()
        script = stateless_script({"tools/call": hanging(left)})
        async with script, Client(script.url) as client:
            task = asyncio.ensure_future(client.call_tool("add"))
            await script.until(lambda: script.of("tools/call"))
            task.cancel()
            await left.wait()
            await client.list_tools()
        return script.names

    assert run_async(main()) == ["server/discover", "tools/list", "tools/call", "tools/list"]


def test_a_handshake_cancellation_is_posted_and_the_stream_closed() -> None:
    async def main() -> tuple[Any, Any]:
        left = asyncio.Event()
        script = handshake_script({"tools/call": hanging(left)})
        async with script, Client(script.url) as client:
            task = asyncio.ensure_future(client.call_tool("add"))
            await script.until(lambda: script.of("tools/call"))
            task.cancel()
            await left.wait()
            await script.until(lambda: script.of("notifications/cancelled"))
        called, cancelled = script.of("tools/call")[0], script.of("notifications/cancelled")[0]
        return called.id, cancelled.message["params"]["requestId"]

    called, cancelled = run_async(main())
    assert called == cancelled


async def test_a_call_that_takes_too_long_times_out() -> None:
    left = asyncio.Event()
    script = stateless_script({"tools/call": hanging(left)})
    async with script, Client(script.url) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("add", timeout=0.05)
        await left.wait()


async def test_closing_cancels_requests_in_flight() -> None:
    left = asyncio.Event()
    script = stateless_script({"tools/call": hanging(left)})
    async with script:
        client = await Client(script.url).__aenter__()
        task = asyncio.ensure_future(client.call_tool("add"))
        await script.until(lambda: script.of("tools/call"))
        await asyncio.gather(client.aclose(), client.aclose())
        with pytest.raises(ConnectionLost):
            await task
        await left.wait()


# --- streams that do not end -----------------------------------------------------------------------------------------


def test_a_stream_that_continues_after_the_answer_is_closed() -> None:
    async def main() -> str:
        left = asyncio.Event()

        async def reply(got: Got, writer: Writer) -> None:
            writer.stream()
            writer.event(answer(got))
            await writer.until_left()
            left.set()

        script = stateless_script({"tools/call": reply})
        async with script, Client(script.url) as client:
            text = (await client.call_tool("add")).text
            await left.wait()
            return text

    assert run_async(main()) == "3"


def test_a_connection_is_reused_after_json_and_after_a_stream() -> None:
    async def reply(got: Got, writer: Writer) -> None:
        writer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        event = b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % int(got.id)
        writer.raw(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))

    async def main() -> int:
        script = stateless_script({"tools/call": reply})
        async with script, Client(script.url) as client:
            await client.call_tool("add")
            await client.call_tool("add")
            await client.list_tools()
            return script.connections

    assert run_async(main()) == 1
