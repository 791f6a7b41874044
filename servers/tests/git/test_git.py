"""The tools of the git server on real repositories."""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path
from typing import Any

import pytest

from servers.tests.commands import started
from servers.tests.git.support import (
    EVERY_TOOL,
    NEEDS_GIT,
    any_server,
    call,
    calls,
    git,
    outcome,
    refused,
    write,
)
from servers.tests.over_http import hints_of
from trunkline import Client, ConfigError
from trunkline_servers.git import make_server

pytestmark = NEEDS_GIT

REVISIONS = [pytest.param("2025-11-25", id="handshake"), pytest.param("2026-07-28", id="stateless")]


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_tool_works_in_both_eras(repository: Path, revision: str) -> None:
    server = make_server(repositories=[repository])
    results = calls(server, repository, EVERY_TOOL, revision=revision)
    assert [each.is_error for each in results] == [False] * 12
    assert git(repository, "log", "--format=%an %s", "main") == "Ann Example by the server\nAnn Example first"


async def test_the_tools_are_announced_with_what_they_do() -> None:
    async with Client(make_server()) as client:
        hints = await hints_of(client)
    assert sorted(hints) == sorted(name for name, _ in EVERY_TOOL)
    assert [name for name, each in hints.items() if each.destructive_hint] == ["git_reset"]
    assert sum(each.read_only_hint for each in hints.values()) == 7
    assert {each.open_world_hint for each in hints.values()} == {False}


def test_status_is_what_git_says(repository: Path) -> None:
    write(repository / "new.txt", "n\n")
    assert call(repository, "git_status") == (
        False,
        "Repository status:\nOn branch main\nChanges not staged for commit:\n"
        '  (use "git add <file>..." to update what will be committed)\n'
        '  (use "git restore <file>..." to discard changes in working directory)\n\tmodified:   a.txt\n\n'
        'Untracked files:\n  (use "git add <file>..." to include in what will be committed)\n\tnew.txt\n\n'
        'no changes added to commit (use "git add" and/or "git commit -a")',
    )


def test_unstaged_and_staged_changes_are_told_apart(repository: Path) -> None:
    hunk = "--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@ one\n-two\n+2"
    before = call(repository, "git_diff_unstaged", context_lines=0)[1]
    git(repository, "add", "a.txt")
    assert before.startswith("Unstaged changes:\ndiff --git a/a.txt b/a.txt\n")
    assert before.endswith(hunk)
    assert call(repository, "git_diff_unstaged")[1] == "Unstaged changes:\n"
    assert call(repository, "git_diff_staged", context_lines=0)[1].endswith(hunk)
    assert call(repository, "git_diff", target="main", context_lines=0)[1].endswith(hunk)


def test_a_difference_neither_shows_what_only_seems_to_have_changed_nor_writes_to_the_index(repository: Path) -> None:
    for name in ("0.txt", "b.txt", "c.txt"):
        write(repository / name, "same\n")
    git(repository, "add", ".")
    write(repository / "a.txt", "one\n")
    for name in ("0.txt", "b.txt", "c.txt"):
        os.utime(repository / name, (1, 1))
    before = (repository / ".git" / "index").read_bytes()

    failed, text = call(repository, "git_diff_unstaged", context_lines=0)

    assert (repository / ".git" / "index").read_bytes() == before
    assert (failed, text) == (False, f"Unstaged changes:\n{git(repository, 'diff', '-U0')}")
    assert text.count("diff --git") == 1


