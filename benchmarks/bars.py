"""The bars: which figure of ours is held against which figure of whom, and the ratio it must reach.

Data and arithmetic only. A ratio is made within each round, where both sides ran minutes apart at most, and the
median over the rounds is judged: what the neighbours of the machine do then falls on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.measures import Row
from benchmarks.work import ADD, ADD_SYNC, BLOB_1M, BLOB_32M, ECHO_1M

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.measures import Sample
    from benchmarks.subjects import Subject

    Samples = Mapping[tuple[Row, str], Mapping[int, Sample]]

__all__ = ["BARS", "Bar", "Verdict", "judge"]

REVISIONS = ("2025-11-25", "2026-07-28")
SAME_LOOP = "floor of the same loop"
OURSELVES = "ours"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: our figure in `row` against the rival's in `rival_row`, or in the same row.

    `at_least` bars a gain (rival divided by ours), `at_most` a cost (ours divided by the rival's); neither means the
    ratio is shown and not judged.
    """

    row: Row
    figure: str
    rival: str
    at_least: float | None = None
    at_most: float | None = None
    rival_row: Row | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bar applied to one of ours: the ratios of the rounds, and whether their median reaches the bar."""

    bar: Bar
    ours: str
    rival: str
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float | None:
        """The median ratio, or none when a side has no figures."""
        return median(self.ratios) if self.ratios else None

    @property
    def mark(self) -> str:
        """One word: pass, miss, shown, or no data."""
        if self.ratio is None:
            return "no data"
        if self.bar.at_least is not None:
            return "pass" if self.ratio >= self.bar.at_least else "MISS"
        if self.bar.at_most is not None:
            return "pass" if self.ratio <= self.bar.at_most else "MISS"
        return "shown"


def _bars() -> Iterator[Bar]:
    for revision in REVISIONS:
        yield from _stdio_bars(revision)
        for target, gain in (("memory", 8.0), ("stdio to mcp", 3.0), ("stdio to floor", None)):
            for in_flight in (1, 64):
                yield Bar(Row("client", target, revision, in_flight), "cpu_us", "mcp", at_least=gain)
                yield Bar(Row("client", target, revision, in_flight), "cpu_us", "fastmcp")
        start = Row("start", "to first answer", revision)
        yield Bar(start, "start_ms", "mcp", at_least=6.0)
        yield Bar(start, "start_ms", SAME_LOOP, at_most=1.35)
        yield Bar(start, "rss_mb", "mcp", at_most=0.4)
        yield Bar(start, "rss_mb", SAME_LOOP, at_most=1.25)
        small, large = Row("large", BLOB_1M.name, revision), Row("large", BLOB_32M.name, revision)
        yield Bar(large, "cpu_us_mb", OURSELVES, at_most=1.3, rival_row=small)
        yield Bar(Row("large", ECHO_1M.name, revision), "cpu_us", "mcp", at_most=1.0)
        yield Bar(small, "cpu_us", "mcp", at_most=1.0)
        yield Bar(large, "cpu_us", "mcp")
    yield Bar(Row("packages", "plain install"), "packages", "mcp", at_most=1 / 3)


def _stdio_bars(revision: str) -> Iterator[Bar]:
    for work, gain in ((ADD, 14.0), (ADD_SYNC, 8.0)):
        one, many = Row("stdio", work.name, revision, 1), Row("stdio", work.name, revision, 64)
        yield Bar(many, "cpu_us", "mcp", at_least=50.0)
        yield Bar(many, "cpu_us", "fastmcp", at_least=70.0)
        yield Bar(many, "cpu_us", "ts 1", at_least=3.0)
        yield Bar(many, "cpu_us", "ts 2")
        yield Bar(one, "cpu_us", "mcp", at_least=gain)
        yield Bar(one, "cpu_us", "fastmcp")
        yield Bar(one, "cpu_us", "ts 1")
        yield Bar(one, "cpu_us", "ts 2")
    one, many = Row("stdio", ADD.name, revision, 1), Row("stdio", ADD.name, revision, 64)
    yield Bar(many, "cpu_us", SAME_LOOP, at_most=2.5)
    yield Bar(one, "cpu_us", SAME_LOOP, at_most=1.8)
    sync = Row("stdio", ADD_SYNC.name, revision, 64)
    yield Bar(sync, "cpu_us", OURSELVES, at_most=2.0, rival_row=many)


BARS = tuple(_bars())


def judge(samples: Samples, subjects: Sequence[Subject], sections: Sequence[str]) -> list[Verdict]:
    """Apply every bar of the measured sections to each of ours."""
    revisions = {subject.name: subject.revisions for subject in subjects}
    verdicts: list[Verdict] = []
    for bar in BARS:
        for ours in (subject for subject in subjects if subject.ours):
            rival = {SAME_LOOP: ours.floor, OURSELVES: ours.name}.get(bar.rival, bar.rival)
            applies = not bar.row.revision or bar.row.revision in revisions.get(rival or "", ())
            applies = applies and (ours.plain_install or bar.row.section != "packages")
            if bar.row.section in sections and rival is not None and applies:
                verdicts.append(Verdict(bar, ours.name, rival, _ratios(samples, bar, ours=ours.name, rival=rival)))
    return verdicts


def _ratios(samples: Samples, bar: Bar, *, ours: str, rival: str) -> tuple[float, ...]:
    mine = samples.get((bar.row, ours), {})
    theirs = samples.get((bar.rival_row or bar.row, rival), {})
    both = sorted(mine.keys() & theirs.keys())
    costs = [mine[at].figures[bar.figure] / theirs[at].figures[bar.figure] for at in both]
    return tuple(costs) if bar.at_most is not None else tuple(1 / cost for cost in costs)
