"""The file under attack: two writers, a kill in the middle of a write, lines that are broken, a full disk."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from servers.tests.memory.graphs import ANN, BOB, KNOWS, call, command, fill
from tests.support import run_async
from tests.transports.http.serving_support import modern, tool
from trunkline import Client, ConfigError, StaticTokens, ToolError
from trunkline_servers.memory import make_server
from trunkline_servers.memory.graph import Graph, GraphLimits, graph_lines, read_graph
from trunkline_servers.memory.store import GraphFile


def entities(prefix: str, count: int) -> list[dict[str, Any]]:
    return [{"name": f"{prefix}{number}", "entityType": "t", "observations": []} for number in range(count)]


# --- over HTTP -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "headers", "status"),
    [
        pytest.param("delete_entities", {"entityNames": ["Ann"]}, {"host": "evil.example"}, 403, id="rebound-name"),
        pytest.param("read_graph", {}, {"origin": "http://evil.example"}, 403, id="foreign-page"),
        pytest.param("read_graph", {}, {}, 401, id="no-token"),
    ],
)
async def test_a_foreign_page_or_a_missing_token_can_neither_read_nor_delete(
    name: str, arguments: dict[str, Any], headers: dict[str, Any], status: int, tmp_path: Path
) -> None:
    await fill(tmp_path / "m")
    app = make_server(tmp_path / "m").asgi(auth=StaticTokens({"0123456789abcdef": "ann"}))
    told = await modern(app, tool(name, **arguments), **headers).whole()
    assert (told.status, b"likes rivers" in told.body) == (status, False)
    assert b"Ann" in (tmp_path / "m").read_bytes()


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

    names = [each["name"] for each in run_async(main())["entities"]]
    assert sorted(names) == sorted(f"{prefix}{number}" for prefix in "ab" for number in range(15))


async def test_many_calls_at_once_of_one_server_lose_nothing(tmp_path: Path) -> None:
    async with Client(make_server(tmp_path / "m")) as client:
        calls = (client.call_tool("create_entities", {"entities": [each]}) for each in entities("n", 20))
        await asyncio.gather(*calls)
        assert len((await client.call_tool("read_graph")).data["entities"]) == 20


def test_a_lock_that_is_never_freed_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "m"
    holder, waiter = (GraphFile(str(path), GraphLimits(), lock_seconds=0.05) for _ in range(2))

    def hold(graph: Graph) -> None:
        with pytest.raises(ToolError, match=r"Another process holds .*m\.lock for over 0\.05 seconds"):
            waiter.change(lambda graph: graph.create_entities([ANN], GraphLimits()))

    holder.change(hold)
    assert not path.exists()


# --- a kill in the middle --------------------------------------------------------------------------------------------

_BEGIN = """
import os, sys
from trunkline_servers.memory.graph import GraphLimits
from trunkline_servers.memory.store import GraphFile
file = GraphFile(sys.argv[1], GraphLimits())
"""
# Kills itself the n-th time that it comes to a step.
_SUICIDE = (
    _BEGIN
    + """
step, left = sys.argv[2], int(sys.argv[3])
real = getattr(os, step)
def deadly(*arguments):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
    return real(*arguments)
