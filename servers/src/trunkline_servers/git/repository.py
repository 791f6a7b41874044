"""Opens a repository for a call: it is allowed and complete, and every program that it could make git run is disabled.

Everything is checked anew for each call, byte by byte; git is asked only what it was not asked before. The result, a
``Repository``, runs git in one working tree.

The index is checked to name only files of its working tree. Git does not validate names when it reads an index: it
follows them, and shows, stages or removes what they lead to. So the names are parsed here as git parses them; if they
are not all in this one file, git has to list them. Anything that git would not write is rejected.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from trunkline.errors import ToolError
from trunkline_servers.git.configuration import (
    BoundedCache,
    ConfigReader,
    UserConfig,
    filter_settings,
    forwarded_settings,
    git_environment,
    hook_settings,
    with_hooks,
)
from trunkline_servers.git.location import RepositoryLocation, is_same_repository, locate_repository, read_regular_file
from trunkline_servers.git.process import GitProgram, ProcessResult
from trunkline_servers.untrusted import one_line

__all__ = [
    "GitObject",
    "Index",
    "Repository",
    "RepositoryOpener",
    "check_index_names",
    "index_names",
    "read_index",
    "reject_option",
    "unknown_name_error",
]

#: Largest index, and most bytes of all names in it.
_MOST_BYTES = 128 * 1024 * 1024
_HEAD = 12
#: Bytes before the id in an entry: times, sizes, owners, mode.
_ABOUT = 40
_EXTENDED = 0x4000
#: The longest name whose length is stored; also the mask of the length bits.
_NAME_LENGTH_MASK = 0xFFF
#: Extensions with which this file does not contain all names of the index.
_ELSEWHERE = frozenset({b"link", b"sdir"})
#: Parts of a name that are empty or lead up or into the git folder, between zero bytes.
_LEADS_OUT = (b"\0\0", b"\0.\0", b"\0..\0", b"\0.git\0")


class Index(NamedTuple):
    """The content of an index file."""

    path: str
    data: bytes
    #: Digest of the content.
    digest: bytes


class _InvalidIndexError(Exception):
    """The file is malformed."""


def read_index(git_dir: str) -> Index | None:
    """Read the index of a working tree; None if it has none.

    Raises:
        ToolError: it cannot be read.
    """
    path = os.path.join(git_dir, "index")
    try:
        data = read_regular_file(path, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolError(f"'{path}' cannot be read: {error.strerror}.") from error
    return Index(path, data, hashlib.blake2b(data, digest_size=32).digest())


def index_names(index: Index, id_bytes: int) -> bytes | None:
    """Return the names in an index, each followed by a zero byte; None if git has to list them.

    Raises:
        ToolError: the index is malformed.
    """
    data, known = index.data, len(index.data) - id_bytes
    version = int.from_bytes(data[4:8], "big")
    try:
        if data[:4] != b"DIRC" or version not in (2, 3, 4) or known < _HEAD:
            raise _InvalidIndexError
        names, end = (_names_v4 if version == 4 else _names_v2)(data, id_bytes + _ABOUT)
        if end > known:
            raise _InvalidIndexError
    except (_InvalidIndexError, IndexError):
        raise ToolError(f"'{index.path}' is not as git writes it: remove it and run git reset there.") from None
    return None if _has_external_names(data, end, known) else names


def check_index_names(index: Index, names: bytes) -> None:
    """Check that names stay in the working tree.

    Raises:
        ToolError: one leads out of it.
    """
    parts = (b"\0" + names).lower().replace(b"/", b"\0")
    if any(each in parts for each in _LEADS_OUT):
        raise ToolError(
            f"'{index.path}' names files that are not in the working tree, so git is not run on it: "
            "remove it and run git reset there."
        )


def _count(data: bytes) -> range:
    return range(int.from_bytes(data[8:12], "big"))


def _names_v2(data: bytes, flags_at: int) -> tuple[bytes, int]:
    """Parse entries of versions 2 and 3: complete names, padded to eight bytes."""
    names, at = [], _HEAD
    for _ in _count(data):
        where = at + flags_at
        flags = data[where] << 8 | data[where + 1]
        start = where + (4 if flags & _EXTENDED else 2)
        end = data.find(b"\0", start)
        name_length = flags & _NAME_LENGTH_MASK
        # Git trusts the stored length, and reads on if no zero byte follows.
        if end < start or (
            end - start != name_length if name_length < _NAME_LENGTH_MASK else end - start < _NAME_LENGTH_MASK
        ):
            raise _InvalidIndexError
        names.append(data[start : end + 1])
        at += (end - at + 8) & ~7
    return b"".join(names), at


def _names_v4(data: bytes, flags_at: int) -> tuple[bytes, int]:
    """Parse entries of version 4: how much of the previous name to drop, and what to append."""
    names, at, last, total = [], _HEAD, b"", 0
    for _ in _count(data):
        where = at + flags_at
        flags = data[where] << 8 | data[where + 1]
        dropped, start = _varint(data, where + (4 if flags & _EXTENDED else 2))
        end = data.find(b"\0", start)
        if end < start or dropped > len(last):
            raise _InvalidIndexError
        last = last[: len(last) - dropped] + data[start:end]
        name_length = flags & _NAME_LENGTH_MASK
        total += len(last) + 1
        # Names that share prefixes could expand without bound.
        if total > _MOST_BYTES or (
            len(last) != name_length if name_length < _NAME_LENGTH_MASK else len(last) < _NAME_LENGTH_MASK
        ):
            raise _InvalidIndexError
        names.append(last)
        at = end + 1
    return b"".join(each + b"\0" for each in names), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value = byte & 127
    while byte & 128:
        at += 1
        byte = data[at]
        value = (value + 1 << 7) + (byte & 127)
        if value > _MOST_BYTES:
            raise _InvalidIndexError
    return value, at + 1


def _has_external_names(data: bytes, at: int, end: int) -> bool:
    """Return True if an extension after the entries adds or changes names."""
    while at <= end - 8:
        if data[at : at + 4] in _ELSEWHERE:
            return True
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
    return False


_LONGEST_NAME = 1000
#: More than the length of two paths.
_MOST_PATHS = 64 * 1024
#: How many repositories are cached.
_MOST_REMEMBERED = 64

#: Most characters of git's error output in a message.
_MOST_COMPLAINT = 1000
#: Most bytes of all names in an index, if git has to list them.
_MOST_NAMES = 128 * 1024 * 1024
_ID_BYTES = MappingProxyType({"sha1": 20, "sha256": 32})
_KINDS = frozenset({"blob", "commit", "tag", "tree"})


class GitObject(NamedTuple):
    """A git object: its id and its type."""

    id: str
    kind: str


class Repository(NamedTuple):
    """An allowed repository, and how to run git in it."""

    worktree: str
    git_dir: str
    #: Shared by all working trees of the repository; writers hold the lock of this path.
    common_dir: str
    #: All configured filter drivers; none of them is run.
    filters: frozenset[str]
    program: GitProgram
    env: dict[str, str]

    async def run(self, *arguments: str, stdin: bytes = b"", most: int | None = None) -> ProcessResult:
        """Run git and return its result, whatever the exit status."""
        return await self.program.run(arguments, cwd=self.worktree, env=self.env, stdin=stdin, most=most)

    async def git(
        self, *arguments: str, stdin: bytes = b"", hooks: bool = False, most: int | None = None
    ) -> ProcessResult:
        """Run git and require success and complete output; ``hooks`` lets it run the repository's hooks.

        Raises:
            ToolError: it failed, or wrote too much.
        """
        env = with_hooks(self.env) if hooks else self.env
        ran = await self.program.run(arguments, cwd=self.worktree, env=env, stdin=stdin, most=most)
        if ran.truncated:
            raise ToolError(
                f"Git {arguments[0]} wrote more than {most or self.program.most} bytes; request less at once."
            )
        if ran.status:
            raise ToolError(_failure(arguments[0], ran))
        return ran

    async def output(self, *arguments: str) -> str:
        """Run git and return its output, truncated with a note if it is too long.

        Raises:
            ToolError: it failed.
        """
        ran = await self.run(*arguments)
        if ran.status:
            raise ToolError(_failure(arguments[0], ran))
        return ran.text + self.note(ran)

    def note(self, ran: ProcessResult) -> str:
        """Return the note for truncated output; empty if it is complete."""
        return f"\n[cut: there is more than the {self.program.most} bytes that are shown]" if ran.truncated else ""

    async def resolve(self, given: str, what: str = "revision", *, kind: str = "object") -> str:
        """Return the id of the object that a caller named, so that later commands never see the name as an argument.

        Raises:
            ToolError: there is no such object of that type.
        """
        reject_option(given, what)
        suffix = "" if kind == "object" else f"^{{{kind}}}"
        ran = await self.run("rev-parse", "--verify", "--quiet", "--end-of-options", given + suffix)
        found = ran.text
        if ran.status or not found or not all(each in "0123456789abcdef" for each in found):
            raise unknown_name_error(given, what, kind)
        return found

    async def find(self, *names: str) -> list[GitObject | None]:
        """Resolve names in one run, passed on stdin instead of as arguments; None for an unknown name."""
        said = "".join(f"{each}\n" for each in names).encode("utf-8", "replace")
        ran = await self.git("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=said)
        # An unknown name is echoed with a status word, and may itself look like anything.
        lines = [each.split(" ") for each in ran.text.split("\n")]
        return [GitObject(*each) if len(each) == 2 and each[1] in _KINDS else None for each in lines]


class RepositoryOpener:
    """Opens repositories and caches what git was asked about them."""

    def __init__(self, program: GitProgram) -> None:
        """Use ``program`` to run git."""
        self._program = program
        self._configuration = ConfigReader(program)
        #: By working tree: the fingerprint for which git confirmed the folders, and the length of object ids.
        self._found: BoundedCache[str, tuple[tuple[Any, ...], int]] = BoundedCache(_MOST_REMEMBERED)
        #: Indexes that passed the check.
        self._good: BoundedCache[tuple[bytes, int], bool] = BoundedCache(_MOST_REMEMBERED)

    async def open(self, given: str, allowed: Sequence[Path] | None) -> Repository:
        """Open the repository at a path from a caller.

        Raises:
            ToolError: it is not allowed, is not a repository, or would lead git outside.
        """
        await self._program.check()
        place, seen, index = await asyncio.to_thread(self._look, given, allowed)
        user = await self._configuration.read_user(place, seen)
        env = git_environment(place.worktree, forwarded_settings(user, {}))
        own = await self._configuration.read_own(place.files, env)
        off = [*filter_settings(own.filters), *hook_settings(own.hooks)]
        env = git_environment(place.worktree, [*forwarded_settings(user, own.settings), *off])
        id_bytes = await self._ask(place, user, env)
        filters = own.filters | user.filters
        repository = Repository(place.worktree, place.git_dir, place.common_dir, filters, self._program, env)
        if index is not None:
            await self._check_index(repository, index, id_bytes)
        return repository

    def _look(
        self, given: str, allowed: Sequence[Path] | None
    ) -> tuple[RepositoryLocation, Mapping[str, bytes | None], Index | None]:
        place = locate_repository(given, allowed)
        return place, self._configuration.look(place.worktree), read_index(place.git_dir)

    async def _ask(self, place: RepositoryLocation, user: UserConfig, env: dict[str, str]) -> int:
        """Ask git to confirm that this is a repository and that its owner is trusted.

        Returns the length of object ids in bytes.
        """
        marks = None if place.fingerprint is None else (place.fingerprint, user.safe)
        known = self._found.get(place.worktree)
        if known is not None and known[0] == marks:
            return known[1]
        words = ["rev-parse", "--show-object-format", "--absolute-git-dir", "--git-common-dir"]
        ran = await self._program.run(words, cwd=place.worktree, env=env, most=_MOST_PATHS)
        if ran.status:
            raise ToolError(_failure("rev-parse", ran))
        form, *said = os.fsdecode(ran.out).removesuffix("\n").split("\n")
        if form not in _ID_BYTES or not is_same_repository(place.worktree, said, (place.git_dir, place.common_dir)):
            raise ToolError(f"'{place.worktree}' is not the top folder of a Git repository.")
        if marks is not None:
            self._found.put(place.worktree, (marks, _ID_BYTES[form]))
        return _ID_BYTES[form]

    async def _check_index(self, repository: Repository, index: Index, id_bytes: int) -> None:
        """Check that no name in the index leads out of the working tree."""
        if self._good.get((index.digest, id_bytes)):
            return
        names = await asyncio.to_thread(index_names, index, id_bytes)
        alone = names is not None
        if names is None:
            # The rest of the index is in files that may change independently, so the result is not cached.
            names = (await repository.git("ls-files", "-z", most=_MOST_NAMES)).out
        await asyncio.to_thread(check_index_names, index, names)
        if alone:
            self._good.put((index.digest, id_bytes), True)


def reject_option(given: str, what: str) -> None:
    """Check that an argument from a caller cannot be taken for an option.

    Raises:
        ToolError: it could, or it is not a valid argument.
    """
    if given.startswith("-"):
        raise ToolError(f"Invalid {what}: '{given[:200]}' starts with '-'.")
    if not given or len(given) > _LONGEST_NAME or any(ord(each) < 32 for each in given):
        raise ToolError(f"Invalid {what}: it must be 1 to {_LONGEST_NAME} characters without control characters.")


def unknown_name_error(given: str, what: str, kind: str = "object") -> ToolError:
    """Return the error for an unknown name."""
    return ToolError(f"Invalid {what}: there is no '{given}' in this repository, or it is no {kind}.")


def _failure(command: str, ran: ProcessResult) -> str:
    return f"git {command} failed: {one_line(ran.stderr, _MOST_COMPLAINT) or f'exit status {ran.status}'}"
