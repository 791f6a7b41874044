"""Tests of both: the server as a process, the client in this one."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.over_http import client as kitchen_client


@pytest.fixture
def url() -> Iterator[str]:
    """Start the server on a free port, and stop it after the test."""
    program = [sys.executable, str(Path(__file__).with_name("server.py"))]
    environment = {**os.environ, "PORT": "0"}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("serving ").strip()
        process.terminate()
        assert process.wait(20) == 0


def test_one_address_serves_both_eras(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The client prints which revision was used, and whether there was a session."""
    asyncio.run(kitchen_client.main(url))
    assert capsys.readouterr().out.splitlines() == [
        "2026-07-28, no session",
        "Sacher: minute 1",
        "Sacher: minute 2",
        "Sacher: minute 3",
        "Sacher is done",
        "2025-11-25, a session",
    ]
