"""Catalogs that are kept between runs: found for the same launch, and for nothing else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import trunkline.types as t
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.upstreams.catalog.catalog import CatalogCache, launch_key
from trunkline.host.upstreams.catalog.items import Offering

ROOT = Path(__file__).parents[4]
SOURCE = Source("user", "mcp.json", 3)
ENTRY = ServerEntry(name="files", source=SOURCE, command=("files", "--root", "."), env={"TOKEN": "very-secret"})
OFFERING = Offering(
    revision="any",
    capabilities={"tools": {"listChanged": True}, "x": {"y": [1, None, 2.5]}},
    server_info=t.Implementation(name="files", version="1", title="Files"),
    instructions="Be kind.",
    tools=(t.Tool(name="read", input_schema={"type": "object", "properties": {"ü": {}}}, meta={"tags": ["a"]}),),
    prompts=(t.Prompt(name="ask", arguments=[t.PromptArgument(name="what", required=True)]),),
    resources=(t.Resource(uri="file:///x", name="x", mime_type="text/plain"),),
    templates=(t.ResourceTemplate(uri_template="file:///{path}", name="all"),),
    listed_at=12.5,
)


def keep(folder: Path, **limits: Any) -> CatalogCache:
    return CatalogCache(folder / "catalogs", **limits)


def only_file(folder: Path) -> Path:
    (path,) = (folder / "catalogs").iterdir()
    return path


def test_what_is_kept_is_found_again_as_it_was(tmp_path: Path) -> None:
    assert keep(tmp_path).put(ENTRY, OFFERING) is True
    assert keep(tmp_path).get(ENTRY) == OFFERING


CHANGES = [
    pytest.param({"command": ("files", "--root", "/")}, id="arguments"),
    pytest.param({"env": {"TOKEN": "another"}}, id="a-value-in-the-environment"),
    pytest.param({"cwd": "/tmp"}, id="folder"),
    pytest.param({"command": None, "url": "https://files.example/mcp"}, id="url"),
    pytest.param({"headers": {"X-Team": "a"}}, id="headers"),
    pytest.param({"auth": {"clientId": "me"}}, id="login"),
    pytest.param({"settings": ServerSettings(era="handshake")}, id="era"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_another_launch_finds_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)
    assert keep(tmp_path).get(replace(ENTRY, **change)) is None


def test_where_the_entry_stands_does_not_matter(tmp_path: Path) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)
    assert keep(tmp_path).get(replace(ENTRY, source=Source("user", "mcp.json", 99))) == OFFERING


def test_a_list_that_is_not_whole_is_not_kept(tmp_path: Path) -> None:
    assert keep(tmp_path).put(ENTRY, replace(OFFERING, failures={"tools/list": "no"})) is False
    assert keep(tmp_path).get(ENTRY) is None


def test_one_that_is_too_large_is_not_kept_and_neither_is_the_older_one(tmp_path: Path) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)
    assert keep(tmp_path, most_bytes=100).put(ENTRY, OFFERING) is False
    assert keep(tmp_path).get(ENTRY) is None


def test_a_file_that_grew_too_large_is_not_read(tmp_path: Path) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)
    assert keep(tmp_path, most_bytes=only_file(tmp_path).stat().st_size - 1).get(ENTRY) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"format":1}', b"[" * 100_000], ids=range(6))
def test_a_file_that_makes_no_sense_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    assert keep(tmp_path).get(ENTRY) is None
    keep(tmp_path).put(ENTRY, OFFERING)
    only_file(tmp_path).write_bytes(content)
    assert keep(tmp_path).get(ENTRY) is None


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)
    assert stat.S_IMODE(only_file(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "catalogs").stat().st_mode) == 0o700


def test_no_secret_of_the_entry_is_written(tmp_path: Path) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)
    assert b"very-secret" not in only_file(tmp_path).read_bytes()


def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    keep(tmp_path).put(replace(ENTRY, name="../../x"), OFFERING)
    assert only_file(tmp_path).parent == tmp_path / "catalogs"


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        keep(tmp_path).put(ENTRY, replace(OFFERING, tools=()))
    assert keep(tmp_path).get(ENTRY) == OFFERING
    assert only_file(tmp_path).suffix == ".json"


def test_the_oldest_files_go_when_there_are_too_many(tmp_path: Path) -> None:
    kept = keep(tmp_path, most_files=2)
    entries = [replace(ENTRY, name=name) for name in ("a", "b", "c")]
    kept.put(entries[0], OFFERING)
    os.utime(only_file(tmp_path), (1, 1))
    kept.put(entries[1], OFFERING)
    kept.put(entries[2], OFFERING)
    assert [kept.get(entry) is not None for entry in entries] == [False, True, True]


def test_a_file_that_goes_while_files_are_counted_is_no_fault(tmp_path: Path) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)
    # As one is that another host removes between the list and the look.
    (tmp_path / "catalogs" / "gone.json").symlink_to(tmp_path / "nowhere")
    assert keep(tmp_path).put(ENTRY, OFFERING)


def test_a_server_can_be_forgotten(tmp_path: Path) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)
    keep(tmp_path).forget("files")
    keep(tmp_path).forget("files")
    assert keep(tmp_path).get(ENTRY) is None


@settings(max_examples=20)
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4))
def test_the_order_of_variables_does_not_matter(env: dict[str, str]) -> None:
    backwards = dict(reversed(env.items()))
    assert launch_key(replace(ENTRY, env=env)) == launch_key(replace(ENTRY, env=backwards))


#: Reads the cached catalogs of a folder in eight threads at once, which switch as often as they can.
_READERS = """
import sys, threading
from pathlib import Path

sys.setswitchinterval(1e-6)
from tests.host.upstreams.catalog.test_catalog_cache import ENTRY, keep

start, cache, found = threading.Barrier(8), keep(Path(sys.argv[1])), []

def read():
    start.wait()
    found.append(cache.get(ENTRY))

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(offering is not None for offering in found))
"""


def test_the_first_reads_of_a_process_may_be_in_several_threads(tmp_path: Path) -> None:
    keep(tmp_path).put(ENTRY, OFFERING)
    command = [sys.executable, "-c", _READERS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")
