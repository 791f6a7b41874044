"""Print the tables and write the JSON: who was measured, what each row cost, and how the bars were met.

Only arranges what it is given; nothing is measured or judged here.
"""

from __future__ import annotations

import json
import os
import platform
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.bars import GAINS, NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.bars import Bar, Verdict
    from benchmarks.measures import Row, Sample
    from benchmarks.subjects import Installed

    Samples = Mapping[tuple[Row, str], Mapping[int, Sample]]

__all__ = ["as_json", "as_text"]

TABLES = (
    ("shop", "rate", "shop: counted requests a second, with everything on the same cores"),
    ("shop", "cpu_us", "shop: CPU us of the server a counted request"),
    ("shop", "p50_ms", "shop: ms of a tool call, half of them"),
    ("shop", "p99_ms", "shop: ms of a tool call, 99 of 100"),
    ("shop", "server_cores", "shop: cores that the server kept busy"),
    ("shop", "backend_cores", "shop: cores that Redis and the API kept busy"),
    ("shop", "users_cores", "shop: cores that the users kept busy"),
    ("stdio", "cpu_us", "stdio server: CPU us a call"),
    ("stdio", "wall_us", "stdio server: wall us a call"),
    ("large", "cpu_us_mb", "large messages over stdio: CPU us a megabyte"),
    ("large", "wall_us", "large messages over stdio: wall us a call"),
    ("start", "start_ms", "stdio server: ms from spawn to first answer"),
    ("start", "start_cpu_ms", "stdio server: CPU ms up to the first answer"),
    ("start", "rss_mb", "stdio server: resident MB, idle"),
    ("client", "cpu_us", "client: CPU us a call (in memory: client and server together)"),
    ("client", "wall_us", "client: wall us a call"),
    ("http", "rate", "HTTP server: calls a second"),
    ("http", "cpu_us", "HTTP server: CPU us a call"),
    ("http auth", "rate", "HTTP server with and without auth=: calls a second"),
    ("http auth", "cpu_us", "HTTP server with and without auth=: CPU us a call"),
    ("http client", "cpu_us", "HTTP client: CPU us a call"),
    ("http client", "wall_us", "HTTP client: wall us a call"),
    ("http streams", "kb_stream", "HTTP server: resident kB an idle stream"),
    ("http streams", "heard_ms", "HTTP server: ms until every stream has heard of a change"),
    ("http streams", "opened_ms", "HTTP server: ms until every stream is open"),
    ("http events", "cpu_us", "HTTP server: CPU us a notification"),
    ("http events", "late", "HTTP server: first notification leaves after the 100th was made (1: yes)"),
    ("http events", "grown_mb", "HTTP server: MB grown while a reader stalls"),
    ("gateway", "added_ms", "gateway: ms added to one call at a time, medians"),
    ("gateway", "through_ms", "gateway: ms of one call at a time through it, median"),
    ("gateway", "rate", "gateway: calls a second"),
    ("gateway", "cpu_us", "gateway: CPU us a call"),
    ("growth", "cpu_us", "growth: CPU us a call, the cheapest stretch"),
    ("growth", "cpu_ms_tool", "growth: CPU ms a tool of the first list"),
    ("instructions", "kilo_instructions", "thousand instructions a call, by callgrind"),
    ("host", "all_ms", "host: ms until 20 servers are ready"),
    ("host", "of_slowest", "host: the same, of the slowest alone"),
    ("host", "of_sum", "host: the same, of all one after another"),
    ("host", "decide_us", "host: us a decision of the policy"),
    ("packages", "packages", "packages brought by a plain install"),
)


def as_text(
    installed: Sequence[Installed], samples: Samples, verdicts: Sequence[Verdict], *, failures: Sequence[str]
) -> str:
    """Give the whole report as plain text."""
    lines = [*_head(installed), ""]
    for section, figure, title in TABLES:
        names = [one.subject.name for one in installed if section in one.subject.sections]
        rows = sorted({row for row, _ in samples if row.section == section})
        if rows:
            lines += [f"{title} (median)", *_grid(_table(rows, names, samples, figure=figure)), ""]
    if verdicts:
        lines += ["the bars: median of the rounds' ratios (lowest to highest round)", *_grid(_bar_rows(verdicts)), ""]
        lines += [_tally(verdicts), ""]
    if failures:
        lines += ["what failed", *(f"  {failure}" for failure in failures), ""]
    return "\n".join(lines)