def test_the_log_has_ids_authors_dates_and_whole_messages(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert call(repository, "git_log") == (
        False,
        f"Commit history:\nCommit: {head}\nAuthor: Ann Example\nDate: 2024-01-15 12:00:00+02:00\nMessage: first\n\n",
    )


LIMITS: list[tuple[dict[str, Any], int]] = [
    ({"max_count": 1}, 1),
    ({"max_count": 0}, 0),
    ({"max_count": -1}, 2),
    ({"start_timestamp": "2024-01-14"}, 2),
    ({"start_timestamp": "2024-01-16"}, 0),
    ({"end_timestamp": "2024-01-01"}, 0),
]


def test_the_log_can_be_limited(repository: Path) -> None:
    git(repository, "commit", "--quiet", "-am", "second")
    results = calls(any_server(), repository, [("git_log", arguments) for arguments, _ in LIMITS])
    assert [outcome(each)[1].count("Commit: ") for each in results] == [commits for _, commits in LIMITS]


def test_show_gives_a_commit_with_its_changes_of_every_kind(repository: Path) -> None:
    write(repository / "old.txt", "".join(f"line {number}\n" for number in range(20)))
    write(repository / "gone.txt", "gone\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "second")
    git(repository, "mv", "old.txt", "renamed.txt")
    git(repository, "rm", "--quiet", "gone.txt")
    write(repository / "empty.txt", "")
    (repository / "bytes.bin").write_bytes(b"\0\1\2")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "third\n\nwith a body")

    failed, text = call(repository, "git_show", revision="HEAD")

    assert (failed, text.partition("\n")[2]) == (
        False,
        "Author: Ann Example <ann@example.com>\nDate:   2024-01-15 12:00:00 +0200\n\n"
        "    third\n    \n    with a body\n"
        "\n--- /dev/null\n+++ b/bytes.bin\nBinary files /dev/null and b/bytes.bin differ\n"
        "\n--- /dev/null\n+++ b/empty.txt\n"
        "\n--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"
        "\n--- a/old.txt\n+++ b/renamed.txt\n",
    )


def test_show_gives_files_and_folders_of_a_revision(repository: Path) -> None:
    write(repository / "folder" / "b.txt", "b\n")
    git(repository, "add", "folder")
    git(repository, "commit", "--quiet", "--amend", "-m", "first")
    git(repository, "tag", "-a", "v1", "-m", "one")
    revisions = ["HEAD:a.txt", "HEAD:", "main:folder", "v1:folder/b.txt"]
    results = calls(any_server(), repository, [("git_show", {"revision": each}) for each in revisions])
    assert [outcome(each) for each in results] == [
        (False, "one\ntwo\nthree\n"), (False, "a.txt\nfolder/"), (False, "b.txt"), (False, "b\n"),
    ]  # fmt: skip


def test_a_merge_is_shown_as_what_it_brought(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "side")
    git(repository, "commit", "--quiet", "-am", "side")
    git(repository, "checkout", "--quiet", "main")
    git(repository, "merge", "--quiet", "--no-ff", "-m", "merged", "side")
    failed, text = call(repository, "git_show", revision="HEAD")
    assert (failed, text.partition("\n\n    merged\n\n")[2]) == (
        False,
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
    )


@pytest.mark.parametrize(
    ("files", "staged"),
    [
        pytest.param(["."], "a.txt\nfolder/deep.txt\nnew.txt", id="everything"),
        pytest.param(["new.txt"], "new.txt", id="one"),
        pytest.param(["*.txt"], "a.txt\nfolder/deep.txt\nnew.txt", id="pattern"),
        pytest.param(["folder"], "folder/deep.txt", id="folder"),
        pytest.param(["folder/../a.txt"], "a.txt", id="way-around"),
    ],
)
def test_add_stages_what_is_named(repository: Path, files: list[str], staged: str) -> None:
    write(repository / "new.txt", "n\n")
    write(repository / "folder" / "deep.txt", "d\n")
    write(repository / ".git" / "info" / "exclude", "ignored.txt\n")
    write(repository / "ignored.txt", "i\n")
    assert call(repository, "git_add", files=files) == (False, "Files staged successfully")
    assert git(repository, "diff", "--cached", "--name-only") == staged


def test_add_stages_more_names_than_are_ever_shown(repository: Path) -> None:
    names = [f"{number}-{'n' * 200}.txt" for number in range(10)]
    for name in names:
        write(repository / name, "n\n")
    server = make_server(repositories=[repository], max_output=1000)
    (result,) = calls(server, repository, [("git_add", {"files": ["."]})])
    assert outcome(result) == (False, "Files staged successfully")
    assert len(git(repository, "diff", "--cached", "--name-only").splitlines()) == 11


def test_add_stages_a_removal(repository: Path) -> None:
    (repository / "a.txt").unlink()
    call(repository, "git_add", files=["a.txt"])
    assert git(repository, "diff", "--cached", "--name-status") == "D\ta.txt"


def test_add_says_when_there_was_nothing_to_stage(repository: Path) -> None:
    git(repository, "add", ".")
    failed, text = call(repository, "git_add", files=["."])
    assert (failed, text.partition(":")[0]) == (False, "No changes were staged")


def test_one_name_that_is_no_file_stages_nothing_of_the_others(repository: Path) -> None:
    assert call(repository, "git_add", files=["a.txt", "missing.txt"]) == (
        True,
        "Nothing was staged: 'missing.txt' is not a file, or is ignored.",
    )
    assert git(repository, "diff", "--cached", "--name-only") == ""


def test_a_commit_without_staged_changes_is_refused(repository: Path) -> None:
    assert "git_add first" in refused(repository, "git_commit", message="nothing")
    assert git(repository, "rev-list", "--count", "HEAD") == "1"


def test_a_commit_ends_a_merge(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "side")
    git(repository, "commit", "--quiet", "-am", "side")
    git(repository, "checkout", "--quiet", "main")
    git(repository, "merge", "--quiet", "--no-ff", "--no-commit", "side")
    assert call(repository, "git_commit", message="merged")[0] is False
    assert len(git(repository, "log", "-1", "--format=%P").split()) == 2


def test_a_commit_message_is_kept_as_it_is(repository: Path) -> None:
    git(repository, "add", ".")
    call(repository, "git_commit", message="# not a comment\n\n  --author=x\n")
    assert git(repository, "log", "-1", "--format=%B") == "# not a comment\n\n  --author=x"


def test_the_authors_name_comes_from_the_users_configuration(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    included = write(tmp_path / "work.config", "[user]\n\temail = work@example.com\n")
    config = f'[user]\n\tname = Bea\n[includeIf "gitdir:{repository}/"]\n\tpath = {included}\n'
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(write(tmp_path / "global.config", config)))
    git(repository, "config", "--remove-section", "user")
    git(repository, "add", ".")
    call(repository, "git_commit", message="mine")
    assert git(repository, "log", "-1", "--format=%an %ae") == "Bea work@example.com"


def test_a_commit_without_an_author_names_the_fix(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    git(repository, "config", "--remove-section", "user")
    git(repository, "add", ".")
    assert "Set user.name and user.email" in refused(repository, "git_commit", message="whose?")


def test_reset_unstages_and_leaves_the_files(repository: Path) -> None:
    git(repository, "add", ".")
    assert call(repository, "git_reset") == (False, "All staged changes reset")
    assert git(repository, "status", "--porcelain") == "M a.txt"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        pytest.param("side", "Switched to branch 'side'", id="branch"),
        pytest.param("v1", "HEAD is now detached at {head}", id="tag"),
        pytest.param("HEAD", "Switched to branch 'main'", id="where-it-is"),
    ],
)
def test_checkout_says_where_it_is_now(repository: Path, name: str, answer: str) -> None:
    git(repository, "branch", "side")
    git(repository, "tag", "v1")
    head = git(repository, "rev-parse", "HEAD")[:7]
    assert call(repository, "git_checkout", branch_name=name) == (False, answer.format(head=head))


