"""Runs the fault test for one seed: a small round to warm up, the round that counts, and a host that is killed.

It writes a line for each phase and a table at the end; what was found not to hold is listed, and makes it fail.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from tests.faults.casting import Part, choose, large_cast, small_cast
from tests.faults.claims import Claims, Errors, Tally
from tests.faults.measures import Measure, measure, settled
from tests.faults.scenes import Stage, play, play_killed

__all__ = ["LARGE", "SMALL", "Size", "run"]

Tell = Callable[[str], None]
# A run takes a minute; what takes this long hangs.
_LONGEST = 400.0


class Size(Struct, frozen=True, kw_only=True):
    """How large a run is."""

    cast: Callable[[random.Random], list[str]]
    warm_seconds: float
    seconds: float
    clients: int


LARGE = Size(cast=large_cast, warm_seconds=5.0, seconds=20.0, clients=6)
SMALL = Size(cast=small_cast, warm_seconds=1.0, seconds=2.0, clients=2)


def run(seed: int, size: Size, tell: Tell, *, verbose: bool = False) -> list[str]:
    """Run one seed; give what does not hold. ``verbose`` tells also why calls failed and servers are not ready."""
    claims = Claims()
    errors = Errors(claims)
    log = logging.getLogger("trunkline")
    log.addHandler(errors)
    try:
        with tempfile.TemporaryDirectory(prefix="trunkline-faults-", ignore_cleanup_errors=True) as folder:
            work = _run(seed, size, Path(folder), claims=claims, tell=tell, verbose=verbose)
            asyncio.run(asyncio.wait_for(work, _LONGEST))
    except TimeoutError:
        claims.hold(False, f"the run was not over after {_LONGEST:g} s")
    finally:
        log.removeHandler(errors)
    return claims.broken


async def _run(seed: int, size: Size, folder: Path, *, claims: Claims, tell: Tell, verbose: bool) -> None:
    asyncio.get_running_loop().set_exception_handler(claims.watch_loop)
    mark = uuid.uuid4().hex
    ledger = folder / "ledger"
    ledger.touch()
    chance = random.Random(seed)
    parts = choose(size.cast(chance), chance, ledger=ledger, mark=mark)
    tell(f"seed {seed}: {len(parts)} servers: {_listed(parts)}")
    tally = Tally()

    def stage(name: str, tally: Tally) -> Stage:
        return Stage(
            parts=parts,
            folder=folder / name,
            ledger=ledger,
            mark=mark,
            seed=f"{seed} {name}",
            claims=claims,
            tally=tally,
            tell=lambda line: tell(f"  {name:8} {line}"),
            clients=size.clients,
            verbose=verbose,
        )

    began = time.monotonic()
    await play(stage("warm-up", Tally()), size.warm_seconds, warming=True)
    before = measure()
    await play(stage("faults", tally), size.seconds)
    after = await settled(before)
    _compare(before, after, claims)
    _check_ledger(ledger, claims)
    await play_killed(
        folder / "killed", mark=f"{mark}-killed", seed=str(seed), claims=claims, tell=lambda line: tell(f"  {line}")
    )
    _table(tally, tell, verbose=verbose)
    _measures(before, after, tell)
    tell(f"  {time.monotonic() - began:.0f} s in all")


def _listed(parts: Sequence[Part]) -> str:
    counts = Counter(part.kind.name for part in parts)
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())


def _compare(before: Measure, after: Measure, claims: Claims) -> None:
    claims.hold(
        after.descriptors == before.descriptors,
        f"descriptors: {before.descriptors} before, {after.descriptors} after: more {after.kinds - before.kinds}, "
        f"fewer {before.kinds - after.kinds}",
    )
    claims.hold(
        after.tasks == before.tasks,
        f"tasks: {before.tasks} before, {after.tasks} after: {after.names - before.names}",
    )
    claims.hold(
        after.megabytes <= 1.1 * before.megabytes,
        f"memory: {before.megabytes:.1f} MB before, {after.megabytes:.1f} MB after",
    )


def _check_ledger(ledger: Path, claims: Claims) -> None:
    """See that no call was executed twice, by whichever server."""
    calls = Counter(line.partition(" ")[2] for line in ledger.read_text().splitlines())
    twice = [call for call, count in calls.items() if count > 1]
    claims.hold(not twice, f"executed more than once: {twice[:10]}")
    claims.hold(calls, "nothing was executed at all")


def _table(tally: Tally, tell: Tell, *, verbose: bool) -> None:
    tell(f"  {'server':18}{'calls':>8}{'answered':>10}{'failed':>8}{'given up':>10}{'slowest':>9}")
    for kind, row in sorted(tally.rows.items()):
        failed = row.failures.total()
        tell(f"  {kind:18}{row.calls:8}{row.answered:10}{failed:8}{row.withdrawn:10}{row.slowest:8.1f} s")
        for reason, count in row.failures.most_common(5) if verbose else ():
            tell(f"      {count:6} {reason}")
    tell(f"  restarts {tally.restarts}")


def _measures(before: Measure, after: Measure, tell: Tell) -> None:
    for name, was, is_now in (
        ("descriptors", before.descriptors, after.descriptors),
        ("tasks", before.tasks, after.tasks),
        ("threads", before.threads, after.threads),
        ("memory (MB)", round(before.megabytes, 1), round(after.megabytes, 1)),
    ):
        tell(f"  {name:18}{was:>8} before {is_now:>8} after")
