"""Published servers, unedited, with their own framework and with ours: ``python -m compat.tests.servers [NAME ...]``.

Each is installed from the package index into an environment of its own below ``.compat/servers``. It starts once with
the framework it was written for and once under ``trunkline run --compat``; what it offers and answers is compared, and
what both cost is measured: processor time of a call, time from the start to the answer to ``initialize``, peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from compat.tests.catalog import SERVERS, WITH_US_ONLY, PublicServer
from compat.tests.comparison import Difference, Snapshot, compare, literally_different, take_snapshot
from compat.tests.connections import Connection, ConnectionLost, HttpConnection, ServerProcess, StdioConnection
from compat.tests.environments import COMPAT, environment_folder, install

__all__ = ["BARS", "Cost", "Report", "Summary", "main", "summarize"]

#: The bars: equal servers, and the medians of theirs / ours.
BARS: Mapping[str, float] = {"equal": 38, "cpu": 4.0, "cold start": 2.0}
COLD_STARTS = 3
_WARM_UP = 20
#: Variables of this process that a server may see; the rest is the server's own.
_INHERITED = ("PATH", "LANG", "SSL_CERT_FILE", "TZ")


@dataclass
class Cost:
    """What one side costs."""

    cpu_ms_per_call: float | None = None
    cold_start_ms: float | None = None
    start_cpu_ms: float | None = None
    peak_memory_mb: float | None = None


@dataclass
class Report:
    """The outcome of one server."""

    name: str
    generation: str
    #: equal, differs, fails (with us), unusable (not installed, or neither side starts), only ours.
    verdict: str
    differences: list[Difference] = field(default_factory=list)
    note: str = ""
    measured: str = ""
    theirs: Cost = field(default_factory=Cost)
    ours: Cost = field(default_factory=Cost)

    def ratio(self, figure: str) -> float | None:
        """Return theirs divided by ours: above 1 ours costs less."""
        theirs, ours = getattr(self.theirs, figure), getattr(self.ours, figure)
        return theirs / ours if theirs and ours else None


@dataclass
class Summary:
    """The figures over all servers, and which bars they reach."""

    compared: int
    equal: int
    cpu: float | None
    cold_start: float | None
    start_cpu: float | None
    memory: float | None

    def reached(self) -> dict[str, bool]:
        """Return for each bar whether it is reached."""
        return {
            "equal": self.equal >= BARS["equal"],
            "cpu": self.cpu is not None and self.cpu >= BARS["cpu"],
            "cold start": self.cold_start is not None and self.cold_start >= BARS["cold start"],
        }


def summarize(reports: Iterable[Report]) -> Summary:
    """Return the figures over the servers that their own framework starts."""
    compared = [report for report in reports if report.verdict in ("equal", "differs", "fails")]

    def middle(figure: str) -> float | None:
        ratios = [ratio for report in compared if (ratio := report.ratio(figure)) is not None]
        return median(ratios) if ratios else None

    return Summary(
        len(compared),
        sum(report.verdict == "equal" for report in compared),
        middle("cpu_ms_per_call"),
        middle("cold_start_ms"),
        middle("start_cpu_ms"),
        middle("peak_memory_mb"),
    )


# --- one run of one server --------------------------------------------------------------------------------------------


class Run:
    """A way to start a server: with its own framework, or with ours."""

    def __init__(self, server: PublicServer, *, ours: bool) -> None:
        self._server = server
        self._ours = ours
        self._work = COMPAT / "work" / server.name
        self._port = 0

    def _fill(self, value: Any) -> Any:
        """Return a value of the catalog with its placeholders filled in."""
        if isinstance(value, str):
            return value.replace("{work}", str(self._work)).replace("{port}", str(self._port))
        if isinstance(value, Mapping):
            return {key: self._fill(member) for key, member in value.items()}
        return [self._fill(member) for member in value] if isinstance(value, Sequence) else value

    def _prepare_folder(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        for name, text in self._server.files.items():
            (self._work / name).write_text(text, encoding="utf-8")
        for command in self._server.prepare:
            subprocess.run(command, cwd=self._work, env=self._environment(), check=True, capture_output=True)

    def _environment(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        # A home outside the working folder: caches and settings of a server are not its subject.
        home = COMPAT / "home" / self._server.name
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        # Some servers list the members of a set.
        return {**inherited, "HOME": str(home), "PYTHONHASHSEED": "0", **self._fill(self._server.env)}

    def start(self) -> tuple[Connection, Cost]:
        """Start the server and open a session; return it and what that cost.

        Raises:
            ConnectionLost: the server does not start.
        """
        server = self._server
        self._prepare_folder()
        if server.http is not None:
            self._port = _free_port()
        bin_folder = environment_folder(server.name) / "bin"
        command = (
            [str(bin_folder / "trunkline"), "run", "--compat", "--", server.command]
            if self._ours
            else [str(bin_folder / server.command)]
        )
        process = ServerProcess(
            [*command, *self._fill(server.args)], self._environment(), self._work, over_stdio=server.http is None
        )
        connection: Connection
        try:
            if server.http is None:
                connection = StdioConnection(process)
            else:
                url = f"http://127.0.0.1:{self._port}{server.http.path}"
                connection = HttpConnection(process, url, server.http.token)
                connection.wait_until_listening()
            connection.initialize()
            elapsed = time.perf_counter() - process.started_at
            return connection, Cost(cold_start_ms=elapsed * 1000, start_cpu_ms=process.cpu_seconds() * 1000)
        except BaseException:
            process.close()
            raise

    def cold_start(self) -> Cost:
        """Start the server, stop it, and return what the start cost."""
        connection, cost = self.start()
        connection.close()
        return cost

    def snapshot(self, connection: Connection) -> Snapshot:
        """Return what the server offers and answers."""
        server = self._server
        call = None if server.call is None else (server.call[0], self._fill(server.call[1]))
        snapshot = take_snapshot(connection, call, self._fill(server.reads), self._fill(server.prompts))
        if not isinstance(connection, HttpConnection):
            return snapshot
        request = {"jsonrpc": "2.0", "id": "x", "method": "ping"}
        responses = [connection.post(request, token) for token in (None, "wrong")]
        return snapshot._replace(
            auth=[(response.status, response.headers.get("www-authenticate", "")) for response in responses]
        )

    def hot_request(self) -> tuple[str, dict[str, Any]]:
        """Return method and parameters of the request that the speed is measured with."""
        if self._server.hot_method is not None or self._server.call is None:
            return self._server.hot_method or "tools/list", {}
        name, arguments = self._server.call
        return "tools/call", {"name": name, "arguments": self._fill(arguments)}

    def measure(self, connection: Connection, cost: Cost, calls: int) -> None:
        """Send the same request many times and note what it cost the server."""
        method, params = self.hot_request()
        for _ in range(_WARM_UP if calls else 0):
            connection.request(method, params)
        before = connection.process.cpu_seconds()
        for _ in range(calls):
            connection.request(method, params)
        if calls:
            cost.cpu_ms_per_call = (connection.process.cpu_seconds() - before) / calls * 1000
        cost.peak_memory_mb = connection.process.peak_memory() / 1024


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _run_side(run: Run, calls: int) -> tuple[Snapshot, Cost]:
    connection, cost = run.start()
    try:
        snapshot = run.snapshot(connection)
        run.measure(connection, cost, calls)
    finally:
        connection.close()
    return snapshot, cost


def _best_start(cost: Cost, starts: Sequence[Cost]) -> None:
    for figure in ("cold_start_ms", "start_cpu_ms"):
        setattr(cost, figure, min(getattr(start, figure) for start in (cost, *starts)))


def measure_server(server: PublicServer, calls: int) -> Report:
    """Install a server, run both sides, compare and measure."""
    report = Report(server.name, server.generation, "unusable")
    problem = install(server.name, server.requirements)
    if problem is not None:
        report.note = f"not installed: {problem}"
        return report
    with_framework, with_ours = Run(server, ours=False), Run(server, ours=True)
    method, params = with_ours.hot_request()
    report.measured = str(params.get("name", method))
    their_problem, their_side = _attempt(lambda: _run_side(with_framework, calls))
    our_problem, our_side = _attempt(lambda: _run_side(with_ours, calls))
    if their_side is not None:
        report.theirs = their_side[1]
    if our_side is not None:
        report.ours = our_side[1]
    if their_side is None:
        report.verdict = "unusable" if our_side is None else "only ours"
        report.note = f"with its framework: {their_problem}" + (f"; with us: {our_problem}" if our_problem else "")
    elif our_side is None:
        report.verdict, report.note = "fails", str(our_problem)
    else:
        report.differences = compare(their_side[0], our_side[0], server.volatile)
        report.verdict = "differs" if report.differences else "equal"
        written_otherwise = literally_different(their_side[0], our_side[0])
        report.note = f"{len(their_side[0].tools)} tools" + (
            f", {len(written_otherwise)} schemas written otherwise" if written_otherwise else ""
        )
        if calls:
            # In turn, so that a busy moment of the machine falls on both.
            starts = [(with_framework.cold_start(), with_ours.cold_start()) for _ in range(COLD_STARTS - 1)]
            _best_start(report.theirs, [theirs for theirs, _ in starts])
            _best_start(report.ours, [ours for _, ours in starts])
    return report


def _attempt(run: Callable[[], tuple[Snapshot, Cost]]) -> tuple[str | None, tuple[Snapshot, Cost] | None]:
    try:
        return None, run()
    except (ConnectionLost, RuntimeError, OSError) as error:
        return str(error)[:600], None


# --- the table --------------------------------------------------------------------------------------------------------


def format_row(report: Report) -> str:
    """Return the line of a server."""
    cells = [f"{report.verdict:9}", f"{report.name:38}", f"{report.generation:26}"]
    for figure in ("cpu_ms_per_call", "cold_start_ms", "peak_memory_mb"):
        theirs, ours, ratio = getattr(report.theirs, figure), getattr(report.ours, figure), report.ratio(figure)
        values = f"{_number(theirs):>7} {_number(ours):>7}"
        cells.append(f"{values} {'' if ratio is None else f'{ratio:.1f}x':>6}")
    return " ".join([*cells, f" {report.measured:24} {_last_line(report.note)}"]).rstrip()


def _last_line(note: str) -> str:
    """Return the part of a note that says most: of a traceback, its last line."""
    return note.rpartition(" / ")[2][:160]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def format_table(reports: Sequence[Report]) -> str:
    """Return the table of all servers, what differs, and the bars."""
    head = f"{'verdict':9} {'server':38} {'written for':26}"
    head += "".join(f" {title:^22}" for title in ("CPU ms a call", "cold start ms", "peak memory MB"))
    lines = [f"{head}  measured with", *(format_row(report) for report in reports if report.verdict != "only ours")]
    only_ours = [report for report in reports if report.verdict == "only ours"]
    if only_ours:
        lines += ["", "run with us only (their own framework no longer starts them):"]
        lines += [f"  {report.name:38} {report.generation:26} {_last_line(report.note)}" for report in only_ours]
    differing = [report for report in reports if report.differences or report.verdict == "fails"]
    if differing:
        lines += ["", "what differs:"]
    for report in differing:
        lines += [f"  {report.name}: {difference.part}: {difference.text}" for difference in report.differences]
        if report.verdict == "fails":
            lines.append(f"  {report.name}: does not run: {_last_line(report.note)}")
    return "\n".join([*lines, "", *_bar_lines(summarize(reports))])


def _bar_lines(summary: Summary) -> list[str]:
    def median_text(value: float | None) -> str:
        return "not measured" if value is None else f"{value:.1f}x, median"

    reached = {bar: "reached" if is_reached else "missed" for bar, is_reached in summary.reached().items()}
    return [
        f"{summary.equal} of {summary.compared} start and answer equally; bar: {BARS['equal']:g}: {reached['equal']}",
        f"less CPU a call: {median_text(summary.cpu)}; bar: {BARS['cpu']:g}x: {reached['cpu']}",
        f"shorter cold start: {median_text(summary.cold_start)}; bar: {BARS['cold start']:g}x: {reached['cold start']}",
        f"less CPU until initialize is answered: {median_text(summary.start_cpu)}",
        f"less peak memory: {median_text(summary.memory)}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the servers and print the table; return 1 if too few of all servers are equal."""
    parser = argparse.ArgumentParser(prog="python -m compat.tests.servers", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these servers")
    parser.add_argument("--calls", type=int, default=300, help="how many calls are measured; 0: compare only")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    servers = [server for server in (*SERVERS, *WITH_US_ONLY) if not options.names or server.name in options.names]
    unknown = set(options.names) - {server.name for server in servers}
    if unknown:
        parser.error(f"no such server: {', '.join(sorted(unknown))}")
    # Ended from outside, this program ends the server it has started too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    reports = []
    for server in servers:
        report = measure_server(server, options.calls)
        reports.append(report)
        sys.stdout.write(f"{format_row(report)}\n")
        sys.stdout.flush()
    sys.stdout.write(f"\n{format_table(reports)}\n")
    summary = summarize(reports)
    if options.json is not None:
        content = {"servers": [asdict(report) for report in reports], "summary": asdict(summary), "bars": dict(BARS)}
        options.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    # A part of the servers is a look at them, not the measure: it fails where one of them differs.
    enough = summary.equal == summary.compared if options.names else summary.reached()["equal"]
    return 0 if enough else 1


if __name__ == "__main__":
    raise SystemExit(main())
