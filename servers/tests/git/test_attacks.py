"""Repositories that try to make git run a program or leave the folder, and arguments that try to be options."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.tests.git.support import (
    EVERY_TOOL,
    NEEDS_GIT,
    any_server,
    call,
    calls,
    git,
    make_repository,
    outcome,
    refused,
    write,
)
from trunkline_servers.git import make_server

pytestmark = NEEDS_GIT

TOOLS = {name: (name, arguments) for name, arguments in EVERY_TOOL} | {
    "git_checkout": ("git_checkout", {"branch_name": "HEAD"})
}
SOME_TOOLS = [TOOLS[name] for name in ("git_status", "git_add", "git_checkout")]
Trap = Callable[[Path, str], None]
HOOKS = ("pre-commit", "commit-msg", "post-commit", "post-checkout", "post-index-change", "reference-transaction")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What a program of the repository would make."""
    return tmp_path / "executed"


@pytest.fixture
def program(tmp_path: Path, marker: Path) -> str:
    """A program that leaves the marker, and passes on what it is given."""
    return str(write(tmp_path / "program", f"#!/bin/sh\n: > '{marker}'\nexec cat \"$1\" 2>/dev/null\n", runs=True))


def settings(**values: str) -> Trap:
    def set_them(repository: Path, program: str) -> None:
        with (repository / ".git" / "config").open("a") as config:
            for name, value in values.items():
                section, *inner, key = name.split("__")
                head = " ".join([section, *(f'"{each}"' for each in inner)])
                config.write(f'[{head}]\n\t{key} = "{value.replace("PROGRAM", program)}"\n')

    return set_them


def attribute(line: str, trap: Trap) -> Trap:
    def set_it(repository: Path, program: str) -> None:
        write(repository / ".git" / "info" / "attributes", line + "\n")
        trap(repository, program)

    return set_it


def hooks(repository: Path, program: str) -> None:
    for name in HOOKS:
        write(repository / ".git" / "hooks" / name, f"#!/bin/sh\n{program} /dev/null\n", runs=True)


def hooks_elsewhere(repository: Path, program: str) -> None:
    write(repository / "hooks" / "post-index-change", f"#!/bin/sh\n{program} /dev/null\n", runs=True)
    git(repository, "config", "core.hooksPath", str(repository / "hooks"))


def included(key: str) -> Trap:
    def include(repository: Path, program: str) -> None:
        write(repository / ".git" / "more", f"[core]\n\tfsmonitor = {program}\n")
        git(repository, "config", key, str(repository / ".git" / "more"))

    return include


def in_worktree_config(repository: Path, program: str) -> None:
    git(repository, "config", "extensions.worktreeConfig", "true")
    write(repository / ".git" / "info" / "attributes", "* filter=evil\n")
    git(repository, "config", "--worktree", "filter.evil.clean", program)


