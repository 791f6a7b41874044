"""Servers that are started as a fork: when that is possible, and the watcher as a child process."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from trunkline.transports import forked_process
from trunkline.transports.forked_process import can_fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="servers are forked on Linux only")


def test_a_process_does_not_fork_where_it_cannot_list_its_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``/proc``, as in some chroot environments, the forks could not close the client's files."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert can_fork()
    monkeypatch.setattr(forked_process, "_DESCRIPTORS", str(tmp_path / "missing"))
    assert not can_fork()


def test_a_watcher_that_was_reaped_elsewhere_is_not_an_error() -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    watcher = forked_process._ForkedWatcher(pid)
    os.waitpid(pid, 0)
    watcher.kill()
    assert watcher.wait(timeout=1) == 0
