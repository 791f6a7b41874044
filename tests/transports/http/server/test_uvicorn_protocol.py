"""HTTP on raw sockets: timeouts, sizes, request smuggling, pipelining, and clients that stop reading."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.support import run_async
from tests.transports.http.small_app import GET, Message, Receive, Send, SmallApp, served
from tests.transports.loops import LOOPS, run_on
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.connection_tracker import ConnectionTracker
from trunkline.transports.http.server.uvicorn_protocol import UvicornProtocol

each_loop = pytest.mark.parametrize("loop", LOOPS)

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
SMALL = Limits(header_bytes=1024, drain_seconds=1)


def ask_one(*pieces: bytes, limits: Limits = SMALL, loop: str = "asyncio") -> tuple[bytes, SmallApp]:
    """Serve, send the pieces on one connection, and give all that came back with the application."""

    async def main() -> tuple[bytes, SmallApp]:
        async with served(limits) as server:
            return await server.ask(*pieces), server.app

    return run_on(loop, main())


def statuses(answer: bytes) -> list[int]:
    """List the status of each answer."""
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


# --- plain requests ---------------------------------------------------------------------------------------------------


@each_loop
def test_a_request_is_answered_with_a_date_and_no_server_name(loop: str) -> None:
    answer, _ = ask_one(GET, loop=loop)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"GET / 0")
    assert b"\r\ndate: " in answer
    assert b"server:" not in answer.lower()


@each_loop
def test_a_body_larger_than_one_read_arrives_whole(loop: str) -> None:
    close = HEAD + b"Connection: close\r\n"
    answer, _ = ask_one(close + b"Content-Length: 3000000\r\n\r\n" + b"x" * 3_000_000, loop=loop)
    assert answer.endswith(b"POST / 3000000")
    chunks = (b"200\r\n" + b"x" * 512 + b"\r\n") * 4000
    answer, _ = ask_one(close + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", loop=loop)
    assert answer.endswith(b"POST / 2048000")


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([GET[at : at + 1] for at in range(len(GET))], id="byte by byte"),
        pytest.param([b"GET / HTTP/1.0\r\n\r\n"], id="HTTP/1.0"),
        pytest.param([b"\r\n\r\n" + GET], id="after empty lines"),
    ],
)
def test_an_unusual_request_is_answered(pieces: list[bytes]) -> None:
    assert statuses(ask_one(*pieces)[0]) == [200]


def test_a_trailer_does_not_become_a_header() -> None:
    head = b"POST /headers HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer, _ = ask_one(head, b"1\r\nx\r\n", b"0\r\nAuthorization: me\r\n\r\n")
    assert answer.endswith(b"host connection transfer-encoding")


# --- timeouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([b"G"], [408], id="one byte"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: a\r\n"], [408], id="a head without its end"),
        pytest.param([b"\r\n\r\n"], [408], id="empty lines"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /"], [200, 408], id="of a second request"),
    ],
)
def test_slow_headers_are_refused(pieces: list[bytes], expected: list[int]) -> None:
    answer, app = ask_one(*pieces, limits=Limits(header_seconds=0.1))
    assert statuses(answer) == expected
    assert len(app.seen) == expected.count(200) + 1


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEAD + b"Content-Length: 10\r\n\r\nx", id="by length"),
        pytest.param(CHUNKED + b"5\r\nx", id="in chunks"),
        pytest.param(HEAD + b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n", id="that was to be asked for"),
    ],
)
async def test_a_slow_body_is_refused_and_reported_to_the_application(sent: bytes) -> None:
    async with served(Limits(body_seconds=0.1)) as server:
        answer = await server.ask(sent)
        assert statuses(answer)[-1] == 408
        assert await server.app.told.get() == "cut"


def test_an_endless_body_after_its_response_only_closes_the_connection() -> None:
    request = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx"
    assert statuses(ask_one(request, limits=Limits(body_seconds=0.1))[0]) == [200]


def test_a_body_that_arrives_after_its_response_is_ignored() -> None:
    request = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
    answer, app = ask_one(request, b"x" * 10, GET)
    assert statuses(answer) == [200, 200]
    assert app.seen == ["/early", "/", "the end"]


def test_a_connection_that_is_idle_too_long_is_closed() -> None:
    answer, _ = ask_one(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", limits=Limits(keep_alive_seconds=0.1))
    assert statuses(answer) == [200]


async def test_a_slow_answer_has_no_connection_timeout() -> None:
    async with served(Limits(header_seconds=0.02, body_seconds=0.02)) as server:
        answer = asyncio.create_task(server.ask(GET.replace(b"/ ", b"/wait ", 1)))
        await server.app.told.get()
        # A connection that says nothing is closed by the same sweeps that pass over the one that waits.
        assert await server.ask() == b""
        server.app.release.set()
        assert statuses(await answer) == [200]


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"GET /" + b"a" * 2000], id="an endless address"),
        pytest.param([b"GET / HTTP/1.1\r\nX: " + b"a" * 2000], id="an endless value"),
        pytest.param([b"GET / HTTP/1.1\r\n" + b"a" * 2000], id="an endless name"),
        pytest.param([b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n"], id="a whole head over the limit"),
        pytest.param([b"\r\n" * 800], id="endless empty lines"),
        pytest.param([b"GET / HTTP/1.1\r\nX: ", *[b"a" * 100] * 11], id="in small pieces"),
    ],
)
def test_headers_over_the_limit_are_refused(pieces: list[bytes]) -> None:
    answer, app = ask_one(*pieces)
    assert statuses(answer) == [431]
    assert app.seen == ["the end"]


def test_headers_just_under_the_limit_are_accepted() -> None:
    head = b"GET / HTTP/1.1\r\nConnection: close\r\nX: "
    assert statuses(ask_one(head + b"a" * (1024 - len(head) - 4) + b"\r\n\r\n")[0]) == [200]


async def test_a_body_that_is_mostly_framing_is_refused() -> None:
    bodies = [
        # Extensions, chunks of one byte, an endless size, and endless trailers.
        *(b"1;" + b"a" * 3000, b"1;aaaaaaaaaa=bbbbbbbbbb\r\nx\r\n" * 100, b"1\r\nx\r\n" * 500, b"0" * 3000),
        *(b"0\r\n" + b"a: b\r\n" * 500, b"0\r\nX: " + b"a" * 3000),
    ]
    async with served(SMALL) as server:
        answers = [await server.ask(CHUNKED + body) for body in bodies]
    assert [statuses(answer) for answer in answers] == [[400]] * len(bodies)


# --- request smuggling ------------------------------------------------------------------------------------------------


AMBIGUOUS = [
    # Two lengths, or a length beside chunks.
    HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    HEAD + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
    HEAD + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    # Lengths that parsers read differently.
    *(HEAD + b"Content-Length:%b\r\n\r\n" % length for length in (b" 0, 0", b" +0", b" -1", b" 0x0", b"")),
    HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    # Codings that are unknown, or of which chunked is not the only one.
    *(HEAD + b"Transfer-Encoding: %b\r\n\r\n" % coding for coding in (b"xchunked", b"identity")),
    HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    HEAD.replace(b"1.1", b"1.0") + CHUNKED[len(HEAD) :] + b"0\r\n\r\n",
    # Folded lines, bare line feeds and carriage returns.
    *(HEAD + b"X: a\r\n b\r\n\r\n", b"POST / HTTP/1.1\r\n Host: a\r\n\r\n", b"POST / HTTP/1.1\nHost: a\n\n"),
    *(HEAD + b"X: a\nContent-Length: 5\r\n\r\n", HEAD + b"X: a\rContent-Length: 5\r\n\r\n", HEAD + b"\n"),
    # Names, values, addresses, methods and versions that are none.
    *(HEAD + b"X: a\x00b\r\n\r\n", HEAD + b"X\x00: a\r\n\r\n", HEAD + b": a\r\n\r\n", HEAD + b"X\r\n\r\n"),
    *(b"GET /a\x01b HTTP/1.1\r\n\r\n", b"GET /a\xffb HTTP/1.1\r\n\r\n", b"GET http://a HTTP/1.1\r\n\r\n"),
    *(b"get / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.2\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    b"\x16\x03\x01\x02\x00\x01\x00",
    # Sizes of chunks, and what stands between them.
    *(
        CHUNKED + size
        for size in (b"-1\r\n", b"0x1\r\n", b"fffffffffffffffff\r\n", b" 1\r\nx\r\n", b"1 \r\nx\r\n", b"\r\n")
    ),
    *(CHUNKED + body for body in (b"1;a\nx\r\n0\r\n\r\n", b"1\nx\n0\n\n", b"1\r\nxy\r\n")),
    *(CHUNKED + b"0\r\n%b\r\n\r\n" % trailer for trailer in (b"Content-Length: 5", b"Transfer-Encoding: chunked")),
]


async def test_an_ambiguous_request_is_refused() -> None:
    async with served(SMALL) as server:
        answers = {sent: await server.ask(sent + SMUGGLED) for sent in AMBIGUOUS}
    refused = [sent for sent in AMBIGUOUS if statuses(answers[sent]) == [400]]
    assert [sent for sent in AMBIGUOUS if sent not in refused] == []
    assert [sent for sent in refused if b"\r\nconnection: close\r\n" not in answers[sent]] == []
    assert "/smuggled" not in server.app.seen


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"GET / HTTP/0.9\r\n\r\n", 505, id="HTTP/0.9"),
        pytest.param(b"GET /\r\n\r\n", 505, id="no version"),
        pytest.param(b"GET / HTTP/2.0\r\n\r\n", 505, id="HTTP/2.0 in a request line"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405, id="a tunnel"),
    ],
)
def test_unsupported_http_features_are_refused(sent: bytes, status: int) -> None:
    answer, app = ask_one(sent + SMUGGLED)
    assert statuses(answer) == [status]
    assert "/smuggled" not in app.seen


def test_an_upgrade_header_is_ignored() -> None:
    wish = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert ask_one(wish)[0].endswith(b"GET / 0")


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((b"Content-Length: 34\r\n\r\n" + SMUGGLED[:34],), id="at once"),
        pytest.param((b"Content-Length: 34\r\n\r\n", SMUGGLED[:34]), id="later"),
        pytest.param(
            (b"Transfer-Encoding: chunked\r\n\r\n", b"22\r\n" + SMUGGLED[:34], b"\r\n0\r\n\r\n"), id="in chunks"
        ),
    ],
)
def test_the_body_of_a_request_with_an_upgrade_header_is_read(pieces: tuple[bytes, ...]) -> None:
    wish = HEAD + b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    answer, app = ask_one(wish + pieces[0], *pieces[1:])
    assert answer.endswith(b"POST / 34")
    assert app.seen == ["/", "the end"]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(UPGRADE + UPGRADE, id="an upgrade after an upgrade"),
        pytest.param(UPGRADE + b"nonsense\r\n\r\n", id="nonsense after an upgrade"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nnonsense\r\n\r\n", id="nonsense"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/2.0\r\n\r\n", id="an unsupported version"),
    ],
)
def test_invalid_data_after_a_request_closes_the_connection_after_its_response(sent: bytes) -> None:
    answer, app = ask_one(sent)
    assert statuses(answer) == [200]
    assert app.seen == ["/", "the end"]


# --- several requests on one connection -------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order() -> None:
    one, two = (b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in (1, 2))
    answer, app = ask_one(one + two + GET)
    assert statuses(answer) == [200, 200, 200]
    assert app.seen == ["/1", "/2", "/", "the end"]


async def test_the_number_of_pipelined_requests_is_limited() -> None:
    wait = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"
    async with served() as server:
        answers = asyncio.create_task(server.ask(wait + SMUGGLED * 1000))
        await server.app.told.get()
        assert server.app.seen == ["/wait"]
        server.app.release.set()
        assert statuses(await answers) == [200] * 17


@each_loop
def test_a_disconnect_is_noticed_behind_a_pipelined_request(loop: str) -> None:
    async def main() -> None:
        async with served() as server:
            _, writer = await server.connect()
            writer.write(b"GET /watch HTTP/1.1\r\nHost: a\r\n\r\n" + SMUGGLED)
            assert await server.app.told.get() == "watching"
            writer.close()
            assert await server.app.told.get() == "left"
            assert server.app.seen == ["/watch"]

    run_on(loop, main())


async def test_a_pipelined_body_that_is_broken_is_not_served() -> None:
    async with served() as server:
        request = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n" + CHUNKED.replace(b"/ ", b"/broken ", 1) + b"nonsense"
        answer = asyncio.create_task(server.ask(request))
        await server.app.told.get()
        server.app.release.set()
        assert statuses(await answer) == [200]
        assert server.app.seen == ["/wait"]


# --- connections ------------------------------------------------------------------------------------------------------


async def answer_on(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    reader, writer = streams
    writer.write(GET)
    answer = await reader.read()
    writer.close()
    return answer


WAIT = GET.replace(b"/ ", b"/wait ", 1)


async def test_a_connection_over_the_limit_replaces_the_oldest_that_waits_for_a_request() -> None:
    async with served(Limits(connections=2, drain_seconds=1)) as server:
        streams = [await server.connect() for _ in range(3)]
        streams[0][1].write(b"GET / HT")
        assert await streams[0][0].read() == b""
        streams[0][1].close()
        assert [statuses(await answer_on(one)) for one in streams[1:]] == [[200], [200]]


async def test_a_connection_over_the_limit_gets_an_error_while_all_others_are_answered() -> None:
    async with served(Limits(connections=2, drain_seconds=1)) as server:
        waiting = [asyncio.create_task(server.ask(WAIT)) for _ in range(2)]
        for _ in waiting:
            await server.app.told.get()
        # Connections over the limit replace each other, and never one with a request.
        streams = [await server.connect() for _ in range(3)]
        assert statuses(await answer_on(streams[-1])) == [503]
        for _, writer in streams:
            writer.close()
        server.app.release.set()
        assert [statuses(answer) for answer in await asyncio.gather(*waiting)] == [[200], [200]]


@each_loop
def test_a_client_that_stops_reading_is_dropped(loop: str) -> None:
    async def main() -> None:
        async with served(Limits(idle_seconds=0.2, drain_seconds=1)) as server:
            _, writer = await server.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await server.app.told.get() == "left"
            writer.transport.abort()

    run_on(loop, main())


async def test_an_exception_of_the_application_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Message, receive: Receive, send: Send) -> None:
        raise ValueError("a fault of the application")

    async with served() as server:
        server.app.answer = fail  # type: ignore[method-assign]
        assert statuses(await server.ask(GET)) == [500]
    assert "a fault of the application" in caplog.text


# --- clocks, by hand --------------------------------------------------------------------------------------------------


class Wire(asyncio.Transport):
    """A transport that keeps what is written and has as much unsent as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unsent = 0
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


