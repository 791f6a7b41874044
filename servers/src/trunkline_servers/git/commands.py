"""The commands of the tools.

Status, diffs, history, contents and branches neither take a lock nor write. Staging, committing, unstaging, creating a
branch and switching change a repository; their caller holds its lock.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trunkline.errors import ToolError
from trunkline_servers.git.location import read_files
from trunkline_servers.git.process import ProcessResult
from trunkline_servers.git.repository import Repository, reject_option, unknown_name_error
from trunkline_servers.untrusted import one_line

__all__ = [
    "add",
    "branch",
    "checkout",
    "commit",
    "create_branch",
    "diff",
    "diff_staged",
    "diff_unstaged",
    "log",
    "reset",
    "show",
    "status",
]

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


_MOST_FILES = 2000
_MOST_NAMES = 100_000
#: Most bytes of the names of all files staged at once; they are not shown.
_MOST_LISTED = 32 * 1024 * 1024
_MOST_MESSAGE = 1024 * 1024
#: Names that some file systems treat as ``.git``.
_OWN = re.compile(r"\.git[\s.]*|git~\d+", re.IGNORECASE)
#: Revision syntax that cannot be part of a branch name.
_STEPS = re.compile(r"[~^:]|@\{")
_ON_BRANCH = re.compile(rb"ref: refs/heads/([A-Za-z0-9_][A-Za-z0-9_./-]*)\n")
_UNMATCHED = re.compile("pathspec '(.*?)' did not match any file", re.DOTALL)


async def add(repository: Repository, files: Sequence[str]) -> str:
    """Stage changes in files and folders, given relative to the working tree or as absolute paths."""
    if len(files) > _MOST_FILES or sum(len(each) for each in files) > _MOST_NAMES:
        raise ToolError(f"Too many names at once: give at most {_MOST_FILES}, or the folders that hold the files.")
    specs = [_inside(repository, each) for each in files]
    await _check_known(repository, dict(zip(specs, files, strict=True)))
    ran = await repository.git(
        "ls-files", "-z", "-o", "-m", "-d", "--exclude-standard", "--", *specs, most=_MOST_LISTED
    )
    # A folder in the list is a nested repository, which is not staged.
    names = [each for each in dict.fromkeys(ran.out.split(b"\0")) if each and not each.endswith(b"/")]
    if not names:
        return "No changes were staged: nothing under the given paths differs from the staging area (see git_status)."
    listed = b"".join(each + b"\0" for each in names)
    await _check_filters(repository, listed)
    await repository.git("update-index", "--add", "--remove", "-z", "--stdin", stdin=listed)
    return "Files staged successfully"


def _inside(repository: Repository, given: str) -> str:
    """Return a path relative to the working tree, as passed to git."""
    if not given or "\0" in given or given.startswith(":"):
        raise ToolError(f"Invalid path: '{given[:200]}'. Give a path from the top of the repository.")
    top = repository.worktree
    path = os.path.normpath(os.path.join(top, given))
    # A link is staged as a link, so only its parent folders are resolved.
    real = path if path == top else os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if real != top and not real.startswith(top.rstrip(os.sep) + os.sep):
        raise ToolError(f"Path '{given[:200]}' is outside the repository '{top}'.")
    inner = os.path.relpath(real, top)
    if any(_OWN.fullmatch(part) for part in inner.split(os.sep)):
        raise ToolError(f"Path '{given[:200]}' is inside of the repository's own folder, which is never staged.")
    return f"./{inner}"


async def _check_known(repository: Repository, specs: dict[str, str]) -> None:
    """Check that every path exists, so that a typo is not taken for nothing to do."""
    asked = [each for each in specs if each != "./."]
    if not asked:
        return
    ran = await repository.run(
        "ls-files", "-z", "-c", "-o", "--exclude-standard", "--error-unmatch", "--", *asked, most=_MOST_LISTED
    )
    unmatched = _UNMATCHED.findall(ran.stderr) if ran.status else []
    missing = [each for each in unmatched if not _is_folder(repository, each)]
    if missing:
        raise ToolError(
            f"Nothing was staged: '{specs.get(missing[0], missing[0])[:200]}' is not a file, or is ignored."
        )


def _is_folder(repository: Repository, spec: str) -> bool:
    """Return True if a path is a folder, which may be empty for git."""
    return os.path.isdir(os.path.join(repository.worktree, spec))


async def _check_filters(repository: Repository, listed: bytes) -> None:
    if not repository.filters:
        return
    ran = await repository.git("check-attr", "-z", "--stdin", "filter", stdin=listed, most=_MOST_LISTED * 2)
    fields = os.fsdecode(ran.out).split("\0")
    for name, driver in zip(fields[::3], fields[2::3], strict=False):
        if driver in repository.filters:
            raise ToolError(
                f"Nothing was staged: '{name}' is stored through the filter '{driver}', and this server runs no "
                "filters. Stage it with git itself."
            )


async def commit(repository: Repository, message: str, *, hooks: bool) -> str:
    """Commit what is staged; ``hooks`` lets the repository's hooks run."""
    said = message.encode("utf-8", "replace")
    if len(said) > _MOST_MESSAGE:
        raise ToolError(f"The message is longer than {_MOST_MESSAGE} bytes.")
    if hooks:
        # Git would notice only after running the first hook.
        await _check_staged(repository)
    checks = () if hooks else ("--no-verify",)
    plain = ("--quiet", "--no-gpg-sign", "--no-status", "--cleanup=verbatim", "--allow-empty-message", "--file=-")
    try:
        await repository.git("commit", *plain, *checks, stdin=said, hooks=hooks)
    except ToolError as error:
        await _check_staged(repository)
        if "auto-detection" in str(error) or "tell me who you are" in str(error):
            raise ToolError(
                "Nothing was committed: git knows no author. Set user.name and user.email with git config, or the "
                "variables GIT_AUTHOR_NAME, GIT_AUTHOR_EMAIL, GIT_COMMITTER_NAME and GIT_COMMITTER_EMAIL."
            ) from error
        raise
    return f"Changes committed successfully with hash {await repository.resolve('HEAD', kind='commit')}"


