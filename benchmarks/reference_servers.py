"""The reference servers beside their originals: start, memory, and the CPU time of a call, in one run.

``python -m benchmarks.reference_servers`` drives each pair with the same client and the same call, in turns. The
originals are those that ``make interop`` installs; one that is missing is left out and said. CPU time is that of the
server's process and its children, from the system's own account.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from trunkline import Client
from trunkline.host.clients import process_id

ROOT = Path(__file__).resolve().parents[1]
INTEROP = ROOT / ".interop"
IN_FLIGHT = 16
SECONDS = 60.0


class Pair(NamedTuple):
    """A server, its original, and the call both are measured by."""

    name: str
    ours: Sequence[str]
    official: Sequence[str]
    tool: str
    arguments: Mapping[str, Any]
    calls: int = 400


class Figures(NamedTuple):
    """What one run of one server took."""

    start_ms: float
    rss_mb: float
    cpu_us: float


def _npm(name: str, *arguments: str) -> list[str]:
    return [
        "node",
        str(INTEROP / "node_modules/@modelcontextprotocol" / f"server-{name}" / "dist/index.js"),
        *arguments,
    ]


def _ours(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"trunkline.servers.{name}", *arguments]


def pairs(folder: Path) -> list[Pair]:
    """Make what the calls find, and give the pairs."""
    (folder / "note.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    repository, database = folder / "repository", folder / "shop.db"
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (
        ["init", "-q", str(repository)],
        ["-C", str(repository), *who, "commit", "-q", "--allow-empty", "-mx"],
    ):
        subprocess.run(["git", *words], check=True, timeout=20)
    with sqlite3.connect(database) as made:
        made.execute("create table items (id integer primary key, name text)")
        made.executemany("insert into items (name) values (?)", [(f"item {number}",) for number in range(100)])
    python, archived = INTEROP / "python-servers/bin", INTEROP / "archived-servers/bin"
    note = {"path": str(folder / "note.txt")}
    query = {"query": "select * from items limit 10"}
    thought = {"thought": "a", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False}
    quiet = str(folder)
    return [
        Pair("filesystem", _ours("filesystem", quiet), _npm("filesystem", quiet), "read_text_file", note),
        Pair("memory", _ours("memory"), _npm("memory"), "search_nodes", {"query": "a"}),
        Pair(
            "sequentialthinking",
            _ours("sequentialthinking"),
            _npm("sequential-thinking"),
            "sequentialthinking",
            thought,
        ),
        Pair("everything", _ours("everything"), _npm("everything"), "echo", {"message": "hello"}),
        Pair("time", _ours("time"), [str(python / "mcp-server-time")], "get_current_time", {"timezone": "Asia/Tokyo"}),
        Pair(
            "git",
            _ours("git", "-r", str(repository)),
            [str(python / "mcp-server-git"), "-r", str(repository)],
            "git_log",
            {"repo_path": str(repository)},
            60,
        ),
        Pair(
            "sqlite",
            _ours("sqlite", "--db-path", str(database)),
            [str(archived / "mcp-server-sqlite"), "--db-path", str(database)],
            "read_query",
            query,
        ),
    ]


async def measure(pair: Pair, command: Sequence[str], folder: Path) -> Figures:
    """Start a server, wait for its first answer, and call it."""
    environment = {"MEMORY_FILE_PATH": str(folder / "memory.jsonl"), "DISABLE_THOUGHT_LOGGING": "true"}
    began = time.perf_counter()
    async with (
        asyncio.timeout(SECONDS),
        Client(list(command), env=environment, revision="handshake", timeout=SECONDS) as client,
    ):
        await client.call_tool(pair.tool, dict(pair.arguments))
        start = (time.perf_counter() - began) * 1000
        pid = process_id(client)
        assert pid is not None
        process = psutil.Process(pid)
        rss = process.memory_info().rss / 1e6
        await _call(client, pair, pair.calls // 4)
        before = _cpu(process)
        await _call(client, pair, pair.calls)
        return Figures(start, rss, (_cpu(process) - before) / pair.calls * 1e6)


async def _call(client: Client, pair: Pair, times: int) -> None:
    waiting = asyncio.Semaphore(IN_FLIGHT)

    async def once() -> None:
        async with waiting:
            await client.call_tool(pair.tool, dict(pair.arguments))

    await asyncio.gather(*(once() for _ in range(times)))


def _cpu(process: psutil.Process) -> float:
    """Give the seconds of a process and of its children, those that ended included."""
    took = process.cpu_times()
    living = [each.cpu_times() for each in process.children(recursive=True)]
    total: float = sum(each.user + each.system for each in (took, *living))
    return total + float(took.children_user + took.children_system)


async def compare(rounds: int, only: Sequence[str]) -> None:
    """Measure all pairs in turns, and print a table."""
    print(f"{'server':20}{'start ms':>22}{'idle MB':>20}{'CPU us a call':>24}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for pair in pairs(folder):
            if only and pair.name not in only:
                continue
            if not _installed(pair.official):
                print(f"{pair.name:20}its original is not installed: make interop")
                continue
            taken: dict[str, list[Figures]] = {"ours": [], "official": []}
            for number in range(rounds):
                for side in ("ours", "official") if number % 2 == 0 else ("official", "ours"):
                    taken[side].append(await measure(pair, getattr(pair, side), folder))
            print(f"{pair.name:20}" + "".join(_shown(taken, at) for at in range(3)))


def _installed(command: Sequence[str]) -> bool:
    return all(Path(word).exists() for word in command if word.startswith(str(INTEROP)))


def _shown(taken: Mapping[str, Sequence[Figures]], at: int) -> str:
    mine, theirs = (median(each[at] for each in taken[side]) for side in ("ours", "official"))
    return f"{mine:>8.0f} /{theirs:>6.0f} ({theirs / mine:.1f}x)"


def main() -> None:
    """Measure ours / official."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    asyncio.run(compare(given.rounds, given.only))


if __name__ == "__main__":
    main()
