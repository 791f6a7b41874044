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
        [sys.executable, str(PROGRAM), loop], input=data, capture_output=True, timeout=120, env={**ENV, **(env or {})}
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


@pytest.mark.parametrize("loop", LOOPS)
def test_requests_are_answered_and_the_end_of_input_is_reported(loop: str) -> None:
    text = "x" * (8 << 20)
    answers, stderr = serve(call(params=text) + call(params=2, id=2), loop=loop)
    assert ([answer["result"] for answer in answers] == [text, 2], "ended: None" in stderr) == (True, True)


def test_only_messages_are_written_to_the_pipe() -> None:
    methods = ["print", "print-below", "child", "echo"]
    answers, stderr = serve(b"".join(call(method, id=n) for n, method in enumerate(methods)), env={"PRINT_EARLY": "1"})
    assert [answer["id"] for answer in answers] == [0, 1, 2, 3]
    # A print, a write to descriptor 1, a child that reads the input, and what was buffered before.
    words = ("a stray print", "a stray write", "EOFError", "printed before the claim")
    assert [word for word in words if word not in stderr] == []


def test_invalid_input_is_answered_and_the_next_request_served() -> None:
    bad = b"x" * 5000 + b"\n{oops\n" + b'{"a": "\xff"}\n{"jsonrpc":"1.0","method":"x"}\n'
    *refusals, answer = serve(bad + call(params="alive").rstrip(), env={"MESSAGE_BYTES": "1000"})[0]
    assert [refusal["error"]["code"] for refusal in refusals] == [-32700, -32700, -32700, -32600]
    assert answer["result"] == "alive"


def test_input_from_the_null_device_ends_at_once() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), LOOPS[-1]], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, env=ENV
    )
    assert b"ended: None" in done.stderr


@pytest.mark.parametrize("loop", LOOPS)
def test_input_and_output_may_be_regular_files(loop: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(call(params="x" * 1_000_000) + call(params=2))
    with (tmp_path / "in").open() as source, (tmp_path / "out").open("w") as target:
        subprocess.run(
            [sys.executable, str(PROGRAM), loop], stdin=source, stdout=target, timeout=120, env=ENV, check=True
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
    with os.fdopen(read_fd), os.fdopen(write_fd, "w"):
        subprocess.run([sys.executable, str(PROGRAM)], input=call(), stdout=write_fd, stderr=-3, timeout=120, env=ENV)
        assert os.get_blocking(write_fd)


@pytest.mark.parametrize(
    ("closed", "name"),
    [pytest.param("<&-", "input", id="no input"), pytest.param(">&-", "output", id="no output")],
)
def test_a_process_without_a_standard_stream_is_refused_with_a_clear_message(closed: str, name: str) -> None:
    command = f'exec "{sys.executable}" "{PROGRAM}" {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=120, env=ENV, input=b"")
    assert f"the standard {name} is closed".encode() in done.stderr
