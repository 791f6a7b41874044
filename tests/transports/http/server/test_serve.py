"""A server as a program: how it starts, what stops it, and its configuration errors."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pytest

import tests
from tests.net.origins import make_certificate
from tests.support import run_async
from tests.transports.http.small_app import GET, Receive, Send, SmallApp, ask, served
from tests.transports.loops import LOOPS, run_on
from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.serve import serve

NEEDS_IPV6 = pytest.mark.skipif(
    not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists(), reason="there is no IPv6 here"
)
each_loop = pytest.mark.parametrize("loop", LOOPS)

PROGRAM = Path(tests.__file__).parent / "transports" / "http" / "programs" / "small_server.py"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


class Program:
    """A server in a process of its own; what it says is read with a bound."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        self.listener = threading.Thread(target=self._listen, args=(process.stdout,), daemon=True)
        self.listener.start()

    def _listen(self, stdout: IO[str]) -> None:
        for line in stdout:
            self.said.put(line.strip())

    def hear(self) -> str:
        return self.said.get(timeout=120)

    def end(self) -> tuple[int, str]:
        """Wait for its end; give its exit code and what it wrote to stderr."""
        code = self.process.wait(timeout=120)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()


@contextmanager
def program(**options: Any) -> Iterator[Program]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENV,
    )
    with process:
        server = Program(process)
        try:
            yield server
        finally:
            process.kill()
            server.listener.join(timeout=120)


def send_request(url: str, path: str = "/") -> socket.socket:
    """Send a request to a server; give the connection that its answer comes on."""
    connection = socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=120)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return connection


