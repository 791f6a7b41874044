"""Whether a path lies in a folder, however it is written and wherever links lead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.authorization.policy import PathContext
from trunkline.host.authorization.policy.locations import InvalidFolder, PathReader, compile_within

PLACES = PathContext(home="/home/me", folders={"files": "/home/me/work"})


def _within(value: str, *, folder: str = "~/work", lenient: bool = False, server: str = "files") -> bool | None:
    return compile_within([folder], paths=PathReader(PLACES), lenient=lenient)(value, server)


@pytest.mark.parametrize("lenient", [False, True], ids=["opening", "closing"])
@pytest.mark.parametrize(
    ("value", "inside"),
    [
        ("/home/me/work", True),
        ("/home/me/work/", True),
        ("/home/me/work/a/b", True),
        ("/home/me/work/../work/a", True),
        ("//home//me/./work/a", True),
        ("a.txt", True),
        ("./a", True),
        ("../work/a", True),
        ("/home/me/worker", False),
        ("/home/me/work/../other", False),
        ("/home/me/work/../../../etc/passwd", False),
        ("/etc/passwd", False),
        ("/", False),
        ("..", False),
        ("../../me/other", False),
        ("a/../../other", False),
        ("", None),
        ("~/work/a", None),
        ("~root/a", None),
        ("file:///home/me/work/a", None),
        ("C:\\work", None),
        ("c:/work", None),
        ("/home/me/work/a\\..\\..\\b", None),
        ("/home/me/work/a\x00/../../etc", None),
        ("/home/me/work/\n", None),
        ("/home/me/work/%2e%2e/%2E%2E/etc", None),
        ("/home/me/work/%252e%252e/x", None),
        ("/home/me/work/..%2fx", None),
        ("/home/me/work/\ud800", None),
        ("/home/me/work/" + "a" * 9000, None),
    ],
)
def test_a_path_is_read_as_it_would_be_opened(value: str, inside: bool | None, lenient: bool) -> None:
    assert _within(value, lenient=lenient) is inside


def test_a_relative_path_for_a_server_whose_folder_is_not_known_cannot_be_judged() -> None:
    assert _within("a", server="other") is None


def test_the_whole_file_system_holds_every_path() -> None:
    assert _within("/etc/passwd", folder="/") is True


@pytest.mark.parametrize(
    ("value", "opening", "closing"),
    [
        ("/home/me/WORK/a", False, True),
        ("/home/me/wor\u212a/a", False, True),
        ("/home/me/\uff57ork/a", False, True),
    ],
    ids=["capitals", "kelvin sign", "full width"],
)
def test_letters_that_some_systems_take_for_the_same_close_and_do_not_open(
    value: str, opening: bool, closing: bool
) -> None:
    assert (_within(value), _within(value, lenient=True)) == (opening, closing)


@pytest.mark.parametrize("folder", ["work", "./work", "~other/x", "file:///x", "", "/a\x00"])
def test_a_folder_that_is_not_absolute_is_refused(folder: str) -> None:
    with pytest.raises(InvalidFolder, match="begin it with '/' or '~/'"):
        _within("/x", folder=folder)


def test_a_tilde_without_a_known_home_is_rejected() -> None:
    with pytest.raises(InvalidFolder, match="write the whole path"):
        compile_within(["~/work"], paths=PathReader(PathContext()), lenient=False)


@given(st.lists(st.sampled_from(["..", ".", "a", "work", "home", "me", ""]), max_size=8))
def test_what_is_inside_is_inside_once_it_is_straightened(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    straight = os.path.normpath("/" + path)[1:]
    assert _within(path) is (straight + "/").startswith("/home/me/work/")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder ``work`` with a link out of it, and a link into it from outside."""
    root = tmp_path.resolve()
    (root / "work").mkdir()
    (root / "secret").mkdir()
    (root / "work" / "out").symlink_to(root / "secret")
    (root / "in").symlink_to(root / "work")
    return root


@pytest.mark.parametrize(
    ("path", "opening", "closing"),
    [
        ("work/a", True, True),
        ("work/out/a", False, True),
        ("work/out/../a", False, True),
        ("in/a", False, True),
        ("secret/a", False, False),
    ],
)
def test_a_link_out_of_a_folder_does_not_open_and_one_into_it_closes(
    tree: Path, path: str, opening: bool, closing: bool
) -> None:
    paths = PathReader(PathContext(resolve=os.path.realpath))
    judges = [compile_within([str(tree / "work")], paths=paths, lenient=lenient) for lenient in (False, True)]
    assert [judge(f"{tree}/{path}", "files") for judge in judges] == [opening, closing]


def test_a_folder_that_is_a_link_itself_holds_what_is_in_it_by_either_name(tree: Path) -> None:
    judge = compile_within([str(tree / "in")], paths=PathReader(PathContext(resolve=os.path.realpath)), lenient=False)
    assert judge(f"{tree}/in/a", "files") is True
    assert judge(f"{tree}/work/a", "files") is True


@pytest.mark.parametrize("error", [OSError("loop"), ValueError("odd")])
def test_a_link_that_cannot_be_followed_leaves_it_open(error: Exception) -> None:
    def fail(path: str) -> str:
        if path.endswith("/x"):
            raise error
        return path

    judge = compile_within(["/work"], paths=PathReader(PathContext(resolve=fail)), lenient=False)
    assert judge("/work/x", "files") is None


def test_links_are_followed_once_for_an_act_and_again_for_the_next() -> None:
    asked: list[str] = []

    def resolve(path: str) -> str:
        asked.append(path)
        return path

    paths = PathReader(PathContext(resolve=resolve))
    judges = [compile_within(["/work"], paths=paths, lenient=False) for _ in range(3)]
    asked.clear()
    assert [judge("/work/x", "files") for judge in judges] == [True] * 3
    assert asked == ["/work/x"]
    paths.forget()
    assert judges[0]("/work/x", "files") is True
    assert asked == ["/work/x"] * 2