def test_checkout_of_what_comes_before_a_branch_is_not_of_the_branch(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")[:7]
    git(repository, "commit", "--quiet", "-am", "second")
    names = ["main~1", "main^", "main^{commit}~1", "main@{1}"]
    results = calls(any_server(), repository, [("git_checkout", {"branch_name": name}) for name in names])
    assert [outcome(each) for each in results] == [(False, f"HEAD is now detached at {first}")] * 4


def test_checkout_of_the_current_branch_is_not_of_a_tag_of_the_same_name(repository: Path) -> None:
    git(repository, "tag", "main")
    git(repository, "commit", "--quiet", "-am", "second")
    assert call(repository, "git_checkout", branch_name="HEAD") == (False, "Switched to branch 'main'")
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/main"


def test_checkout_takes_a_branch_before_a_tag_of_the_same_name(repository: Path) -> None:
    git(repository, "tag", "v1")
    git(repository, "commit", "--quiet", "-am", "second")
    git(repository, "branch", "v1")
    assert call(repository, "git_checkout", branch_name="v1") == (False, "Switched to branch 'v1'")
    assert git(repository, "log", "-1", "--format=%s") == "second"


def test_checkout_starts_no_helpers_whatever_the_repository_says(repository: Path) -> None:
    git(repository, "stash", "--quiet")
    git(repository, "checkout", "--quiet", "-b", "side")
    write(repository / "b.txt", "b\n")
    write(repository / "c.txt", "c\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "two files")
    git(repository, "checkout", "--quiet", "main")
    git(repository, "config", "checkout.workers", "2")
    git(repository, "config", "checkout.thresholdForParallelism", "1")
    assert call(repository, "git_checkout", branch_name="side") == (False, "Switched to branch 'side'")


def test_checkout_never_loses_a_change(repository: Path) -> None:
    git(repository, "stash", "--quiet")
    git(repository, "checkout", "--quiet", "-b", "side")
    write(repository / "a.txt", "other\n")
    git(repository, "commit", "--quiet", "-am", "other")
    write(repository / "a.txt", "precious\n")
    assert "would be overwritten" in refused(repository, "git_checkout", branch_name="main")
    assert (repository / "a.txt").read_text() == "precious\n"


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        pytest.param({"branch_name": "new"}, (False, "Created branch 'new' from 'main'"), id="from-the-current"),
        pytest.param(
            {"branch_name": "new", "base_branch": "side"},
            (False, "Created branch 'new' from 'side'"),
            id="from-a-branch",
        ),
        pytest.param({"branch_name": "side"}, (True, "There is a branch 'side' already."), id="twice"),
        pytest.param({"branch_name": "a..b"}, (True, "'a..b' cannot be the name of a branch."), id="bad-name"),
        pytest.param({"branch_name": "HEAD"}, (True, "'HEAD' cannot be the name of a branch."), id="reserved"),
    ],
)
def test_a_branch_is_created_or_the_reason_reported(
    repository: Path, arguments: dict[str, str], answer: tuple[bool, str]
) -> None:
    git(repository, "branch", "side")
    assert call(repository, "git_create_branch", **arguments) == answer