def read_one(connection: socket.socket) -> bytes:
    """Read the answer to a plain request."""
    answer = b""
    while not answer.endswith(b"GET / 0") and (more := connection.recv(1000)):
        answer += more
    return answer


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes."""
    with connection, connection.makefile("rb") as file:
        return file.read()


# --- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "loop"), [(signal.SIGTERM, LOOPS[-1]), (signal.SIGINT, "asyncio")])
def test_a_signal_ends_an_idle_server_with_exit_code_0(number: int, loop: str) -> None:
    with program(loop=loop) as server:
        connection = send_request(server.hear())
        assert server.hear() == "request /"
        assert read_one(connection).startswith(b"HTTP/1.1 200")
        server.process.send_signal(number)
        assert read_all(connection) == b""
        assert [server.hear() for _ in range(3)] == ["draining", "ended", "returned"]
        assert server.end() == (0, "")


def test_a_request_in_flight_is_answered_before_the_end() -> None:
    with program(loop=LOOPS[-1], release=True) as server:
        url = server.hear()
        connection = send_request(url, "/wait")
        assert server.hear() == "request /wait"
        server.process.send_signal(signal.SIGTERM)
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"released")
        assert server.end() == (0, "")


def test_a_stuck_request_is_cancelled_when_the_time_is_over() -> None:
    with program(limits={"drain_seconds": 0.2}) as server:
        connection = send_request(server.hear(), "/wait")
        assert server.hear() == "request /wait"
        server.process.send_signal(signal.SIGTERM)
        read_all(connection)
        assert [server.hear() for _ in range(4)] == ["draining", "cancelled", "ended", "returned"]
        assert server.end()[0] == 0


@pytest.mark.parametrize(("number", "loop"), [(signal.SIGTERM, "asyncio"), (signal.SIGINT, LOOPS[-1])])
def test_a_second_signal_ends_the_drain_at_once_and_no_connection_is_accepted_before(number: int, loop: str) -> None:
    with program(loop=loop, limits={"drain_seconds": 600}) as server:
        url = server.hear()
        connection = send_request(url, "/wait")
        assert server.hear() == "request /wait"
        server.process.send_signal(signal.SIGTERM)
        assert server.hear() == "draining"
        with pytest.raises(ConnectionError):
            send_request(url)
        server.process.send_signal(number)
        read_all(connection)
        assert server.hear() == "cancelled"
        code, stderr = server.end()
        assert code == 0
        assert "Traceback" not in stderr


def test_a_signal_while_the_application_starts_ends_it() -> None:
    with program(start="hangs") as server:
        assert server.hear() == "starting"
        server.process.send_signal(signal.SIGTERM)
        assert server.hear() == "returned"
        assert server.end() == (0, "")


async def test_the_event_stops_the_server_and_idle_connections_are_closed() -> None:
    async with served() as server:
        reader, writer = await server.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"GET / 0")
        server.stopping.set()
        assert await reader.read() == b""
        writer.close()
        await server.task
    assert server.app.seen == ["/", "the end"]


async def test_a_request_that_is_arriving_is_answered_during_the_drain() -> None:
    async with served(Limits(drain_seconds=5)) as server:
        waiting = asyncio.create_task(server.ask(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"))
        await server.app.told.get()
        reader, writer = await server.connect()
        writer.write(b"GET / HTTP/1.1\r\n")
        # The server has read the first line when it has answered what came after it.
        await server.ask(GET)
        server.stopping.set()
        await server.app.draining.wait()
        writer.write(b"Host: a\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 503")
        writer.close()
        server.app.release.set()
        assert (await waiting).startswith(b"HTTP/1.1 200")


async def test_a_server_whose_task_is_cancelled_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    url: asyncio.Queue[str] = asyncio.Queue()
    app = SmallApp()
    task = asyncio.create_task(serve(app, limits=Limits(), port=0, started=url.put_nowait))
    waiting = asyncio.create_task(ask(urlsplit(await url.get()).port or 0, GET.replace(b"/ ", b"/wait ", 1)))
    await app.told.get()
    task.cancel()
    await asyncio.wait([task, waiting])
    assert (task.cancelled(), app.seen[0], asyncio.all_tasks() - before) == (True, "/wait", set())


def test_the_signal_handlers_of_the_program_are_restored() -> None:
    def own(number: int, frame: object) -> None:
        """Stand for a handler of the program."""

    async def main() -> None:
        signal.signal(signal.SIGTERM, own)
        async with served():
            assert signal.getsignal(signal.SIGTERM) is not own
        assert signal.getsignal(signal.SIGTERM) is own

    before = signal.getsignal(signal.SIGTERM)
    try:
        run_async(main())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_serves_without_signal_handlers() -> None:
    answers: list[bytes] = []

    async def main() -> None:
        async with served() as server:
            answers.append(await server.ask(GET))

    thread = threading.Thread(target=run_async, args=(main(),))
    thread.start()
    thread.join(timeout=120)
    assert answers[0].startswith(b"HTTP/1.1 200")


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", pytest.param("[::1]", marks=NEEDS_IPV6)])
async def test_the_url_has_the_host_and_the_port_that_was_chosen(host: str) -> None:
    async with served(host=host.strip("[]")) as server:
        assert server.url.startswith(f"http://{host}:")
        assert server.port > 0


async def test_given_sockets_are_served() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    async with served(sockets=[listening]) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        assert (await server.ask(GET)).startswith(b"HTTP/1.1 200")
    assert listening.fileno() == -1


def test_the_logging_configuration_of_the_program_is_unchanged() -> None:
    access = logging.getLogger("uvicorn.access")
    handler = logging.NullHandler()
    before, others = access.propagate, list(logging.getLogger("uvicorn").handlers)
    access.addHandler(handler)

    async def main() -> None:
        async with served() as server:
            await server.ask(GET)

    try:
        run_async(main())
        assert handler in access.handlers
        assert access.propagate is before
        assert logging.getLogger("uvicorn").handlers == others
    finally:
        access.removeHandler(handler)


async def test_the_access_log_can_be_enabled(caplog: pytest.LogCaptureFixture) -> None:
    async with served(uvicorn_config={"access_log": True}, log_level="info") as server:
        await server.ask(GET)
    assert '"GET / HTTP/1.1" 200' in caplog.text


def test_an_application_that_cannot_start_is_an_error_of_one_sentence() -> None:
    with program(start="raises") as server:
        assert server.end() == (2, "The store at example.db cannot be opened.\n")


class Odd(SmallApp):
    """An application whose start and end go as the test says."""

    def __init__(self, *words: str, drain: Exception | None = None) -> None:
        super().__init__()
        self.words = words
        self.problem = drain

    async def live(self, receive: Receive, send: Send) -> None:
        for word in self.words:
            await receive()
            await send({"type": f"lifespan.{word}", "message": "a reason"})

    async def drain(self, seconds: float) -> None:
        if self.problem is not None:
            raise self.problem
        await super().drain(seconds)


async def answer_of(app: SmallApp, **options: Any) -> bytes:
    """Serve an application for one request."""
    async with served(app=app, **options) as server:
        return await server.ask(GET)


def test_an_application_without_lifespan_support_is_served() -> None:
    assert run_async(answer_of(Odd())).startswith(b"HTTP/1.1 200")


def test_an_application_that_reports_a_failed_startup_is_not_served() -> None:
    with pytest.raises(ConfigError, match="did not start: a reason"):
        run_async(answer_of(Odd("startup.failed")))


def test_a_failed_shutdown_of_the_application_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    run_async(answer_of(Odd("startup.complete", "shutdown.failed")))
    assert "did not shut down cleanly: a reason" in caplog.text


def test_an_application_that_does_not_shut_down_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    class Endless(SmallApp):
        async def live(self, receive: Receive, send: Send) -> None:
            await send({"type": "lifespan.startup.complete"})
            await asyncio.Event().wait()

    run_async(answer_of(Endless(), limits=Limits(drain_seconds=0.1)))
    assert "did not shut down in time" in caplog.text


def test_a_start_that_fails_with_a_message_and_an_error_raises_the_error() -> None:
    class Failing(SmallApp):
        async def live(self, receive: Receive, send: Send) -> None:
            await send({"type": "lifespan.startup.failed", "message": "a long story"})
            raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table"):
        run_async(answer_of(Failing()))


def test_an_application_that_cannot_drain_is_logged_and_ended(caplog: pytest.LogCaptureFixture) -> None:
    run_async(answer_of(Odd("startup.complete", "shutdown.complete", drain=ValueError("no drain"))))
    assert "no drain" in caplog.text


async def test_requests_that_the_application_does_not_drain_are_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    app = Odd("startup.complete", "shutdown.complete", drain=ValueError())
    async with served(Limits(drain_seconds=0.1), app) as server:
        waiting = asyncio.create_task(server.ask(GET.replace(b"/ ", b"/wait ", 1)))
        await app.told.get()
        server.stopping.set()
        await server.task
        await waiting
    assert "stopped 1 request(s) that did not finish in time" in caplog.text


async def test_a_client_that_does_not_read_its_last_bytes_does_not_delay_the_shutdown() -> None:
    async with served(Limits(drain_seconds=0.1)) as server:
        _, writer = await server.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        await server.app.full.wait()
        server.stopping.set()
        await server.task
        writer.transport.abort()


async def test_a_socket_in_the_file_system_is_served(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "http"))
    async with served(sockets=[listening]) as server:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "http"))
        writer.write(GET)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        assert server.url == f"unix:{tmp_path / 'http'}"


# --- invalid options --------------------------------------------------------------------------------------------------


def failure(**options: Any) -> str:
    """Try to serve with these options; give the sentence of the refusal."""

    async def main() -> None:
        async with served(**options):
            pass

    with pytest.raises(ConfigError) as caught:
        run_async(main())
    return str(caught.value)


def test_a_port_in_use_is_an_error_that_names_the_fix() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert failure(port=port) == (
            f"Port {port} on 127.0.0.1 is in use by another program; "
            f"give another one, e.g. --http {port + 1} or port={port + 1} (0: any free one)."
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            {"host": "no-such-host.invalid"}, 'The host "no-such-host.invalid" is not known', id="no such host"
        ),
        pytest.param({"host": "a" * 70}, "is not known", id="a host that is no name"),
        pytest.param({"host": "192.0.2.1"}, "This machine has no address 192.0.2.1", id="an address elsewhere"),
        pytest.param({"port": 70000}, "Invalid port 70000: use 0 to 65535", id="no such port"),
        pytest.param({"uvicorn_config": {"http": "h11"}}, "may not set http", id="a setting that is ours"),
        pytest.param({"uvicorn_config": {"nonsense": 1}}, "nonsense", id="a setting that does not exist"),
        pytest.param({"log_level": "loud"}, "loud", id="no such level"),
    ],
)
def test_an_invalid_option_is_an_error_of_one_sentence(options: dict[str, Any], words: str) -> None:
    sentence = failure(**options)
    assert words in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("number", "words"),
    [
        pytest.param(errno.EACCES, "Port 80 on 127.0.0.1 needs more rights", id="a port for the system"),
        pytest.param(errno.ENOBUFS, "Port 80 on 127.0.0.1 cannot be served", id="something else"),
    ],
)
def test_a_port_that_cannot_be_bound_is_an_error_of_one_sentence(
    monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert words in failure(port=80)


@pytest.mark.parametrize("step", ["bind", "listen"])
def test_another_port_is_tried_if_the_chosen_one_is_in_use(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    real = getattr(socket.socket, step)
    failures = [OSError(errno.EADDRINUSE, "in use")]

    def fail_once(sock: socket.socket, *given: Any) -> None:
        if failures:
            raise failures.pop()
        real(sock, *given)

    monkeypatch.setattr(socket.socket, step, fail_once)
    assert run_async(answer_of(SmallApp())).startswith(b"HTTP/1.1 200")
    assert failures == []


def test_a_missing_extra_is_named() -> None:
    with program(missing=["httptools"]) as server:
        assert server.end() == (2, "Serving HTTP needs httptools; run: pip install 'trunkline[http]'\n")


# --- TLS --------------------------------------------------------------------------------------------------------------


class Papers:
    """A certificate and its key in two files, made for a test."""

    def __init__(self, folder: Path, *, password: bytes | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.cert, self.key = make_certificate(folder / "cert.pem", "localhost", password=password), folder / "key.pem"
        key, mark, certificate = self.cert.read_bytes().partition(b"-----BEGIN CERTIFICATE")
        self.key.write_bytes(key)
        self.cert.write_bytes(mark + certificate)

    @property
    def options(self) -> dict[str, Any]:
        return {"certfile": str(self.cert), "keyfile": str(self.key)}


@each_loop
def test_tls_is_served(tmp_path: Path, loop: str) -> None:
    papers = Papers(tmp_path)
    trust = ssl.create_default_context(cafile=str(papers.cert))

    async def main() -> bytes:
        async with served(**papers.options) as server:
            assert server.url.startswith("https://")
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=trust, server_hostname="localhost"
            )
            writer.write(GET)
            answer = await reader.read()
            writer.close()
            return answer

    assert run_on(loop, main()).startswith(b"HTTP/1.1 200")


async def test_an_encrypted_key_is_loaded_with_its_password(tmp_path: Path) -> None:
    papers = Papers(tmp_path, password=b"sesame")
    async with served(**papers.options, keyfile_password="sesame") as server:
        assert server.url.startswith("https://")


def test_a_certificate_or_a_key_that_is_missing_is_named(tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    absent = tmp_path / "absent"
    assert f"The certificate file {absent} cannot be read" in failure(certfile=str(absent), keyfile=str(papers.key))
    assert f"The key file {absent} cannot be read" in failure(certfile=str(papers.cert), keyfile=str(absent))
    assert "needs a certificate" in failure(keyfile=str(papers.key))


def test_an_invalid_certificate_file_or_one_without_a_key_is_named(tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    assert "give the key's file as keyfile" in failure(certfile=str(papers.cert))
    papers.cert.write_text("nonsense")
    assert f"{papers.cert} and {papers.key} are not a certificate and a key" in failure(**papers.options)


def test_a_key_of_another_certificate_is_an_error(tmp_path: Path) -> None:
    papers, other = Papers(tmp_path), Papers(tmp_path / "other")
    sentence = failure(certfile=str(papers.cert), keyfile=str(other.key))
    assert f"The key in {other.key} does not belong to the certificate in {papers.cert}" in sentence


@pytest.mark.parametrize(
    ("password", "words"),
    [
        pytest.param(None, "is locked with a password; give it as keyfile_password", id="no password"),
        pytest.param("guess", "The password does not open the key", id="a wrong password"),
    ],
)
def test_an_encrypted_key_without_its_password_is_an_error(tmp_path: Path, password: str | None, words: str) -> None:
    papers = Papers(tmp_path, password=b"sesame")
    assert words in failure(**papers.options, keyfile_password=password)
