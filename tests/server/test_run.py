"""Running a server as a program: the loop, the transport, signals, a clean end."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.server.talk import STATELESS
from tests.support import run_async
from trunkline import Client, Server
from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.server import CompatibilityWarning
from trunkline.server.run import run_loop
from trunkline.transports.pipes import PipeLink
from trunkline.transports.stdio import StdioLink

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def making() -> Server:
    server = Server("s")

    @server.tool
    async def hello() -> str:
        return "hello"

    return server


class Pipes:
    """A link over real pipes in place of the standard streams, and a client's end of them."""

    def __init__(self) -> None:
        self.in_read, self.in_write = os.pipe()
        self.out_read, self.out_write = os.pipe()

    def claim(self, limits: Limits) -> PipeLink:
        return PipeLink(self.in_read, self.out_write, limits=limits)

    def client_end(self) -> PipeLink:
        return PipeLink(self.out_read, self.in_write)


@pytest.fixture
def pipes(monkeypatch: pytest.MonkeyPatch) -> Pipes:
    made = Pipes()
    monkeypatch.setattr(StdioLink, "claim", made.claim)
    return made


# --- in this process -------------------------------------------------------------------------------------------------


async def test_a_server_runs_until_its_input_ends(pipes: Pipes) -> None:
    running = asyncio.ensure_future(making().run_async())
    await asyncio.sleep(0)
    async with Client(pipes.client_end(), revision=STATELESS) as client:
        assert (await client.call_tool("hello")).data == "hello"
    await running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_server_cleanly(number: signal.Signals, pipes: Pipes) -> None:
    running = asyncio.ensure_future(making().run_async())
    async with Client(pipes.client_end(), revision=STATELESS) as client:
        await client.call_tool("hello")
        os.kill(os.getpid(), number)
        await running


async def test_signal_handlers_are_removed_at_the_end(pipes: Pipes) -> None:
    before = signal.getsignal(signal.SIGTERM)
    running = asyncio.ensure_future(making().run_async())
    async with Client(pipes.client_end(), revision=STATELESS) as client:
        await client.call_tool("hello")
        during = signal.getsignal(signal.SIGTERM)
    await running
    assert (during != before, signal.getsignal(signal.SIGTERM)) == (True, before)


async def test_cancelling_a_running_server_raises_the_cancellation(pipes: Pipes) -> None:
    running = asyncio.ensure_future(making().run_async())
    async with Client(pipes.client_end(), revision=STATELESS) as client:
        await client.call_tool("hello")
        running.cancel()
        await asyncio.wait([running])
    assert running.cancelled()


def test_a_server_runs_in_any_thread(pipes: Pipes) -> None:
    thread = threading.Thread(target=lambda: asyncio.run(making().run_async()))
    thread.start()

    async def main() -> Any:
        async with Client(pipes.client_end(), revision=STATELESS) as client:
            return (await client.call_tool("hello")).data

    found = run_async(main())
    thread.join(120)
    assert (found, thread.is_alive()) == ("hello", False)


def test_transport_none_is_stdio(pipes: Pipes) -> None:
    os.close(pipes.in_write)
    making().run(None, show_banner=False)  # type: ignore[call-arg]
    os.close(pipes.out_read)


def test_a_configuration_error_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        making().run("carrier-pigeon")
    said = capsys.readouterr().err
    assert (exit.value.code, said.startswith("error: the transport"), said.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"port": 1, "host": "x"}, "host, port"),
        ({"transprot": "http"}, "transprot; did you mean 'transport'"),
        ({"prot": 1}, "prot; did you mean 'port'"),
    ],
    ids=["of http", "misspelt", "misspelt, of http"],
)
def test_an_option_unknown_to_stdio_is_rejected_with_the_closest(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=f"the stdio transport has no option {words}"):
        making().run(**options)


def test_show_banner_has_no_effect(pipes: Pipes) -> None:
    os.close(pipes.in_write)
    with pytest.warns(CompatibilityWarning, match="show_banner=True has no effect: there is no banner"):
        making().run(show_banner=True)  # type: ignore[call-arg]
    os.close(pipes.out_read)


def test_windows_is_rejected_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(sys, "platform", "win32")
        await making().run_async()

    with pytest.raises(ConfigError, match="do not run on Windows"):
        run_async(main())


# --- the loop --------------------------------------------------------------------------------------------------------


def loop_module() -> str:
    names: list[str] = []

    async def look() -> None:
        names.append(type(asyncio.get_running_loop()).__module__)

    run_loop(look())
    return names[0]


def test_uvloop_is_used_where_it_is_installed() -> None:
    pytest.importorskip("uvloop")
    assert loop_module().startswith("uvloop")


