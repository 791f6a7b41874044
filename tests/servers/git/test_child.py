"""One process in the event loop, on programs that every system has."""

from __future__ import annotations

import os

import pytest

from tests.support import run_async
from trunkline.servers.git.child import Child, Ran

MUCH = bytes(range(256)) * 4096
CLOSES_FIRST = "exec >&- 2>&-; cat > /dev/null; exit 4"


async def ran(*words: str, stdin: bytes = b"", most: int = 10 * len(MUCH)) -> Ran:
    child = Child(words, cwd=os.sep, env={"PATH": os.environ["PATH"]}, stdin=stdin, most=most)
    try:
        return await child.finish()
    finally:
        await child.end()


def test_more_than_a_pipe_holds_goes_in_and_comes_out() -> None:
    assert run_async(ran("/bin/cat", stdin=MUCH)) == Ran(0, MUCH, "", False)


def test_a_process_that_hears_nothing_is_no_failure() -> None:
    assert run_async(ran("/bin/sh", "-c", "exit 3", stdin=MUCH)) == Ran(3, b"", "", False)


def test_without_anything_to_say_the_input_is_at_its_end() -> None:
    assert run_async(ran("/bin/cat")) == Ran(0, b"", "", False)


def test_an_output_of_just_the_most_is_whole_and_one_byte_more_is_cut() -> None:
    assert run_async(ran("/bin/cat", stdin=b"abcd", most=4)) == Ran(0, b"abcd", "", False)
    assert run_async(ran("/bin/cat", stdin=b"abcde", most=4)) == Ran(0, b"abcd", "", True)


def test_an_output_without_end_is_cut_and_the_process_ended() -> None:
    said = run_async(ran("/bin/sh", "-c", "while :; do echo more; done", most=10))

    assert said == Ran(0, b"more\nmore\n", "", True)


def test_a_long_complaint_does_not_hold_a_process_up() -> None:
    said = run_async(ran("/bin/sh", "-c", "cat >&2; echo done", stdin=b"c" * len(MUCH)))

    assert (said.status, said.text, said.complaint) == (0, "done", "c" * 65536)


def test_where_processes_have_no_descriptors_their_end_is_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)

    # The pipes are closed before it exits.
    assert run_async(ran("/bin/sh", "-c", CLOSES_FIRST, stdin=MUCH)) == Ran(4, b"", "", False)


def test_a_process_that_closes_its_output_first_is_waited_for() -> None:
    assert run_async(ran("/bin/sh", "-c", CLOSES_FIRST, stdin=MUCH)) == Ran(4, b"", "", False)


def test_no_descriptor_is_left_after_a_run() -> None:
    async def scene() -> tuple[list[str], list[str]]:
        await ran("/bin/cat", stdin=b"x")
        before = os.listdir("/dev/fd")
        await ran("/bin/cat", stdin=b"x")
        await ran("/bin/cat", stdin=MUCH, most=10)
        return before, os.listdir("/dev/fd")

    before, after = run_async(scene())

    assert len(after) == len(before)


def test_a_program_that_is_not_there_cannot_be_started() -> None:
    with pytest.raises(OSError, match="missing"):
        run_async(ran("/missing/program"))