def test_where_a_branch_was_made_from_is_remembered(repository: Path) -> None:
    call(repository, "git_create_branch", branch_name="new")
    call(repository, "git_create_branch", branch_name="newer", base_branch="new")
    assert git(repository, "reflog", "--format=%gs", "new") == "branch: Created from main"
    assert git(repository, "reflog", "--format=%gs", "newer") == "branch: Created from new"


@pytest.mark.parametrize("head", ["ref:refs/heads/main", "ref:   refs/heads/main\n", "ref: refs/heads/main  \n"])
def test_the_current_branch_is_known_however_it_is_written(repository: Path, head: str) -> None:
    write(repository / ".git" / "HEAD", head)
    assert call(repository, "git_create_branch", branch_name="new") == (False, "Created branch 'new' from 'main'")


def test_a_branch_from_a_detached_head_needs_a_base(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    assert "give base_branch" in refused(repository, "git_create_branch", branch_name="new")


def test_branches_are_listed_by_what_they_hold(repository: Path) -> None:
    git(repository, "branch", "side")
    git(repository, "commit", "--quiet", "-am", "second")
    assert call(repository, "git_branch", branch_type="local") == (False, "* main\n  side")
    assert call(repository, "git_branch", branch_type="all", contains="main") == (False, "* main")
    assert call(repository, "git_branch", branch_type="local", not_contains="main") == (False, "  side")
    assert call(repository, "git_branch", branch_type="all of them")[0] is True


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_long_output_is_cut_with_a_note(repository: Path) -> None:
    write(repository / "a.txt", "x" * 10_000)
    server = make_server(repositories=[repository], max_output=1000)
    (result,) = calls(server, repository, [("git_diff_unstaged", {})])
    failed, text = outcome(result)
    assert failed is False
    assert len(text) < 1200
    assert text.endswith("[cut: there is more than the 1000 bytes that are shown]")


def test_a_commit_whose_message_is_longer_than_the_output_names_the_fix(repository: Path) -> None:
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "m" * 2000)
    server = make_server(repositories=[repository], max_output=1000)
    (shown, log) = calls(server, repository, [("git_show", {"revision": "HEAD"}), ("git_log", {})])
    assert (shown.is_error, "larger --max-output" in outcome(shown)[1]) == (True, True)
    assert (log.is_error, "[cut: " in outcome(log)[1]) == (False, True)


@pytest.mark.parametrize(
    "options", [{"max_output": 999}, {"timeout": 0}, {"timeout": math.nan}], ids=["output", "timeout", "no-number"]
)
def test_limits_with_which_nothing_works_are_a_configuration_error(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="at least 1000 bytes"):
        make_server(**options)


