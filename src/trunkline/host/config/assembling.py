"""Decides which entries of several documents are active: an entry replaces another as a whole, they are never merged.

Names are compared case-insensitively. An entry that the managed file denies is inactive too, and no other takes its
place. Inputs are prompted for only if the entry that needs them is active. Reads no file but those an entry names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from trunkline.host.config.building import Built, build, is_disabled
from trunkline.host.config.collecting import Ground
from trunkline.host.config.documents import Document
from trunkline.host.config.positions import Member
from trunkline.host.config.records import Configuration, Hidden, LoadedFile, Problem
from trunkline.host.config.rules import Rules
from trunkline.host.config.spelling import quoted
from trunkline.host.entries import Scope, ServerEntry, Source

__all__ = ["Placed", "assemble"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RESERVED = frozenset({"trunkline"})


class Placed(Struct, frozen=True, kw_only=True):
    """A document with its scope and the sources of its variables."""

    document: Document
    scope: Scope
    ground: Ground


def assemble(
    placed: Sequence[Placed], *, files: Iterable[LoadedFile] = (), problems: Iterable[Problem] = ()
) -> Configuration:
    """Build a configuration from documents; entries of an earlier document override those of a later one."""
    assembly = _Assembly(next((each for each in placed if each.scope == "managed"), None))
    for each in placed:
        assembly.add(each)
    entries = {name: built.entry for name, built in assembly.holding.items()}
    documents = (warning for each in placed for warning in each.document.warnings)
    warnings = (warning for built in assembly.holding.values() for warning in built.warnings)
    return Configuration(
        entries=MappingProxyType(entries),
        hidden=tuple(assembly.hidden),
        problems=(*problems, *documents, *warnings, *_same_endpoints(entries)),
        files=tuple(files),
        rules=assembly.rules,
        written=MappingProxyType({name: built.provenance for name, built in assembly.holding.items()}),
    )


class _Candidate(Struct, frozen=True):
    """An entry that may become active: its JSON value and its source."""

    member: Member
    placed: Placed
    #: The problem with its name, if any.
    problem: Problem | None

    @property
    def source(self) -> Source:
        return Source(self.placed.scope, self.placed.document.file, self.member.line or None)

    def build(self, *, ask: bool) -> Built:
        ground = self.placed.ground
        if not ask or is_disabled(self.member.value):
            ground = replace(ground, around=replace(ground.around, ask=None))
        return build(self.member.name, self.member.value, source=self.source, ground=ground, problem=self.problem)


class _Assembly:
    """The active and inactive entries so far."""

    def __init__(self, managed: Placed | None) -> None:
        self.rules = Rules() if managed is None else managed.document.rules
        self._managed_file = None if managed is None else managed.document.file
        self._holders: dict[str, _Candidate] = {}
        self.holding: dict[str, Built] = {}
        self.hidden: list[Hidden] = []

    def add(self, placed: Placed) -> None:
        """Add the entries of a document; those whose names are taken by earlier documents become inactive."""
        for candidate in _candidates(placed):
            folded = candidate.member.name.casefold()
            holder = self._holders.setdefault(folded, candidate)
            if holder.placed is not placed:
                by = holder.source
                why = f"hidden by {by} ({by.scope})"
                self.hidden.append(Hidden(entry=candidate.build(ask=False).entry, why=why, by=by))
            else:
                self._take(candidate)

    def _take(self, candidate: _Candidate) -> None:
        exempt = candidate.placed.scope == "managed"
        built = candidate.build(ask=exempt or not self.rules.exclusive)
        # An entry with a problem cannot run anyway, and its problem is worth showing.
        judged = not exempt and (built.entry.problem is None or self.rules.exclusive)
        refusal = self.rules.refusal(built.entry) if judged else None
        if refusal is None:
            self.holding[candidate.member.name] = built
        else:
            by = Source("managed", self._managed_file, refusal.line)
            self.hidden.append(Hidden(entry=built.entry, why=refusal.why, by=by))


def _candidates(placed: Placed) -> list[_Candidate]:
    seen: dict[str, Member] = {}
    found = []
    for member in placed.document.servers:
        problem = _name_problem(member, seen, file=placed.document.file)
        seen.setdefault(member.name.casefold(), member)
        found.append(_Candidate(member, placed, problem))
    return found


# --- names and endpoints ---------------------------------------------------------------------------------------------


def _name_problem(member: Member, seen: Mapping[str, Member], *, file: str | None) -> Problem | None:
    name = member.name
    twin = seen.get(name.casefold())
    if not _NAME.fullmatch(name) or ".." in name:
        message = f"the name {quoted(name)} may contain only letters, digits, '.', '_' and '-' (64 at most, no '..')"
    elif name.casefold() in _RESERVED:
        message = f"the name {quoted(name)} is reserved"
    elif twin is not None:
        message = f"the name differs only in case from {quoted(twin.name)} on line {twin.line}"
    else:
        return None
    fix = f'rename it, for example to "{_suggested(name, seen)}"'
    return Problem(message=message, fix=fix, file=file, line=member.line or None, server=quoted(name)[1:-1])


def _suggested(name: str, taken: Mapping[str, Member]) -> str:
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", name.strip())
    word = re.sub(r"\.{2,}", ".", word).strip("-.")[:50] or "server"
    if word.casefold() in _RESERVED or word.casefold() in taken:
        word = f"{word}-{len(taken) + 1}"
    return word


def _same_endpoints(entries: Mapping[str, ServerEntry]) -> list[Problem]:
    """Return a warning for each server that is configured under two names."""
    first: dict[object, ServerEntry] = {}
    found = []
    for entry in entries.values():
        if entry.problem is not None or entry.disabled:
            continue
        key = (entry.command, entry.cwd, entry.url, frozenset(entry.env.items()), frozenset(entry.headers.items()))
        other = first.setdefault(key, entry)
        if other is not entry:
            message = f"it is the same server as {other.name!r} ({other.source}): everything it offers is listed twice"
            at = entry.source
            found.append(Problem(message=message, severity="warning", file=at.file, line=at.line, server=entry.name))
    return found