async def _check_staged(repository: Repository) -> None:
    staged = await repository.run("diff", "--cached", "--quiet", "--no-ext-diff", "--ignore-submodules=dirty", "--")
    if staged.status == 0 and (await repository.run("rev-parse", "--verify", "--quiet", "MERGE_HEAD")).status:
        raise ToolError("Nothing is staged, so there is nothing to commit: stage files with git_add first.")


async def reset(repository: Repository) -> str:
    """Unstage everything; the working tree and a merge in progress are kept."""
    await repository.git("reset", "--quiet", "--", ".")
    return "All staged changes reset"


async def create_branch(repository: Repository, name: str, base: str | None) -> str:
    """Create a branch at another branch, tag or commit, or at the current branch."""
    reject_option(name, "branch name")
    if name == "HEAD":
        raise _bad_name(name)
    if base:
        reject_option(base, "base branch")
    start = base or await _current(repository)
    if not start:
        raise ToolError("HEAD is detached: no branch is the current one, so give base_branch.")
    full, at = f"refs/heads/{name}", base or "HEAD"
    # The caller's names are passed on stdin, not as arguments, and an existing branch is not moved.
    said = f"create {full}\0{at}^{{commit}}\0".encode("utf-8", "replace")
    words = ("update-ref", "-m", f"branch: Created from {start}", "-z", "--stdin")
    try:
        await repository.git(*words, stdin=said)
    except ToolError:
        if (await repository.run("check-ref-format", full)).status:
            raise _bad_name(name) from None
        await repository.resolve(at, "base branch", kind="commit")
        if not (await repository.run("rev-parse", "--verify", "--quiet", full)).status:
            raise ToolError(f"There is a branch '{name}' already.") from None
        raise
    return f"Created branch '{name}' from '{start}'"


def _bad_name(name: str) -> ToolError:
    return ToolError(f"'{name}' cannot be the name of a branch.")


async def _current(repository: Repository) -> str:
    """Return the name of the current branch; empty if HEAD is detached."""
    path = os.path.join(repository.git_dir, "HEAD")
    head = (await asyncio.to_thread(read_files, [path]))[path] or b""
    if found := _ON_BRANCH.fullmatch(head):
        return found[1].decode()
    # HEAD has an unusual form.
    return (await repository.run("symbolic-ref", "--quiet", "HEAD")).text.removeprefix("refs/heads/")


async def checkout(repository: Repository, name: str) -> str:
    """Switch to a branch, or to the commit behind any other revision."""
    reject_option(name, "branch name")
    found, branch = await repository.find(f"{name}^{{commit}}", f"refs/heads/{name}^{{commit}}")
    if found is None:
        raise unknown_name_error(name, "branch name", "commit")
    full = await _full_name(repository, name, is_branch=branch is not None)
    plain = ("--quiet", "--no-recurse-submodules", "--no-guess")
    short = full.removeprefix("refs/heads/")
    if short == full:
        # If it has a name, git records it in the reflog of HEAD.
        await repository.git("checkout", *plain, "--detach", full if full.startswith("refs/") else found.id, "--")
        return f"HEAD is now detached at {found.id[:7]}"
    reject_option(short, "branch name")
    await repository.git("checkout", *plain, short, "--")
    return f"Switched to branch '{short}'"


async def _full_name(repository: Repository, name: str, *, is_branch: bool) -> str:
    """Return the full ref name of a revision; empty if it has none."""
    if name == "HEAD":
        current = await _current(repository)
        return current and f"refs/heads/{current}"
    # A branch takes precedence over a tag of the same name, as in git checkout.
    if is_branch and not _STEPS.search(name):
        return f"refs/heads/{name}"
    ran = await repository.run("rev-parse", "--symbolic-full-name", "--verify", "--quiet", "--end-of-options", name)
    return "" if ran.status else ran.text
