"""A folder of skills on disk: finds the skills, and reads files that match their manifests.

Each refresh checks the size and times of every file and hashes the files that may have changed, so that the manifests
match the files. A read compares the content with the published manifest; if they differ, a new manifest is published
first, so that no content is returned without a matching manifest. The module knows nothing of servers: a listener is
called with the new manifests while the folder is locked.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.extensions.skills.frontmatter import SKILL_FILE, FrontmatterError, check_fields, read_frontmatter
from trunkline.extensions.skills.yaml_reader import import_parser

__all__ = ["MAX_FILES", "MAX_TOTAL_BYTES", "ListedFile", "SkillFolder", "SkillManifest", "digest_of", "encode_path"]

log = logging.getLogger("trunkline")

MAX_FILES = 512  # The extension, Limits: resources per skill.
MAX_TOTAL_BYTES = 16 * 1024 * 1024  # The extension, Limits: total file size per skill.
_MAX_ENTRIES = 50_000  # A folder with more is probably not a folder of skills, but a home directory.
_MAX_DEPTH = 24  # Links inside the folder can make it look deeper than it is.
# A file that is written in the same clock tick of the file system in which it was hashed has unchanged times. FAT has
# the coarsest clock, two seconds.
_SETTLED_NS = 2_500_000_000
_READ_ATTEMPTS = 3  # A file that changes faster than this is being written.
#: RFC 3986: the characters that a path segment, and a host, may have unencoded besides letters and digits.
_SEGMENT_SAFE = "-._~!$&'()*+,;=:@"
_HOST_SAFE = "-._~!$&'()*+,;="

Parts = tuple[str, ...]


class ListedFile(Struct, frozen=True):
    """A file in the manifest of a skill; ``source`` is its path in the folder, with links resolved."""

    digest: str
    size: int
    source: Parts


class SkillManifest(Struct, frozen=True):
    """A snapshot of a skill: its path in the namespace of the server, its frontmatter, and all its files."""

    #: The path of the skill, encoded: ``acme/billing/refunds``.
    path: str
    frontmatter: dict[str, Any]
    #: By encoded path inside the skill; ``SKILL.md`` is first.
    files: dict[str, ListedFile]
    #: The folders inside the skill, which may be empty.
    folders: tuple[str, ...] = ()


class _Seen(Struct, frozen=True):
    """A file as found by a walk."""

    source: Parts
    size: int
    mark: tuple[int, ...]
    #: The later of its two times.
    changed_ns: int


class _Hashed(Struct, frozen=True):
    """A hashed file."""

    mark: tuple[int, ...]
    settled: bool
    digest: str
    size: int


class _Tree(Struct):
    """The files and folders found by a walk, by path."""

    files: dict[Parts, _Seen]
    folders: list[Parts]
    problems: list[str]


def digest_of(content: bytes) -> str:
    """Return the digest of a file in the form that manifests use."""
    return f"sha256:{sha256(content).hexdigest()}"


def encode_path(parts: Parts, *, at_root: bool) -> str:
    """Return file names as the path of a URI; with ``at_root``, the first name is the host of the URI."""
    return "/".join(
        quote(os.fsencode(part), safe=_HOST_SAFE if at_root and index == 0 else _SEGMENT_SAFE)
        for index, part in enumerate(parts)
    )


class SkillFolder:
    """The skills of one folder; ``manifests`` has the published manifests by path."""

    def __init__(self, folder: str | os.PathLike[str], *, prefix: str | None = None) -> None:
        """Find the skills of a folder; ``prefix`` is put before the path of each.

        Raises:
            ConfigError: there is no such folder, it has too many files, or PyYAML is not installed.
        """
        import_parser()  # Here, also if the folder is empty: later it would fail a request.
        self.root = Path(os.path.realpath(folder))
        if not self.root.is_dir():
            raise ConfigError(f"there is no folder of skills {os.fspath(folder)!r} (looked for {self.root})")
        self._prefix = _prefix(prefix)
        #: Called with the manifests before and after a change.
        self.on_change: Callable[[Mapping[str, SkillManifest], Mapping[str, SkillManifest]], None] | None = None
        self._lock = threading.RLock()
        self._hashed: dict[Parts, _Hashed] = {}
        #: By digest: the frontmatter of a ``SKILL.md``, or what is wrong with it.
        self._frontmatter: dict[str, dict[str, Any] | str] = {}
        self._warned: frozenset[str] = frozenset()
        self._began = 0.0
        self.manifests: Mapping[str, SkillManifest] = MappingProxyType({})
        self._scan(self._walk())

    def refresh(self, *, distrust: Parts | None = None) -> None:
        """Find changes and publish them; the file ``distrust`` is hashed again even if its times are unchanged."""
        arrived = time.monotonic()
        with self._lock:
            if distrust is not None:
                self._hashed.pop(distrust, None)
            elif self._began > arrived:
                # Another thread has started a refresh after this call, and its result is current.
                return
            self._began = time.monotonic()
            try:
                tree = self._walk()
            except (ConfigError, OSError) as error:
                log.warning("skills of %s: not refreshed: %s", self.root, error)
                return
            self._scan(tree)

    def read(self, skill: str, file: str) -> bytes:
        """Return the content of a file that matches the published manifest of its skill.

        Raises:
            FileNotFoundError: the manifest does not list it; it may have just been deleted.
            OSError: it keeps changing while it is read.
        """
        for _ in range(_READ_ATTEMPTS):
            manifest = self.manifests.get(skill)
            listed = None if manifest is None else manifest.files.get(file)
            if listed is None:
                raise FileNotFoundError(file)
            try:
                content = self._read(listed.source)
            except OSError:
                content = None
            if content is not None and len(content) == listed.size and digest_of(content) == listed.digest:
                return content
            self.refresh(distrust=listed.source)
        raise OSError(f"{file} is being changed")

    # --- looking ------------------------------------------------------------------------------------------------------

    def _walk(self) -> _Tree:
        tree = _Tree({}, [], [])
        left = _MAX_ENTRIES
        waiting: list[tuple[Parts, Parts, frozenset[Parts]]] = [((), (), frozenset())]
        while waiting:
            path, source, above = waiting.pop()
            try:
                with os.scandir(self.root.joinpath(*source)) as found:
                    names = sorted(each.name for each in found if not _is_left_out(each.name))
            except OSError as error:
                if not path:
                    raise
                tree.problems.append(f"{'/'.join(path)} cannot be read: {error.strerror}")
                continue
            left -= len(names)
            if left < 0:
                raise ConfigError(
                    f"{self.root} has more than {_MAX_ENTRIES} files; choose a folder that contains only skills"
                )
            for name in names:
                inner = self._look(tree, (*path, name), (*source, name))
                if inner is not None and inner not in above and inner != source and len(path) < _MAX_DEPTH:
                    tree.folders.append((*path, name))
                    waiting.append(((*path, name), inner, above | {source}))
        return tree

    def _look(self, tree: _Tree, path: Parts, source: Parts) -> Parts | None:
        """Record a file; return the real path of a folder. A link that leads out of the folder is rejected."""
        full = os.path.join(self.root, *source)
        try:
            found = os.lstat(full)
            if stat.S_ISLNK(found.st_mode):
                real = Path(os.path.realpath(full))
                if not real.is_relative_to(self.root):
                    tree.problems.append(f"{'/'.join(path)} is a link that leads out of the folder; copy its target")
                    return None
                found, source = os.lstat(real), real.relative_to(self.root).parts
        except OSError as error:
            tree.problems.append(f"{'/'.join(path)} cannot be read: {error.strerror}")
            return None
        if stat.S_ISDIR(found.st_mode):
            return source
        if stat.S_ISREG(found.st_mode):
            tree.files[path] = _Seen(source, found.st_size, _mark(found), max(found.st_mtime_ns, found.st_ctime_ns))
        return None

    def _scan(self, tree: _Tree) -> None:
        """Create the manifests of the files found by a walk, and publish them if they changed."""
        problems = list(tree.problems)
        manifests: dict[str, SkillManifest] = {}
        hashed: dict[Parts, _Hashed] = {}
        before = self.manifests
        base = (self.root.name,) if (SKILL_FILE,) in tree.files else ()
        for home, paths in _skills(tree).items():
            whole = (*self._prefix, *base, *home)
            try:
                manifest = self._manifest(tree, paths, whole, hashed)
            except (FrontmatterError, OSError) as error:
                problems.append(f"the skill {'/'.join(whole)} is left out: {error}")
            else:
                old = before.get(manifest.path)
                manifests[manifest.path] = old if old == manifest and old is not None else manifest
        self._hashed = hashed
        used = {each.digest for each in hashed.values()}
        self._frontmatter = {digest: each for digest, each in self._frontmatter.items() if digest in used}
        for problem in problems:
            if problem not in self._warned:
                log.warning("skills of %s: %s", self.root, problem)
        self._warned = frozenset(problems)
        if manifests != before:
            self.manifests = MappingProxyType(manifests)
            if self.on_change is not None:
                self.on_change(before, self.manifests)

    def _manifest(self, tree: _Tree, paths: list[Parts], whole: Parts, hashed: dict[Parts, _Hashed]) -> SkillManifest:
        """Create the manifest of a skill from the paths of its files; the first is its ``SKILL.md``."""
        home = paths[0][:-1]
        _check_limits(len(paths), sum(tree.files[path].size for path in paths))
        frontmatter = self._read_frontmatter(tree.files[paths[0]], hashed)
        check_fields(frontmatter, whole[-1])
        files: dict[str, ListedFile] = {}
        for path in paths:
            seen = tree.files[path]
            content = self._hash(seen, hashed)
            files[encode_path(path[len(home) :], at_root=False)] = ListedFile(content.digest, content.size, seen.source)
        # Checked again: a file may have grown since the walk.
        _check_limits(len(files), sum(each.size for each in files.values()))
        folders = tuple(
            encode_path(path[len(home) :], at_root=False)
            for path in sorted(tree.folders)
            if path[: len(home)] == home and path != home
        )
        return SkillManifest(encode_path(whole, at_root=True), frontmatter, files, folders)

    def _hash(self, seen: _Seen, hashed: dict[Parts, _Hashed]) -> _Hashed:
        """Return the digest of a file: the previous one if the file cannot have changed since."""
        source = seen.source
        if source in hashed:
            return hashed[source]
        before = self._hashed.get(source)
        if before is None or not before.settled or before.mark != seen.mark:
            now = time.time_ns()
            content = self._read(source)
            before = _Hashed(seen.mark, seen.changed_ns + _SETTLED_NS < now, digest_of(content), len(content))
        hashed[source] = before
        return before

    def _read_frontmatter(self, seen: _Seen, hashed: dict[Parts, _Hashed]) -> dict[str, Any]:
        digest = self._hash(seen, hashed).digest
        if digest not in self._frontmatter:
            content = self._read(seen.source)
            if digest_of(content) != digest:
                raise OSError("it is being changed")
            self._frontmatter[digest] = _frontmatter(content)
        found = self._frontmatter[digest]
        if isinstance(found, str):
            raise FrontmatterError(found)
        return found

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, source: Parts) -> bytes:
        """Return the content of a regular file; none of its folders may have become a link since it was found."""
        descriptor = _open(self.root, source)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{source[-1]} is not a file")
            content = file.read(MAX_TOTAL_BYTES + 1)
        if len(content) > MAX_TOTAL_BYTES:
            raise OSError(f"{source[-1]} has more than {MAX_TOTAL_BYTES} bytes")
        return content


def _skills(tree: _Tree) -> dict[Parts, list[Parts]]:
    """Return the paths of the files of each skill, ``SKILL.md`` first; a file can belong to several nested ones."""
    homes = sorted(path[:-1] for path in tree.files if path[-1] == SKILL_FILE)
    skills = {home: [(*home, SKILL_FILE)] for home in homes}
    for path in sorted(tree.files):
        for depth in range(len(path)):
            paths = skills.get(path[:depth])
            if paths is not None and path != paths[0]:
                paths.append(path)
    return skills


def _prefix(prefix: str | None) -> Parts:
    parts = tuple(prefix.split("/")) if prefix else ()
    if any(part in ("", ".", "..") for part in parts):
        raise ConfigError(f'prefix={prefix!r} is not a path; use names separated by "/", such as "acme/billing"')
    return parts


def _is_left_out(name: str) -> bool:
    """Return True if a file is not served: hidden files, and Python's caches."""
    return name.startswith(".") or name == "__pycache__"


def _mark(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def _check_limits(count: int, total: int) -> None:
    if count > MAX_FILES:
        raise FrontmatterError(f"it has {count} files; a skill may have {MAX_FILES}")
    if total > MAX_TOTAL_BYTES:
        raise FrontmatterError(f"its files have {total} bytes; a skill may have {MAX_TOTAL_BYTES}")


def _frontmatter(content: bytes) -> dict[str, Any] | str:
    try:
        return read_frontmatter(content)
    except FrontmatterError as error:
        return str(error)


def _open(root: Path, source: Parts) -> int:
    """Open a file folder by folder, where the platform supports it, so that no link is followed."""
    # Without O_NONBLOCK opening a pipe would wait for its writer.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if os.open not in os.supports_dir_fd:
        return os.open(root.joinpath(*source), flags)
    *folders, name = source
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    for folder in folders:
        try:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    try:
        return os.open(name, flags, dir_fd=at)
    finally:
        os.close(at)
