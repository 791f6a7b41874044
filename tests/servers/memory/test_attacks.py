"""The file under attack: two writers, a kill in the middle of a write, lines that are broken, a full disk."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.memory.graphs import ANN, BOB, KNOWS, call, command, fill
from tests.support import run_async
from trunkline import Client, ToolError
from trunkline.servers.memory import make_server
from trunkline.servers.memory.graph import Graph, GraphLimits, graph_lines, read_graph
from trunkline.servers.memory.store import GraphFile


def entities(prefix: str, count: int) -> list[dict[str, Any]]:
    return [{"name": f"{prefix}{number}", "entityType": "t", "observations": []} for number in range(count)]


# --- two writers -----------------------------------------------------------------------------------------------------


def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"

    async def write(client: Client, prefix: str) -> None:
        for each in entities(prefix, 15):
            await client.call_tool("create_entities", {"entities": [each]})

    async def main() -> Any:
        async with Client(command(path)) as one, Client(command(path)) as other:
            await asyncio.gather(write(one, "a"), write(other, "b"))
            return (await one.call_tool("read_graph")).data

    names = [each["name"] for each in run_async(main(), seconds=30)["entities"]]
    assert sorted(names) == sorted(f"{prefix}{number}" for prefix in "ab" for number in range(15))


def test_many_calls_at_once_of_one_server_lose_nothing(tmp_path: Path) -> None:
    async def main() -> Any:
        async with Client(make_server(tmp_path / "m")) as client:
            calls = (client.call_tool("create_entities", {"entities": [each]}) for each in entities("n", 20))
            await asyncio.gather(*calls)
            return (await client.call_tool("read_graph")).data

    assert len(run_async(main())["entities"]) == 20


def test_a_lock_that_is_never_freed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m"
    holder, waiter = (GraphFile(str(path), GraphLimits(), lock_seconds=0.05) for _ in range(2))

    def hold(graph: Graph) -> None:
        with pytest.raises(ToolError, match=r"Another process holds .*m\.lock for over 0\.05 seconds"):
            waiter.change(lambda graph: graph.create_entities([ANN], GraphLimits()))

    holder.change(hold)
    assert not path.exists()


# --- a kill in the middle --------------------------------------------------------------------------------------------

# Writes without end, and says so once it has begun.
_WRITER = """
import sys
from trunkline.servers.memory.graph import GraphLimits
from trunkline.servers.memory.store import GraphFile
file = GraphFile(sys.argv[1], GraphLimits())
print("ready", flush=True)
for number in range(100000):
    many = [{"name": f"{number}-{each}", "entityType": "t", "observations": ["x" * 200]} for each in range(50)]
    file.change(lambda graph: (graph.delete_entities([e["name"] for e in graph.entities]),
                               graph.create_entities(many, GraphLimits())))
    print(number, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    for lines in (3, 7, 12):
        with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert [writer.stdout.readline() for _ in range(lines)][-1]
            os.kill(writer.pid, signal.SIGKILL)
        graph = read_graph(path.read_bytes())
        assert (len(graph.entities), graph.rejected) == (50, [])
        assert len({each["name"].partition("-")[0] for each in graph.entities}) == 1


def test_what_a_killed_writer_left_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl.0123456789abcdef.new").write_text('{"type":"ent')
    run_async(fill(tmp_path / "m.jsonl"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.jsonl", "m.jsonl.lock"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_changes_nothing_and_leaves_nothing(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    run_async(fill(path))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"trunkline.servers.memory.store.os.{step}", full)
    with pytest.raises(ToolError, match="cannot be written, and was not changed: No space left on device"):
        run_async(call(path, "delete_entities", entityNames=["Ann"]))
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m", "m.lock"]


def test_a_link_to_the_file_stays_a_link_and_the_mode_is_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("")
    real.chmod(0o640)
    link.symlink_to(real)
    run_async(fill(link))
    assert (link.is_symlink(), real.stat().st_mode & 0o777) == (True, 0o640)
    assert b"Ann" in real.read_bytes()


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    run_async(fill(tmp_path / "m"))
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o600


# --- broken lines ----------------------------------------------------------------------------------------------------

GOOD = json.dumps({"type": "entity", **ANN})
RELATED = json.dumps({"type": "relation", **KNOWS})


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type":"entity","name":"Bo',
        b"\xff\xfe\x00garbage",
        b"[" * 100_000,
        b'{"type":"entity","name":"B","entityType":"t","observations":"x"}',
        b'{"type":"entity","name":7,"entityType":"t","observations":[]}',
        b'{"type":"relation","from":"a","to":null,"relationType":"x"}',
        b'{"name":"B"}',
        b"null",
        b"7",
    ],
    ids=["cut", "bytes", "deep", "no-list", "number", "null-end", "no-type", "null", "not-an-object"],
)
def test_a_line_that_is_broken_costs_that_line_alone(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"\n".join([GOOD.encode(), bad, RELATED.encode()]))

    graph = run_async(call(path, "read_graph"))
    assert graph == {"entities": [ANN], "relations": [KNOWS]}
    assert bad in path.read_bytes()

    run_async(call(path, "create_entities", entities=[BOB]))
    assert (tmp_path / "m.rejected").read_bytes() == bad + b"\n"
    assert [each["name"] for each in run_async(call(path, "read_graph"))["entities"]] == ["Ann", "Bob"]
    assert bad not in path.read_bytes()


def test_a_broken_line_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "m"
    path.write_text(f"{GOOD}\nbroken\n")
    told: list[str] = []

    async def main() -> None:
        async with Client(make_server(path), on_log=lambda message: told.append(str(message.data))) as client:
            await client.set_log_level("warning")
            await client.call_tool("read_graph")

    with caplog.at_level(logging.WARNING):
        run_async(main())
    assert "1 lines of" in caplog.text
    assert ["cannot be read" in each for each in told] == [True]


def test_what_is_not_known_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m"
    lines = [json.dumps({"type": "entity", **ANN, "since": 2019}), json.dumps({"type": "note", "text": "x"})]
    path.write_text("\n".join(lines))
    run_async(call(path, "create_entities", entities=[BOB]))
    left = [json.loads(line) for line in path.read_text().split("\n")]
    assert {"type": "entity", **ANN, "since": 2019} in left
    assert {"type": "note", "text": "x"} in left


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"x" * 2000)

    async def main() -> None:
        async with Client(make_server(path, limits=GraphLimits(file_bytes=1000))) as client:
            with pytest.raises(ToolError, match="larger than 1000 bytes: raise --max-bytes"):
                await client.call_tool("read_graph")

    run_async(main())


def test_a_file_in_the_official_form_is_read_and_written_as_it_was() -> None:
    data = f"{GOOD}\n{RELATED}".replace('": ', '":').replace(", ", ",").encode()
    assert graph_lines(read_graph(data)) == data