def submodule(repository: Path, program: str) -> None:
    """Put a repository into the repository, with a filter of its own and a file whose state git must look up."""
    inner = make_repository(repository / "inner")
    git(repository, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    git(repository, "commit", "--quiet", "-m", "inner")
    attribute("* filter=evil", settings(filter__evil__clean="PROGRAM"))(inner, program)
    write(inner / "a.txt", "one\nTWO\nthree\n")


def missing_object(repository: Path, program: str) -> None:
    """Remove an object, and configure a promisor remote that would be asked for it through a program."""
    git(repository, "config", "remote.origin.url", f"ext::{program} /dev/null")
    git(repository, "config", "protocol.ext.allow", "always")
    git(repository, "config", "remote.origin.promisor", "true")
    git(repository, "config", "extensions.partialClone", "origin")
    git(repository, "config", "core.repositoryFormatVersion", "1")
    blob = git(repository, "rev-parse", "HEAD:a.txt")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


def row(name: str, trap: Trap, command: tuple[str, ...], *tools: str) -> Any:
    """A trap, what makes plain git run into it, and the tools that do the same."""
    return pytest.param(trap, command, [TOOLS[each] for each in tools], id=name)


SETTINGS = settings(
    core__editor="PROGRAM",
    core__pager="PROGRAM",
    pager__log="PROGRAM",
    core__sshCommand="PROGRAM",
    core__askPass="PROGRAM",
    alias__status="!PROGRAM",
    alias__log="!PROGRAM",
    credential__helper="!PROGRAM",
    core__gitProxy="PROGRAM",
    core__alternateRefsCommand="PROGRAM",
    merge__evil__driver="PROGRAM",
    trailer__evil__command="PROGRAM",
    uploadpack__packObjectsHook="PROGRAM",
    submodule__evil__update="!PROGRAM",
)
FILTER = "* filter=evil"
TRAPS = [
    row("hooks", hooks, ("commit", "--quiet", "-am", "x"), "git_add", "git_commit", "git_checkout"),
    row("hooks-path", hooks_elsewhere, ("add", "."), "git_add"),
    row("fsmonitor", settings(core__fsmonitor="PROGRAM"), ("status",), "git_status"),
    row("external-diff", settings(diff__external="PROGRAM"), ("diff",), "git_diff", "git_show"),
    row("diff-driver", attribute("* diff=evil", settings(diff__evil__command="PROGRAM")), ("diff",), "git_diff"),
    row("textconv", attribute("* diff=evil", settings(diff__evil__textconv="PROGRAM")), ("diff",), "git_diff"),
    row("clean", attribute(FILTER, settings(filter__evil__clean="PROGRAM")), ("diff",), "git_status", "git_diff"),
    row(
        "process",
        attribute(FILTER, settings(filter__evil__process="PROGRAM", filter__evil__required="true")),
        ("add", "."),
        "git_diff",
        "git_add",
    ),
    row("smudge", attribute(FILTER, settings(filter__evil__smudge="PROGRAM")), ("checkout", "a.txt"), "git_checkout"),
    row("include", included("include.path"), ("status",), "git_status"),
    row("include-if", included("includeIf.gitdir:**.path"), ("status",), "git_status"),
    row("worktree-config", in_worktree_config, ("add", "."), "git_diff", "git_add"),
    row(
        "signing",
        settings(commit__gpgsign="true", gpg__program="PROGRAM"),
        ("commit", "--quiet", "-am", "x"),
        "git_add",
        "git_commit",
    ),
    row("editor-pager-alias", SETTINGS, ("commit", "-a"), "git_add", "git_commit", "git_log"),
    row("submodule", submodule, ("add", "."), "git_status", "git_diff", "git_add"),
    row("ext-remote", missing_object, ("diff", "HEAD"), "git_diff"),
]


@pytest.mark.parametrize(("trap", "command", "tools"), TRAPS)
def test_no_program_of_a_repository_is_run_that_plain_git_runs(
    repository: Path, marker: Path, program: str, trap: Trap, command: tuple[str, ...], tools: list[Any]
) -> None:
    trap(repository, program)
    calls(any_server(), shutil.copytree(repository, repository.with_name("copy"), symlinks=True), tools)
    assert not marker.exists()
    git(repository, *command, check=False)
    assert marker.exists()


def test_no_tool_runs_anything_of_a_repository_that_brings_everything(
    repository: Path, marker: Path, program: str
) -> None:
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "second")
    SETTINGS(repository, program)
    settings(core__fsmonitor="PROGRAM", diff__external="PROGRAM", commit__gpgsign="true", log__showSignature="true")(
        repository, program
    )
    settings(gpg__program="PROGRAM", diff__evil__command="PROGRAM", diff__evil__textconv="PROGRAM")(repository, program)
    attribute("* diff=evil merge=evil", hooks)(repository, program)
    results = calls(any_server(), repository, EVERY_TOOL)
    assert [each.is_error for each in results] == [False] * len(EVERY_TOOL)
    assert not marker.exists()


