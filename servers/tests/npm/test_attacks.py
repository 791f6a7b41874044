"""Attacks on the npm server: names that lead to other paths, and hostile projects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from servers.tests.npm.fake_registry import registry_double
from servers.tests.npm.test_npm import ask, project
from trunkline import Client, ToolError
from trunkline_servers.npm import make_server
from trunkline_servers.npm.project import read_file

NAMES = [
    "../left",
    "..",
    ".",
    "-",
    "",
    "left/../../x",
    "left%2f..%2fx",
    "left?x=1",
    "left#x",
    "@scope",
    "@/right",
    "@scope/",
    "@scope/../right",
    "@../right",
    "@scope/right/latest",
    "left\r\nHost: evil",
    "left\x00",
    "http://127.0.0.1/x",
    "--registry=http://evil",
    "_private",
    "l\u00e9ft",
    "x" * 215,
]


VERSIONS = ["../left", "..", "", "^1.0.0", "1.0.0/../../x", "latest?x", "-rf", "%2e%2e"]
REFUSED: list[tuple[str, dict[str, str], str]] = [
    *(("view", {"name": name}, "is not a package name") for name in NAMES),
    ("versions", {"name": ".."}, "is not a package name"),
    *(("view", {"name": "left", "version": version}, "is not a version or tag") for version in VERSIONS),
]


async def test_a_name_or_version_that_leads_elsewhere_is_refused_before_anything_is_sent() -> None:
    async with registry_double() as double, Client(make_server(registry=double.url)) as client:
        told = [(row, await client.call_tool(*row[:2], raise_on_error=False)) for row in REFUSED]
    assert [row for row, result in told if not result.is_error or row[2] not in result.text] == []
    assert double.paths == []


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    """An allowed folder, beside it a project that is not for us, and links that lead there."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open-evil").mkdir()
    project(tmp_path / "open-evil", {"scripts": {"secret": "x"}})
    (tmp_path / "open" / "link").symlink_to(tmp_path / "open-evil")
    (tmp_path / "open" / "package.json").symlink_to(tmp_path / "open-evil" / "package.json")
    return tmp_path / "open"


@pytest.mark.parametrize("path", ["..", "../open-evil", "link", "/", "/etc", "nowhere", "a\x00b", "~root"])
def test_a_path_outside_the_allowed_folders_is_refused(allowed: Path, path: str) -> None:
    with pytest.raises(ToolError, match="is not a folder inside the allowed ones"):
        ask("list_scripts", {"path": path}, folder=allowed)


def test_a_manifest_that_is_a_link_is_refused(allowed: Path) -> None:
    with pytest.raises(ToolError, match=r"package\.json in .* cannot be read"):
        ask("list_scripts", {}, folder=allowed)


def test_a_manifest_that_is_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "package.json")
    with pytest.raises(ToolError, match="is not a file"):
        ask("list_scripts", {}, folder=tmp_path)


@pytest.mark.parametrize("name", ["package.json", "package-lock.json", ".npmrc"])
def test_a_folder_in_place_of_a_file_is_refused_and_leaves_nothing_open(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ToolError, match=f"{name} in .* is not a file"):
        read_file(tmp_path, name, 100)
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b" " * (1024 * 1024 + 1), "larger than 1048576 bytes"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
    ],
    ids=["huge", "cut", "utf-16", "deep", "list", "null"],
)
def test_an_invalid_manifest_is_a_clear_error(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "package.json").write_bytes(content)
    with pytest.raises(ToolError, match=words):
        ask("list_scripts", {}, folder=tmp_path)


@pytest.mark.parametrize("scripts", [7, [], None, "x", {"a": {}}], ids=repr)
def test_scripts_of_another_form_are_no_scripts(tmp_path: Path, scripts: Any) -> None:
    assert ask("list_scripts", {}, folder=project(tmp_path, {"scripts": scripts}))[0]["scripts"] == {}


def test_a_lock_file_that_is_nested_too_deep_is_a_clear_error(tmp_path: Path) -> None:
    lock = '{"dependencies":{"a":' * 150 + "{}" + "}}" * 150
    project(tmp_path, {})
    (tmp_path / "package-lock.json").write_text(lock)
    with pytest.raises(ToolError, match="nested deeper than"):
        ask("audit", {}, folder=tmp_path)