setattr(os, step, deadly)
file.change(lambda graph: graph.delete_entities(["Ann"]))
"""
)


@pytest.mark.parametrize(
    ("step", "time", "left"),
    [
        pytest.param("fsync", "1", ["Ann", "Bob", "Acme"], id="written-and-not-yet-on-the-disk"),
        pytest.param("replace", "1", ["Ann", "Bob", "Acme"], id="not-yet-in-its-place"),
        pytest.param("fsync", "2", ["Bob", "Acme"], id="in-its-place"),
    ],
)
def test_a_writer_that_is_killed_leaves_the_old_file_or_the_new(
    step: str, time: str, left: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "m.jsonl"
    run_async(fill(path))
    ended = subprocess.run([sys.executable, "-c", _SUICIDE, str(path), step, time], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    graph = run_async(call(path, "read_graph"))
    assert [each["name"] for each in graph["entities"]] == left
    run_async(call(path, "create_entities", entities=[{**BOB, "name": "Carl"}]))
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

    monkeypatch.setattr(f"trunkline_servers.memory.store.os.{step}", full)
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
        b'{"type":"entity","name":"Car',
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
def test_an_unreadable_line_affects_only_itself(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"\n".join([GOOD.encode(), bad, RELATED.encode()]))

    graph = run_async(call(path, "read_graph"))
    assert graph == {"entities": [ANN], "relations": [KNOWS]}
    assert bad in path.read_bytes()

    run_async(call(path, "create_entities", entities=[BOB]))
    assert (tmp_path / "m.rejected").read_bytes() == bad + b"\n"
    assert [each["name"] for each in run_async(call(path, "read_graph"))["entities"]] == ["Ann", "Bob"]
    assert bad not in path.read_bytes()


async def test_a_broken_line_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "m"
    path.write_text(f"{GOOD}\nbroken\n")
    told: list[str] = []
    with caplog.at_level(logging.WARNING):

        def hear(message: Any) -> None:
            told.append(str(message.data))

        async with Client(make_server(path), logging=hear, log_level="warning") as client:
            await client.call_tool("read_graph")
    assert "1 lines of" in caplog.text
    assert ["cannot be read" in each for each in told] == [True]


def test_unknown_members_and_lines_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "m"
    lines = [json.dumps({"type": "entity", **ANN, "since": 2019}), json.dumps({"type": "note", "text": "x"})]
    path.write_text("\n".join(lines))
    run_async(call(path, "create_entities", entities=[BOB]))
    left = [json.loads(line) for line in path.read_text().split("\n")]
    assert {"type": "entity", **ANN, "since": 2019} in left
    assert {"type": "note", "text": "x"} in left


async def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"x" * 2000)

    async with Client(make_server(path, limits=GraphLimits(file_bytes=1000))) as client:
        with pytest.raises(ToolError, match="larger than 1000 bytes: raise --max-bytes"):
            await client.call_tool("read_graph")


# --- files that are not what they should be --------------------------------------------------------------------------


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ToolError, match="is not a file: name one with --file"):
        GraphFile(str(path), GraphLimits()).read()
    with pytest.raises(ConfigError, match="is not a file: name one with --file"):
        make_server(path)


def test_a_folder_in_the_place_of_the_file_is_refused_and_keeps_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    file = GraphFile(str(path), GraphLimits())
    path.mkdir()
    with pytest.raises(ToolError, match="is not a file: name one with --file"):
        file.read()
    opened = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    assert str(path) not in [os.readlink(each) for each in opened if os.path.lexists(each)]


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    run_async(fill(path))
    path.chmod(0o444)
    before = path.read_bytes()
    with pytest.raises(ToolError, match="is read-only, and was not changed"):
        run_async(call(path, "delete_entities", entityNames=["Ann"]))
    assert path.read_bytes() == before


def test_a_file_keeps_its_mode_whatever_new_files_get(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    run_async(fill(path))
    path.chmod(0o664)
    mask = os.umask(0o077)
    try:
        run_async(call(path, "delete_entities", entityNames=["Ann"]))
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o664


def test_only_temporary_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    left, mine = tmp_path / "m.jsonl.0123456789abcdef.new", tmp_path / "m.jsonl.mine.new"
    left.write_text("half")
    mine.write_text("whole")
    run_async(fill(path))
    assert (left.exists(), mine.exists()) == (False, True)


@pytest.mark.parametrize("suffix", ["lock", "rejected"])
def test_a_link_beside_the_file_is_not_followed(tmp_path: Path, suffix: str) -> None:
    path, other = tmp_path / "m.jsonl", tmp_path / "other"
    path.write_bytes(b"broken\n")
    (tmp_path / f"m.jsonl.{suffix}").symlink_to(other)
    with pytest.raises(ToolError, match="cannot be written, and was not changed"):
        run_async(call(path, "create_entities", entities=[ANN]))
    assert (other.exists(), path.read_bytes()) == (False, b"broken\n")


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "1e999", "1.0"])
def test_a_member_that_is_not_known_stays_as_it_is_whatever_it_holds(number: str) -> None:
    line = f'{{"type":"entity","name":"Ann","entityType":"t","observations":[],"x":{number}}}'.encode()
    graph = read_graph(line)
    assert (graph_lines(graph), [each["name"] for each in graph.entities]) == (line, ["Ann"])


# --- what is kept between calls --------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["Ann", "Bob", "Acme"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create_entities"), st.lists(st.builds(lambda n: {**ANN, "name": n}, _NAMES), max_size=2)),
        st.tuples(st.just("delete_entities"), st.lists(_NAMES, max_size=2)),
        st.tuples(
            st.just("delete_observations"),
            st.lists(st.builds(lambda n: {"entityName": n, "observations": ["likes rivers"]}, _NAMES), max_size=2),
        ),
        st.tuples(
            st.just("create_relations"), st.lists(st.builds(lambda a, b: {**KNOWS, "from": a, "to": b}, _NAMES, _NAMES))
        ),
        st.tuples(st.just("delete_relations"), st.lists(st.just(KNOWS), max_size=1)),
    ),
    max_size=8,
)
_LIMITED = ("create_entities", "create_relations")


@settings(max_examples=40, deadline=None)
@hypothesis_given(_STEPS)
def test_the_cached_graph_matches_the_file(steps: list[tuple[str, list[Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "m")
        file = GraphFile(path, GraphLimits())
        for tool, given in steps:
            more = (GraphLimits(),) if tool in _LIMITED else ()
            file.change(lambda graph, tool=tool, given=given, more=more: getattr(graph, tool)(given, *more))  # type: ignore[misc]
            assert file.read().shown() == GraphFile(path, GraphLimits()).read().shown()
            assert file.read().folded() == GraphFile(path, GraphLimits()).read().folded()


def test_a_change_that_fails_leaves_what_is_kept_as_it_was(tmp_path: Path) -> None:
    file = GraphFile(str(tmp_path / "m"), GraphLimits())
    file.change(lambda graph: graph.create_entities([ANN, BOB], GraphLimits()))
    before = file.read().shown()

    def failing(graph: Graph) -> None:
        graph.add_observations([{"entityName": "Ann", "contents": ["new"]}], GraphLimits())
        graph.delete_entities(["Bob"])
        raise ToolError("no")

    with pytest.raises(ToolError, match="no"):
        file.change(failing)
    assert file.read().shown() == before


def test_returned_records_are_copies_of_the_stored_ones(tmp_path: Path) -> None:
    limits = GraphLimits()
    file = GraphFile(str(tmp_path / "m"), limits)
    made = file.change(lambda graph: graph.create_entities(copy.deepcopy([ANN, BOB]), limits))
    related = file.change(lambda graph: graph.create_relations([KNOWS], limits))
    added = [{"entityName": "Bob", "contents": ["sails"]}]
    more = file.change(lambda graph: graph.add_observations(added, limits))
    made[0]["observations"].append("is a spy")
    more[0]["addedObservations"].append("is a spy")
    made[0]["name"] = related[0]["from"] = "Mallory"

    assert graph_lines(file.read()) == (tmp_path / "m").read_bytes()


def test_a_file_changed_by_another_process_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "m"
    file = GraphFile(str(path), GraphLimits())
    file.change(lambda graph: graph.create_entities([ANN], GraphLimits()))
    found = path.stat()
    # In place, of the same size and at the same time, as far as the file says.
    path.write_bytes(path.read_bytes().replace(b"rivers", b"meadow"))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert file.read().entities[0]["observations"] == ["likes meadow"]


def test_a_large_graph_is_read_and_changed_without_being_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline_servers.memory.store._MOST_KEPT", 10)
    path = tmp_path / "m.jsonl"
    run_async(fill(path))
    assert [each["name"] for each in run_async(call(path, "search_nodes", query="ann"))["entities"]] == ["Ann", "Acme"]
