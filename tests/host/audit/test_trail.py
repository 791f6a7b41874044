"""The audit trail: what is acknowledged stays, what is changed or missing is found."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trunkline
from trunkline.errors import ConfigError
from trunkline.host import state_files
from trunkline.host.audit.reader import AuditFilter, Verification, query, verify
from trunkline.host.audit.trail import (
    GENESIS,
    AuditEntry,
    AuditFailed,
    AuditTrail,
    read_head,
    result_digest,
    rotated_files,
)
from trunkline.host.state_files import PathLock

SECONDS = 120.0
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(trunkline.__file__).parents[1])}


def entry(number: int = 0, **more: Any) -> AuditEntry:
    """Make an entry like those of a call."""
    return AuditEntry(act_id=f"a{number}", stage="begun", kind="tool", server="files", name="read", **more)


def fill(path: Path, count: int = 3, **options: Any) -> None:
    """Record some entries and close."""
    trail = AuditTrail.open(path, **options)
    for number in range(count):
        trail.record(entry(number))
    trail.close()


def lines(path: Path) -> list[bytes]:
    """Give the lines of a trail, their ends included."""
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a trail may be."""
    return tmp_path / "state" / "audit.jsonl"


# --- writing ---------------------------------------------------------------------------------------------------------


def test_an_entry_is_in_the_file_when_record_returns(path: Path) -> None:
    trail = AuditTrail.open(path, clock=lambda: 12.5)
    number = trail.record(entry(1, arguments={"path": "/a"}, by="policy"))
    found = json.loads(path.read_bytes())
    trail.close()
    assert number == 1
    assert (found["seq"], found["at"], found["prev"]) == (1, 12.5, GENESIS)
    assert (found["server"], found["arguments"], found["by"]) == ("files", {"path": "/a"}, "policy")


def test_a_hash_can_be_computed_by_anybody(path: Path) -> None:
    fill(path, 2)
    line = lines(path)[1].decode().rstrip("\n")
    body, _, seal = line.rpartition(',"hash":')
    before = json.loads(lines(path)[0])["hash"]
    assert json.loads(line)["prev"] == before
    assert seal == f'"{sha256((before + body + "}").encode()).hexdigest()}"}}'


def test_each_entry_is_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trail = AuditTrail.open(path)
    written: list[bytes] = []
    write = os.write

    def watched(file: int, data: bytes) -> int:
        written.append(data)
        return write(file, data)

    monkeypatch.setattr(os, "write", watched)
    trail.record(entry())
    trail.close()
    assert [data for data in written if b"act_id" in data] == [path.read_bytes()]


