"""The path of one ``tools/call`` over stdio, from the bytes read to the bytes written, held to a budget by a profiler.

Counted are calls of functions in the package: a coroutine that resumes after a wait was counted before, and
comprehensions are not functions. Start-up is over before the count begins.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import trunkline
from tests.architecture.eras import ERAS, each_era
from tests.support import run_async
from trunkline import Server
from trunkline.transports.pipes import PipeLink

MAX_FILES, MAX_FUNCTIONS, MAX_SWITCHES = 12, 32, 30

PACKAGE = str(Path(trunkline.__file__).parent) + os.sep


class Step(NamedTuple):
    """A function that was called."""

    file: str
    function: str


class Profile:
    """Records each function of the package that is called while the profile is active."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._frames: list[FrameType] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE) or frame in self._frames:
            return
        self._frames.append(frame)
        if code.co_name not in {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}:
            self.steps.append(Step(code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    @property
    def files(self) -> set[str]:
        """The files with a function that was called."""
        return {step.file for step in self.steps}

    @property
    def switches(self) -> int:
        """How often the next function is in another file."""
        return sum(before.file != after.file for before, after in zip(self.steps, self.steps[1:], strict=False))

    def __str__(self) -> str:
        path = "\n".join(f"  {step.file}: {step.function}" for step in self.steps)
        return f"{len(self.files)} files, {len(self.steps)} functions, {self.switches} switches:\n{path}"


def add_server() -> Server:
    """A server with one async tool."""
    server = Server("tiny", version="1.0.0")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


async def profile_call(server: Server, lines: tuple[dict[str, Any], ...]) -> Profile:
    """Serve over pipes, warm up, then profile one more call like the last of these lines."""
    profile = Profile()
    to_server, from_server = os.pipe(), os.pipe()
    link = PipeLink(to_server[0], from_server[1])
    serving = asyncio.create_task(server.serve(link))
    answers = _reader(from_server[0])
    try:
        for number, line in enumerate((*lines, lines[-1], lines[-1])):
            os.write(to_server[1], _line(line, number))
            if "id" in line:
                await answers()
        sys.setprofile(profile)
        try:
            os.write(to_server[1], _line(lines[-1], 100))
            answer = await answers()
        finally:
            sys.setprofile(None)
        assert answer["id"] == 100
    finally:
        os.close(to_server[1])
        await serving
        os.close(from_server[0])
    return profile


def _line(message: dict[str, Any], number: int) -> bytes:
    """Encode a message; if it has an id, with this number as its id."""
    return json.dumps({**message, **({"id": number} if "id" in message else {})}).encode() + b"\n"


def _reader(fd: int) -> Callable[[], Any]:
    """Return a coroutine function that reads the next line of a pipe in a thread, so that it is not profiled."""
    lines = os.fdopen(os.dup(fd), "rb")

    async def answer() -> dict[str, Any]:
        data: dict[str, Any] = json.loads(await asyncio.to_thread(lines.readline))
        if data["id"] == 100:
            lines.close()
        return data

    return answer


@each_era
def test_one_call_stays_within_its_budgets(era: str) -> None:
    profile = run_async(profile_call(add_server(), ERAS[era]))
    assert {"transports/pipes.py", "protocol/jsonrpc.py", "protocol/peer.py", "connection.py"} <= profile.files
    assert len(profile.files) <= MAX_FILES, str(profile)
    assert len(profile.steps) <= MAX_FUNCTIONS, str(profile)
    assert profile.switches <= MAX_SWITCHES, str(profile)
