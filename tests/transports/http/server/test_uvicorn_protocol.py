"""HTTP on raw sockets: timeouts, sizes, request smuggling, pipelining, and clients that stop reading."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.support import run_async
from tests.transports.http.small_app import GET, Message, Receive, Send, SmallApp, served
from tests.transports.loops import LOOPS, run_on
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.uvicorn_protocol import ConnectionTracker, UvicornProtocol

each_loop = pytest.mark.parametrize("loop", LOOPS)

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
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
    answer, _ = ask_one(HEAD + b"Connection: close\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000, loop=loop)
    assert answer.endswith(b"POST / 3000000")


def test_a_chunked_body_arrives_whole() -> None:
    piece = b"200\r\n" + b"x" * 512 + b"\r\n"
    answer, _ = ask_one(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + piece * 4000 + b"0\r\n\r\n")
    assert answer.endswith(b"POST / 2048000")


def test_a_request_that_comes_byte_by_byte_is_answered() -> None:
    answer, _ = ask_one(*(GET[at : at + 1] for at in range(len(GET))))
    assert statuses(answer) == [200]


def test_an_http_1_0_request_is_answered_and_its_connection_closed() -> None:
    assert statuses(ask_one(b"GET / HTTP/1.0\r\n\r\n")[0]) == [200]


def test_empty_lines_before_a_request_are_ignored() -> None:
    assert statuses(ask_one(b"\r\n\r\n" + GET)[0]) == [200]


def test_a_trailer_does_not_become_a_header() -> None:
    head = b"POST /headers HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer, _ = ask_one(head, b"1\r\nx\r\n", b"0\r\nAuthorization: me\r\n\r\n")
    assert answer.endswith(b"host connection transfer-encoding")


# --- timeouts ---------------------------------------------------------------------------------------------------------


@each_loop
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"G", id="one byte"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n", id="a head without its end"),
        pytest.param(b"\r\n\r\n", id="empty lines"),
    ],
)
def test_slow_headers_are_refused(sent: bytes, loop: str) -> None:
    answer, app = ask_one(sent, limits=Limits(header_seconds=0.1), loop=loop)
    assert statuses(answer) == [408]
    assert app.seen == ["the end"]


@each_loop
def test_a_connection_without_data_is_closed_without_a_response(loop: str) -> None:
    assert ask_one(limits=Limits(header_seconds=0.1), loop=loop)[0] == b""


@each_loop
def test_slow_headers_of_a_second_request_are_refused(loop: str) -> None:
    answer, _ = ask_one(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /", limits=Limits(header_seconds=0.1), loop=loop)
    assert statuses(answer) == [200, 408]


@each_loop
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEAD + b"Content-Length: 10\r\n\r\nx", id="by length"),
        pytest.param(CHUNKED + b"5\r\nx", id="in chunks"),
        pytest.param(HEAD + b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n", id="that was to be asked for"),
    ],
)
def test_a_slow_body_is_refused_and_reported_to_the_application(sent: bytes, loop: str) -> None:
    async def main() -> None:
        async with served(Limits(body_seconds=0.1)) as server:
            answer = await server.ask(sent)
            assert statuses(answer)[-1] == 408
            assert await server.app.told.get() == "cut"

    run_on(loop, main())


def test_an_endless_body_after_its_response_only_closes_the_connection() -> None:
    request = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx"
    assert statuses(ask_one(request, limits=Limits(body_seconds=0.1))[0]) == [200]


def test_a_body_that_arrives_after_its_response_is_ignored() -> None:
    request = b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
    answer, app = ask_one(request, b"x" * 10, GET)
    assert statuses(answer) == [200, 200]
    assert app.seen == ["/early", "/", "the end"]


@each_loop
def test_a_connection_that_is_idle_too_long_is_closed(loop: str) -> None:
    answer, _ = ask_one(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", limits=Limits(keep_alive_seconds=0.1), loop=loop)
    assert statuses(answer) == [200]


@each_loop
def test_slow_clients_do_not_delay_others(loop: str) -> None:
    async def main() -> None:
        async with served() as server, asyncio.TaskGroup() as group:
            slow = [group.create_task(server.ask(b"POST / HTTP/1.1\r\nX-Slow: ")) for _ in range(10)]
            assert statuses(await server.ask(GET)) == [200]
            assert [one.cancel() for one in slow] == [True] * 10

    run_on(loop, main())


async def test_a_slow_answer_has_no_connection_timeout() -> None:
    async with served(Limits(header_seconds=0.02, body_seconds=0.02)) as server:
        answer = asyncio.create_task(server.ask(GET.replace(b"/ ", b"/wait ", 1)))
        await server.app.told.get()
        # A connection that says nothing is closed by the same sweeps that pass over the one that waits.
        assert await server.ask() == b""
        server.app.release.set()
        assert statuses(await answer) == [200]


# --- sizes ------------------------------------------------------------------------------------------------------------


@each_loop
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET /" + b"a" * 2000, id="an endless address"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"a" * 2000, id="an endless value"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a" * 2000, id="an endless name"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 400, id="endless headers"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", id="a whole head over the limit"),
        pytest.param(b"\r\n" * 800, id="endless empty lines"),
    ],
)
def test_headers_over_the_limit_are_refused(sent: bytes, loop: str) -> None:
    answer, app = ask_one(sent, loop=loop)
    assert statuses(answer) == [431]
    assert app.seen == ["the end"]


def test_headers_over_the_limit_in_small_pieces_are_refused() -> None:
    assert statuses(ask_one(b"GET / HTTP/1.1\r\nX: ", *[b"a" * 100] * 11)[0]) == [431]


def test_headers_just_under_the_limit_are_accepted() -> None:
    head = b"GET / HTTP/1.1\r\nConnection: close\r\nX: "
    assert statuses(ask_one(head + b"a" * (1024 - len(head) - 4) + b"\r\n\r\n")[0]) == [200]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"1;" + b"a" * 3000, id="an endless extension"),
        pytest.param(b"1;aaaaaaaaaa=bbbbbbbbbb\r\nx\r\n" * 100, id="extensions on small chunks"),
        pytest.param(b"1\r\nx\r\n" * 500, id="chunks of one byte"),
        pytest.param(b"0" * 3000, id="an endless size"),
        pytest.param(b"0\r\n" + b"a: b\r\n" * 500, id="endless trailers"),
        pytest.param(b"0\r\nX: " + b"a" * 3000, id="an endless trailer"),
    ],
)
def test_a_body_that_is_mostly_framing_is_refused(body: bytes) -> None:
    assert statuses(ask_one(CHUNKED + body)[0]) == [400]


# --- request smuggling ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(
            HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="length and chunked"
        ),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", id="chunked and length"
        ),
        pytest.param(HEAD + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n", id="two lengths"),
        pytest.param(HEAD + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n", id="one length twice"),
        pytest.param(HEAD + b"Content-Length: 0, 0\r\n\r\n", id="a list of lengths"),
        pytest.param(HEAD + b"Content-Length: +0\r\n\r\n", id="a signed length"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\n", id="a negative length"),
        pytest.param(HEAD + b"Content-Length: 0x0\r\n\r\n", id="a length in base 16"),
        pytest.param(HEAD + b"Content-Length:\r\n\r\n", id="an empty length"),
        pytest.param(HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", id="a length beyond numbers"),
        pytest.param(HEAD + b"Transfer-Encoding: xchunked\r\n\r\n", id="an unknown coding"),
        pytest.param(HEAD + b"Transfer-Encoding: identity\r\n\r\n", id="the coding that is none"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", id="chunked not last"),
        pytest.param(HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="a coding below chunked"),
        pytest.param(
            HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="two codings"
        ),
        pytest.param(HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", id="chunked twice"),
        pytest.param(
            HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", id="a coding after a control character"
        ),
        pytest.param(HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", id="a folded coding"),
        pytest.param(HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", id="a space before the colon"),
        pytest.param(HEAD.replace(b"1.1", b"1.0") + CHUNKED[len(HEAD) :] + b"0\r\n\r\n", id="chunked in HTTP/1.0"),
        pytest.param(HEAD + b"X: a\r\n b\r\n\r\n", id="a folded header"),
        pytest.param(b"POST / HTTP/1.1\r\n Host: a\r\n\r\n", id="a folded first line"),
        pytest.param(b"POST / HTTP/1.1\nHost: a\n\n", id="bare line feeds"),
        pytest.param(HEAD + b"X: a\nContent-Length: 5\r\n\r\n", id="a bare line feed in a value"),
        pytest.param(HEAD + b"X: a\rContent-Length: 5\r\n\r\n", id="a bare carriage return in a value"),
        pytest.param(HEAD + b"\n", id="a bare line feed at the end"),
        pytest.param(HEAD + b"X: a\x00b\r\n\r\n", id="NUL in a value"),
        pytest.param(HEAD + b"X\x00: a\r\n\r\n", id="NUL in a name"),
        pytest.param(HEAD + b": a\r\n\r\n", id="no name"),
        pytest.param(HEAD + b"X\r\n\r\n", id="no colon"),
        pytest.param(b"GET /a\x01b HTTP/1.1\r\n\r\n", id="a control character in the address"),
        pytest.param(b"GET /a\xffb HTTP/1.1\r\n\r\n", id="no ASCII in the address"),
        pytest.param(b"GET http://a HTTP/1.1\r\n\r\n", id="an address without a path"),
        pytest.param(b"get / HTTP/1.1\r\n\r\n", id="a method in small letters"),
        pytest.param(b"GET / HTTP/1.2\r\n\r\n", id="no version there is"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2 unasked"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", id="TLS where there is none"),
        pytest.param(CHUNKED + b"-1\r\n", id="a negative chunk"),
        pytest.param(CHUNKED + b"0x1\r\n", id="a chunk size with a prefix"),
        pytest.param(CHUNKED + b"fffffffffffffffff\r\n", id="a chunk beyond numbers"),
        pytest.param(CHUNKED + b" 1\r\nx\r\n", id="a space before a chunk size"),
        pytest.param(CHUNKED + b"1 \r\nx\r\n", id="a space after a chunk size"),
        pytest.param(CHUNKED + b"\r\n", id="an empty chunk size"),
        pytest.param(CHUNKED + b"1;a\nx\r\n0\r\n\r\n", id="a bare line feed in an extension"),
        pytest.param(CHUNKED + b"1\nx\n0\n\n", id="bare line feeds between chunks"),
        pytest.param(CHUNKED + b"1\r\nxy\r\n", id="a chunk longer than it says"),
        pytest.param(CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n", id="a length among trailers"),
        pytest.param(CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n", id="a coding among trailers"),
    ],
)
def test_an_ambiguous_request_is_refused(sent: bytes) -> None:
    answer, app = ask_one(sent + SMUGGLED)
    assert statuses(answer) == [400]
    assert b"\r\nconnection: close\r\n" in answer
    assert "/smuggled" not in app.seen


def test_an_unsupported_http_version_does_not_disturb_the_previous_response() -> None:
    answer, _ = ask_one(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/2.0\r\n\r\n")
    assert statuses(answer) == [200]


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


@each_loop
def test_an_upgrade_header_is_ignored(loop: str) -> None:
    wish = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert ask_one(wish, loop=loop)[0].endswith(b"GET / 0")


@each_loop
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
def test_the_body_of_a_request_with_an_upgrade_header_is_read(pieces: tuple[bytes, ...], loop: str) -> None:
    wish = HEAD + b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    answer, app = ask_one(wish + pieces[0], *pieces[1:], loop=loop)
    assert answer.endswith(b"POST / 34")
    assert app.seen == ["/", "the end"]


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", id="another wish"),
        pytest.param(b"nonsense\r\n\r\n", id="nonsense"),
    ],
)
def test_data_after_an_upgrade_request_is_refused_after_its_response(behind: bytes) -> None:
    wish = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    answer, app = ask_one(wish + behind)
    assert statuses(answer) == [200]
    assert app.seen == ["/", "the end"]


# --- several requests on one connection -------------------------------------------------------------------------------


@each_loop
def test_pipelined_requests_are_answered_in_order(loop: str) -> None:
    one, two = (b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in (1, 2))
    answer, app = ask_one(one + two + GET, loop=loop)
    assert statuses(answer) == [200, 200, 200]
    assert app.seen == ["/1", "/2", "/", "the end"]


@each_loop
def test_the_number_of_pipelined_requests_is_limited(loop: str) -> None:
    wait = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"

    async def main() -> None:
        async with served() as server:
            answers = asyncio.create_task(server.ask(wait + SMUGGLED * 1000))
            await server.app.told.get()
            assert server.app.seen == ["/wait"]
            server.app.release.set()
            assert statuses(await answers) == [200] * 17

    run_on(loop, main())


def test_invalid_data_after_a_request_closes_the_connection_after_its_response() -> None:
    answer, app = ask_one(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nnonsense\r\n\r\n")
    assert statuses(answer) == [200]
    assert app.seen == ["/", "the end"]


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


@each_loop
def test_a_connection_over_the_limit_gets_an_error_and_the_others_are_served(loop: str) -> None:
    async def main(server_limits: Limits) -> list[list[int]]:
        async with served(server_limits) as server:
            streams = [await server.connect() for _ in range(3)]
            return [statuses(await answer_on(one)) for one in reversed(streams)]

    assert run_on(loop, main(Limits(connections=2, drain_seconds=1))) == [[503], [200], [200]]


@each_loop
def test_a_connection_far_over_the_limit_is_dropped(loop: str) -> None:
    async def main() -> bytes:
        async with served(Limits(connections=1, drain_seconds=1)) as server, AsyncExitStack() as stack:
            streams = [await server.connect() for _ in range(9)]
            [stack.callback(writer.close) for _, writer in streams]
            return await server.ask()

    assert run_on(loop, main()) == b""


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


def test_an_exception_of_the_application_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Message, receive: Receive, send: Send) -> None:
        raise ValueError("a fault of the application")

    async def main() -> bytes:
        async with served() as server:
            server.app.answer = fail  # type: ignore[method-assign]
            return await server.ask(GET)

    assert statuses(run_async(main())) == [500]
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
def test_a_connection_that_ends_is_freed_without_the_garbage_collector(path: bytes) -> None:
    async def main() -> None:
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

    run_async(main())
