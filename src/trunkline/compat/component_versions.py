"""Versions of components, as FastMCP has them: their order, specifications of them, and the newest of several.

A version that PEP 440 can read is compared by its numbers, any other as text; a component without a version comes
before all that have one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, total_ordering
from typing import Any

__all__ = [
    "CALLED_VERSION",
    "VersionKey",
    "VersionSpec",
    "calling",
    "check_version",
    "compare_versions",
    "dedupe_with_versions",
    "is_version_greater",
    "max_version",
    "min_version",
    "newest",
    "parse_version_key",
    "requested_version",
    "version_sort_key",
]

_PEP_440 = re.compile(
    r"""\s*v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)
    (?:[-_.]?(?P<stage>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<stage_number>\d*))?
    (?:-(?P<implicit_post>\d+)|(?P<post>[-_.]?(?:post|rev|r)[-_.]?(?P<post_number>\d*)))?
    (?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d*))?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_STAGES = (("a", 0), ("alpha", 0), ("b", 1), ("beta", 1))
_UNVERSIONED, _NUMBERED, _TEXT = range(3)


@lru_cache(maxsize=1024)
def _parsed(version: str | None) -> tuple[Any, ...]:
    if version is None:
        return (_UNVERSIONED,)
    found = _PEP_440.match(version)
    if found is None:
        return (_TEXT, version.removeprefix("v"))
    release = tuple(int(part) for part in found["release"].split("."))
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    post = found["post"] is not None or found["implicit_post"] is not None
    post_number = int(found["implicit_post"] or found["post_number"] or 0)
    dev = found["dev"] is not None
    if found["stage"] is not None:
        stage = (dict(_STAGES).get(found["stage"].lower(), 2), int(found["stage_number"] or 0))
    else:
        # A development release of a final one comes before its alphas; a final one after its candidates.
        stage = (-1, 0) if dev and not post else (3, 0)
    return (
        _NUMBERED,
        int(found["epoch"] or 0),
        release,
        stage,
        post_number if post else -1,
        (0, int(found["dev_number"] or 0)) if dev else (1, 0),
        found["local"] or "",
    )


@total_ordering
class VersionKey:
    """A version that can be compared with others."""

    __slots__ = ("_key", "_version")

    def __init__(self, version: str | None) -> None:
        """Parse a version; None is lower than any."""
        self._version = version
        self._key = _parsed(version)

    def __eq__(self, other: object) -> bool:
        """Compare by meaning: ``1`` and ``1.0`` are the same."""
        return isinstance(other, VersionKey) and self._key == other._key

    def __lt__(self, other: object) -> bool:
        """Compare by meaning."""
        return self._key < other._key if isinstance(other, VersionKey) else NotImplemented

    def __hash__(self) -> int:
        """Hash what is compared."""
        return hash(self._key)

    def __repr__(self) -> str:
        """Show the version."""
        return f"VersionKey({self._version!r})"


@dataclass(frozen=True)
class VersionSpec:
    """Which versions are wanted: an exact one, or a range."""

    gte: str | None = None
    lt: str | None = None
    eq: str | None = None

    def matches(self, version: str | None, *, match_none: bool = True) -> bool:
        """Return whether a version is wanted; ``match_none`` decides about components without one."""
        if version is None:
            return match_none
        key = VersionKey(version)
        if self.eq is not None:
            return key == VersionKey(self.eq)
        return (self.gte is None or key >= VersionKey(self.gte)) and (self.lt is None or key < VersionKey(self.lt))

    def intersect(self, other: VersionSpec | None) -> VersionSpec:
        """Return what both want; an exact version outside of the other's range matches nothing."""
        if other is None:
            return self
        exact = self.eq if self.eq is not None else other.eq
        if exact is not None:
            if self.matches(exact) and other.matches(exact):
                return VersionSpec(eq=exact)
            # An empty range: nothing is at least as new as a version and older than it.
            return VersionSpec(gte=exact, lt=exact)
        lower = [each for each in (self.gte, other.gte) if each is not None]
        upper = [each for each in (self.lt, other.lt) if each is not None]
        return VersionSpec(
            gte=max(lower, key=VersionKey) if lower else None, lt=min(upper, key=VersionKey) if upper else None
        )


def parse_version_key(version: str | None) -> VersionKey:
    """Return a version that can be compared."""
    return VersionKey(version)


def version_sort_key(component: Any) -> tuple[VersionKey, str]:
    """Return what components are ordered by; two spellings of one version are ordered by their text."""
    return VersionKey(component.version), component.version or ""


def compare_versions(a: str | None, b: str | None) -> int:
    """Return -1, 0 or 1."""
    first, second = VersionKey(a), VersionKey(b)
    return (first > second) - (first < second)


def is_version_greater(a: str | None, b: str | None) -> bool:
    """Return whether the first version is the newer one."""
    return compare_versions(a, b) > 0


def max_version(a: str | None, b: str | None) -> str | None:
    """Return the newer of two versions."""
    return a if compare_versions(a, b) >= 0 else b


def min_version(a: str | None, b: str | None) -> str | None:
    """Return the older of two versions."""
    return a if compare_versions(a, b) <= 0 else b


def newest(components: Sequence[Any], wanted: VersionSpec | None = None) -> Any:
    """Return the newest component that is wanted, or None."""
    found = [each for each in components if wanted is None or wanted.matches(each.version)]
    return max(found, key=version_sort_key) if found else None


def dedupe_with_versions(components: Sequence[Any], key_fn: Callable[[Any], str]) -> list[Any]:
    """Return the newest of the components that share a key; its ``_meta`` lists all versions, newest first."""
    groups: dict[str, list[Any]] = {}
    for each in components:
        groups.setdefault(key_fn(each), []).append(each)
    result = []
    for group in groups.values():
        best = max(group, key=version_sort_key)
        versions = [each.version for each in sorted(group, key=version_sort_key, reverse=True) if each.version]
        if versions:
            meta = dict(best.meta or {})
            meta["fastmcp"] = {**(meta.get("fastmcp") or {}), "versions": list(dict.fromkeys(versions))}
            best = best.model_copy(update={"meta": meta})
        result.append(best)
    return result


def check_version(version: Any) -> str | None:
    """Return a version as text.

    Raises:
        TypeError: it is neither text nor a number.
    """
    if version is None or isinstance(version, str):
        return version
    if isinstance(version, bool) or not isinstance(version, int | float):
        raise TypeError(f"Version must be a string, int, or float, got {type(version).__name__}")
    return str(version)


#: The version that the call in progress asks for.
CALLED_VERSION: ContextVar[Any] = ContextVar("trunkline.compat.called_version", default=None)


@contextmanager
def calling(version: VersionSpec | None) -> Iterator[None]:
    """Keep the version that a call asks for, for middleware that decides about the component."""
    token = CALLED_VERSION.set(version)
    try:
        yield
    finally:
        CALLED_VERSION.reset(token)


def requested_version(meta: Any) -> VersionSpec | None:
    """Return the version that the ``_meta`` of a request asks for, or None."""
    own = meta.get("fastmcp") if isinstance(meta, dict) else None
    version = own.get("version") if isinstance(own, dict) else None
    return VersionSpec(eq=str(version)) if version else None
