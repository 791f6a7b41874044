"""Published attacks and variants: nothing outside the allowed folder is read, written or waited for."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from servers.tests.filesystem.support import WALKS, call, calls, refused
from tests.support import run_async
from trunkline import Client, Server
from trunkline_servers.filesystem import folders, make_server, path_resolver
from trunkline_servers.filesystem.path_resolver import PathDenied, PathResolver
from trunkline_servers.filesystem.reading import FolderEntry, entries_of
from trunkline_servers.filesystem.worker import FileBudget, FileLimits, FileWorker, OutOfTime
from trunkline_servers.roots import AllowedFolders, Folder

SECRET = "nobody's business"


class Scene(NamedTuple):
    """An allowed folder, and a secret beside it."""

    root: Path
    outside: Path

    @property
    def secret(self) -> Path:
        return self.outside / "secret.txt"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path / "root", tmp_path / "root-evil")
    made.root.mkdir()
    made.outside.mkdir()
    made.secret.write_text(SECRET)
    return made


def tries(path: Path | str) -> list[tuple[str, dict[str, Any]]]:
    """Every tool that takes a path, with this one."""
    text = str(path)
    return [
        ("read_file", {"path": text}),
        ("read_text_file", {"path": text, "head": 1}),
        ("read_text_file", {"path": text, "tail": 1}),
        ("read_media_file", {"path": text}),
        ("write_file", {"path": text, "content": "owned"}),
        ("edit_file", {"path": text, "edits": [{"oldText": "", "newText": "owned"}]}),
        ("list_directory", {"path": text}),
        ("list_directory_with_sizes", {"path": text}),
        ("directory_tree", {"path": text}),
        ("search_files", {"path": text, "pattern": "**"}),
        ("get_file_info", {"path": text}),
        ("create_directory", {"path": text}),
    ]


async def _outcomes(server: Server, wanted: list[tuple[str, dict[str, Any]]]) -> list[str]:
    async with Client(server) as client:
        results = [await client.call_tool(name, given, raise_on_error=False) for name, given in wanted]
    return [f"{name}: {result.is_error}: {result.text}" for (name, _), result in zip(wanted, results, strict=True)]


def not_denied(scene: Scene, path: Path | str, *, kernel_walk: bool) -> list[str]:
    """Try every tool with a path; give what was not refused as one that leads out."""
    said = run_async(_outcomes(make_server([scene.root], kernel_walk=kernel_walk), tries(path)))
    return [each for each in said if ": True: Access denied" not in each]


def words(scene: Scene, wanted: tuple[str, dict[str, Any]], *, kernel_walk: bool = True) -> str:
    return refused(lambda: calls(make_server([scene.root], kernel_walk=kernel_walk), wanted))


# --- paths -----------------------------------------------------------------------------------------------------------


#: Links in the allowed folder, and a path that leads out: by them, or by a name that begins like the allowed one.
LEADING_OUT = [
    pytest.param({}, "{outside}/secret.txt", id="same-beginning"),
    pytest.param({"link": "{outside}/secret.txt"}, "link", id="file"),
    pytest.param({"link": "../root-evil"}, "link/secret.txt", id="folder"),
    pytest.param({"link": "../root-evil"}, "link", id="folder-itself"),
    pytest.param({"a": "b", "b": "c/secret.txt", "c": "{outside}"}, "a", id="chain"),
    pytest.param({"link": "{outside}/new"}, "link", id="nothing"),
]


@WALKS
@pytest.mark.parametrize(("links", "path"), LEADING_OUT)
def test_no_tool_follows_a_path_or_a_link_that_leads_out(
    scene: Scene, links: dict[str, str], path: str, kernel_walk: bool
) -> None:
    for name, target in links.items():
        (scene.root / name).symlink_to(target.format(outside=scene.outside))
    assert not_denied(scene, path.format(outside=scene.outside), kernel_walk=kernel_walk) == []
    assert (scene.secret.read_text(), os.listdir(scene.outside)) == (SECRET, ["secret.txt"])


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("../root-evil/secret.txt", id="relative"),
        pytest.param("{root}/../root-evil/secret.txt", id="absolute"),
        pytest.param("{root}/missing/../../root-evil/secret.txt", id="through-nothing"),
        pytest.param("{root}//..//root-evil/secret.txt", id="two-slashes"),
        pytest.param("{root}/./../root-evil/./secret.txt", id="dots"),
        pytest.param("//{outside}/secret.txt", id="leading-slashes"),
        pytest.param("~root/../{outside}/secret.txt", id="a-users-home"),
        pytest.param("file://{outside}/secret.txt", id="uri"),
        pytest.param("{root}/..%2froot-evil/secret.txt", id="escaped"),
        pytest.param("{root}\\..\\root-evil\\secret.txt", id="backslashes"),
        pytest.param("{root}\0/../root-evil/secret.txt", id="zero-byte"),
        pytest.param("{root}/x\0.txt", id="zero-byte-inside"),
        pytest.param("", id="nothing"),
        pytest.param("/proc/self/cwd/{outside}/secret.txt", id="proc-cwd"),
        pytest.param("/proc/self/root/{outside}/secret.txt", id="proc-root"),
        pytest.param("/proc/self/environ", id="proc-environ"),
        pytest.param("/dev/stdin", id="standard-input"),
    ],
)
def test_no_way_of_writing_a_path_leads_out(scene: Scene, path: str) -> None:
    named = path.format(root=scene.root, outside=scene.outside)
    wanted = [("read_file", {"path": named}), ("write_file", {"path": named, "content": "x"})]
    said = run_async(_outcomes(make_server([scene.root]), wanted))
    assert [each for each in said if ": False:" in each] == []
    assert (os.listdir(scene.root), scene.secret.read_text()) == ([], SECRET)


def test_dots_between_two_allowed_folders_stay_allowed(scene: Scene) -> None:
    server = make_server([scene.root, scene.outside])
    assert calls(server, ("read_file", {"path": f"{scene.root}/../root-evil/secret.txt"})) == [SECRET]


def test_names_are_bytes_and_no_other_form_of_them_is_the_same(scene: Scene) -> None:
    composed, apart = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    (scene.root / composed).write_text("x")
    assert "no file or folder" in words(scene, ("read_file", {"path": apart}))
    assert call(scene.root, "read_file", path=composed) == "x"


# --- links -----------------------------------------------------------------------------------------------------------


@WALKS
def test_a_cycle_of_links_ends(scene: Scene, kernel_walk: bool) -> None:
    (scene.root / "a").symlink_to("b")
    (scene.root / "b").symlink_to("a")
    assert "too many links" in words(scene, ("read_file", {"path": "a"}), kernel_walk=kernel_walk)
    assert "too many links" in words(scene, ("read_file", {"path": "a/x"}), kernel_walk=kernel_walk)


@WALKS
@pytest.mark.parametrize(
    "target",
    [
        pytest.param("folder/x", id="relative"),
        pytest.param("{root}/folder/x", id="absolute"),
        pytest.param("folder/../folder/./x", id="dots"),
        pytest.param("../root/folder/x", id="out-and-in"),
        pytest.param("again/x", id="link-to-link"),
    ],
)
def test_links_that_stay_inside_work(scene: Scene, target: str, kernel_walk: bool) -> None:
    (scene.root / "folder").mkdir()
    (scene.root / "folder" / "x").write_text("inside")
    (scene.root / "again").symlink_to("folder")
    (scene.root / "link").symlink_to(target.format(root=scene.root))
    assert call(scene.root, "read_file", kernel_walk=kernel_walk, path="link") == "inside"


@WALKS
def test_dots_behind_a_link_in_a_link_go_where_the_system_would_go(scene: Scene, kernel_walk: bool) -> None:
    (scene.root / "a" / "b").mkdir(parents=True)
    (scene.root / "a" / "x").write_text("beside the target")
    (scene.root / "x").write_text("beside the link")
    (scene.root / "to_b").symlink_to("a/b")
    (scene.root / "link").symlink_to("to_b/../x")
    assert call(scene.root, "read_file", kernel_walk=kernel_walk, path="link") == "beside the target"


@WALKS
def test_a_link_from_one_allowed_folder_into_another_works(scene: Scene, kernel_walk: bool) -> None:
    (scene.root / "link").symlink_to("../root-evil")
    server = make_server([scene.root, scene.outside], kernel_walk=kernel_walk)
    assert calls(server, ("read_file", {"path": str(scene.root / "link/secret.txt")})) == [SECRET]


@WALKS
def test_links_of_proc_are_only_read_as_text(scene: Scene, kernel_walk: bool) -> None:
    with open(scene.secret) as file:
        server = make_server(["/proc/self/fd"], kernel_walk=kernel_walk)
        said = refused(lambda: calls(server, ("read_file", {"path": f"/proc/self/fd/{file.fileno()}"})))
    assert "Access denied" in said


def test_a_move_of_a_link_moves_the_link(scene: Scene) -> None:
    (scene.root / "link").symlink_to(scene.secret)
    call(scene.root, "move_file", source="link", destination="moved")
    assert (os.readlink(scene.root / "moved"), scene.secret.read_text()) == (str(scene.secret), SECRET)


@pytest.mark.parametrize("way", ["source", "destination"])
def test_a_move_cannot_cross_the_allowed_folders(scene: Scene, way: str) -> None:
    (scene.root / "x").write_text("x")
    (scene.root / "link").symlink_to(scene.outside)
    inside, outside = str(scene.root / "x"), str(scene.root / "link" / "secret.txt")
    paths = {"source": inside, "destination": str(scene.root / "new"), way: outside}
    assert "Access denied" in words(scene, ("move_file", paths))
    assert (scene.secret.read_text(), (scene.root / "x").read_text()) == (SECRET, "x")


# --- races -----------------------------------------------------------------------------------------------------------


@contextmanager
def swapping(name: Path, good: Path, bad: Path) -> Iterator[None]:
    """Put now one thing, now the other at a name, as fast as can be, until the scene is over."""
    stop = threading.Event()

    def swap() -> None:
        spare = name.with_name(f"{name.name}.spare")
        while not stop.is_set():
            for target in (bad, good):
                spare.symlink_to(target)
                os.replace(spare, name)

    thread = threading.Thread(target=swap, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(120)


def outcome(resolver: PathResolver, path: str) -> str:
    def read(place: path_resolver.Location) -> str:
        descriptor = place.open_file()
        try:
            return os.read(descriptor, 100).decode()
        finally:
            os.close(descriptor)

    try:
        return resolver.use(path, read)
    except (PathDenied, OSError):
        return "refused"


@WALKS
def test_a_link_that_is_swapped_all_the_time_never_leads_out(scene: Scene, kernel_walk: bool) -> None:
    good = scene.root / "good"
    good.mkdir()
    (good / "secret.txt").write_text("allowed")
    resolver = PathResolver([Folder(scene.root, scene.root)], kernel_walk=kernel_walk)
    with swapping(scene.root / "name", good, scene.outside):
        seen = {outcome(resolver, "name/secret.txt") for _ in range(400)}
    assert seen <= {"allowed", "refused"}


def before_opening(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something between the time that a file is found and the time that it is opened."""
    opens = path_resolver.Location.open

    def swapped(place: path_resolver.Location, flags: int) -> int:
        act()
        return opens(place, flags)

    monkeypatch.setattr(path_resolver.Location, "open", swapped)