def test_the_files_are_their_owners_alone(path: Path) -> None:
    fill(path)
    modes = {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_trail_goes_on_where_it_ended(path: Path) -> None:
    fill(path, 2)
    fill(path, 2)
    assert verify(path) == Verification(ok=True, entries=4, seq=4, hash=json.loads(lines(path)[-1])["hash"])


def test_two_objects_may_append_to_one_trail(path: Path) -> None:
    one, other = AuditTrail.open(path), AuditTrail.open(path)
    numbers = [one.record(entry()), other.record(entry()), other.record(entry()), one.record(entry())]
    one.close()
    other.close()
    assert numbers == [1, 2, 3, 4]
    assert verify(path).ok


def test_the_note_of_who_is_behind_does_not_replace_that_of_who_is_ahead(path: Path) -> None:
    one, other = AuditTrail.open(path), AuditTrail.open(path)
    one.record(entry())
    other.record(entry())
    other.close()
    one.close()
    head = read_head(str(path))
    assert head is not None
    assert head.seq == 2


def test_a_closed_trail_records_nothing(path: Path) -> None:
    trail = AuditTrail.open(path)
    trail.close()
    trail.close()
    with pytest.raises(AuditFailed, match="closed"):
        trail.record(entry())


def test_syncing_brings_the_note_up_to_date(path: Path) -> None:
    trail = AuditTrail.open(path)
    trail.record(entry())
    trail.sync()
    noted = read_head(str(path))
    head = trail.head
    trail.close()
    assert noted == head


def test_the_digest_of_a_result_does_not_hang_on_the_order_of_members() -> None:
    assert result_digest({"a": 1, "b": [2]}) == result_digest({"b": [2], "a": 1}) == result_digest(b'{"a":1,"b":[2]}')


# --- when it cannot be written ---------------------------------------------------------------------------------------


def full_disk(kept: int) -> Callable[[int, bytes], int]:
    """Make a write that takes so many bytes and no more."""
    write = os.write
    return lambda file, data: write(file, data[:kept])


def test_a_full_disk_is_a_failure_and_leaves_no_half_entry(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trail = AuditTrail.open(path)
    trail.record(entry())
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk(20))
        with pytest.raises(AuditFailed, match=r"audit\.jsonl: No space left"):
            trail.record(entry())
    trail.record(entry())
    trail.close()
    assert verify(path) == Verification(ok=True, entries=2, seq=2, hash=json.loads(lines(path)[-1])["hash"])


def test_a_half_entry_that_cannot_be_taken_back_is_put_aside_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    trail = AuditTrail.open(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk(20))
        patch.setattr(os, "ftruncate", refuse)
        with pytest.raises(AuditFailed):
            trail.record(entry())
    trail.record(entry(7))
    trail.close()
    assert verify(path).ok
    assert [each.get("act_id") for each in query(path)] == ["", "a7"]
    assert len(Path(f"{path}.torn-1").read_bytes()) == 20


@pytest.mark.parametrize("value", [object(), "\ud800", {1: object()}], ids=["an object", "half a character", "inside"])
def test_an_entry_that_is_no_json_is_a_failure(value: Any, path: Path) -> None:
    trail = AuditTrail.open(path)
    with pytest.raises(AuditFailed, match="Cannot encode an entry"):
        trail.record(entry(arguments=value))
    trail.close()
    assert path.read_bytes() == b""


def test_a_folder_that_cannot_be_made_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditFailed, match="Cannot write the audit trail"):
        AuditTrail.open(tmp_path / "file" / "audit.jsonl")


def test_a_process_that_holds_the_lock_for_ever_is_a_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trail = AuditTrail.open(path)
    monkeypatch.setattr(state_files, "_LONGEST_WAIT", 0.01)
    lock = PathLock(f"{path}.lock")
    lock.acquire()
    with pytest.raises(AuditFailed, match="another process holds"):
        trail.record(entry())
    lock.close()
    assert trail.record(entry()) == 1
    trail.close()


def test_a_disk_that_fails_to_keep_is_a_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    trail = AuditTrail.open(path)
    trail.record(entry())
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(AuditFailed, match="Input/output error"):
            trail.sync()
    trail.close()
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "audit.jsonl",
        "audit.jsonl.head",
        "audit.jsonl.lock",
    ]


def test_a_trail_with_an_unknown_end_is_not_restarted(path: Path) -> None:
    path.parent.mkdir()
    Path(f"{path}.head").write_text("{")
    with pytest.raises(AuditFailed, match=r"audit\.jsonl\.head cannot be read.*to start a new trail"):
        AuditTrail.open(path)


# --- ends that are torn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [b'{"seq":4', b"\0" * 10_000, b'{"a":"' + b"x" * 20_000], ids=["half", "nuls", "long"])
def test_a_torn_end_is_put_aside_when_the_trail_is_opened(rest: bytes, path: Path) -> None:
    fill(path, 3)
    with path.open("ab") as file:
        file.write(rest)
    fill(path, 1)
    found = list(query(path))
    assert verify(path).ok
    assert Path(f"{path}.torn-1").read_bytes() == rest
    assert found[3]["stage"] == "note"
    assert (
        found[3]["note"] == f"the file ended with {len(rest)} bytes of an incomplete entry, moved to audit.jsonl.torn-1"
    )


def test_a_second_torn_end_gets_a_separate_file(path: Path) -> None:
    fill(path, 1)
    path.write_bytes(path.read_bytes() + b"one")
    fill(path, 1)
    path.write_bytes(path.read_bytes() + b"two")
    fill(path, 1)
    assert [Path(f"{path}.torn-{number}").read_bytes() for number in (1, 2)] == [b"one", b"two"]


