"""A large answer that is nothing but escapes costs about as much memory as a plain one of the same size."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from tests.cli.gushing import KINDS
from trunkline.protocol.printable import printable

ROOT = Path(__file__).parents[2]
SIZE = 8_000_000


def peak_of_call(kind: str, folder: Path, *options: str) -> tuple[int, int]:
    """Run ``trunkline call`` on an answer of this kind; return its peak of memory in bytes, and how much it printed."""
    server = f"{sys.executable} -m tests.cli.gushing {kind} {SIZE}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    command = [sys.executable, "-m", "trunkline", "call", *options, "--env", "PYTHONPATH", server, "gush"]
    printed = folder / f"{kind}.txt"
    with printed.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, env=env, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024, printed.stat().st_size


@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is counted in other units elsewhere")
def test_a_call_needs_no_more_memory_for_escapes_than_for_plain_text(tmp_path: Path) -> None:
    usual, printed = peak_of_call("plain", tmp_path)
    assert printed == SIZE + 1
    for kind in ("mixed",):
        peak, printed = peak_of_call(kind, tmp_path)
        # As escapes a person can read: two thirds of what they are in JSON, and none of them as it was.
        assert printed > SIZE // 2
        assert peak < 1.4 * usual
    document, _ = peak_of_call("controls", tmp_path, "--json")
    assert document < 1.4 * usual


@pytest.mark.parametrize("kind", list(KINDS))
def test_text_is_made_safe_in_a_small_multiple_of_its_size(kind: str) -> None:
    text = str(KINDS[kind].encode().decode("unicode_escape")) * 500_000
    printable(text[:100])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        safe = printable(text)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # The text once more, the parts, and what they make together.
    assert peak < 3 * (len(safe) + sys.getsizeof(text))


def test_a_long_text_is_escaped_as_a_short_one_is() -> None:
    piece = "a\x1b[1m\u202eb\r\n\x00\ud800\U000e0041\u00fc\u6f22\t"
    many = 20_000
    assert printable(piece * many) == printable(piece) * many
    sparse = "x" * 1000 + piece
    assert printable(sparse * 1000) == printable(sparse) * 1000
    assert printable("\x00" * 200_000) == "\\x00" * 200_000