def replaced(path: Path, target: Path) -> None:
    """Put a link in the place of a file or folder."""
    path.rename(path.with_name("away"))
    path.symlink_to(target)


@WALKS
@pytest.mark.parametrize("path", ["name", "folder/name"])
def test_a_file_that_becomes_a_link_after_it_was_found_is_not_followed(
    scene: Scene, path: str, kernel_walk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scene.root / "folder").mkdir()
    (scene.root / path).write_text("allowed")
    before_opening(monkeypatch, lambda: replaced(scene.root / path, scene.secret))
    assert "Access denied" in words(scene, ("read_file", {"path": path}), kernel_walk=kernel_walk)


@WALKS
def test_a_file_that_becomes_a_pipe_after_it_was_found_does_not_block_the_call(
    scene: Scene, kernel_walk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = scene.root / "name"
    file.write_text("allowed")

    def become_a_pipe() -> None:
        file.unlink()
        os.mkfifo(file)

    before_opening(monkeypatch, become_a_pipe)
    assert "is not a regular file" in words(scene, ("read_file", {"path": "name"}), kernel_walk=kernel_walk)


async def test_a_search_stops_when_its_caller_is_gone(scene: Scene) -> None:
    budget = FileBudget(FileLimits())
    context: Any = SimpleNamespace(client=SimpleNamespace(supports=lambda _: False))
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    desk = FileWorker(AllowedFolders([scene.root]), limits=FileLimits(), submit=lambda _: never)
    search = asyncio.ensure_future(desk.do(context, "x", lambda _: None, budget=budget))
    await asyncio.sleep(0)
    search.cancel()
    await asyncio.wait([search])
    with pytest.raises(OutOfTime):
        budget.check_time()


@WALKS
def test_a_folder_that_becomes_a_link_after_it_was_found_is_still_the_folder(
    scene: Scene, kernel_walk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = scene.root / "folder"
    folder.mkdir()
    (folder / "secret.txt").write_text("allowed")
    before_opening(monkeypatch, lambda: replaced(folder, scene.outside))
    assert call(scene.root, "read_file", kernel_walk=kernel_walk, path="folder/secret.txt") == "allowed"


def test_a_folder_that_becomes_a_link_during_the_walk_is_not_followed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = scene.root / "folder"
    folder.mkdir()
    link = path_resolver._link

    def swapped(directory: int, name: str) -> str | None:
        found = link(directory, name)
        monkeypatch.setattr(path_resolver, "_link", link)
        folder.rename(scene.root / "away")
        folder.symlink_to(scene.outside)
        return found

    monkeypatch.setattr(path_resolver, "_link", swapped)
    said = words(scene, ("read_file", {"path": "folder/secret.txt"}), kernel_walk=False)
    assert "a link in" in said


@pytest.mark.parametrize("tool", ["directory_tree", "search_files"])
def test_a_folder_that_becomes_a_link_is_not_searched(scene: Scene, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def still_a_folder(directory: int, most: int) -> tuple[list[FolderEntry], bool]:
        found, more = entries_of(directory, most)
        return [FolderEntry(each.name, each.name == "name", False) for each in found], more

    (scene.root / "name").symlink_to(scene.outside)
    monkeypatch.setattr(folders, "entries_of", still_a_folder)
    wanted: dict[str, dict[str, Any]] = {
        "directory_tree": {"path": "."},
        "search_files": {"path": ".", "pattern": "**"},
    }
    (said,) = calls(make_server([scene.root]), (tool, wanted[tool]))
    assert "name" in said
    assert "secret" not in said


@WALKS
def test_a_write_replaces_a_link_that_was_put_in_its_way(
    scene: Scene, kernel_walk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def swapped(*given: Any, **more: Any) -> None:
        (scene.root / "x").symlink_to(scene.secret)
        rename(*given, **more)

    monkeypatch.setattr(os, "rename", swapped)
    call(scene.root, "write_file", kernel_walk=kernel_walk, path="x", content="new")
    assert (scene.secret.read_text(), (scene.root / "x").read_text()) == (SECRET, "new")
    assert not (scene.root / "x").is_symlink()


@WALKS
@pytest.mark.parametrize("level", ["itself", "parent"])
def test_an_allowed_folder_that_is_replaced_by_a_link_is_closed(scene: Scene, level: str, kernel_walk: bool) -> None:
    inner = scene.root / "inner"
    inner.mkdir()
    (scene.outside / "inner").mkdir()
    (scene.outside / "inner" / "secret.txt").write_text(SECRET)
    server = make_server([inner], kernel_walk=kernel_walk)
    replaced, target = {"itself": (inner, scene.outside / "inner"), "parent": (scene.root, scene.outside)}[level]
    replaced.rename(scene.root.parent / "away")
    replaced.symlink_to(target)
    said = refused(lambda: calls(server, ("read_file", {"path": str(inner / "secret.txt")})))
    assert "no longer exists" in said


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.EPERM], ids=["old-kernel", "sandbox"])
def test_where_the_kernel_cannot_walk_it_is_done_in_steps(
    scene: Scene, reason: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*given: object) -> int:
        raise OSError(reason, os.strerror(reason))

    (scene.root / "folder").mkdir()
    (scene.root / "folder" / "x").write_text("inside")
    (scene.root / "link").symlink_to(scene.outside)
    monkeypatch.setattr(path_resolver, "open_without_links", missing)
    assert call(scene.root, "read_file", path="folder/x") == "inside"
    assert "Access denied" in words(scene, ("read_file", {"path": "link/secret.txt"}))


# --- what is no file -------------------------------------------------------------------------------------------------


@WALKS
def test_too_many_open_files_are_reported_as_such(
    scene: Scene, kernel_walk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(path_resolver, "open_without_links", full)
    monkeypatch.setattr(path_resolver, "_enter_by_steps", full)

    said = words(scene, ("read_text_file", {"path": "file"}), kernel_walk=kernel_walk)

    assert said == "Too many files are open just now: file was not touched. Try again later."


def test_a_pipe_does_not_block_the_call(scene: Scene) -> None:
    os.mkfifo(scene.root / "pipe")
    said = run_async(_outcomes(make_server([scene.root]), tries("pipe")))
    assert [each.split(":")[0] for each in said if ": False:" in each] == ["get_file_info"]
    assert (scene.root / "pipe").is_fifo()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty", "/dev/full"])
def test_devices_are_not_read(device: str) -> None:
    assert "is not a regular file" in refused(lambda: calls(make_server(["/dev"]), ("read_file", {"path": device})))


def test_a_file_that_says_it_is_empty_but_is_not_is_bounded() -> None:
    server = make_server(["/proc/self"])
    status = f"/proc/{os.getpid()}/status"
    (text,) = calls(server, ("read_file", {"path": status}))
    small = make_server(["/proc/self"], limits=FileLimits(file_bytes=16))

    assert "Name:" in text
    assert "larger than 16 B" in refused(lambda: calls(small, ("read_file", {"path": status})))


@pytest.mark.usefixtures("without_collector")
def test_no_descriptor_is_left_open(scene: Scene) -> None:
    (scene.root / "a" / "b").mkdir(parents=True)
    (scene.root / "a" / "b" / "x").write_text("x")
    (scene.root / "link").symlink_to("a/b/../b/x")
    (scene.root / "out").symlink_to(scene.secret)
    grounds = [PathResolver([Folder(scene.root, scene.root)], kernel_walk=each) for each in (True, False)]
    paths = ["a/b/x", "link", "out", "missing/x", "a/b/x/y", "..", "a", "."]
    before = os.listdir("/proc/self/fd")
    seen = [outcome(resolver, path) for resolver in grounds for path in paths]
    assert os.listdir("/proc/self/fd") == before
    assert seen == ["x", "x", *["refused"] * 6] * 2


def test_a_path_through_too_many_folders_is_refused(scene: Scene) -> None:
    said = run_async(_outcomes(make_server([scene.root]), tries("d/" * 3000)))
    assert [each for each in said if ": True: Access denied: a path has at most" not in each] == []
    assert os.listdir(scene.root) == []


def test_a_walk_keeps_few_folders_open(scene: Scene) -> None:
    deep = "d/" * 300
    (scene.root / deep).mkdir(parents=True)
    said = words(scene, ("list_directory", {"path": deep}), kernel_walk=False)
    assert "too many folders" in said