def test_an_end_that_was_changed_is_not_built_upon(path: Path) -> None:
    fill(path, 2)
    path.write_bytes(path.read_bytes().replace(b'"a1"', b'"b1"'))
    with pytest.raises(AuditFailed, match=r"last line of .*audit\.jsonl was changed.*trunkline audit verify"):
        AuditTrail.open(path)


# --- rotation --------------------------------------------------------------------------------------------------------


def test_a_full_file_is_put_by_and_the_chain_goes_on(path: Path) -> None:
    fill(path, 10, max_bytes=1000)
    assert len(rotated_files(str(path))) > 2
    assert max(each.stat().st_size for each in path.parent.glob("*.jsonl")) <= 1000
    assert [each["seq"] for each in query(path)] == list(range(1, 11))
    assert verify(path).ok


def test_a_file_is_put_by_under_the_number_of_its_last_entry(path: Path) -> None:
    fill(path, 4, max_bytes=600)
    first = Path(rotated_files(str(path))[0])
    assert first.name == f"audit-{len(lines(first)):012d}.jsonl"


def test_a_process_that_did_not_put_the_file_by_goes_on_in_the_new_one(path: Path) -> None:
    one, other = AuditTrail.open(path, max_bytes=600), AuditTrail.open(path, max_bytes=600)
    numbers = [trail.record(entry()) for trail in (one, other, one, one, one, other, other)]
    one.close()
    other.close()
    assert numbers == list(range(1, 8))
    assert verify(path).ok


def test_a_trail_that_ended_between_two_files_goes_on(path: Path) -> None:
    fill(path, 2)
    path.rename(path.with_name("audit-000000000002.jsonl"))
    fill(path, 1)
    assert [each["seq"] for each in query(path)] == [1, 2, 3]
    assert verify(path).ok


def test_an_empty_file_that_was_put_by_does_not_break_the_chain(path: Path) -> None:
    fill(path, 2)
    path.rename(path.with_name("audit-000000000002.jsonl"))
    path.with_name("audit-000000000003.jsonl").touch()
    fill(path, 1)
    assert verify(path).ok


# --- what verify finds -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A trail of three entries."""
    path = tmp_path_factory.mktemp("small") / "audit.jsonl"
    trail = AuditTrail.open(path, clock=lambda: 1.0)
    trail.record(entry(arguments={"path": "/a/é", "n": [1, 2.5, None]}))
    trail.record(AuditEntry(act_id="a0", stage="ended", outcome="ok", latency_ms=0.5))
    trail.record(entry(2, principal="me"))
    trail.close()
    return path.read_bytes()


def judged(folder: Path, content: bytes) -> Verification:
    """Verify this content, as a trail by itself."""
    path = folder / "judged.jsonl"
    path.write_bytes(content)
    # As it is when nothing was brought to the disk yet.
    Path(f"{path}.head").write_bytes(b'{"seq":0,"hash":"%s"}' % GENESIS.encode())
    return verify(path)


def test_every_change_of_one_byte_is_found(small: bytes, tmp_path: Path) -> None:
    changed = (small[:at] + bytes([small[at] ^ 1 << at % 8]) + small[at + 1 :] for at in range(len(small)))
    unseen = [content for content in changed if judged(tmp_path, content).ok]
    assert judged(tmp_path, small).ok
    assert unseen == []


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_other_change_is_found(data: st.DataObject, small: bytes, tmp_path: Path) -> None:
    start = data.draw(st.integers(0, len(small)))
    end = data.draw(st.integers(start, len(small)))
    content = small[:start] + data.draw(st.binary(max_size=8)) + small[end:]
    # A trail that ends with a whole entry is a trail; that there was more is found by the note and nothing else.
    whole = [b"".join(small.splitlines(keepends=True)[:count]) for count in range(4)]
    assert judged(tmp_path, content).ok is (content in whole)


