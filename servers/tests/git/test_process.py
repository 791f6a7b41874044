"""One process in the event loop, on programs that every system has."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.support import BOUND, run_async
from trunkline.errors import ToolError
from trunkline_servers.git.process import ChildProcess, GitProgram, ProcessResult

MUCH = bytes(range(256)) * 4096
CLOSES_FIRST = "exec >&- 2>&-; cat > /dev/null; exit 4"


# Descriptors and processes are counted.
pytestmark = pytest.mark.usefixtures("without_collector")


async def ran(*words: str, stdin: bytes = b"", most: int = 10 * len(MUCH)) -> ProcessResult:
    child = ChildProcess(words, cwd=os.sep, env={"PATH": os.environ["PATH"]}, stdin=stdin, most=most)
    try:
        return await child.finish()
    finally:
        await child.end()


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def children() -> int:
    return len(psutil.Process().children())


def uvloops() -> asyncio.AbstractEventLoop:
    made: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return made


LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(uvloops, id="uvloop")]
Loop = Callable[[], asyncio.AbstractEventLoop]


def in_loop(loop: Loop, work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in an event loop of that kind."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(asyncio.wait_for(work, BOUND))


def test_a_process_that_reads_no_input_is_not_a_failure() -> None:
    assert run_async(ran("/bin/sh", "-c", "exit 3", stdin=MUCH)) == ProcessResult(3, b"", "", False)


def test_an_output_of_just_the_most_is_whole_and_one_byte_more_is_cut() -> None:
    assert run_async(ran("/bin/cat", stdin=b"abcd", most=4)) == ProcessResult(0, b"abcd", "", False)
    assert run_async(ran("/bin/cat", stdin=b"abcde", most=4)) == ProcessResult(0, b"abcd", "", True)


def test_an_output_without_end_is_cut_and_the_process_ended() -> None:
    said = run_async(ran("/bin/sh", "-c", "while :; do echo more; done", most=10))
    assert said == ProcessResult(0, b"more\nmore\n", "", True)


def test_a_long_complaint_does_not_hold_a_process_up() -> None:
    said = run_async(ran("/bin/sh", "-c", "cat >&2; echo done", stdin=b"c" * len(MUCH)))
    assert (said.status, said.text, said.stderr) == (0, "done", "c" * 65536)


def test_without_pidfds_the_exit_of_a_process_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    # The pipes are closed before it exits.
    assert run_async(ran("/bin/sh", "-c", CLOSES_FIRST, stdin=MUCH)) == ProcessResult(4, b"", "", False)


async def test_no_descriptor_is_left_after_a_run() -> None:
    await ran("/bin/cat", stdin=b"x")
    before = os.listdir("/dev/fd")
    await ran("/bin/cat", stdin=b"x")
    await ran("/bin/cat", stdin=MUCH, most=10)
    after = os.listdir("/dev/fd")
    assert len(after) == len(before)


def test_a_program_that_does_not_exist_cannot_be_started() -> None:
    with pytest.raises(OSError, match="missing"):
        run_async(ran("/missing/program"))


# --- how it ends -----------------------------------------------------------------------------------------------------


def is_gone(number: int) -> bool:
    """Return whether no process has that number, not even one whose status was not collected."""
    with suppress(ProcessLookupError):
        os.kill(number, 0)
        return False
    return True


async def started(pipe: Path, script: str) -> tuple[ChildProcess, int]:
    """Start a shell that tells its number in a pipe and then runs a script; give its number too."""
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    words = ("/bin/sh", "-c", f"echo $$ > '{pipe}'; {script}")
    child = ChildProcess(words, cwd=os.sep, env={"PATH": os.environ["PATH"]}, most=10)
    told = asyncio.Event()
    asyncio.get_running_loop().add_reader(end, told.set)
    await told.wait()
    asyncio.get_running_loop().remove_reader(end)
    number = int(os.read(end, 100))
    os.close(end)
    return child, number


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


STUBBORN = "trap '' TERM; while :; do sleep 60; done"


@pytest.mark.parametrize("loop", LOOPS)
def test_the_error_is_the_same_in_every_event_loop(loop: Loop) -> None:
    assert in_loop(loop, ran("/bin/cat", stdin=MUCH)) == ProcessResult(0, MUCH, "", False)
    assert in_loop(loop, ran("/bin/sh", "-c", CLOSES_FIRST, stdin=MUCH)) == ProcessResult(4, b"", "", False)
    assert in_loop(loop, ran("/bin/cat", stdin=MUCH, most=10)) == ProcessResult(0, MUCH[:10], "", True)


@pytest.mark.parametrize(
    ("loop", "script"),
    [
        pytest.param(uvloops, "exec sleep 60", id="in-uvloop"),
        pytest.param(asyncio.new_event_loop, "exec sleep 60", id="sleeps"),
        pytest.param(asyncio.new_event_loop, "exec >&- 2>&-; exec sleep 60", id="without-output"),
        pytest.param(asyncio.new_event_loop, "exec cat /dev/zero", id="talks"),
        pytest.param(asyncio.new_event_loop, "sleep 60 & wait", id="waits-for-another"),
        pytest.param(asyncio.new_event_loop, ":", id="has-ended"),
    ],
)
def test_an_ended_process_leaves_nothing_behind(pipe: Path, loop: Loop, script: str) -> None:
    async def scene() -> tuple[int, int, int]:
        before = descriptors()
        child, number = await started(pipe, script)
        await child.end()
        return before, descriptors(), number

    before, after, number = in_loop(loop, scene())

    assert (after, is_gone(number)) == (before, True)


async def test_cancelling_the_end_of_a_process_kills_it(pipe: Path) -> None:
    before = descriptors()
    child, number = await started(pipe, STUBBORN)
    ending = asyncio.create_task(child.end())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait({ending})
    after, cancelled = descriptors(), ending.cancelled()
    assert (after, is_gone(number), cancelled) == (before, True, True)


async def test_without_pidfds_a_stubborn_process_is_killed(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    monkeypatch.setattr("trunkline_servers.git.process._GRACE", 0.05)
    child, number = await started(pipe, STUBBORN)
    await child.end()
    assert is_gone(number)


#: It starts another that leaves the group, tells its number and holds the pipes.
AWAY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    with open(sys.argv[1], "w") as pipe:
        pipe.write(str(os.getpid()))
    time.sleep(60)
"""