def test_a_git_that_takes_too_long_is_ended(repository: Path) -> None:
    # Reading the ignore rules from a pipe without a writer takes forever.
    (repository / ".git" / "info").mkdir()
    os.mkfifo(repository / ".git" / "info" / "exclude")
    server = make_server(repositories=[repository], timeout=0.5)
    (result,) = calls(server, repository, [("git_status", {})])
    failed, text = outcome(result)
    assert (failed, "longer --timeout" in text) == (True, True)


async def test_writes_to_one_repository_wait_for_each_other(repository: Path) -> None:
    server = make_server(repositories=[repository])
    names = [f"branch-{number}" for number in range(4)]
    write(repository / "b.txt", "b\n")
    async with Client(server) as client:
        wanted: list[tuple[str, dict[str, Any]]] = [
            *(("git_create_branch", {"branch_name": name}) for name in names),
            *(("git_add", {"files": [file]}) for file in ("a.txt", "b.txt")),
        ]
        done = await asyncio.gather(
            *(client.call_tool(tool, {"repo_path": str(repository), **each}) for tool, each in wanted)
        )
        assert [each.is_error for each in done] == [False] * 6


def test_processes_started_by_git_are_ended_with_it(repository: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(repository / ".git" / "hooks" / "pre-commit", f"#!/bin/sh\nexec 3>{pipe}\necho hi >&3\nsleep 60\n", runs=True)
    git(repository, "add", ".")
    server = make_server(repositories=[repository], run_hooks=True, timeout=2)

    (result,) = calls(server, repository, [("git_commit", {"message": "slow"})])

    # Nothing holds the other end any more.
    assert (result.is_error, os.read(end, 10), os.read(end, 10)) == (True, b"hi\n", b"")
    os.close(end)
    assert git(repository, "rev-list", "--count", "HEAD") == "1"
    assert not (repository / ".git" / "index.lock").exists()


def test_processes_that_outlive_git_are_ended_too(repository: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(repository / ".git" / "hooks" / "post-commit", f"#!/bin/sh\nexec 3>{pipe}\nsleep 60 &\n", runs=True)
    git(repository, "add", ".")
    server = make_server(repositories=[repository], run_hooks=True, timeout=1)
    (result,) = calls(server, repository, [("git_commit", {"message": "left something"})])
    assert (result.is_error, os.read(end, 10)) == (True, b"")
    os.close(end)


async def test_a_write_is_finished_although_its_caller_is_gone(repository: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    write(repository / ".git" / "hooks" / "pre-commit", f"#!/bin/sh\nread line < {pipe}\n", runs=True)
    git(repository, "add", ".")
    where = {"repo_path": str(repository)}
    async with Client(make_server(repositories=[repository], run_hooks=True)) as client:
        call = asyncio.create_task(client.call_tool("git_commit", {**where, "message": "wanted"}))
        writer = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
        call.cancel()
        await asyncio.wait({call})
        os.write(writer, b"go\n")
        os.close(writer)
        # It waits for its turn.
        await client.call_tool("git_reset", where)

    assert git(repository, "log", "-1", "--format=%s") == "wanted"


# --- starting --------------------------------------------------------------------------------------------------------


def test_the_options_of_the_command_reach_the_server(repository: Path, tmp_path: Path) -> None:
    server = started("git", "-r", str(repository)).server
    inside, outside = (
        calls(server, where, [("git_branch", {"branch_type": "local"})])[0] for where in (repository, tmp_path)
    )
    assert (outcome(inside), outside.is_error) == ((False, "* main"), True)


def test_a_repository_that_does_not_exist_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --repository one that exists"):
        make_server(repositories=[tmp_path / "missing"])


def test_a_machine_without_git_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(ConfigError, match="no git"):
        make_server()


def test_a_commit_found_by_its_message_is_shown(repository: Path) -> None:
    failed, text = call(repository, "git_show", revision=":/fir")

    assert (failed, "    first\n" in text) == (False, True)


def test_checkout_of_a_detached_head_stays_there(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    head = git(repository, "rev-parse", "HEAD")[:7]

    assert call(repository, "git_checkout", branch_name="HEAD") == (False, f"HEAD is now detached at {head}")