@pytest.mark.parametrize(
    ("order", "line", "reason"),
    [
        ((0, 2, 3), 2, "entry 3 follows entry 1: entries were removed, inserted or moved"),
        ((1, 2, 3), 1, "the trail begins with entry 2: the entries before it are missing"),
        ((0, 1, 1, 2, 3), 3, "entry 2 follows entry 2"),
        ((0, 2, 1, 3), 2, "entry 3 follows entry 1"),
        ((3, 2, 1, 0), 1, "the trail begins with entry 4"),
    ],
    ids=["were removed", "beginning cut", "twice", "exchanged", "backwards"],
)
def test_entries_in_another_order_are_found(order: tuple[int, ...], line: int, reason: str, path: Path) -> None:
    fill(path, 4)
    there = lines(path)
    path.write_bytes(b"".join(there[at] for at in order))
    found = verify(path)
    assert (found.ok, found.first_bad_line, found.file) == (False, line, str(path))
    assert found.reason is not None
    assert found.reason.startswith(reason)


def test_an_entry_of_another_trail_is_found(path: Path, tmp_path: Path) -> None:
    fill(path, 3)
    fill(tmp_path / "other.jsonl", 3)
    path.write_bytes(b"".join([*lines(path)[:2], lines(tmp_path / "other.jsonl")[2]]))
    found = verify(path)
    assert (found.first_bad_line, found.reason) == (3, "entry 3 does not continue entry 2: one of them was replaced")


@pytest.mark.parametrize("left", [0, 1, 2])
def test_an_end_that_was_cut_off_is_found(left: int, path: Path) -> None:
    fill(path, 3)
    path.write_bytes(b"".join(lines(path)[:left]))
    found = verify(path)
    assert (found.ok, found.entries) == (False, left)
    assert found.reason == f"the end is missing: the trail had reached entry 3, but ends at {left}"


def test_a_deleted_trail_is_not_restarted_silently(path: Path) -> None:
    fill(path, 3)
    path.unlink()
    fill(path, 1)
    assert verify(path).reason == "the trail begins with entry 4: the entries before it are missing"


def test_a_trail_that_was_cut_while_it_was_written_shows_the_gap(path: Path) -> None:
    trail = AuditTrail.open(path)
    trail.record(entry(1))
    trail.record(entry(2))
    trail.record(entry(3))
    path.write_bytes(lines(path)[0])
    trail.record(entry(9))
    trail.close()
    assert verify(path).reason == "entry 4 follows entry 1: entries were removed, inserted or moved"


def test_a_file_that_was_put_by_and_is_missing_is_found(path: Path) -> None:
    fill(path, 10, max_bytes=1000)
    Path(rotated_files(str(path))[1]).unlink()
    found = verify(path)
    assert not found.ok
    assert found.file == rotated_files(str(path))[1]


def test_the_rest_of_a_trail_is_whole_if_only_that_is_asked(path: Path) -> None:
    fill(path, 10, max_bytes=1000)
    Path(rotated_files(str(path))[0]).unlink()
    assert not verify(path).ok
    assert verify(path, partial=True).ok


def forge(path: Path) -> None:
    """Write a trail anew, with all its notes, as somebody would who may write every file of it."""
    path.unlink()
    Path(f"{path}.head").unlink()
    fill(path, 3, clock=lambda: 5.0)


def test_a_rewritten_trail_is_detected_by_an_anchor(path: Path) -> None:
    fill(path, 2)
    anchor = verify(path).hash
    fill(path, 1)
    assert verify(path, anchor=anchor).ok
    forge(path)
    assert verify(path).ok
    assert verify(path, anchor=anchor).reason == (
        f"no entry has the hash {anchor}: the trail was rewritten, or this is another trail"
    )


def test_a_rewritten_trail_without_its_note_is_detected(path: Path) -> None:
    fill(path, 3)
    note = Path(f"{path}.head").read_bytes()
    forge(path)
    Path(f"{path}.head").write_bytes(note)
    assert verify(path).reason == "entry 3 differs from the recorded head: the trail was rewritten"


def test_a_note_that_cannot_be_read_is_found(path: Path) -> None:
    fill(path)
    Path(f"{path}.head").write_bytes(b"{}")
    found = verify(path)
    assert not found.ok
    assert found.reason is not None
    assert "audit.jsonl.head cannot be read" in found.reason


