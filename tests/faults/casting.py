"""Who takes part: servers of many kinds and both eras, chosen by a seed, as entries of a host.

Those with a URL are processes that the test starts itself; all others are started by the host. Every process carries a
mark in its environment by which it is found again, whoever its parent is by then.
"""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tests.faults.kinds import KINDS, Kind
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.protocol.revisions import REVISION_NAMES, find_revision

__all__ = ["MARK", "Part", "choose", "large_cast", "small_cast", "web_command"]

#: The variable that marks every process of a run.
MARK = "TRUNKLINE_FAULTS_RUN"

ROOT = Path(__file__).parents[2]
_LARGE = (
    *("honest",) * 6,
    *("packaged", "web", "killed") * 2,
    *("terminated", "stopped", "web-killed", "web-lying"),
)
_SMALL = ("honest", "honest", "packaged", "killed")
_STRICT = ServerSettings(health_seconds=1.0, timeout=3.0, total_timeout=6.0, start_timeout=5.0)
# So long that only a server that never answers is meant, on however busy a machine.
_PATIENT = ServerSettings(health_seconds=1.0, timeout=25.0, total_timeout=28.0, start_timeout=25.0)


class Part(Struct, frozen=True, kw_only=True):
    """One server that takes part."""

    name: str
    kind: Kind
    era: str
    entry: ServerEntry
    seed: str
    #: Where it listens, if the test itself starts it.
    port: int | None = None

    @property
    def tool(self) -> str:
        """The name of its tool at the gateway."""
        return f"{self.name}__echo"

    @property
    def honest(self) -> bool:
        """Whether all its calls are to be answered."""
        return self.kind.answers == "always"


def large_cast(chance: random.Random, count: int = 30) -> list[str]:
    """Choose the kinds of a large cast: some that must be there, and others of all kinds."""
    chosen = list(_LARGE)
    rest = sorted(set(KINDS) - set(_LARGE))
    return chosen + chance.sample(rest, count - len(chosen))


def small_cast(chance: random.Random, count: int = 6) -> list[str]:
    """Choose the kinds of a small cast."""
    rest = sorted(name for name, kind in KINDS.items() if kind.program != "web" and name not in _SMALL)
    return [*_SMALL, *chance.sample(rest, count - len(_SMALL))]


def choose(kinds: Iterable[str], chance: random.Random, *, ledger: Path, mark: str) -> list[Part]:
    """Give each server a name, an era and an entry; eras alternate, so that both are there."""
    counts: dict[str, int] = {}
    parts = []
    for number, name in enumerate(kinds):
        counts[name] = counts.get(name, -1) + 1
        era = ("handshake", "stateless")[(counts[name] + (number if counts[name] == 0 else 0)) % 2]
        parts.append(_part(KINDS[name], f"{name}-{counts[name]}", era, chance, ledger=ledger, mark=mark))
    return parts


def _part(kind: Kind, name: str, era: str, chance: random.Random, *, ledger: Path, mark: str) -> Part:
    seed = str(chance.random())
    spoken = [
        each for each in REVISION_NAMES if (found := find_revision(each)) and found.handshake == (era == "handshake")
    ]
    revision = chance.choice(spoken)
    told = chance.choice(("auto", "auto", revision))
    port = _free_port() if kind.program == "web" else None
    settings = replace(_PATIENT if kind.answers == "always" else _STRICT, era=told)
    entry = ServerEntry(name=name, source=Source("given"), settings=settings)
    if port is not None:
        entry = replace(entry, url=f"http://127.0.0.1:{port}/mcp")
    else:
        command = _command(kind, (name, era, revision, str(ledger), seed))
        entry = replace(entry, command=command, env=_environment(mark))
    return Part(name=name, kind=kind, era=era, entry=entry, seed=seed, port=port)


def _command(kind: Kind, words: tuple[str, str, str, str, str]) -> tuple[str, ...]:
    name, era, _, ledger, seed = words
    if kind.program == "packaged":
        return (sys.executable, "-m", "tests.faults.programs.packaged", name, era, ledger, seed)
    return (sys.executable, "-S", "-m", "tests.faults.programs.faulty", kind.fault, *words)


def _environment(mark: str) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), MARK: mark}


def web_command(part: Part, ledger: Path, mark: str) -> tuple[list[str], dict[str, str]]:
    """Give the command and the environment of a server that the test starts itself."""
    words = [part.name, part.era, str(ledger), part.seed, str(part.port), str(part.kind.lies)]
    command = [sys.executable, "-m", "tests.faults.programs.packaged", *words]
    return command, {**os.environ, **_environment(mark)}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
