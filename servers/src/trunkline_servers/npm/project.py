"""A project folder inside the allowed ones, with bounded reads of its two JSON files.

``package.json`` and the lock file are untrusted: links, pipes and large files are rejected, only well-formed parts are
used, and only text and numbers come out. No network, no process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.errors import ToolError
from trunkline_servers.npm.semver import parse_version
from trunkline_servers.untrusted import as_dict

__all__ = ["DeclaredDependency", "Project", "check_package_name", "find_project", "read_file"]


def read_file(folder: Path, name: str, most: int) -> bytes | None:
    """Return the content of a file; None if it does not exist.

    Raises:
        ToolError: it cannot be read, is not a regular file, or has more than ``most`` bytes.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(folder / name, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolError(f"{name} in {folder} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ToolError(f"{name} in {folder} is not a file")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ToolError(f"{name} in {folder} is larger than {most} bytes, which is more than is read")
    return content


_MANIFEST_BYTES = 1024 * 1024
_LOCK_BYTES = 64 * 1024 * 1024
_MOST_DEPTH = 100
_GROUPS = ("dependencies", "devDependencies", "optionalDependencies")
_NAME_CHARS = 214
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!'()*")


class DeclaredDependency(Struct, frozen=True):
    """A dependency as declared in ``package.json``."""

    name: str
    spec: str
    group: str


def check_package_name(name: str) -> str:
    """Return the name if it is a valid package name.

    Raises:
        ToolError: it is not.
    """
    scope, _, rest = name[1:].partition("/")
    parts = (scope, rest) if name.startswith("@") else (name,)
    if len(name) > _NAME_CHARS or not all(part and part[0] not in "._-" and _PLAIN.issuperset(part) for part in parts):
        raise ToolError(f"{name[:100]!r} is not a package name: give a name such as react or @types/node")
    return name


def find_project(path: str | None, folders: Sequence[Path]) -> Project:
    """Return the project at a path in the allowed folders; the first allowed folder if no path is given.

    Raises:
        ToolError: the folder does not exist or is not allowed.
    """
    asked = Path(os.path.expanduser(path)) if path else folders[0]
    candidate = asked if asked.is_absolute() else folders[0] / asked
    try:
        real = Path(os.path.realpath(candidate, strict=True))
    except (OSError, ValueError):
        real = None
    # One message for both: it must not reveal whether a folder outside exists.
    if real is None or not any(real.is_relative_to(folder) for folder in folders) or not real.is_dir():
        allowed = ", ".join(str(folder) for folder in folders[:5])
        raise ToolError(f"{str(path)[:200]!r} is not a folder inside the allowed ones ({allowed})")
    return Project(real)


class Project:
    """One folder with a ``package.json``."""

    def __init__(self, folder: Path) -> None:
        """Initialize with an allowed folder."""
        self.folder = folder

    def scripts(self) -> dict[str, str]:
        """Return the scripts by name."""
        found = as_dict(self._manifest().get("scripts"))
        return {name: text for name, text in found.items() if isinstance(text, str)}

    def wanted(self) -> list[DeclaredDependency]:
        """Return the declared dependencies in order; for a name in two groups the one that npm uses."""
        manifest = self._manifest()
        found: dict[str, DeclaredDependency] = {}
        for group in _GROUPS:
            for name, spec in as_dict(manifest.get(group)).items():
                if isinstance(spec, str) and _is_name(name):
                    found[name] = DeclaredDependency(name, spec, group)
        return list(found.values())

    def installed(self) -> dict[str, str]:
        """Return the locked versions of the direct dependencies; empty without a lock file."""
        lock = self._lock(required=False)
        if isinstance(packages := lock.get("packages"), dict):
            prefix = "node_modules/"
            rows: Mapping[str, Any] = {
                path[len(prefix) :]: row for path, row in packages.items() if path.startswith(prefix)
            }
        else:
            rows = as_dict(lock.get("dependencies"))
        return {name: package[1] for name, row in rows.items() if (package := _package(name, row)) is not None}

    def locked(self, *, production: bool) -> dict[str, list[str]]:
        """Return every package in the lock file with its versions."""
        lock = self._lock(required=True)
        found: dict[str, dict[str, None]] = {}
        packages = lock.get("packages")
        rows = _flat(packages) if isinstance(packages, dict) else _nested(lock.get("dependencies"), 0)
        for name, row in rows:
            package = _package(name, row)
            if package is not None and not (production and row.get("dev")):
                found.setdefault(package[0], {})[package[1]] = None
        return {name: list(versions) for name, versions in found.items()}

    def _manifest(self) -> dict[str, Any]:
        read = self._read("package.json", _MANIFEST_BYTES)
        if read is None:
            raise ToolError(f"There is no package.json in {self.folder}: give the path of a project")
        return read

    def _lock(self, *, required: bool) -> dict[str, Any]:
        for name in ("npm-shrinkwrap.json", "package-lock.json"):
            if (read := self._read(name, _LOCK_BYTES)) is not None:
                return read
        if required:
            raise ToolError(
                f"There is no package-lock.json in {self.folder}: make one with npm install --package-lock-only"
            )
        return {}

    def _read(self, name: str, most: int) -> dict[str, Any] | None:
        """Read one JSON object from the folder; links, pipes and large files are rejected."""
        content = read_file(self.folder, name, most)
        if content is None:
            return None
        try:
            value = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ToolError(f"{name} in {self.folder} is not JSON: {str(error)[:200]}") from error
        if not isinstance(value, dict):
            raise ToolError(f"{name} in {self.folder} is not a JSON object")
        return value


# --- parsing ---------------------------------------------------------------------------------------------------------


def _package(name: str, row: Any) -> tuple[str, str] | None:
    """Return a locked package and its version; None for links and packages that are not from a registry.

    In lock files of version 1 the version of an alias is the actual package, and that of anything else its URL, which
    must not be revealed.
    """
    version = row.get("version") if isinstance(row, dict) and not row.get("link") else None
    if not isinstance(version, str):
        return None
    if version.startswith("npm:"):
        name, _, version = version[4:].rpartition("@")
    return (name, version) if parse_version(version) is not None and _is_name(name) else None


def _is_name(name: str) -> bool:
    try:
        return check_package_name(name) == name
    except ToolError:
        return False


def _flat(packages: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Walk a lock file of version 2 or 3: one row per position in the tree; an alias has its real name."""
    for path, row in packages.items():
        _, marker, name = path.rpartition("node_modules/")
        if marker and isinstance(row, dict):
            real = row.get("name")
            yield (real if isinstance(real, str) else name), row


def _nested(dependencies: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Walk a lock file of version 1: a tree of dependencies."""
    if depth > _MOST_DEPTH:
        raise ToolError(f"package-lock.json is nested deeper than {_MOST_DEPTH} levels")
    for name, row in as_dict(dependencies).items():
        yield name, row
        if isinstance(row, dict):
            yield from _nested(row.get("dependencies"), depth + 1)