def test_no_trail_is_no_whole_trail(path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no audit trail"):
        verify(path)


def test_a_file_that_cannot_be_read_is_named(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"audit\.jsonl: cannot read the audit trail"):
        verify(path)


def test_a_trail_that_another_process_holds_for_ever_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 1)
    monkeypatch.setattr(state_files, "_LONGEST_WAIT", 0.01)
    lock = PathLock(f"{path}.lock")
    lock.acquire()
    with pytest.raises(ConfigError, match="another process holds"):
        verify(path)
    lock.close()


def test_verifying_leaves_nothing_behind(small: bytes, tmp_path: Path) -> None:
    assert judged(tmp_path, small).ok
    assert sorted(each.name for each in tmp_path.iterdir()) == ["judged.jsonl", "judged.jsonl.head"]


# --- finding ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def varied(path: Path) -> Path:
    """A trail of several servers."""
    times = iter([100.0, 200.0, 300.0, 400.0])
    trail = AuditTrail.open(path, clock=lambda: next(times))
    trail.record(entry(1, principal="ann", session="s1", effect="allow"))
    trail.record(AuditEntry(act_id="a1", stage="ended", server="files", name="read", outcome="ok"))
    trail.record(AuditEntry(act_id="a2", stage="denied", kind="tool", server="shell", name="run", outcome="denied"))
    trail.record(AuditEntry(act_id="a3", stage="begun", kind="prompt", server="files", name="review", effect="ask"))
    trail.close()
    return path


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AuditFilter(), [1, 2, 3, 4]),
        (AuditFilter(server="f*", tool="re[av]*"), [1, 2, 4]),
        (AuditFilter(tool="read"), [1, 2]),
        (AuditFilter(kind="prompt"), [4]),
        (AuditFilter(stage="denied"), [3]),
        (AuditFilter(principal="ann"), [1]),
        (AuditFilter(session="s1"), [1]),
        (AuditFilter(outcome="ok"), [2]),
        (AuditFilter(effect="ask"), [4]),
        (AuditFilter(act_id="a1"), [1, 2]),
        (AuditFilter(since=200.0, until=400.0), [2, 3]),
        (AuditFilter(server="nobody"), []),
    ],
    ids=lambda value: None if isinstance(value, AuditFilter) else str(value),
)
def test_entries_are_found(wanted: AuditFilter, found: list[int], varied: Path) -> None:
    assert [each["seq"] for each in query(varied, wanted)] == found


def test_a_limit_keeps_the_newest(varied: Path) -> None:
    assert [each["seq"] for each in query(varied, AuditFilter(server="files"), limit=2)] == [2, 4]


def test_lines_that_are_no_entries_are_skipped_and_reported(varied: Path) -> None:
    varied.write_bytes(varied.read_bytes() + b'nonsense\n[]\n{"seq":9}\n{"at":"x"}\n\xff\n')
    told: list[tuple[str, int]] = []
    found = [each["seq"] for each in query(varied, on_unreadable=lambda name, line: told.append((name, line)))]
    assert found == [1, 2, 3, 4]
    assert told == [(str(varied), line) for line in (5, 6, 7, 8, 9)]


# --- several processes -----------------------------------------------------------------------------------------------

STORM = """
import sys
from trunkline.host.audit.trail import AuditEntry, AuditTrail
trail = AuditTrail.open(sys.argv[1], max_bytes=int(sys.argv[3]))
for number in range(int(sys.argv[2])):
    seq = trail.record(AuditEntry(act_id=f"{sys.argv[4]}-{number}", stage="begun", arguments={"n": "x" * 500}))
    sys.stdout.write(f"{seq} {sys.argv[4]}-{number}\\n")
    sys.stdout.flush()
trail.close()
"""