def test_without_uvloop_the_loop_is_asyncios(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "uvloop":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert loop_module().startswith("asyncio")


# --- as a program ----------------------------------------------------------------------------------------------------


def request(id: int, method: str, **params: Any) -> bytes:
    meta = {"io.modelcontextprotocol/protocolVersion": STATELESS, "io.modelcontextprotocol/clientCapabilities": {}}
    return (
        json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}).encode() + b"\n"
    )


# --- told to stop while calls run -------------------------------------------------------------------------------------

SLOW_PROGRAM = """
import asyncio, sys, time
from trunkline import Server
from trunkline.protocol.limits import Limits

server = Server("s", limits=Limits(drain_seconds=float(sys.argv[1])))

def begun(name: str) -> None:
    print("begun", name, file=sys.stderr, flush=True)

@server.tool
async def wait(path: str) -> str:
    begun("wait")
    while True:
        try:
            with open(path):
                return "finished"
        except FileNotFoundError:
            await asyncio.sleep(0.01)

@server.tool
def wait_in_a_thread(path: str) -> str:
    begun("wait_in_a_thread")
    while True:
        try:
            with open(path):
                return "finished"
        except FileNotFoundError:
            time.sleep(0.01)

@server.tool
async def forever() -> str:
    begun("forever")
    await asyncio.Event().wait()
    return "never"

server.run()
print("done", file=sys.stderr, flush=True)
"""


class Slow:
    """A server program whose calls take as long as the test says, and the pipes to it."""

    def __init__(self, drain_seconds: float) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", SLOW_PROGRAM, str(drain_seconds)], stdin=pipe, stdout=pipe, stderr=pipe, env=ENV
        )

    def __enter__(self) -> Slow:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def begin(self, id: int, name: str, **arguments: Any) -> None:
        """Call a tool, and wait until it runs."""
        self.send(request(id, "tools/call", name=name, arguments=arguments))
        assert self.process.stderr is not None
        assert self.process.stderr.readline().decode().split() == ["begun", name]

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return dict(json.loads(line)) if line else {}

    def refused(self) -> str:
        """Ask until the signal has been heard, from when on requests are refused; return the reason."""
        while True:
            self.send(request(2, "tools/list"))
            if "error" in (answer := self.answer()):
                return str(answer["error"]["message"])

    def end(self) -> tuple[int, str]:
        """Wait for the end, with the input still open; return the exit status and what was said."""
        status = self.process.wait(timeout=120)
        assert self.process.stderr is not None
        return status, self.process.stderr.read().decode()


@pytest.mark.parametrize(("tool", "number"), [("wait", signal.SIGTERM), ("wait_in_a_thread", signal.SIGINT)])
def test_a_call_that_runs_when_the_server_is_told_to_stop_is_answered(
    tool: str, number: signal.Signals, tmp_path: Path
) -> None:
    with Slow(20) as server:
        server.begin(1, tool, path=str(tmp_path / "now"))
        server.process.send_signal(number)
        assert server.refused() == "The server is stopping"
        (tmp_path / "now").touch()
        answer = server.answer()
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (1, "finished")
        assert server.answer() == {}
        status, said = server.end()
    assert status == 0
    assert said.split()[-1] == "done"


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [(0.2, "they did not finish in 0.2 s"), (600, "a second signal arrived")],
    ids=["late", "told twice"],
)
def test_a_call_that_does_not_end_is_cancelled(seconds: float, reason: str) -> None:
    with Slow(seconds) as server:
        server.begin(1, "forever")
        server.process.send_signal(signal.SIGTERM)
        if seconds == 600:
            server.refused()
            server.process.send_signal(signal.SIGTERM)
        assert server.answer() == {}
        status, said = server.end()
    assert status == 0
    assert f"1 requests are cancelled: {reason}" in said


def test_a_subscription_does_not_delay_the_shutdown() -> None:
    with Slow(600) as server:
        server.send(request(1, "subscriptions/listen", notifications={"toolsListChanged": True}))
        assert server.answer()["method"] == "notifications/subscriptions/acknowledged"
        server.process.send_signal(signal.SIGTERM)
        assert server.answer()["method"] == "notifications/cancelled"
        assert server.answer()["id"] == 1
        assert server.end()[0] == 0


def test_a_signal_after_the_end_of_the_input_stops_at_once() -> None:
    with Slow(600) as server:
        server.begin(1, "forever")
        assert server.process.stdin is not None
        server.process.stdin.close()
        # The input's end was read, or it is read before the signal is: both are there.
        server.process.send_signal(signal.SIGTERM)
        assert server.answer() == {}
        assert server.end()[0] == 0
