"""Read-only commands: status, diffs, history, contents, branches. None of them takes a lock or writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trunkline.errors import ToolError
from trunkline_servers.git.process import ProcessResult
from trunkline_servers.git.repository import Repository, reject_option, unknown_name_error
from trunkline_servers.untrusted import one_line

__all__ = ["branch", "diff", "diff_staged", "diff_unstaged", "log", "show", "status"]

#: Most commits that are shown at once.
_MOST_COMMITS = 1000
_MOST_CONTEXT = 1_000_000
#: A diff runs no program that the repository configures, and does not enter submodules.
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "--submodule=short")

#: The header of a file that only seems to have changed. Git can omit these, but then also writes to the index, which
#: would block callers that stage files.
_UNCHANGED = re.compile(r"\ndiff --git [^\n]*(?=\ndiff --git |\Z)")


async def status(repository: Repository) -> str:
    """Return the output of ``git status``."""
    shown = await repository.output("status", "--long", "--untracked-files=normal", "--ignore-submodules=dirty")
    return f"Repository status:\n{shown}"


async def diff_unstaged(repository: Repository, context_lines: int) -> str:
    """Return the unstaged changes of the working tree."""
    return "Unstaged changes:\n" + await _difference(repository, context_lines)


async def diff_staged(repository: Repository, context_lines: int) -> str:
    """Return the staged changes."""
    return "Staged changes:\n" + await _difference(repository, context_lines, "--cached")


async def diff(repository: Repository, target: str, context_lines: int) -> str:
    """Return the diff between the working tree and a revision."""
    found = await repository.resolve(target, "target", kind="tree")
    return f"Diff with {target}:\n" + await _difference(repository, context_lines, found)


async def _difference(repository: Repository, context_lines: int, *between: str) -> str:
    shown = await repository.output("diff", *_PLAIN, _unified(context_lines), *between, "--")
    return _UNCHANGED.sub("", f"\n{shown}")[1:]


def _unified(lines: int) -> str:
    if lines < 0:
        raise ToolError("context_lines must be 0 or more.")
    return f"--unified={min(lines, _MOST_CONTEXT)}"


async def log(repository: Repository, max_count: int, *, start: str | None, end: str | None) -> str:
    """Return the history of the current branch, newest first; a negative ``max_count`` means the server's limit."""
    dates = []
    for option, name, value in (("since", "start_timestamp", start), ("until", "end_timestamp", end)):
        if value:
            reject_option(value, name)
            dates.append(f"--{option}={value}")
    most = _MOST_COMMITS if max_count < 0 else min(max_count, _MOST_COMMITS)
    count = most + 1 if most != max_count else most
    commits, note = await _commits(repository, f"--max-count={count}", *dates, "HEAD")
    if len(commits) > most:
        note = f"\n[cut: there are more than the {most} commits that are shown; ask by date for older ones]"
    entries = [
        f"Commit: {each.id}\nAuthor: {each.author}\nDate: {_with_colon(each.date)}\nMessage: {each.message}\n"
        for each in commits[:most]
    ]
    return "Commit history:\n" + "\n".join(entries) + note


class _Commit(NamedTuple):
    id: str
    author: str
    email: str
    date: str
    parents: str
    message: str


#: The fields of a commit, separated by zero bytes.
_FORM = "--format=%H%x00%an%x00%ae%x00%ai%x00%P%x00%B"


async def _commits(repository: Repository, *which: str) -> tuple[list[_Commit], str]:
    shown = ("--no-show-signature", "--no-notes", "--no-mailmap", "--no-color", "--no-decorate", "--no-patch", _FORM)
    ran = await repository.run("log", "-z", *shown, *which, "--")
    if ran.status:
        # A repository without commits gets a better error message.
        await repository.resolve("HEAD", kind="commit")
        raise _unreadable("history", ran)
    fields = ran.out.decode("utf-8", "replace").split("\0")
    width = len(_Commit._fields)
    # After the last complete commit comes the end of the output, or a truncated commit.
    whole = range(0, len(fields) - width, width)
    return [_Commit(*fields[at : at + width]) for at in whole], repository.note(ran)


def _with_colon(date: str) -> str:
    day, clock, zone = date.split(" ")
    return f"{day} {clock}{zone[:3]}:{zone[3:]}"


# --- contents --------------------------------------------------------------------------------------------------------


