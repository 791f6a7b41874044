"""A file is written whole, with a backup that takes it back byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trunkline.devtools.client_configs.files import backups_of, restore_backup, write_with_backup
from trunkline.errors import ConfigError


def test_what_was_there_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    backup = write_with_backup(path, b"new", before=b"old", clock=lambda: 0.0)
    assert (path.read_bytes(), backup.path.read_bytes()) == (b"new", b"old")
    assert (backup.path.stat().st_mode & 0o777, backup.path.parent) == (0o600, tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=50), st.binary(max_size=50))
def test_a_change_is_taken_back_byte_for_byte(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(old)
    write_with_backup(path, new, before=old)
    restore_backup(path)
    assert (path.read_bytes(), backups_of(path)) == (old, [])


def test_several_changes_are_taken_back_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"0")
    write_with_backup(path, b"1", before=b"0", clock=lambda: 0.0)
    write_with_backup(path, b"2", before=b"1", clock=lambda: 0.0)
    restore_backup(path)
    assert path.read_bytes() == b"1"
    restore_backup(path)
    assert path.read_bytes() == b"0"


def test_a_file_that_was_not_there_is_gone_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.json"
    write_with_backup(path, b"new", before=None)
    restore_backup(path)
    assert os.listdir(path.parent) == []


def test_undo_rejects_a_file_that_another_program_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    write_with_backup(path, b"new", before=b"old")
    path.write_bytes(b"newer")
    with pytest.raises(ConfigError, match="was changed since"):
        restore_backup(path)
    assert path.read_bytes() == b"newer"


def test_without_a_backup_nothing_is_taken_back(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no backup"):
        restore_backup(tmp_path / "a.json")


def test_a_file_that_changed_since_it_was_read_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"theirs")
    with pytest.raises(ConfigError, match="another program"):
        write_with_backup(path, b"new", before=b"old")
    assert os.listdir(tmp_path) == ["a.json"]
    assert path.read_bytes() == b"theirs"


def test_rights_and_links_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_with_backup(link, b"new", before=b"old")
    assert (link.is_symlink(), real.read_bytes(), real.stat().st_mode & 0o777) == (True, b"new", 0o640)


def test_a_dry_run_takes_nothing_back(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_with_backup(path, b"new", before=None)
    restore_backup(path, dry_run=True)
    assert path.read_bytes() == b"new"