def storm(path: Path, *, count: int, name: str, max_bytes: int = 1 << 26) -> subprocess.Popen[str]:
    """Start a process that records, and says so of each entry once it is acknowledged."""
    command = [sys.executable, "-c", STORM, str(path), str(count), str(max_bytes), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


def acknowledged(process: subprocess.Popen[str]) -> dict[int, str]:
    """Read what a process said until it ended."""
    out, _ = process.communicate(timeout=SECONDS)
    said = (line.split() for line in out.splitlines(keepends=True) if line.endswith("\n"))
    return {int(seq): name for seq, name in said}


def test_a_killed_process_loses_nothing_that_was_acknowledged(path: Path) -> None:
    process = storm(path, count=1_000_000, name="a")
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(2000)]
    process.send_signal(signal.SIGKILL)
    said = {1 + at: line.split()[1] for at, line in enumerate(first)} | acknowledged(process)
    kept = {each["seq"]: each["act_id"] for each in query(path)}
    assert process.returncode == -signal.SIGKILL
    assert said.items() <= kept.items()
    assert verify(path).ok


def test_two_processes_at_once_make_one_chain(path: Path) -> None:
    one = storm(path, count=400, name="a", max_bytes=100_000)
    other = storm(path, count=400, name="b", max_bytes=100_000)
    said = acknowledged(one) | acknowledged(other)
    assert (one.returncode, other.returncode) == (0, 0)
    assert verify(path).entries == len(said) == 800
    assert {each["seq"]: each["act_id"] for each in query(path)} == said
    assert verify(path).ok


def test_a_trail_can_be_verified_while_it_is_written(path: Path) -> None:
    fill(path, 1)
    process = storm(path, count=3000, name="a", max_bytes=200_000)
    found = [verify(path).ok for _ in range(5)]
    acknowledged(process)
    assert found == [True] * 5


# --- what is missing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 3])
def test_a_missing_head_is_found(left: int, path: Path) -> None:
    fill(path, 3)
    anchor = verify(path).hash
    Path(f"{path}.head").unlink()
    path.write_bytes(b"".join(lines(path)[:left]))
    found = verify(path)
    assert (found.ok, found.entries) == (False, left)
    assert found.reason is not None
    assert f"{path}.head is missing" in found.reason
    assert "--anchor" in found.reason
    assert not verify(path, partial=True).ok
    # What was kept elsewhere vouches for the end in its place.
    assert verify(path, anchor=anchor).ok is (left == 3)


def test_a_missing_head_is_reported_when_the_trail_is_opened(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(path, 3)
    assert not caplog.records
    Path(f"{path}.head").unlink()
    path.write_bytes(b"".join(lines(path)[:2]))
    fill(path, 1)
    assert f"{path}.head was missing: entries after 2 may have been cut off" in caplog.text
    found = verify(path)
    assert (found.ok, found.entries) == (True, 4)
    assert found.remarks == (f"entry 3: {path}.head was missing: entries after 2 may have been cut off",)
    caplog.clear()
    fill(path, 1)
    assert not caplog.records


def test_a_head_that_cannot_be_read_is_reported_when_the_trail_is_opened(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(path, 2)
    Path(f"{path}.head").write_bytes(b"{}")
    fill(path, 1)
    assert "audit.jsonl.head cannot be read: entries after 2 may have been cut off" in caplog.text
    assert len(verify(path).remarks) == 1


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_cut_end_is_reported_at_the_start_and_stays_a_gap(
    left: int, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(path, 3)
    path.write_bytes(b"".join(lines(path)[:left]))
    fill(path, 10)
    assert f"the trail had reached entry 3, but ended at {left}" in caplog.text
    found = verify(path)
    assert (found.ok, found.entries) == (False, left)
    assert verify(path, partial=True).ok is (left == 0)


def test_a_cut_and_torn_end_stays_a_gap(path: Path) -> None:
    fill(path, 3)
    path.write_bytes(lines(path)[0] + lines(path)[1][:-20])
    fill(path, 3)
    assert verify(path).reason == "entry 4 follows entry 1: entries were removed, inserted or moved"


def test_a_missing_beginning_is_reported_when_the_trail_is_opened(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(path, 3)
    path.write_bytes(b"".join(lines(path)[1:]))
    fill(path, 1)
    assert "begins with entry 2: the entries before it are missing" in caplog.text
    assert verify(path).reason == "the trail begins with entry 2: the entries before it are missing"
