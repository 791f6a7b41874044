"""The server side of stdio, in real processes: only messages are written to stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.transports.loops import LOOPS

PROGRAM = Path(__file__).parent / "programs" / "stdio_echo.py"
# Unbuffered, a print before the claim would be out before anything can be done about it.
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}


def call(method: str = "echo", params: object = None, *, id: int = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n"


def serve(data: bytes, *, loop: str = "asyncio", env: dict[str, str] | None = None) -> tuple[list[Any], str]:
    """Run the server on this input; give its answers and its stderr."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), loop], input=data, capture_output=True, timeout=20, env={**ENV, **(env or {})}
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


@pytest.mark.parametrize("loop", LOOPS)
def test_requests_are_answered_and_the_end_of_input_is_reported(loop: str) -> None:
    answers, stderr = serve(call(params=1) + call(params=2, id=2), loop=loop)
    assert [answer["result"] for answer in answers] == [1, 2]
    assert "ended: None" in stderr


def test_the_last_line_needs_no_newline() -> None:
    answers, _ = serve(call(params=1).rstrip())
    assert [answer["result"] for answer in answers] == [1]


@pytest.mark.parametrize(
    ("method", "words"),
    [
        pytest.param("print", "a stray print", id="print"),
        pytest.param("print-below", "a stray write", id="a write to descriptor 1"),
        pytest.param("child", "EOFError", id="a child process that reads the input"),
        pytest.param("echo", "printed before the claim", id="what was buffered before"),
    ],
)
def test_only_messages_are_written_to_the_pipe(method: str, words: str) -> None:
    answers, stderr = serve(call(method) + call(id=2), env={"PRINT_EARLY": "1"})
    assert [answer["id"] for answer in answers] == [1, 2]
    assert words in stderr


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        pytest.param(b"x" * 5000 + b"\n", -32700, id="a line over the limit"),
        pytest.param(b"{oops\n", -32700, id="no JSON"),
        pytest.param(b'{"a": "\xff"}\n', -32700, id="no UTF-8"),
        pytest.param(b'{"jsonrpc":"1.0","method":"x"}\n', -32600, id="no message"),
    ],
)
def test_invalid_input_is_answered_and_the_next_request_served(bad: bytes, code: int) -> None:
    refusal, answer = serve(bad + call(params="alive"), env={"MESSAGE_BYTES": "1000"})[0]
    assert refusal["error"]["code"] == code
    assert answer["result"] == "alive"


@pytest.mark.parametrize("loop", LOOPS)
def test_a_message_of_eight_megabytes_is_echoed_whole(loop: str) -> None:
    text = "x" * (8 << 20)
    (answer,), _ = serve(call(params=text), loop=loop)
    assert answer["result"] == text


@pytest.mark.parametrize("loop", LOOPS)
def test_input_from_the_null_device_ends_at_once(loop: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), loop], stdin=subprocess.DEVNULL, capture_output=True, timeout=20, env=ENV
    )
    assert b"ended: None" in done.stderr


@pytest.mark.parametrize("loop", LOOPS)
def test_input_and_output_may_be_regular_files(loop: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(call(params="x" * 1_000_000) + call(params=2))
    with (tmp_path / "in").open() as source, (tmp_path / "out").open("w") as target:
        subprocess.run(
            [sys.executable, str(PROGRAM), loop], stdin=source, stdout=target, timeout=20, env=ENV, check=True
        )
    answers = [json.loads(line)["result"] for line in (tmp_path / "out").read_text().splitlines()]
    assert answers == ["x" * 1_000_000, 2]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_broken_output_ends_the_link_with_the_error(loop: str) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), loop], stdin=subprocess.PIPE, stdout=write_fd, stderr=subprocess.PIPE, env=ENV
    ) as server:
        os.close(write_fd)
        assert server.stdin is not None
        assert server.stderr is not None
        server.stdin.write(call())
        server.stdin.flush()
        stderr = server.stderr.read()
    assert b"ended: ConnectionLost('writing failed: Broken pipe')" in stderr


def test_the_blocking_flag_of_the_output_is_restored() -> None:
    read_fd, write_fd = os.pipe()
    subprocess.run([sys.executable, str(PROGRAM)], input=call(), stdout=write_fd, stderr=-3, timeout=20, env=ENV)
    blocking = os.get_blocking(write_fd)
    os.close(read_fd)
    os.close(write_fd)
    assert blocking


@pytest.mark.parametrize(
    ("closed", "name"),
    [pytest.param("<&-", "input", id="no input"), pytest.param(">&-", "output", id="no output")],
)
def test_a_process_without_a_standard_stream_is_refused_with_a_clear_message(closed: str, name: str) -> None:
    command = f'exec "{sys.executable}" "{PROGRAM}" {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=20, env=ENV, input=b"")
    assert f"the standard {name} is closed".encode() in done.stderr
