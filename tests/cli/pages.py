"""A command that shows a console, as a process of its own, and a small client of its API."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.request import Request, urlopen

import trunkline
from tests.cli.support import SECONDS

__all__ = ["Page", "address_in", "showing", "started"]

_ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/#token=([\w-]+)")


class Page:
    """A console in another process."""

    def __init__(self, process: subprocess.Popen[str], origin: str, token: str) -> None:
        self.process = process
        self.origin = origin
        self.token = token

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to the API."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with urlopen(Request(f"{self.origin}/api{path}", data, headers, method=method), timeout=SECONDS) as response:
            return json.loads(response.read())

    def get(self, path: str) -> Any:
        """Send a GET request."""
        return self.request("GET", path)

    def post(self, path: str, body: Any = None) -> Any:
        """Send a POST request."""
        return self.request("POST", path, {} if body is None else body)

    def until(self, path: str, holds: Callable[[Any], object]) -> Any:
        """Ask again until an answer has a property."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = self.get(path)
            if holds(found):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{path} never got there: {found}")

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Stop it, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=SECONDS)


def address_in(line: str) -> tuple[str, str]:
    """Return the origin and the token of the address in a line."""
    found = _ADDRESS.search(line)
    assert found is not None, line
    return found.group(1), found.group(2)


@contextmanager
def started(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Start the command without a terminal; it is ended with the context."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trunkline", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(trunkline.__file__).parents[1]), **(env or {})},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=SECONDS)


@contextmanager
def showing(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Iterator[Page]:
    """Start a command that shows a page, and wait for its address."""
    with started(*arguments, cwd=cwd, env=env) as process:
        line = _line(process.stdout)
        if not line:
            raise AssertionError(process.communicate(timeout=SECONDS))
        yield Page(process, *address_in(line))


def _line(stream: IO[str]) -> str:
    return stream.readline()
