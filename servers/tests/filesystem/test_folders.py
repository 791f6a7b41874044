"""The tools that look at folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servers.tests.filesystem.support import WALKS, call, calls, refused
from trunkline import Client, ToolError
from trunkline_servers.filesystem import make_server
from trunkline_servers.filesystem.folders import GlobPattern, exclude_filter
from trunkline_servers.filesystem.worker import FileLimits


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "deep" / "leaf.py").write_text("leaf")
    (tmp_path / "src" / "main.py").write_text("main")
    (tmp_path / ".env").write_text("x" * 3000)
    (tmp_path / "README.md").write_text("read me")
    return tmp_path


@WALKS
def test_a_folder_is_listed_with_marks(project: Path, kernel_walk: bool) -> None:
    found = call(project, "list_directory", kernel_walk=kernel_walk, path=str(project))
    assert found == "[FILE] .env\n[FILE] README.md\n[DIR] src"


def test_sizes_and_totals_are_listed(project: Path) -> None:
    assert call(project, "list_directory_with_sizes", path=".").split("\n") == [
        "[FILE] .env                              2.93 KB",
        "[FILE] README.md                             7 B",
        "[DIR] src                            ",
        "",
        "Total: 2 files, 1 directories",
        "Combined size: 2.94 KB",
    ]


def test_the_largest_comes_first_if_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("22")
    found = call(tmp_path, "list_directory_with_sizes", path=".", sortBy="size")
    assert [line.split()[1] for line in found.split("\n")[:2]] == ["b", "a"]


def test_the_size_behind_a_link_that_leads_out_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc/passwd")
    assert "0 B" in call(tmp_path, "list_directory_with_sizes", path=".").split("\n")[0]


def test_a_tree_has_children_in_folders_only(project: Path) -> None:
    leaf = {"name": "leaf.py", "type": "file"}
    deep = {"name": "deep", "type": "directory", "children": [leaf]}
    assert json.loads(call(project, "directory_tree", path=str(project))) == [
        {"name": ".env", "type": "file"},
        {"name": "README.md", "type": "file"},
        {"name": "src", "type": "directory", "children": [deep, {"name": "main.py", "type": "file"}]},
    ]


def test_a_tree_leaves_out_names_at_any_depth(project: Path) -> None:
    found = json.loads(call(project, "directory_tree", path=".", excludePatterns=["deep", "*.md", ".env"]))
    assert found == [{"name": "src", "type": "directory", "children": [{"name": "main.py", "type": "file"}]}]


@WALKS
def test_a_search_gives_whole_paths(project: Path, kernel_walk: bool) -> None:
    found = call(project, "search_files", kernel_walk=kernel_walk, path=".", pattern="**/*.py")
    assert found.split("\n") == [str(project / "src/deep/leaf.py"), str(project / "src/main.py")]


def test_a_search_leaves_out_what_is_excluded_and_all_below(project: Path) -> None:
    found = call(project, "search_files", path=".", pattern="**", excludePatterns=["src/deep"])
    assert found.split("\n") == [str(project / each) for each in (".env", "README.md", "src", "src/main.py")]


def test_a_search_without_matches_says_so(project: Path) -> None:
    assert call(project, "search_files", path=".", pattern="*.none") == "No matches found"


def test_a_search_shows_links_that_stay_and_hides_those_that_lead_out(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    (tmp_path / "in").symlink_to("x")
    (tmp_path / "out").symlink_to("/etc/passwd")
    assert call(tmp_path, "search_files", path=".", pattern="*").split("\n") == [
        str(tmp_path / each) for each in ("in", "x")
    ]


def test_the_metadata_of_a_file_is_returned(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("12345")
    os.chmod(tmp_path / "x", 0o640)
    os.utime(tmp_path / "x", (0, 0))
    facts = dict(line.split(": ", 1) for line in call(tmp_path, "get_file_info", path="x").split("\n"))
    assert list(facts) == ["size", "created", "modified", "accessed", "isDirectory", "isFile", "permissions"]
    assert (facts["size"], facts["isDirectory"], facts["isFile"], facts["permissions"]) == ("5", "false", "true", "640")
    assert "19" in facts["modified"]


def test_allowed_folders_are_named_by_both_their_names(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    (real / "x").write_text("x")
    found = calls(
        make_server([link]),
        ("list_allowed_directories", {}),
        ("read_file", {"path": str(link / "x")}),
        ("read_file", {"path": str(real / "x")}),
    )
    assert found == [f"Allowed directories:\n{link}\n{real}", "x", "x"]


# --- limits ----------------------------------------------------------------------------------------------------------


def limited(folder: Path, tool: str, limits: FileLimits, **arguments: Any) -> str:
    return calls(make_server([folder], limits=limits), (tool, {"path": str(folder), **arguments}))[0]


def test_a_long_list_is_truncated_with_a_note(project: Path) -> None:
    assert "more than 2 entries" in limited(project, "list_directory", FileLimits(entries=2))


def test_a_tree_that_is_too_large_is_refused_with_the_way_out(project: Path) -> None:
    words = refused(lambda: limited(project, "directory_tree", FileLimits(entries=3)))
    assert (
        words == "There are more than 3 entries: ask for a folder further down, or leave some out with excludePatterns."
    )


def test_a_tree_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "/".join("abcdefgh"))
    assert "more than 4 deep" in refused(lambda: limited(tmp_path, "directory_tree", FileLimits(depth=4)))


def test_a_search_that_is_too_large_gives_what_it_found_and_says_so(project: Path) -> None:
    found = limited(project, "search_files", FileLimits(entries=2), pattern="**")
    assert found.split("\n")[:2] == [str(project / ".env"), str(project / "README.md")]
    assert "only some of the matches" in found.split("\n")[2]


def test_a_search_has_a_time(project: Path) -> None:
    assert "longer than 1e-09 seconds" in limited(project, "search_files", FileLimits(seconds=1e-9), pattern="**")


def test_a_name_that_is_no_text_can_be_listed(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))).write_text("")
    assert call(tmp_path, "list_directory", path=".") == "[FILE] a\ufffd"
    assert json.loads(call(tmp_path, "directory_tree", path="."))[0]["name"] == "a\ufffd"
    assert call(tmp_path, "search_files", path=".", pattern="**") == f"{tmp_path}/a\ufffd"


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no file system here that keeps such a time")
def test_a_time_that_no_calendar_has_is_shown_in_seconds() -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / "x").touch()
        os.utime(Path(folder) / "x", (2**40, 2**40))
        assert "modified: 1099511627776 s since 1970" in call(Path(folder), "get_file_info", path="x")


# --- names that are no text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "failed"),
    [
        pytest.param("list_allowed_directories", {}, False, id="allowed"),
        pytest.param("edit_file", {"path": "x", "edits": [{"oldText": "old", "newText": "new"}]}, False, id="edit"),
        pytest.param("write_file", {"path": "folder", "content": "new"}, True, id="write-over-a-folder"),
        pytest.param("read_file", {"path": "/etc/passwd"}, True, id="outside"),
    ],
)
async def test_a_folder_whose_name_is_no_text_is_named_as_well_as_can_be(
    tmp_path: Path, tool: str, arguments: dict[str, Any], failed: bool
) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    (odd / "folder").mkdir(parents=True)
    (odd / "x").write_text("old")
    async with Client(make_server([odd])) as client:
        result = await client.call_tool(tool, arguments, raise_on_error=False)
        is_error, text = result.is_error, result.text
    assert (is_error, "odd\ufffd" in text) == (failed, True)


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        pytest.param("*.ts", "a.ts", True, id="star"),
        pytest.param("*.ts", "src/a.ts", False, id="star-stays-in-its-folder"),
        pytest.param("*", ".hidden", True, id="star-takes-dots"),
        pytest.param("**/*.ts", "a.ts", True, id="stars-take-no-folder"),
        pytest.param("**/*.ts", "a/b/c.ts", True, id="stars-take-folders"),
        pytest.param("src/**", "src/a/b", True, id="all-below"),
        pytest.param("src/**", "src", False, id="below-is-not-itself"),
        pytest.param("a/**/b", "a/b", True, id="stars-in-between"),
        pytest.param("a/**/b", "a/x/y/b", True, id="stars-in-between-folders"),
        pytest.param("a?c", "abc", True, id="one-character"),
        pytest.param("a?c", "ac", False, id="no-character"),
        pytest.param("[a-c]x", "bx", True, id="class"),
        pytest.param("[!a-c]x", "bx", False, id="other-class"),
        pytest.param("[]x]", "]", True, id="bracket-in-class"),
        pytest.param("[x", "[x", True, id="bracket-alone"),
        pytest.param("*.{ts,tsx}", "a.tsx", True, id="braces"),
        pytest.param("{a,{b,c}}.ts", "c.ts", True, id="nested-braces"),
        pytest.param("{a}", "{a}", True, id="braces-alone"),
        pytest.param("f{1..3}", "f2", True, id="numbers"),
        pytest.param("f{1..3}", "f4", False, id="other-number"),
        pytest.param("!*.ts", "a.js", True, id="negated"),
        pytest.param("!!*.ts", "a.js", False, id="negated-twice"),
        pytest.param("#x", "#x", False, id="comment"),
        pytest.param("\\#x", "#x", True, id="escaped"),
        pytest.param("a\\*b", "axb", False, id="escaped-star"),
        pytest.param("@(a|b).ts", "b.ts", True, id="either"),
        pytest.param("@(a).ts", "a.ts", True, id="either-of-one"),
        pytest.param("?(a)x", "x", True, id="perhaps"),
        pytest.param("a//b", "a/b", True, id="two-slashes"),
    ],
)
def test_a_pattern_fits_or_not(pattern: str, path: str, fits: bool) -> None:
    assert GlobPattern(pattern).matches(path) is fits


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("a" * 3000, id="long"),
        pytest.param("{a,b}" * 20, id="many-variants"),
        pytest.param("{0..99999}", id="many-numbers"),
        pytest.param("{1..400}" + "x" * 100, id="long-variants"),
        pytest.param("+(a|b)", id="repeated"),
        pytest.param("!(a)", id="all-but"),
    ],
)
def test_a_pattern_that_costs_or_says_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(ToolError):
        GlobPattern(pattern)


def test_many_stars_take_no_time() -> None:
    # By trying each length of each star it would never end.
    assert not GlobPattern("*a" * 60 + "b").matches("a" * 250)


def test_many_patterns_to_leave_out_are_bounded_braces_written_out() -> None:
    with pytest.raises(ToolError, match="braces written out"):
        exclude_filter(["{1..499}x"] * 20, anywhere=False)


@settings(max_examples=300, deadline=None)
@given(st.text("ab*.", max_size=7), st.text("ab.", max_size=7))
def test_stars_between_pieces_fit_what_they_fit_step_by_step(pattern: str, name: str) -> None:
    # A class of one letter is that letter, and is matched character by character.
    by_steps = pattern.replace("a", "[a]").replace("b", "[b]").replace(".", "[.]")
    assert GlobPattern(f"x{pattern}").matches(f"x{name}") == GlobPattern(f"[x]{by_steps}").matches(f"x{name}")