async def show(repository: Repository, revision: str) -> str:
    """Return a commit with its changes, or a file or folder named as ``<revision>:<path>``."""
    reject_option(revision, "revision")
    found, behind = await repository.find(revision, f"{revision}^{{commit}}")
    if found is None:
        raise unknown_name_error(revision, "revision")
    if found.kind == "blob":
        ran = await _read(repository, "file", "cat-file", "blob", found.id)
        return ran.out.decode("utf-8", "replace") + repository.note(ran)
    if found.kind == "tree":
        return await _folder(repository, found.id)
    commit = found if found.kind == "commit" else behind
    if commit is None:
        raise unknown_name_error(revision, "revision", "commit")
    return await _commit(repository, commit.id)


async def _read(repository: Repository, what: str, *arguments: str) -> ProcessResult:
    """Run git for an existing object; its output may be truncated."""
    ran = await repository.run(*arguments)
    if ran.status:
        raise _unreadable(what, ran)
    return ran


def _unreadable(what: str, ran: ProcessResult) -> ToolError:
    return ToolError(f"The {what} cannot be read: {one_line(ran.stderr)}")


async def _commit(repository: Repository, commit: str) -> str:
    shown = ("--root", "--always", "--diff-merges=first-parent", "-r", "-M", "-z", "--raw", "--patch", *_PLAIN, _FORM)
    ran = await _read(repository, "commit", "diff-tree", *shown, commit, "--")
    width = len(_Commit._fields)
    fields = ran.out.split(b"\0", width)
    if len(fields) <= width:
        raise ToolError(
            f"The message of this commit alone is longer than {repository.program.most} bytes, the most that is shown: "
            "start the server with a larger --max-output."
        )
    one = _Commit(*(each.decode("utf-8", "replace") for each in fields[:width]))
    message = "".join(f"    {line}\n" for line in one.message.rstrip("\n").split("\n"))
    header = f"commit {one.id}\nAuthor: {one.author} <{one.email}>\nDate:   {one.date}\n\n{message}"
    return header + _changes(fields[width]) + repository.note(ran)


async def _folder(repository: Repository, tree: str) -> str:
    ran = await _read(repository, "folder", "ls-tree", "-z", tree)
    entries = [each.partition("\t") for each in ran.out.decode("utf-8", "replace").split("\0") if each]
    names = [f"{name}/" if " tree " in about else name for about, _, name in entries]
    return "\n".join(names) + repository.note(ran)


def _changes(said: bytes) -> str:
    raw, _, patch = said.partition(b"\0\0")
    _, *patches = re.split(rb"(?m)^diff --git ", patch)
    sides = list(_sides(raw.decode("utf-8", "replace").split("\0")))
    return "".join(_change(*each) for each in zip(sides, patches, strict=False))


def _sides(raw: list[str]) -> Iterator[tuple[str, str]]:
    """Parse the raw records; yield the names of the two sides of each patch, in order."""
    fields = iter(raw)
    for about in fields:
        status = about.rpartition(" ")[2][:1]
        name = next(fields, "")
        after = next(fields, "") if status in ("R", "C") else name
        if status == "T":
            # A type change, such as a file that became a link, is shown as a removal and an addition.
            yield f"a/{name}", "/dev/null"
            yield "/dev/null", f"b/{name}"
        else:
            yield (
                "/dev/null" if status == "A" else f"a/{name}",
                "/dev/null" if status == "D" else f"b/{after}",
            )


def _change(sides: tuple[str, str], patch: bytes) -> str:
    before, after = sides
    found = re.search(rb"(?m)^(?:@@ |Binary files )", patch)
    body = patch[found.start() :] if found else b""
    return f"\n--- {before}\n+++ {after}\n" + body.decode("utf-8", "replace")


# --- branches --------------------------------------------------------------------------------------------------------


async def branch(repository: Repository, branch_type: str, *, contains: str | None, not_contains: str | None) -> str:
    """Return local, remote or all branches, filtered by commits that they contain or do not contain."""
    which = {"local": (), "remote": ("--remotes",), "all": ("--all",)}.get(branch_type)
    if which is None:
        raise ToolError(f"Invalid branch type: {branch_type[:100]}. It must be local, remote or all.")
    filters = [
        f"--{option}={await repository.resolve(value, name, kind='commit')}"
        for option, name, value in (
            ("contains", "contains", contains),
            ("no-contains", "not_contains", not_contains),
        )
        if value is not None
    ]
    return await repository.output("branch", "--list", "--no-color", "--no-column", "--sort=refname", *which, *filters)