async def test_a_process_that_left_the_group_and_holds_the_pipes_is_not_waited_for(
    pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline_servers.git.process._GRACE", 0.05)
    # The two pipes are closed.
    child = ChildProcess([sys.executable, "-ISc", AWAY, str(pipe)], cwd=os.sep, env={}, most=10)
    number = int(await asyncio.to_thread(pipe.read_text))
    before = descriptors()
    await child.end()
    os.kill(number, signal.SIGKILL)
    assert (before - descriptors()) == 2


@pytest.mark.parametrize("place", ["add_reader", "add_writer"])
async def test_a_process_whose_pipes_cannot_be_read_is_ended(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors(), children()

    def fail(*arguments: object) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), place, fail)
        with pytest.raises(OSError, match="no room"):
            ChildProcess(["/bin/cat"], cwd=os.sep, env={}, stdin=b"x", most=10)
    assert (descriptors(), children()) == before


# --- the program -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words", "told"),
    [
        pytest.param("/missing/git", ["version"], "No such file", id="absent"),
        pytest.param("/bin/sh", ["x" * 300_000], "Argument list too long", id="too-long"),
        pytest.param("/bin/sh", ["a\0b"], "null byte", id="zero-byte"),
        pytest.param("/bin/sh", ["\ud800"], "surrogates not allowed", id="no-text"),
    ],
)
def test_a_program_that_cannot_be_started_is_an_error_in_words(path: str, words: list[str], told: str) -> None:
    program = GitProgram(path, seconds=BOUND, most=10)
    with pytest.raises(ToolError, match=f"git could not be started: .*{told}"):
        run_async(program.run(words, cwd=os.sep, env={}))


async def test_a_run_that_is_cancelled_leaves_no_process(pipe: Path) -> None:
    program = GitProgram("/bin/sh", seconds=BOUND, most=10)
    words = ["-c", f"echo $$ > '{pipe}'; exec sleep 60"]
    run = asyncio.create_task(program.run(words, cwd=os.sep, env={"PATH": os.environ["PATH"]}))
    number = int(await asyncio.to_thread(pipe.read_text))
    run.cancel()
    await asyncio.wait({run})
    cancelled = run.cancelled()
    assert (cancelled, is_gone(number)) == (True, True)
