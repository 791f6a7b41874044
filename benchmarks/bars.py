"""The bars: which figure of ours is held against which figure of whom, and the ratio it must reach.

Data and arithmetic only. A ratio is made within each round, where both sides ran minutes apart at most, and the
median over the rounds is judged: what the neighbours of the machine do then falls on both sides.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.gateway_measures import ADDED, CARRIED, DECISION, DIRECT, START
from benchmarks.growth import FIRST_LIST, ONE_TOOL, SIZES, THREE_MOUNTS, row_name
from benchmarks.http_measures import CLIENT_ROWS, CONNECTIONS, PROGRESS, STREAMS
from benchmarks.instructions import HTTP_CALL, STDIO_CALL
from benchmarks.measures import Row
from benchmarks.shop import COUNTED, USERS
from benchmarks.shop_load import REVISION
from benchmarks.work import ADD, ADD_SYNC, BLOB_1M, BLOB_32M, ECHO_1M

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.measures import Sample
    from benchmarks.subjects import Subject

    Samples = Mapping[tuple[Row, str], Mapping[int, Sample]]

__all__ = ["BARS", "GAINS", "NOBODY", "Bar", "Verdict", "judge"]

REVISIONS = ("2025-11-25", "2026-07-28")
SAME_LOOP = "floor of the same loop"
OURSELVES = "ours"
OPEN = "ours http"
NOBODY = "nobody"
# Figures of which more is better; all others are costs.
GAINS = frozenset({"rate"})


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: our figure in `row` against the rival's in `rival_row`, or in the same row.

    `at_least` bars a gain (of costs rival divided by ours, of rates ours divided by rival), `at_most` a cost (ours
    divided by the rival's); neither means the ratio is shown and not judged. Against nobody the figure itself is
    judged. A row whose `in_flight` is 0 stands for any number.
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
    yield Bar(Row("stdio", ADD_SYNC.name, revision, 1), "cpu_us", OURSELVES, at_most=1.4, rival_row=one)


def _http_bars() -> Iterator[Bar]:
    for revision, of_floor in (("2026-07-28", 0.55), ("2025-11-25", 0.5)):
        for work in (ADD, ADD_SYNC):
            row = Row("http", work.name, revision, CONNECTIONS)
            yield Bar(row, "rate", "mcp http", at_least=6.0)
            yield Bar(row, "rate", "fastmcp http", at_least=20.0 if revision == "2026-07-28" else None)
            yield Bar(row, "cpu_us", "mcp http")
        row = Row("http", ADD.name, revision, CONNECTIONS)
        yield Bar(row, "rate", "asgi", at_least=of_floor)
        yield Bar(row, "cpu_us", "asgi")
    for revision in REVISIONS:
        row = Row("http auth", ADD.name, revision, CONNECTIONS)
        yield Bar(row, "rate", OPEN, at_least=0.8)
        yield Bar(row, "cpu_us", OPEN)
        for name in CLIENT_ROWS.values():
            for in_flight in (1, CONNECTIONS):
                yield Bar(Row("http client", name, revision, in_flight), "cpu_us", "mcp http", at_least=4.0)
                yield Bar(Row("http client", name, revision, in_flight), "cpu_us", "fastmcp http")
        row = Row("http streams", STREAMS, revision, 0)
        yield Bar(row, "kb_stream", "asgi", at_most=1.5)
        for figure in ("lost", "missed", "doubled"):
            yield Bar(row, figure, NOBODY, at_most=0.0)
        row = Row("http events", PROGRESS, revision)
        yield Bar(row, "cpu_us", "mcp http", at_least=10.0)
        yield Bar(row, "cpu_us", "fastmcp http")
        yield Bar(row, "late", NOBODY, at_most=0.0)
        yield Bar(row, "missing", NOBODY, at_most=0.0)
        yield Bar(row, "grown_mb", NOBODY, at_most=16.0)


def _host_bars() -> Iterator[Bar]:
    for revision in REVISIONS:
        for upstream, most in (("stdio", 1.0), ("http", 1.5)):
            one = Row("gateway", ADDED(upstream), revision)
            yield Bar(one, "added_ms", NOBODY, at_most=most)
            for rival in ("bare proxy", "fastmcp proxy", "mcp-proxy"):
                yield Bar(one, "added_ms", rival)
            yield Bar(one, "cpu_us", "bare proxy", at_most=1.6)
            many = Row("gateway", CARRIED(upstream), revision, CONNECTIONS)
            direct = Row("gateway", DIRECT, revision, CONNECTIONS)
            yield Bar(many, "rate", "mcp http", at_least=1.0, rival_row=direct)
            for rival in ("bare proxy", "fastmcp proxy", "mcp-proxy"):
                yield Bar(many, "rate", rival)
    yield Bar(Row("host", START), "of_slowest", NOBODY, at_most=3.0)
    yield Bar(Row("host", START), "of_sum", NOBODY)
    yield Bar(Row("host", f"{DECISION}, over 20 servers, 500 rules"), "decide_us", NOBODY, at_most=20.0)
    yield Bar(Row("host", f"{DECISION}, of one server, 500 rules"), "decide_us", NOBODY, at_most=20.0)


def _shop_bars() -> Iterator[Bar]:
    """Hold the shop to no error; what it costs beside the others is shown."""
    row = Row("shop", COUNTED, REVISION, USERS)
    for rival in ("mcp shop", "fastmcp shop", "node shop", "bare shop", "our shop"):
        yield Bar(row, "cpu_us", rival)
        yield Bar(row, "rate", rival)
    yield Bar(row, "errors", NOBODY, at_most=0.0)


def _growth_bars() -> Iterator[Bar]:
    """Hold a call to the same cost in any server: flat means within a tenth of the smallest one."""
    for revision in REVISIONS:
        one = Row("growth", ONE_TOOL, revision, 64)
        for name in (*map(row_name, SIZES[1:]), THREE_MOUNTS):
            yield Bar(Row("growth", name, revision, 64), "cpu_us", OURSELVES, at_most=1.1, rival_row=one)
        yield Bar(Row("growth", FIRST_LIST, revision), "cpu_ms_tool", NOBODY, at_most=0.08)


def _instruction_bars() -> Iterator[Bar]:
    for revision in REVISIONS:
        yield Bar(Row("instructions", HTTP_CALL, revision), "kilo_instructions", "asgi", at_most=1.5)
        yield Bar(Row("instructions", HTTP_CALL, revision), "kilo_instructions", "mcp http")
        # From Python 3.12 on requests start eagerly; the floor creates its tasks as everyone does.
        most = 2.4 if sys.version_info < (3, 12) else 2.0
        yield Bar(Row("instructions", STDIO_CALL, revision, 64), "kilo_instructions", SAME_LOOP, at_most=most)


BARS = (*_shop_bars(), *_bars(), *_growth_bars(), *_http_bars(), *_host_bars(), *_instruction_bars())


def judge(samples: Samples, subjects: Sequence[Subject], sections: Sequence[str]) -> list[Verdict]:
    """Apply every bar of the measured sections to each of ours that takes part in them."""
    by_name = {subject.name: subject for subject in subjects}
    verdicts: list[Verdict] = []
    for bar in (bar for bar in BARS if bar.row.section in sections):
        for ours in (subject for subject in subjects if subject.ours and bar.row.section in subject.sections):
            rival = {SAME_LOOP: ours.floor, OURSELVES: ours.name, NOBODY: ours.name}.get(bar.rival, bar.rival)
            if rival is not None and _applies(bar, ours, by_name.get(rival)):
                verdicts.append(Verdict(bar, ours.name, rival, _ratios(samples, bar, ours=ours.name, rival=rival)))
    return verdicts


def _applies(bar: Bar, ours: Subject, rival: Subject | None) -> bool:
    if bar.row.section == "packages" and not ours.plain_install:
        return False
    if bar.rival == ours.name != OURSELVES:
        return False
    return not bar.row.revision or (rival is not None and bar.row.revision in rival.revisions)


def _ratios(samples: Samples, bar: Bar, *, ours: str, rival: str) -> tuple[float, ...]:
    mine = _taken(samples, bar.row, ours)
    if bar.rival == NOBODY:
        return tuple(sample.figures[bar.figure] for sample in mine.values())
    theirs = _taken(samples, bar.rival_row or bar.row, rival)
    both = sorted(mine.keys() & theirs.keys())
    shares = [mine[at].figures[bar.figure] / theirs[at].figures[bar.figure] for at in both]
    return tuple(shares) if bar.at_most is not None or bar.figure in GAINS else tuple(1 / share for share in shares)


def _taken(samples: Samples, row: Row, name: str) -> Mapping[int, Sample]:
    """Give the samples of a row, or of the one that has its place when the row stands for any number in flight."""
    if row.in_flight:
        return samples.get((row, name), {})
    same = (row.section, row.work, row.revision)
    found = (
        taken for (at, who), taken in samples.items() if who == name and (at.section, at.work, at.revision) == same
    )
    return next(found, {})