def test_no_variable_of_the_servers_environment_reaches_git(
    repository: Path, tmp_path: Path, marker: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(tmp_path / "other")
    git(other, "checkout", "--quiet", "-b", "of-another")
    for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EDITOR", "GIT_SSH_COMMAND", "GIT_ASKPASS"):
        monkeypatch.setenv(name, program)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor={program}'")

    results = calls(any_server(), repository, [("git_status", {}), ("git_diff_unstaged", {})])

    assert [("On branch main" in outcome(each)[1], "-two" in outcome(each)[1]) for each in results] == [
        (True, False),
        (False, True),
    ]
    assert not marker.exists()
    assert not (tmp_path / "trace").exists()


def test_hooks_run_with_run_hooks(repository: Path, marker: Path, program: str) -> None:
    hooks(repository, program)
    git(repository, "add", ".")
    marker.unlink(missing_ok=True)
    (result,) = calls(
        make_server(repositories=[repository], run_hooks=True), repository, [("git_commit", {"message": "hooked"})]
    )
    assert (result.is_error, marker.exists()) == (False, True)


def test_a_file_with_a_filter_is_not_staged_unfiltered(repository: Path, program: str) -> None:
    attribute("* filter=evil", settings(filter__evil__clean="PROGRAM"))(repository, program)
    assert "runs no filters" in refused(repository, "git_add", files=["a.txt"])
    assert git(repository, "ls-files", "-s") == git(
        repository, "ls-tree", "--format=%(objectmode) %(objectname) 0\t%(path)", "HEAD"
    )


@pytest.mark.parametrize("name", ["config", "config.worktree", "commondir", "HEAD"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(repository: Path, name: str) -> None:
    (repository / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(repository / ".git" / name)
    assert "it is not a plain file" in refused(repository, "git_status")


def test_an_invalid_configuration_is_refused(repository: Path) -> None:
    write(repository / ".git" / "config", "[core\n")
    assert f"The configuration {repository / '.git' / 'config'} cannot be read" in refused(repository, "git_status")


def test_a_configuration_without_end_is_refused(repository: Path) -> None:
    with (repository / ".git" / "config").open("a") as config:
        config.write("#" * 1024 * 1024)
    assert "longer than 1048576 bytes" in refused(repository, "git_status")


# --- options in disguise ---------------------------------------------------------------------------------------------

OPTIONS = ("--output=stolen", "-")


@pytest.mark.parametrize(
    ("tool", "name", "others"),
    [
        pytest.param("git_diff", "target", {}, id="diff"),
        pytest.param("git_show", "revision", {}, id="show"),
        pytest.param("git_log", "start_timestamp", {}, id="since"),
        pytest.param("git_log", "end_timestamp", {}, id="until"),
        pytest.param("git_checkout", "branch_name", {}, id="checkout"),
        pytest.param("git_create_branch", "branch_name", {}, id="new-branch"),
        pytest.param("git_create_branch", "base_branch", {"branch_name": "new"}, id="base"),
        pytest.param("git_branch", "contains", {"branch_type": "all"}, id="contains"),
        pytest.param("git_branch", "not_contains", {"branch_type": "all"}, id="not-contains"),
    ],
)
def test_a_word_that_looks_like_an_option_is_refused(
    shared: Path, tool: str, name: str, others: dict[str, str]
) -> None:
    before = sorted(shared.rglob("*"))
    wanted = [(tool, {name: word, **others}) for word in OPTIONS]
    results = calls(make_server(repositories=[shared]), shared, wanted)
    assert [(each.is_error, "starts with '-'" in outcome(each)[1]) for each in results] == [(True, True)] * len(OPTIONS)
    assert sorted(shared.rglob("*")) == before


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository for tests that are refused before anything is done."""
    return make_repository(tmp_path_factory.mktemp("shared") / "repository")


def test_a_branch_whose_name_is_an_option_cannot_be_reached(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    write(repository / ".git" / "refs" / "heads" / "--output=stolen", head + "\n")
    assert call(repository, "git_diff", target="--output=stolen")[0] is True
    assert call(repository, "git_diff", target="refs/heads/--output=stolen")[0] is False
    assert not (repository / "stolen").exists()


def test_a_file_whose_name_is_an_option_is_a_file(repository: Path) -> None:
    write(repository / "--chmod=+x", "data\n")
    assert call(repository, "git_add", files=["--chmod=+x"])[0] is False
    assert git(repository, "diff", "--cached", "--name-only") == "--chmod=+x"


def test_a_word_that_is_not_one_revision_is_refused(shared: Path) -> None:
    words = ("HEAD\nHEAD", "HEAD\0", "", "x" * 2000, "main..main", "^main", "main^@")
    results = calls(make_server(repositories=[shared]), shared, [("git_show", {"revision": word}) for word in words])
    assert [word for word, result in zip(words, results, strict=True) if not result.is_error] == []


# --- paths -----------------------------------------------------------------------------------------------------------


PATHS = (
    "../outside.txt",
    "folder/../../outside.txt",
    "{outside}",
    "link/outside.txt",
    ".git/config",
    ".GIT/config",
    "folder/.git/x",
    "git~1/config",
    ".git",
    ":(top)../outside.txt",
    ":/a.txt",
    "",
    "a\0b",
)


def test_a_path_out_of_the_tree_or_into_git_is_not_staged(repository: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside.txt", "secret\n")
    (repository / "link").symlink_to(tmp_path)
    wanted = [("git_add", {"files": ["a.txt", path.replace("{outside}", str(outside))]}) for path in PATHS]
    results = calls(make_server(repositories=[repository]), repository, wanted)
    assert [path for path, result in zip(PATHS, results, strict=True) if not result.is_error] == []
    assert git(repository, "diff", "--cached", "--name-only") == ""


@pytest.mark.parametrize("way", ["{top}/../other", "{top}-evil", "{top}/link", "{top}/link/../other", "/", "{top}/\0"])
def test_no_path_leads_out_of_the_allowed_folder(repository: Path, tmp_path: Path, way: str) -> None:
    other = make_repository(tmp_path / "other")
    make_repository(tmp_path / "repository-evil")
    (repository / "link").symlink_to(other)
    (result,) = calls(
        make_server(repositories=[repository]), Path(), [("git_log", {"repo_path": way.format(top=repository)})]
    )
    assert result.is_error is True
    assert "Commit" not in outcome(result)[1]


def test_a_folder_inside_of_an_allowed_one_may_not_lead_to_the_repository_around_it(tmp_path: Path) -> None:
    around = make_repository(tmp_path / "around")
    inside = around / "inside"
    (inside / ".git").mkdir(parents=True)
    # With this name the ceiling that git is given has no effect.
    odd = around / "a:b"
    (odd / "c" / ".git").mkdir(parents=True)
    server = make_server(any_repository=True)
    results = [calls(server, each, [("git_log", {})])[0] for each in (inside, odd / "c")]
    assert [each.is_error for each in results] == [True, True]


def test_a_bare_repository_in_the_tree_is_refused(repository: Path, tmp_path: Path, marker: Path) -> None:
    bare = repository / "vendor"
    git(repository, "init", "--quiet", "--bare", str(bare))
    git(bare, "config", "core.fsmonitor", f"touch {marker}")
    (result,) = calls(make_server(repositories=[repository]), bare, [("git_status", {})])
    assert "bare repository" in outcome(result)[1]
    assert not marker.exists()


def test_a_git_file_may_not_lead_out(repository: Path, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    disguised = repository / "disguised"
    write(disguised / ".git", f"gitdir: {other / '.git'}\n")
    (result,) = calls(make_server(repositories=[repository]), disguised, [("git_log", {})])
    assert "keeps its data in" in outcome(result)[1]


@pytest.mark.parametrize("name", [".git", ".git/commondir", ".git/objects/info/alternates"])
def test_a_zero_byte_in_the_way_to_another_place_is_refused(repository: Path, tmp_path: Path, name: str) -> None:
    disguised = repository if "/" in name else repository / "disguised"
    write(disguised / name, f"gitdir: {repository / '.git'}\0/../../other\n")
    assert "it holds a zero byte" in refused(disguised, "git_log")


def test_a_linked_working_tree_works_where_both_are_allowed(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "--quiet", str(linked))
    (inside,) = calls(make_server(repositories=[tmp_path]), linked, [("git_log", {})])
    (outside,) = calls(make_server(repositories=[linked]), linked, [("git_log", {})])
    assert (inside.is_error, outside.is_error) == (False, True)


def test_the_working_tree_is_where_the_repository_is_whatever_it_says(repository: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere / "secret.txt", "secret\n")
    git(repository, "config", "core.worktree", str(elsewhere))
    failed, text = call(repository, "git_status")
    assert (failed, "a.txt" in text, "secret.txt" in text) == (False, True, False)


@pytest.mark.parametrize("name", ["logs/HEAD", "objects", "index", "refs/heads", "logs/refs/heads/main", "HEAD"])
def test_a_link_in_the_repositorys_own_folder_may_not_lead_out(repository: Path, tmp_path: Path, name: str) -> None:
    inside = repository / ".git" / name
    outside = tmp_path / "victim"
    inside.rename(outside)
    inside.symlink_to(outside)
    before = outside.stat().st_mtime_ns
    results = calls(make_server(repositories=[repository]), repository, SOME_TOOLS)
    assert {each.is_error for each in results} == {True}
    assert outside.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "name",
    ["rebase-merge/done", "rebase-merge/git-rebase-todo", "rebase-apply/next", "sequencer/todo", "worktrees/x/HEAD"],
)
def test_a_link_in_the_state_of_an_unfinished_command_may_not_lead_out(
    repository: Path, tmp_path: Path, name: str
) -> None:
    secret = write(tmp_path / "secret", "a secret\n")
    inside = repository / ".git" / name
    inside.parent.mkdir(parents=True)
    write(inside.parent / "head-name", "refs/heads/main\n")
    write(inside.parent / "onto", "0" * 40 + "\n")
    write(inside.parent / "interactive", "")
    inside.symlink_to(secret)
    (result,) = calls(make_server(repositories=[repository]), repository, [("git_status", {})])
    failed, text = outcome(result)
    assert (failed, "leads out" in text, "a secret" in text) == (True, True, False)


@pytest.mark.parametrize("steps", [1, 2])
def test_objects_are_not_borrowed_from_outside(repository: Path, tmp_path: Path, steps: int) -> None:
    secret = make_repository(tmp_path / "secret")
    lenders = [secret / ".git" / "objects", repository / "lender"]
    write(repository / "lender" / "info" / "alternates", f"{lenders[0]}\n")
    write(repository / ".git" / "objects" / "info" / "alternates", f"# friends\n{lenders[steps - 1]}\n")
    assert "borrows objects" in refused(repository, "git_show", revision=git(secret, "rev-parse", "HEAD:a.txt"))


def test_an_alternate_is_not_hidden_in_a_line_that_looks_like_two(repository: Path, tmp_path: Path) -> None:
    secret = make_repository(tmp_path / "secret")
    objects = repository / ".git" / "objects"
    # Read as two lines, the second goes through a link and stays inside; read as one, it goes up and out.
    (repository / "a" / "b" / "c" / "d").mkdir(parents=True)
    (objects / "inside").symlink_to(repository / "a" / "b" / "c" / "d")
    (objects / "x\vinside").mkdir()
    (repository / "secret" / ".git" / "objects").mkdir(parents=True)
    write(objects / "info" / "alternates", "x\vinside/../../../../secret/.git/objects\n")
    assert "borrows objects" in refused(repository, "git_show", revision=git(secret, "rev-parse", "HEAD:a.txt"))


def test_a_replaced_object_is_not_taken_for_the_one_that_was_asked_for(repository: Path) -> None:
    blob = git(repository, "rev-parse", "HEAD:a.txt")
    other = git(repository, "hash-object", "-w", "a.txt")
    git(repository, "replace", blob, other)
    assert call(repository, "git_show", revision=blob) == (False, "one\ntwo\nthree\n")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_repository_owned_by_another_user_is_refused_as_git_does(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    os.chown(repository, 12345, 12345)
    os.chown(repository / ".git", 12345, 12345)
    assert "dubious ownership" in refused(repository, "git_status")


def test_a_folder_inside_a_repository_does_not_stand_for_the_repository(tmp_path: Path) -> None:
    home = make_repository(tmp_path / "home")
    work, private = make_repository(home / "work" / "site"), make_repository(home / "private")
    server = make_server(repositories=[home / "work"])
    failed = [calls(server, each, [("git_status", {})])[0].is_error for each in (work, private, home)]
    assert failed == [False, True, True]


# --- who is allowed --------------------------------------------------------------------------------------------------


def test_without_a_repository_and_roots_nothing_is_allowed(shared: Path) -> None:
    (result,) = calls(make_server(), shared, [("git_status", {})], revision="2025-11-25")
    assert "--repository PATH" in outcome(result)[1]


def test_without_a_repository_the_clients_roots_are_allowed(shared: Path, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    options: dict[str, Any] = {"roots": [shared]}
    (inside,) = calls(make_server(), shared, [("git_status", {})], **options)
    (outside,) = calls(make_server(), other, [("git_status", {})], **options)
    assert (inside.is_error, outside.is_error) == (False, True)


def test_roots_do_not_move_the_boundary_that_the_server_was_started_with(shared: Path, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other")
    (result,) = calls(make_server(repositories=[shared]), other, [("git_status", {})], roots=[other])
    assert "outside of what is allowed" in outcome(result)[1]


def test_an_allowed_folder_whose_name_is_no_text_is_named_as_well_as_can_be(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    odd.mkdir()

    (result,) = calls(make_server(repositories=[odd]), tmp_path, [("git_status", {})])

    assert "odd\ufffd" in outcome(result)[1]
