"""The example of a custom transport: its link passes the link check, and the program runs."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from examples.custom_transport.frames import FrameLink
from tests.transports.loops import LOOPS, run_on
from trunkline.errors import ConnectionLost
from trunkline.protocol.limits import Limits
from trunkline.testing.link_check import RecordingReceiver, check_link
from trunkline.transports.link import Link

ROOT = Path(__file__).parents[2]


async def frames() -> tuple[Link, Link]:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    _, left = await loop.create_connection(FrameLink, sock=near)
    _, right = await loop.create_connection(FrameLink, sock=far)
    return left, right


@pytest.mark.parametrize("loop", LOOPS)
def test_the_link_of_the_example_passes_the_link_check(loop: str) -> None:
    run_on(loop, check_link(frames), seconds=120)


async def test_a_frame_over_the_limit_ends_the_link_of_the_example() -> None:
    near, far = socket.socketpair()
    _, link = await asyncio.get_running_loop().create_connection(lambda: FrameLink(Limits(message_bytes=10)), sock=near)
    seen = RecordingReceiver()
    link.attach(seen)
    with far:
        far.sendall(b"\xff\xff\xff\xff")
        reason = await seen.end()
        await link.aclose()
    assert isinstance(reason, ConnectionLost)


def test_the_example_runs() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "examples.custom_transport"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        timeout=120,
        text=True,
    )
    assert done.stdout.splitlines() == ["StreamLink: 19 + 23 = 42", "FrameLink: 19 + 23 = 42"], done.stderr
