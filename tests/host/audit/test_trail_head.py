"""What is missing from an audit trail: its head, its end, its beginning; told by ``verify`` and when it is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.audit.test_trail import entry, fill, lines
from trunkline.host.audit.reader import verify
from trunkline.host.audit.trail import GENESIS, AuditTrail, TrailHead, read_head


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a trail may be."""
    return tmp_path / "state" / "audit.jsonl"


def test_a_trail_has_a_head_from_its_beginning(path: Path) -> None:
    trail = AuditTrail.open(path)
    try:
        assert read_head(str(path)) == TrailHead(0, GENESIS)
        trail.record(entry())
        assert verify(path).ok
    finally:
        trail.close()


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