def by_hand(check: Callable[[UvicornProtocol, Wire, list[float]], None]) -> None:
    """Run a check on a connection whose clock it moves itself."""

    async def main() -> None:
        clock = [1000.0]
        tracker = ConnectionTracker(Limits(header_seconds=10, body_seconds=30, idle_seconds=60), clock=lambda: clock[0])
        config = uvicorn.Config(SmallApp(), log_config=None, lifespan="off", ws="none")
        connection, wire = UvicornProtocol(config, ServerState(), {}, tracker=tracker), Wire()
        connection.connection_made(wire)
        check(connection, wire, clock)
        connection.connection_lost(None)

    run_async(main())


def test_headers_do_not_time_out_early() -> None:
    def check(connection: UvicornProtocol, wire: Wire, clock: list[float]) -> None:
        connection.data_received(b"GET /")
        clock[0] += 10
        connection.tracker.sweep()
        assert wire.written == b""
        clock[0] += 2
        connection.tracker.sweep()
        assert statuses(wire.written) == [408]
        assert wire.ended == "closed"

    by_hand(check)


def test_a_client_that_reads_slowly_stays_connected() -> None:
    def check(connection: UvicornProtocol, wire: Wire, clock: list[float]) -> None:
        def sweep_after(seconds: float, unsent: int) -> str:
            clock[0] += seconds
            wire.unsent = unsent
            connection.tracker.sweep()
            return wire.ended

        # Its answer is not complete: the limit of an idle connection must not apply.
        connection.data_received(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        connection.pause_writing()
        assert [sweep_after(50, unsent) for unsent in (5000, 4000, 3000, 3000)] == ["", "", "", ""]
        assert sweep_after(50, 3000) == "aborted"

    by_hand(check)


def test_a_closing_connection_whose_last_bytes_are_not_read_is_dropped() -> None:
    def check(connection: UvicornProtocol, wire: Wire, clock: list[float]) -> None:
        connection.data_received(b"nonsense\r\n\r\n")
        wire.unsent = 100
        connection.tracker.sweep()
        assert wire.ended == "closed"
        clock[0] += 61
        connection.tracker.sweep()
        assert wire.ended == "aborted"

    by_hand(check)


def test_a_body_does_not_time_out_while_the_server_does_not_read() -> None:
    def check(connection: UvicornProtocol, wire: Wire, clock: list[float]) -> None:
        wire.pause_reading = wire.resume_reading = lambda: None  # type: ignore[method-assign]
        # The application at this path does not read.
        head = HEAD.replace(b" / ", b" /wait ", 1)
        connection.data_received(head + b"Content-Length: 200000\r\n\r\n" + b"x" * 100_000)
        clock[0] += 100
        connection.tracker.sweep()
        assert wire.ended == ""
        connection.flow.resume_reading()
        clock[0] += 32
        connection.tracker.sweep()
        assert wire.ended == "closed"

    by_hand(check)


@pytest.mark.parametrize("path", [b"/", b"/wait"], ids=["answered", "unanswered"])
async def test_a_connection_that_ends_is_freed_without_the_garbage_collector(path: bytes) -> None:
    tracker, app = ConnectionTracker(Limits()), SmallApp()
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none")
    connection: UvicornProtocol | None = UvicornProtocol(config, ServerState(), {}, tracker=tracker)
    assert connection is not None
    connection.connection_made(Wire())
    connection.data_received(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
    await asyncio.sleep(0.01)
    ended = weakref.ref(connection)
    gc.collect()
    gc.disable()
    try:
        connection.connection_lost(None)
        connection = None
        app.release.set()
        await asyncio.sleep(0.01)
        assert ended() is None
    finally:
        gc.enable()
