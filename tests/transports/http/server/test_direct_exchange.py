"""Calls on the HTTP server of this package, which passes bodies and responses on in one step and groups its writes."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import Any

import pytest
import uvicorn.server

from tests.transports.http.serving_support import (
    HANDSHAKE,
    META,
    POLLING,
    Workshop,
    initialize,
    modern_headers,
    notification,
    running,
    tool,
    until,
)
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server import uvicorn_server
from trunkline.transports.http.server.endpoint import Endpoint
from trunkline.transports.http.server.uvicorn_protocol import GROUPED_FROM, UvicornProtocol

each_era = pytest.mark.parametrize("era", ["handshake", "stateless"])
#: Each era, with fewer connections than are grouped and with more.
each_way = pytest.mark.parametrize(
    ("era", "others"), [("handshake", 0), ("stateless", GROUPED_FROM)], ids=["handshake, alone", "stateless, grouped"]
)


class Line:
    """One connection, with the session of its client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, era: str) -> None:
        self.reader = reader
        self.writer = writer
        self.era = era
        self.headers: dict[str, str] = {}

    def encode(self, message: dict[str, Any], **more: str) -> bytes:
        headers = {"content-type": "application/json", **more}
        if self.era == "stateless" and "params" in message:
            message = {**message, "params": {**message["params"], "_meta": META}}
            headers |= modern_headers(message["method"], message["params"].get("name"))
        body = json.dumps(message).encode()
        return self.encode_head("POST", **headers, **{"content-length": str(len(body))}) + body

    def encode_head(self, verb: str, **headers: str) -> bytes:
        lines = [f"{verb} /mcp HTTP/1.1", "host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in {**self.headers, **headers}.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def send(self, message: dict[str, Any], **more: str) -> None:
        self.writer.write(self.encode(message, **more))

    async def head(self) -> tuple[int, dict[str, str]]:
        status, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        return int(status.split()[1]), {n.lower(): v for n, _, v in (line.partition(": ") for line in lines)}

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        status, headers = await self.head()
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return status, headers, json.loads(body) if body else None

    async def call(self, message: dict[str, Any], **more: str) -> Any:
        self.send(message, **more)
        status, _, answer = await self.answer()
        assert status == 200, answer
        return answer

    async def open(self, revision: str = HANDSHAKE) -> Line:
        if self.era == "handshake":
            self.send(initialize(revision))
            _, headers, _ = await self.answer()
            self.headers = {"mcp-session-id": headers["mcp-session-id"], "mcp-protocol-version": revision}
            self.send(notification("notifications/initialized"))
            assert (await self.answer())[0] == 202
        return self


class Lines:
    """Connections to one server."""

    def __init__(self, endpoint: Any, served: Any, era: str, stack: AsyncExitStack) -> None:
        self.endpoint = endpoint
        self.stack = stack
        self.served = served
        self.era = era

    async def open(self, **options: Any) -> Line:
        return await (await self.connect()).open(**options)

    async def beside(self, line: Line) -> Line:
        """Return another connection of the same client."""
        other = await self.connect()
        other.headers = line.headers
        return other

    async def connect(self) -> Line:
        reader, writer = await self.served.connect()
        line = Line(reader, writer, self.era)
        self.stack.callback(line.writer.close)
        return line


@asynccontextmanager
async def lines_to(endpoint: Any, era: str, others: int = 0) -> AsyncIterator[Lines]:
    async with running(endpoint) as served, AsyncExitStack() as stack:
        lines = Lines(endpoint, served, era, stack)
        for _ in range(others):
            await lines.connect()
        yield lines


def text_of(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


# --- handlers that wait ----------------------------------------------------------------------------------------------


@each_way
async def test_a_handler_that_waits_is_answered_when_it_is_done(era: str, others: int) -> None:
    workshop = Workshop()
    async with lines_to(workshop.asgi(), era, others) as lines:
        line = await lines.open()
        line.send(tool("wait"))
        await workshop.started.wait()
        beside = await lines.beside(line)
        assert text_of(await beside.call(tool("add", id=2))) == "3"
        workshop.proceed.set()
        _, _, answer = await line.answer()
        assert (answer["id"], text_of(answer)) == (1, "done ")
        assert text_of(await line.call(tool("add", id=3))) == "3"


@each_era
async def test_a_handler_runs_in_a_task_whether_it_waits_or_not(era: str) -> None:
    workshop = Workshop()

    async def bounded(waits: bool) -> str:
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            if waits:
                group.create_task(asyncio.sleep(0.01))
        task = asyncio.current_task()
        return "in a task" if task is not None and not task.cancelling() else "in none"

    workshop.server.tool(bounded)
    async with lines_to(workshop.asgi(), era) as lines:
        line = await lines.open()
        found = [text_of(await line.call(tool("bounded", waits=waits))) for waits in (False, True)]
    assert found == ["in a task", "in a task"]


@each_era
async def test_a_context_variable_is_not_seen_by_the_next_request_of_a_connection(era: str) -> None:
    workshop = Workshop()
    variable = contextvars.ContextVar("variable", default="unset")

    async def mark(waits: bool) -> str:
        seen = variable.get()
        variable.set("set")
        if waits:
            await asyncio.sleep(0)
        return seen

    workshop.server.tool(mark)
    async with lines_to(workshop.asgi(), era) as lines:
        line = await lines.open()
        seen = [text_of(await line.call(tool("mark", waits=waits))) for waits in (False, True, False, True)]
    assert seen == ["unset"] * 4


# --- disconnects and cancellations -----------------------------------------------------------------------------------


@pytest.mark.parametrize("say", ["", "hello"], ids=["before the first byte", "in the middle"])
async def test_a_cancelled_request_of_a_session_ends_without_an_answer(say: str) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    async with lines_to(app, "handshake") as lines:
        line = await lines.open()
        line.send(tool("wait", say=say))
        await workshop.started.wait()
        beside = await lines.beside(line)
        beside.send(notification("notifications/cancelled", {"requestId": 1}))
        assert (await beside.answer())[0] == 202
        assert workshop.cancelled.is_set()
        status, headers = await line.head()
        if say:
            rest = await line.reader.readuntil(b"0\r\n\r\n")
            assert (status, b"hello" in rest, b'"result"' in rest) == (200, True, False)
        else:
            assert (status, headers["content-length"]) == (202, "0")
        assert text_of(await line.call(tool("add", id=2))) == "3"
        assert next(iter(app.sessions.by_id.values())).in_flight == 0


async def test_a_handler_that_suppresses_its_cancellation_sends_no_answer() -> None:
    workshop = Workshop()

    async def stubborn() -> str:
        try:
            workshop.started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "an unwanted answer"

    workshop.server.tool(stubborn)
    async with lines_to(workshop.asgi(), "handshake") as lines:
        line = await lines.open()
        line.send(tool("stubborn"))
        await workshop.started.wait()
        beside = await lines.beside(line)
        beside.send(notification("notifications/cancelled", {"requestId": 1}))
        await beside.answer()
        assert (await line.answer())[0] == 202
        assert text_of(await line.call(tool("add", id=2))) == "3"


async def test_a_request_whose_session_ends_is_cancelled_and_told_so() -> None:
    workshop = Workshop()
    async with lines_to(workshop.asgi(), "handshake") as lines:
        line = await lines.open()
        line.send(tool("wait"))
        await workshop.started.wait()
        beside = await lines.beside(line)
        beside.writer.write(beside.encode_head("DELETE"))
        assert (await beside.head())[0] == 204
        status, _, answer = await line.answer()
        assert (status, workshop.cancelled.is_set()) == (404, True)
        assert "initialize" in answer["error"]["message"]


async def test_a_handler_ends_its_response_and_continues_while_the_connection_is_used() -> None:
    workshop = Workshop()
    async with lines_to(workshop.asgi(), "handshake") as lines:
        line = await lines.open(revision=POLLING)
        line.send(tool("poll"))
        await line.head()
        first = await line.reader.readuntil(b"0\r\n\r\n")
        assert (b"before" in first, b"after" in first) == (True, False)
        assert text_of(await line.call(tool("add", id=2))) == "3"
        workshop.proceed.set()
        last = first.rpartition(b"id: ")[2].partition(b"\n")[0].decode()
        line.writer.write(line.encode_head("GET", **{"last-event-id": last}))
        rest = await line.reader.readuntil(b"0\r\n\r\n")
        assert (b"after" in rest, b"left True" in rest) == (True, True)


# --- bytes -----------------------------------------------------------------------------------------------------------


@each_way
async def test_pipelined_requests_are_answered_in_their_order(era: str, others: int) -> None:
    workshop = Workshop()

    async def slow(a: int) -> int:
        await asyncio.sleep(0.02)
        return a

    workshop.server.tool(slow)
    async with lines_to(workshop.asgi(), era, others) as lines:
        line = await lines.open()
        names = ["add", "slow", "add", "add", "slow", "add"]
        line.writer.write(b"".join(line.encode(tool(name, id=n, a=n)) for n, name in enumerate(names)))
        found = [(await line.answer())[2]["id"] for _ in names]
    assert found == list(range(len(names)))


@each_way
async def test_what_is_not_http_is_rejected_after_the_answers_to_what_was(era: str, others: int) -> None:
    async with lines_to(Workshop().asgi(), era, others) as lines:
        line = await lines.open()
        await line.call(tool("add"))
        line.writer.write(line.encode(tool("add", id=2)) + b"nonsense\r\n\r\n")
        status, headers, answer = await line.answer()
        assert (status, answer["id"], headers["connection"]) == (200, 2, "close")
        assert await line.reader.read() == b""


@each_era
@pytest.mark.parametrize(("others", "size"), [(0, 60_000), (0, 1_000_000), (GROUPED_FROM, 70_000)])
async def test_a_large_message_is_echoed_unchanged(era: str, others: int, size: int) -> None:
    workshop = Workshop()

    async def echo(text: str) -> str:
        return text

    workshop.server.tool(echo)
    async with lines_to(workshop.asgi(), era, others) as lines:
        line = await lines.open()
        line.reader._limit = 1 << 24  # type: ignore[attr-defined]
        text = "abcdefghij" * (size // 10)
        assert text_of(await line.call(tool("echo", text=text))) == text


@each_era
async def test_a_client_that_asks_first_is_told_to_continue(era: str) -> None:
    async with lines_to(Workshop().asgi(), era) as lines:
        line = await lines.open()
        head, _, body = line.encode(tool("add"), expect="100-continue").partition(b"\r\n\r\n")
        line.writer.write(head + b"\r\n\r\n")
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.writer.write(body)
        assert text_of((await line.answer())[2]) == "3"


@each_way
async def test_a_client_that_wants_the_connection_closed_gets_its_answer_first(era: str, others: int) -> None:
    async with lines_to(Workshop().asgi(), era, others) as lines:
        line = await lines.open()
        line.send(tool("add"), connection="close")
        _, headers, answer = await line.answer()
        assert (headers["connection"], text_of(answer)) == ("close", "3")
        assert await line.reader.read() == b""


async def test_a_disconnect_cancels_nothing_in_a_session_and_the_answer_is_dropped() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    async with lines_to(app, "handshake") as lines:
        line = await lines.open()
        beside = await lines.beside(line)
        line.send(tool("wait"))
        await workshop.started.wait()
        line.writer.close()
        await line.writer.wait_closed()
        assert text_of(await beside.call(tool("add", id=2))) == "3"
        session = next(iter(app.sessions.by_id.values()))
        assert (session.in_flight, workshop.cancelled.is_set()) == (1, False)
        workshop.proceed.set()
        await until(lambda: session.in_flight == 0 and not app.open_responses.in_flight)


@each_era
async def test_a_body_over_the_limit_is_refused(era: str) -> None:
    async with lines_to(Workshop(Limits(body_bytes=1000)).asgi(), era) as lines:
        line = await lines.open()
        line.send(tool("add", text="x" * 1000))
        assert (await line.answer())[0] == 413


@each_era
async def test_the_head_of_a_response_has_the_newest_date(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(uvicorn.server, "formatdate", lambda *_, **__: f"tick {next(ticks)}")
    monkeypatch.setattr(uvicorn_server, "TICK_SECONDS", 0.001)
    async with lines_to(Workshop().asgi(), era) as lines:
        line = await lines.open()
        dates: set[str] = set()
        while len(dates) < 3:
            line.send(tool("add"))
            _, headers, _ = await line.answer()
            assert set(headers) == {"date", "content-type", "content-length"}
            dates.add(headers["date"])


class Middleware:
    """Wraps an endpoint, and adds a header to every response."""

    def __init__(self, inner: Endpoint) -> None:
        self.inner = inner
        self.sent: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        async def send_more(message: MutableMapping[str, Any]) -> None:
            self.sent.append(message["type"])
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-more", b"yes")]
            await send(message)

        await self.inner(scope, receive, send_more if scope["type"] == "http" else send)

    async def drain(self, seconds: float) -> None:
        await self.inner.drain(seconds)


@each_era
async def test_middleware_sees_every_message_of_a_response(era: str) -> None:
    app = Middleware(Workshop().asgi())
    async with lines_to(app, era) as lines:
        line = await lines.open()
        app.sent.clear()
        line.send(tool("add"))
        _, headers, answer = await line.answer()
    assert (headers["x-more"], text_of(answer)) == ("yes", "3")
    assert app.sent == ["http.response.start", "http.response.body"]


@each_era
async def test_an_application_that_waits_for_the_disconnect_learns_of_it_after_its_body(era: str) -> None:
    workshop = Workshop()
    inner, seen = workshop.asgi(), []

    class Watching(Middleware):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await self.inner(scope, receive, send)
            if scope["type"] == "http":
                seen.append((await receive())["type"])

    async with lines_to(Watching(inner), era) as lines:
        line = await lines.open()
        seen.clear()
        await line.call(tool("add"))
        await until(lambda: seen == ["http.disconnect"])


async def test_many_connections_each_get_their_own_answers() -> None:
    workshop = Workshop()

    async def talk(line: Line, number: int) -> list[str]:
        return [text_of(await line.call(tool("add", id=n, a=number, b=n))) for n in range(20)]

    async with lines_to(workshop.asgi(), "stateless") as lines:
        opened = [await lines.open() for _ in range(16)]
        found = await asyncio.gather(*(talk(line, number) for number, line in enumerate(opened)))
    assert found == [[str(number + n) for n in range(20)] for number in range(16)]


@pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")
def test_a_connection_that_is_lost_does_not_keep_back_the_grouped_answers_of_others() -> None:
    """With uvloop, writing to a connection that was lost raises an error."""
    import uvloop

    async def lose() -> None:
        loop = asyncio.get_running_loop()
        accepted: list[asyncio.Transport] = []
        lost = asyncio.Event()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.append(transport)  # type: ignore[arg-type]

            def connection_lost(self, exc: Exception | None) -> None:
                lost.set()

        async with await loop.create_server(Accepted, "127.0.0.1", 0) as listening:
            _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            writer.transport.abort()
            await asyncio.wait_for(lost.wait(), 120)
            await asyncio.sleep(0.01)
            protocol = UvicornProtocol.__new__(UvicornProtocol)
            protocol.transport = accepted[0]
            protocol._unwritten = b"HTTP/1.1 200 OK"
            protocol.write_now()
            assert protocol._unwritten == b""

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(lose())
