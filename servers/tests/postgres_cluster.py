"""A real PostgreSQL in a temporary folder, for tests: created once per process, on a Unix socket, removed at the end.

PostgreSQL does not run as root, so root starts it as another user. Where there is no PostgreSQL, tests that want one
are skipped. As a program (``postgres_cluster.py PORT SQL COMMAND...``) it runs a command beside a PostgreSQL that
listens at 127.0.0.1 and has been given some SQL.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

__all__ = ["Cluster", "main", "programs", "started"]

_FOLDERS = ("/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/15/bin")
_USERS = ("postgres", "nobody")
_SECONDS = 120.0
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "40",
    "shared_buffers": "4MB",
    "autovacuum": "off",
    "max_prepared_transactions": "2",
    "log_min_messages": "fatal",
}


class Cluster(NamedTuple):
    """A running PostgreSQL; the superuser is ``owner``, connections need no password."""

    folder: Path
    process: subprocess.Popen[bytes]

    def url(self, role: str, database: str = "postgres") -> str:
        """Return the URL of a database for a role."""
        return f"postgresql://{role}@/{database}?host={self.folder}"


def programs() -> Path | None:
    """Find the folder that has ``initdb`` and ``postgres``."""
    found = shutil.which("initdb")
    candidates = ([Path(found).parent] if found else []) + [Path(folder) for folder in _FOLDERS]
    return next((each for each in candidates if (each / "initdb").exists() and (each / "postgres").exists()), None)


def _as_user() -> tuple[str, Callable[[], None] | None] | None:
    """Return the user to run as, and how to switch to it in a child process; None if there is none."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name, None
    for name in _USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue

        def become(user: int = entry.pw_uid, group: int = entry.pw_gid) -> None:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)

        return name, become
    return None


@contextmanager
def started(sql: str = "", **settings: str) -> Iterator[Cluster]:
    """Run a cluster, given some SQL and settings beside the usual; skip the test if it cannot be had here."""
    folder, who = programs(), _as_user()
    if folder is None:
        pytest.skip("there is no PostgreSQL here (initdb and postgres were not found)")
    if who is None:
        pytest.skip("PostgreSQL does not run as root, and there is no other user to run it as")
    # A Unix socket's path is short.
    home = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    name, become = who
    try:
        if become is not None:
            shutil.chown(home, name)
        options: dict[str, Any] = {
            "preexec_fn": become,
            "cwd": home,
            "env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        }
        make = [str(folder / "initdb"), "-D", str(home / "data"), "-U", "owner", "-A", "trust", "-E", "UTF8", "-N"]
        made = subprocess.run(make, capture_output=True, timeout=_SECONDS, check=False, **options)
        if made.returncode:
            pytest.skip(f"initdb failed here: {made.stderr.decode(errors='replace')[-300:]}")
        if sql:
            first = [str(folder / "postgres"), "--single", "-j", "-D", str(home / "data"), "postgres"]
            given = f"{sql.strip()}\n\n".encode()
            subprocess.run(first, input=given, stdout=subprocess.DEVNULL, timeout=_SECONDS, check=True, **options)
        words = [word for key, value in {**_SETTINGS, **settings}.items() for word in ("-c", f"{key}={value}")]
        run = [str(folder / "postgres"), "-D", str(home / "data"), "-k", str(home), *words]
        process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        try:
            _wait(process, home / f".s.PGSQL.{settings.get('port', 5432)}", home / "data" / "postmaster.pid")
            yield Cluster(home, process)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(_SECONDS)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], socket: Path, state: Path) -> None:
    """Wait until it says that it is ready."""
    end = time.monotonic() + _SECONDS
    while not (socket.exists() and state.exists() and b"ready" in state.read_bytes()):
        if process.poll() is not None:
            pytest.skip(f"postgres ended with {process.returncode} when it was started")
        assert time.monotonic() < end, "postgres did not become ready"
        time.sleep(0.01)


def main(port: str, sql: str, command: list[str]) -> int:
    """Run a command beside a cluster, until it ends or is ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with started(sql, listen_addresses="127.0.0.1", port=port):
        return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
