"""The tools that read files."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from servers.tests.filesystem.support import WALKS, call, calls, refused
from tests.support import run_async
from trunkline import Client, RequestFailed
from trunkline_servers.filesystem import make_server
from trunkline_servers.filesystem.worker import FileLimits

SMALL = FileLimits(file_bytes=1000)


@WALKS
@pytest.mark.parametrize("tool", ["read_file", "read_text_file"])
def test_a_relative_path_is_below_the_allowed_folder(tmp_path: Path, tool: str, kernel_walk: bool) -> None:
    (tmp_path / "src" / "components").mkdir(parents=True)
    (tmp_path / "src" / "components" / "Button.tsx").write_text("grüße\n", encoding="utf-8")
    assert call(tmp_path, tool, kernel_walk=kernel_walk, path="src/components/Button.tsx") == "grüße\n"


def test_a_relative_path_means_the_first_folder_that_has_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / "x").write_text("second")
    assert calls(make_server([first, second]), ("read_file", {"path": "x"})) == ["second"]


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x").write_text("home")
    assert call(tmp_path, "read_text_file", path="~/x") == "home"


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        pytest.param("a\nb\nc\n", {"head": 2}, "a\nb", id="head"),
        pytest.param("a\nb\nc\n", {"head": 9}, "a\nb\nc", id="head-of-all"),
        pytest.param("a\nb\nc", {"tail": 2}, "b\nc", id="tail"),
        pytest.param("a\nb\nc\n", {"tail": 2}, "b\nc", id="tail-of-ended"),
        pytest.param("a\r\nb\r\n", {"tail": 1}, "b", id="tail-of-windows"),
        pytest.param("", {"tail": 3}, "", id="tail-of-nothing"),
        pytest.param("", {"head": 3}, "", id="head-of-nothing"),
        pytest.param("a\nb", {"head": 0}, "a\nb", id="no-lines-is-all"),
        pytest.param("a\nb\nc", {"head": 1.5}, "a\nb", id="half-a-line"),
        pytest.param("a\nb", {"head": None, "tail": 1}, "b", id="null-is-not-given"),
    ],
)
def test_lines_from_either_end(tmp_path: Path, text: str, arguments: dict[str, Any], expected: str) -> None:
    (tmp_path / "x").write_bytes(text.encode())
    assert call(tmp_path, "read_text_file", path="x", **arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({"head": 1, "tail": 1}, "not both", id="both"),
        pytest.param({"tail": -1}, "number of lines", id="negative"),
    ],
)
def test_lines_that_make_no_sense_are_refused(tmp_path: Path, arguments: dict[str, Any], expected: str) -> None:
    (tmp_path / "x").write_text("a")
    assert expected in refused(lambda: call(tmp_path, "read_text_file", path="x", **arguments))


def test_a_file_that_is_too_large_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 1001)
    server = make_server([tmp_path], limits=SMALL)
    assert "--max-file-bytes" in refused(lambda: calls(server, ("read_text_file", {"path": "x"})))
    assert "--max-file-bytes" in refused(lambda: calls(server, ("read_media_file", {"path": "x"})))


def test_the_ends_of_a_huge_file_are_read_without_the_rest(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.write(b"first\n")
        os.truncate(file.fileno(), 1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"\nlast\n")
    server = make_server([tmp_path])
    head, tail = ("read_text_file", {"path": "huge", "head": 1}), ("read_text_file", {"path": "huge", "tail": 1})
    assert calls(server, head, tail) == ["first", "last"]


@pytest.mark.parametrize("end", ["head", "tail"])
def test_a_line_without_end_is_not_read_whole(tmp_path: Path, end: str) -> None:
    with open(tmp_path / "huge", "wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    server = make_server([tmp_path], limits=SMALL)
    assert "ask for fewer" in refused(lambda: calls(server, ("read_text_file", {"path": "huge", end: 1})))


@pytest.mark.parametrize(
    ("name", "kind", "mime_type"),
    [
        pytest.param("x.PNG", "image", "image/png", id="picture"),
        pytest.param("x.mp3", "audio", "audio/mpeg", id="sound"),
    ],
)
def test_media_come_as_such(tmp_path: Path, name: str, kind: str, mime_type: str) -> None:
    (tmp_path / name).write_bytes(b"data")
    blocks: Any = call(tmp_path, "read_media_file", path=name)
    assert blocks == [{"type": kind, "data": base64.b64encode(b"data").decode(), "mimeType": mime_type}]


def test_other_bytes_come_as_a_resource(tmp_path: Path) -> None:
    (tmp_path / "a b.bin").write_bytes(b"data")
    blocks: Any = call(tmp_path, "read_media_file", path="a b.bin")
    assert blocks[0]["resource"] == {
        "uri": (tmp_path / "a b.bin").as_uri(),
        "mimeType": "application/octet-stream",
        "blob": base64.b64encode(b"data").decode(),
    }


def test_several_files_are_read_in_one_call_with_errors_in_their_places(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("A")
    found = call(tmp_path, "read_multiple_files", paths=["a", "missing", "/etc/passwd", "a"])
    first, missing, outside, last = found.split("\n---\n")
    assert (first, last) == ("a:\nA\n", "a:\nA\n")
    assert missing == "missing: Error - There is no file or folder missing."
    assert outside.startswith("/etc/passwd: Error - Access denied")


def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\xffb")
    assert call(tmp_path, "read_text_file", path="x") == "a\ufffdb"


async def read(folder: Path, uri: str, **options: Any) -> Any:
    async with Client(make_server([folder]), **options) as client:
        (contents,) = await client.read_resource(uri)
        return contents


def test_a_file_is_a_resource(tmp_path: Path) -> None:
    file = tmp_path / "a b.json"
    file.write_text("{}")
    contents = run_async(read(tmp_path, file.as_uri()))
    assert (contents.uri, contents.text, contents.mime_type) == (file.as_uri(), "{}", "application/json")


def test_bytes_are_a_resource_in_base64(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\0\1")
    contents = run_async(read(tmp_path, (tmp_path / "x").as_uri()))
    assert (contents.blob, contents.text) == (base64.b64encode(b"\0\1").decode(), None)


def test_a_resource_outside_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestFailed, match="Access denied"):
        run_async(read(tmp_path, "file:///etc/passwd"))


# --- resources -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "revision"), [("missing", "2025-11-25"), ("missing/x", "2026-07-28"), ("file/x", "2026-07-28")]
)
async def test_a_resource_that_does_not_exist_is_not_found(tmp_path: Path, way: str, revision: str) -> None:
    (tmp_path / "file").touch()
    async with Client(make_server([tmp_path]), revision=revision) as client:
        with pytest.raises(RequestFailed, match="Resource not found") as caught:
            await client.read_resource((tmp_path / way).as_uri())
    assert caught.value.code == {"2025-11-25": -32002, "2026-07-28": -32602}[revision]


def test_many_files_at_once_take_no_longer_than_allowed(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    server = make_server([tmp_path], limits=FileLimits(seconds=1e-9))
    (said,) = calls(server, ("read_multiple_files", {"paths": ["x", "x"]}))
    assert said.count("It takes longer than") == 2


def test_reading_many_files_stays_within_the_remaining_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = os.read

    def noted(descriptor: int, size: int) -> bytes:
        data = real(descriptor, size)
        read.append(len(data) if data == b"y" * len(data) else 0)
        return data

    (tmp_path / "y").write_text("y" * 60)
    monkeypatch.setattr(os, "read", noted)
    server = make_server([tmp_path], limits=FileLimits(file_bytes=100))
    (said,) = calls(server, ("read_multiple_files", {"paths": ["y"] * 50}))
    assert (sum(read), said.count("files together have more than")) == (60, 49)
