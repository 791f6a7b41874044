"""The non-blocking writer and the link over two descriptors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transports.loops import LOOPS, run_on
from trunkline.protocol.jsonrpc import Notification, Outbound
from trunkline.protocol.limits import Limits
from trunkline.testing.link_check import RecordingReceiver
from trunkline.transports.pipes import PipeLink, PipeOutput

NOTE = [Outbound(Notification("note"))]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe whose reading end the test may leave to be closed here."""
    read_fd, write_fd = os.pipe()
    yield read_fd, write_fd
    os.close(read_fd)


def ignore(error: OSError) -> None:
    """Ignore a broken pipe."""


@pytest.mark.parametrize("loop", LOOPS)
def test_drain_waits_until_the_output_is_read(loop: str, pipe: tuple[int, int]) -> None:
    async def main() -> tuple[bool, int]:
        output = PipeOutput(pipe[1], high_water=1000, on_broken=ignore)
        output.attach(asyncio.get_running_loop())
        output.write_lines([b"x" * 100_000, b"y" * 2_000_000])
        draining = asyncio.create_task(output.drain())
        await asyncio.sleep(0)
        waits, size = not draining.done(), 0
        while not draining.done():
            size += len(await asyncio.to_thread(os.read, pipe[0], 1 << 20))
        await draining
        output.close()
        return waits, size + len(os.read(pipe[0], 1 << 20))

    assert run_on(loop, main()) == (True, 2_100_002)


async def test_messages_sent_together_are_one_write(pipe: tuple[int, int]) -> None:
    output = PipeOutput(pipe[1], high_water=1000, on_broken=ignore)
    output.attach(asyncio.get_running_loop())
    output.write_lines([b"one", b"two"])
    output.close()
    assert os.read(pipe[0], 100) == b"one\ntwo\n"


async def test_lines_written_before_attach_are_kept(pipe: tuple[int, int]) -> None:
    output = PipeOutput(pipe[1], high_water=1000, on_broken=ignore)
    output.write_lines([b"early"])
    output.attach(asyncio.get_running_loop())
    output.close()
    assert os.read(pipe[0], 100) == b"early\n"


async def test_the_order_of_large_and_small_messages_is_kept(tmp_path: Path) -> None:
    output = PipeOutput(os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT), high_water=10, on_broken=ignore)
    output.attach(asyncio.get_running_loop())
    output.write_lines([b"a"])
    output.write_lines([b"b" * 200_000, b"c"])
    output.write_lines([b"d"])
    await output.drain()
    output.close()
    assert (tmp_path / "out").read_bytes() == b"a\n" + b"b" * 200_000 + b"\nc\nd\n"


async def test_a_full_disk_ends_the_link(pipe: tuple[int, int]) -> None:
    link = PipeLink(os.dup(pipe[0]), os.open("/dev/full", os.O_WRONLY))
    seen = RecordingReceiver()
    link.attach(seen)
    link.send(NOTE)
    reason = await seen.end()
    await link.aclose()
    assert str(reason) == "writing failed: No space left on device"


async def test_closing_waits_a_bounded_time_when_the_peer_does_not_read(pipe: tuple[int, int]) -> None:
    loop = asyncio.get_running_loop()
    link = PipeLink(os.open(os.devnull, os.O_RDONLY), pipe[1], limits=Limits(exit_seconds=0.05))
    link.attach(RecordingReceiver())
    link.send([Outbound(Notification("large", "x" * 3_000_000))])
    started = loop.time()
    await link.aclose()
    assert (loop.time() - started) < 2


async def test_a_closed_writer_drops_lines(pipe: tuple[int, int]) -> None:
    output = PipeOutput(pipe[1], high_water=10, on_broken=ignore)
    output.attach(asyncio.get_running_loop())
    output.close()
    output.write_lines([b"late"])
    await output.drain()
    assert os.read(pipe[0], 100) == b""
