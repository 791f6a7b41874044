"""The reference servers beside their originals: start, memory, and the CPU time of a call, in one run.

``python -m benchmarks.reference_servers`` drives each pair with the same client and the same call, in turns. The
originals are those that ``make interop`` installs; one that is missing is left out and said. CPU time is that of the
server's process and its children, from the system's own account. Some servers have rows of their own for large things:
a long file, a wide folder, a big graph, many rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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
from trunkline.host.upstreams.supervision.clients import process_id

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
    #: Where a text has ``{}``, the number of the call comes in.
    arguments: Mapping[str, Any]
    calls: int = 400
    #: What is large in this row, if something is.
    case: str = ""
    #: The file of the memory server, in the folder of the run.
    memory: str = "memory.jsonl"


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
    return [sys.executable, "-m", f"trunkline_servers.{name}", *arguments]


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
        *_large(folder, database, archived),
    ]


def _large(folder: Path, database: Path, archived: Path) -> list[Pair]:
    """Make large things, and give the rows that are about them."""
    files, graph = folder / "large", folder / "graph.jsonl"
    files.mkdir()
    (folder / "long.txt").write_text("a line of some forty characters, or more\n" * 25_000, encoding="utf-8")
    for number in range(5000):
        (files / f"folder{number % 50}").mkdir(exist_ok=True)
        (files / f"folder{number % 50}" / f"file{number}.txt").write_text("a short text\n", encoding="utf-8")
    known = [
        {"type": "entity", "name": f"n{at}", "entityType": "kind", "observations": [f"{at} is so", "and blue"]}
        for at in range(10_000)
    ]
    known += [
        {"type": "relation", "from": f"n{at}", "to": f"n{at + 1}", "relationType": "leads to"} for at in range(9_999)
    ]
    graph.write_text("\n".join(map(json.dumps, known)), encoding="utf-8")
    with sqlite3.connect(database) as made:
        made.execute("create table visits (id integer primary key, name text, place text, seconds real)")
        rows = ((f"visitor {at}", "the place with a longer name", at / 7) for at in range(1000))
        made.executemany("insert into visits (name, place, seconds) values (?, ?, ?)", rows)
    where = str(folder)
    both = _ours("filesystem", where), _npm("filesystem", where)
    some = {"paths": [str(files / f"folder{number}/file{number}.txt") for number in range(50)]}
    found = {"path": str(files), "pattern": "**/file*7.txt"}
    more = {"observations": [{"entityName": "n5000", "contents": ["said in call {}"]}]}
    memory = _ours("memory"), _npm("memory")
    archive = [str(archived / "mcp-server-sqlite"), "--db-path", str(database)]
    sqlite = _ours("sqlite", "--db-path", str(database)), archive
    return [
        Pair("filesystem", *both, "read_text_file", {"path": str(folder / "long.txt")}, 40, "a file of 1 MB"),
        Pair("filesystem", *both, "read_multiple_files", some, 80, "50 files"),
        Pair("filesystem", *both, "directory_tree", {"path": str(files)}, 12, "tree of 5,000"),
        Pair("filesystem", *both, "search_files", found, 12, "search in 5,000"),
        Pair("memory", *memory, "read_graph", {}, 12, "read 10,000", graph.name),
        Pair("memory", *memory, "search_nodes", {"query": "n777"}, 12, "search in 10,000", graph.name),
        Pair("memory", *memory, "add_observations", more, 12, "add to 10,000", graph.name),
        Pair("sqlite", *sqlite, "read_query", {"query": "select * from visits"}, 40, "1,000 rows"),
    ]


async def measure(pair: Pair, command: Sequence[str], folder: Path) -> Figures:
    """Start a server, wait for its first answer, and call it."""
    environment = {"MEMORY_FILE_PATH": str(folder / pair.memory), "DISABLE_THOUGHT_LOGGING": "true"}
    began = time.perf_counter()
    async with (
        asyncio.timeout(SECONDS),
        Client(list(command), env=environment, revision="handshake", timeout=SECONDS) as client,
    ):
        await client.call_tool(pair.tool, _numbered(pair.arguments, 0))
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
            await client.call_tool(pair.tool, _numbered(pair.arguments, time.perf_counter_ns()))

    await asyncio.gather(*(once() for _ in range(times)))


def _numbered(value: Any, number: int) -> Any:
    """Put the number of a call into its arguments."""
    if isinstance(value, Mapping):
        return {name: _numbered(each, number) for name, each in value.items()}
    if isinstance(value, list):
        return [_numbered(each, number) for each in value]
    return value.replace("{}", str(number)) if isinstance(value, str) else value


def _cpu(process: psutil.Process) -> float:
    """Give the seconds of a process and of its children, those that ended included."""
    took = process.cpu_times()
    living = [each.cpu_times() for each in process.children(recursive=True)]
    total: float = sum(each.user + each.system for each in (took, *living))
    return total + float(took.children_user + took.children_system)


async def compare(rounds: int, only: Sequence[str]) -> None:
    """Measure all pairs in turns, and print a table."""
    print(f"{'server':30}{'start ms':>22}{'idle MB':>22}{'CPU us a call':>28}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for pair in pairs(folder):
            if only and pair.name not in only:
                continue
            if not _installed(pair.official):
                print(f"{_row(pair):30}its original is not installed: make interop")
                continue
            taken: dict[str, list[Figures]] = {"ours": [], "official": []}
            for number in range(rounds):
                for side in ("ours", "official") if number % 2 == 0 else ("official", "ours"):
                    taken[side].append(await measure(pair, getattr(pair, side), folder))
            print(f"{_row(pair):30}" + "".join(_shown(taken, at) for at in range(3)))


def _row(pair: Pair) -> str:
    return f"{pair.name} {pair.case}"


def _installed(command: Sequence[str]) -> bool:
    return all(Path(word).exists() for word in command if word.startswith(str(INTEROP)))


def _shown(taken: Mapping[str, Sequence[Figures]], at: int) -> str:
    mine, theirs = (median(each[at] for each in taken[side]) for side in ("ours", "official"))
    return f"{mine:>8.0f} /{theirs:>8.0f} ({theirs / mine:.1f}x)"


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
