"""Checks of a project's dependencies against the registry: known vulnerabilities and newer versions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from trunkline.errors import ToolError
from trunkline_servers.npm.project import DeclaredDependency, Project, check_package_name
from trunkline_servers.npm.registry import Advisory, CallRegistries, Packument, RegistryClient
from trunkline_servers.npm.semver import Range, Version, parse_range, parse_version

__all__ = ["AuditReport", "Outdated", "OutdatedReport", "Vulnerability", "audit", "outdated"]

_SEVERITIES = ("critical", "high", "moderate", "low", "info")
_BATCH = 500
_AT_ONCE = 8
_MOST_LOCKED = 20_000
_MOST_WANTED = 500
_MOST_VULNERABILITIES = 500

Severity = Literal["info", "low", "moderate", "high", "critical"]


class Vulnerability(Struct, frozen=True):
    """A known vulnerability of the project."""

    package: str
    versions: list[str]
    severity: str
    title: str
    url: str
    vulnerable_versions: str


class AuditReport(Struct, frozen=True):
    """The vulnerabilities, most severe first, and what was checked."""

    packages: int
    counts: dict[str, int]
    vulnerabilities: list[Vulnerability]
    #: The registries that were queried.
    registries: list[str]
    #: Scope to the reason why its packages were not checked.
    skipped: dict[str, str]
    cut: bool = False


class Outdated(Struct, frozen=True):
    """A dependency with a newer version."""

    package: str
    spec: str
    current: str | None
    wanted: str | None
    latest: str | None
    group: str


class OutdatedReport(Struct, frozen=True):
    """The dependencies with newer versions, and those that could not be checked."""

    outdated: list[Outdated]
    up_to_date: int
    #: Dependency to the reason why it was not checked.
    skipped: dict[str, str]
    #: The registries that were queried.
    registries: list[str]


async def audit(project: Project, chosen: CallRegistries, *, production: bool, level: Severity) -> AuditReport:
    """Query known vulnerabilities of everything in the lock file, each package at its own registry."""
    locked = await asyncio.to_thread(project.locked, production=production)
    if len(locked) > _MOST_LOCKED:
        raise ToolError(f"The lock file holds {len(locked)} packages; at most {_MOST_LOCKED} are checked")
    groups, skipped = _grouped(sorted(locked), chosen)
    found: list[Vulnerability] = []
    queried: dict[str, None] = {}
    for registry, names in groups.items():
        try:
            found += await _registry_vulnerabilities(registry, {name: locked[name] for name in names})
            queried[registry.url] = None
        except ToolError as error:
            # A failure for packages without a scope is a failure of the whole audit.
            if any(not name.startswith("@") for name in names) or len(groups) == 1:
                raise
            skipped |= {_scope(name): str(error) for name in names}
    kept = sorted(
        (each for each in found if _rank(each.severity) <= _rank(level)), key=lambda each: _rank(each.severity)
    )
    counts = {severity: sum(each.severity == severity for each in found) for severity in _SEVERITIES}
    return AuditReport(
        packages=sum(_scope(name) not in skipped for name in locked),
        counts=counts,
        vulnerabilities=kept[:_MOST_VULNERABILITIES],
        registries=list(queried),
        skipped=skipped,
        cut=len(kept) > _MOST_VULNERABILITIES,
    )


def _grouped(names: Sequence[str], chosen: CallRegistries) -> tuple[dict[RegistryClient, list[str]], dict[str, str]]:
    """Group packages by registry; also return the scopes whose registry cannot be used, with reasons."""
    by_scope: dict[str, list[str]] = {}
    for name in names:
        by_scope.setdefault(_scope(name), []).append(name)
    groups: dict[RegistryClient, list[str]] = {}
    skipped: dict[str, str] = {}
    for scope, those in by_scope.items():
        try:
            groups.setdefault(chosen.of(those[0]), []).extend(those)
        except ToolError as error:
            if not scope:
                raise
            skipped[scope] = str(error)
    return groups, skipped


async def _registry_vulnerabilities(
    registry: RegistryClient, locked: Mapping[str, Sequence[str]]
) -> list[Vulnerability]:
    """Query one registry for the vulnerabilities of its packages, in batches."""
    names = list(locked)
    found: list[Vulnerability] = []
    for start in range(0, len(names), _BATCH):
        batch = {name: locked[name] for name in names[start : start + _BATCH]}
        found += _vulnerabilities(batch, await registry.advisories(batch))
    return found


def _scope(name: str) -> str:
    return name.partition("/")[0] if name.startswith("@") else ""


def _vulnerabilities(
    locked_versions: Mapping[str, Sequence[str]], advisories: Mapping[str, Sequence[Advisory]]
) -> Iterator[Vulnerability]:
    """Yield what affects the locked versions; an invalid range counts as affecting all."""
    for name in locked_versions:
        for advisory in advisories.get(name, ()):
            affected = parse_range(advisory.vulnerable_versions)
            versions = [text for text in locked_versions[name] if _affects(affected, parse_version(text))]
            if versions:
                fields = (advisory.severity, advisory.title, advisory.url, advisory.vulnerable_versions[:500])
                yield Vulnerability(name, versions, *fields)


def _affects(affected: Range | None, version: Version | None) -> bool:
    if affected is None or version is None:
        return True
    # Range matching excludes most prereleases, but a vulnerability may affect them.
    return affected.matches(version) or affected.matches(Version(version.major, version.minor, version.patch))


def _rank(severity: str) -> int:
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else 0


# --- newer versions --------------------------------------------------------------------------------------------------


async def outdated(project: Project, chosen: CallRegistries) -> OutdatedReport:
    """Compare declared and locked versions with what the registries have."""
    wanted, installed = project.wanted(), await asyncio.to_thread(project.installed)
    if len(wanted) > _MOST_WANTED:
        raise ToolError(f"package.json asks for {len(wanted)} packages; at most {_MOST_WANTED} are checked")
    gate = asyncio.Semaphore(_AT_ONCE)
    queried: dict[str, None] = {}

    async def look(each: DeclaredDependency) -> Outdated | str | None:
        async with gate:
            return await _compare(each, installed.get(each.name), chosen, queried)

    results = await asyncio.gather(*(look(each) for each in wanted))
    behind = [each for each in results if isinstance(each, Outdated)]
    skipped = {each.name: reason for each, reason in zip(wanted, results, strict=True) if isinstance(reason, str)}
    return OutdatedReport(behind, len(wanted) - len(behind) - len(skipped), skipped, sorted(queried))


async def _compare(
    wanted: DeclaredDependency, current: str | None, chosen: CallRegistries, queried: dict[str, None]
) -> Outdated | str | None:
    """Return the newer version, None if up to date, or why it is unknown; record the registry in ``queried``."""
    name, spec = _source(wanted)
    if not spec or ":" in spec or "/" in spec:
        return "not from the registry"
    try:
        registry = chosen.of(check_package_name(name))
        queried[registry.url] = None
        packument = await registry.packument(name)
    except ToolError as error:
        return str(error)
    best = _best(packument, spec)
    if best is None:
        return f"no published version fits {spec[:100]!r}"
    latest = packument.tags.get("latest")
    if latest is None or (current in (None, best) and best == latest):
        return None
    ahead = parse_version(best), parse_version(latest)
    if current in (None, best) and ahead[0] and ahead[1] and ahead[0] >= ahead[1]:
        return None
    return Outdated(wanted.name, wanted.spec[:200], current, best, latest, wanted.group)


def _source(wanted: DeclaredDependency) -> tuple[str, str]:
    """Return the actual package and range of a dependency: an alias names both."""
    if not wanted.spec.startswith("npm:"):
        return wanted.name, wanted.spec.strip() or "*"
    name, at, spec = wanted.spec[4:].rpartition("@")
    return (name, spec) if at and name else (wanted.spec[4:], "*")


def _best(packument: Packument, spec: str) -> str | None:
    """Choose a version as npm does: the tag's, else latest if it matches, else the highest that is not deprecated."""
    if (tagged := packument.tags.get(spec)) is not None:
        return tagged
    fits = parse_range(spec)
    if fits is None:
        return None
    latest = parse_version(packument.tags.get("latest", ""))
    if latest is not None and latest in packument.versions and fits.matches(latest):
        return packument.versions[latest]
    fresh = fits.newest(version for version in packument.versions if version not in packument.deprecated)
    best = fresh or fits.newest(packument.versions)
    return None if best is None else packument.versions[best]
