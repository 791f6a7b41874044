"""The folder of one run of several workers: whose it is, where it is, and when it is removed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.errors import ConfigError
from trunkline.store import runtime_folder
from trunkline.store.runtime_folder import RuntimeFolder

PROGRAM = """
import sys, time
from pathlib import Path
from trunkline.store import runtime_folder
runtime_folder._places = lambda: iter([Path(sys.argv[1])])
print(runtime_folder.RuntimeFolder().path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one place for such folders."""
    monkeypatch.setattr(runtime_folder, "_places", lambda: iter([tmp_path]))
    # A disk of any size will do.
    monkeypatch.setattr(runtime_folder, "_LEAST_BYTES", 0)
    return tmp_path


async def test_a_folder_is_the_users_alone_and_is_removed_with_what_is_in_it(place: Path) -> None:
    folder = RuntimeFolder()
    assert stat.S_IMODE(os.stat(folder.path).st_mode) == 0o700
    store = folder.store("one")
    await store.connect()
    assert (store.durable, store.private, store.path.startswith(f"{folder.path}{os.sep}")) == (False, True, True)
    await store.aclose()
    folder.remove()
    assert os.listdir(place) == []


def test_the_folder_of_a_killed_run_is_removed_at_the_next_start_and_one_in_use_is_not(place: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    beside = RuntimeFolder()
    assert (left.exists(), beside.path.exists()) == (True, True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    after = RuntimeFolder()
    assert (left.exists(), beside.path.exists(), after.path.exists()) == (False, True, True)
    after.remove()
    beside.remove()


def test_without_a_place_the_error_names_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_folder, "_places", lambda: iter([tmp_path / "missing"]))
    monkeypatch.setattr(runtime_folder, "_LEAST_BYTES", 0)
    with pytest.raises(ConfigError, match="set TMPDIR to such a folder"):
        RuntimeFolder()