def as_json(
    installed: Sequence[Installed], samples: Samples, verdicts: Sequence[Verdict], *, failures: Sequence[str]
) -> str:
    """Give every sample, median and verdict as JSON."""
    document = {
        "machine": _machine(),
        "subjects": [
            {"name": one.subject.name, "version": one.version, "packages": one.packages, "problem": one.problem}
            for one in installed
        ],
        "rows": [_json_row(row, name, taken) for (row, name), taken in sorted(samples.items())],
        "bars": [_json_verdict(verdict) for verdict in verdicts],
        "failures": list(failures),
    }
    return json.dumps(document, indent=1) + "\n"


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def _head(installed: Sequence[Installed]) -> Iterator[str]:
    machine = _machine()
    yield f"Python {machine['python']}, {machine['system']}, {machine['cores']} cores, load {machine['load']:.1f}"
    for one in installed:
        yield f"  {one.subject.name:12} {one.problem or one.version}"


def _table(rows: Sequence[Row], names: Sequence[str], samples: Samples, *, figure: str) -> Iterator[list[str]]:
    yield ["", "revision", "in flight", *names]
    for row in rows:
        cells = (_cell(samples.get((row, name), {}), figure) for name in names)
        yield [row.work, row.revision, str(row.in_flight), *cells]


def _cell(taken: Mapping[int, Sample], figure: str) -> str:
    values = [sample.figures[figure] for sample in taken.values() if figure in sample.figures]
    if not values:
        return "-"
    middle = median(values)
    if middle >= 100 or middle == int(middle):
        return f"{middle:,.0f}"
    return f"{middle:.1f}" if middle >= 2 else f"{middle:.2f}"


def _bar_rows(verdicts: Sequence[Verdict]) -> Iterator[list[str]]:
    """Give a line for each bar, with a column for each of ours."""
    ours = list(dict.fromkeys(verdict.ours for verdict in verdicts))
    yield ["", "revision", "in flight", "figure", "against", "bar", *ours]
    lines: dict[Bar, dict[str, Verdict]] = {}
    for verdict in verdicts:
        lines.setdefault(verdict.bar, {})[verdict.ours] = verdict
    for bar, by_name in lines.items():
        against = bar.rival if bar.rival_row is None else f"{bar.rival}, {bar.rival_row.work}"
        in_flight = str(bar.row.in_flight or "all")
        what = (f"{bar.row.section}: {bar.row.work}", bar.row.revision, in_flight, bar.figure, against)
        yield [*what, _limit(bar), *(_outcome(by_name[name]) if name in by_name else "-" for name in ours)]


def _outcome(verdict: Verdict) -> str:
    if verdict.ratio is None:
        return verdict.mark
    shown = _plain if verdict.bar.rival == NOBODY else _times
    return f"{shown(verdict.ratio)} ({shown(min(verdict.ratios))} to {shown(max(verdict.ratios))}) {verdict.mark:5}"


def _limit(bar: Bar) -> str:
    if bar.rival == NOBODY:
        return "none" if bar.at_most is None else f"at most {bar.at_most:g}"
    if bar.at_least is not None:
        return f"at least {bar.at_least:g}x" if bar.figure in GAINS else f"{bar.at_least:g}x less"
    return "none" if bar.at_most is None else f"at most {bar.at_most:.3g}x"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 100 else f"{ratio:.3g}x"


def _plain(figure: float) -> str:
    return f"{figure:.3g}"


def _tally(verdicts: Sequence[Verdict]) -> str:
    marks = [verdict.mark for verdict in verdicts]
    return ", ".join(f"{marks.count(mark)} {mark}" for mark in ("pass", "MISS", "no data", "shown"))


def _grid(rows: Iterator[list[str]]) -> Iterator[str]:
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        first = row[0].ljust(widths[0])
        yield "  " + "  ".join([first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])


def _json_row(row: Row, name: str, taken: Mapping[int, Sample]) -> dict[str, Any]:
    rounds = [sample.figures for sample in taken.values()]
    return {
        "section": row.section,
        "work": row.work,
        "revision": row.revision,
        "in_flight": row.in_flight,
        "subject": name,
        "medians": {figure: median(figures[figure] for figures in rounds) for figure in rounds[0]},
        "rounds": rounds,
    }


def _json_verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "section": verdict.bar.row.section,
        "work": verdict.bar.row.work,
        "revision": verdict.bar.row.revision,
        "in_flight": verdict.bar.row.in_flight,
        "figure": verdict.bar.figure,
        "ours": verdict.ours,
        "against": verdict.rival,
        "ratio": verdict.ratio,
        "ratios": verdict.ratios,
        "bar": _limit(verdict.bar),
        "mark": verdict.mark,
    }
