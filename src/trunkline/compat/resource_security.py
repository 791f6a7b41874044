"""Which values of a resource template's variables are refused, as both frameworks word it.

A value that climbs out of a folder, is an absolute path or contains a NUL reads as "not found" for the caller, so that
a probe learns nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trunkline.compat.exceptions import NotFoundError

__all__ = [
    "DEFAULT_RESOURCE_SECURITY",
    "INHERIT_SECURITY",
    "PathEscapeError",
    "ResourceSecurity",
    "ResourceSecurityError",
    "contains_path_traversal",
    "is_absolute_path",
    "policy_of",
    "safe_join",
]

_SEPARATORS = re.compile(r"[/\\]")
_DRIVE = re.compile(r"[A-Za-z]:")


class PathEscapeError(ValueError):
    """A path would leave its folder."""


class ResourceSecurityError(NotFoundError):
    """The value of a variable was refused; ``param`` is its name."""

    def __init__(self, template: str = "", param: str = "", *rest: object) -> None:
        """Keep the template and the name of the variable."""
        super().__init__(f"{template}: the value of {param!r} is refused" if param else template, *rest)
        self.template = template
        self.param = param


def contains_path_traversal(value: str) -> bool:
    """Return whether a relative path climbs above its start; ``..`` inside of a name is a name."""
    depth = 0
    for segment in _SEPARATORS.split(value):
        if segment == "..":
            depth -= 1
        elif segment not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False


def is_absolute_path(value: str) -> bool:
    """Return whether a path, joined to a folder, would replace it, on any system."""
    return value.startswith(("/", "\\")) or _DRIVE.match(value) is not None


def safe_join(base: str | Path, *parts: str) -> Path:
    """Return a path below a folder.

    Raises:
        PathEscapeError: it would be outside of the folder, symbolic links included.
    """
    root = Path(base).resolve()
    for part in parts:
        if "\0" in part or is_absolute_path(part):
            raise PathEscapeError(f"{part!r} is not a relative path")
    found = root.joinpath(*parts).resolve()
    if not found.is_relative_to(root):
        raise PathEscapeError(f"{'/'.join(parts)!r} is outside of {root}")
    return found


@dataclass(frozen=True)
class ResourceSecurity:
    """Which values are refused, and the variables that are not looked at."""

    reject_path_traversal: bool = True
    reject_absolute_paths: bool = True
    reject_null_bytes: bool = True
    exempt_params: Iterable[str] = field(default_factory=frozenset)

    def validate(self, params: Mapping[str, Any]) -> str | None:
        """Return the first variable whose value is refused, or None."""
        exempt = {name for each in self.exempt_params for name in (each, each.replace("-", "_"))}
        for name, value in params.items():
            if name in exempt:
                continue
            values = value if isinstance(value, list | tuple) else (value,)
            if any(isinstance(each, str) and self._is_refused(each) for each in values):
                return name
        return None

    def _is_refused(self, value: str) -> bool:
        if self.reject_null_bytes and "\0" in value:
            return True
        # What a NUL hides from the comparison of segments is looked at without it.
        plain = value.replace("\0", "")
        if self.reject_path_traversal and contains_path_traversal(plain):
            return True
        return self.reject_absolute_paths and is_absolute_path(plain)


DEFAULT_RESOURCE_SECURITY = ResourceSecurity()


class _Inherit:
    """Stands for the policy of the server."""

    def __repr__(self) -> str:
        return "INHERIT_SECURITY"

    def __copy__(self) -> _Inherit:
        return self

    def __deepcopy__(self, memo: Any) -> _Inherit:
        return self


INHERIT_SECURITY: Any = _Inherit()


def policy_of(own: Any, default: ResourceSecurity | None) -> ResourceSecurity | None:
    """Return the policy of a template: its own, or the server's."""
    return default if own is INHERIT_SECURITY else own
