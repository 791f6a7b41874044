"""Run the bench: install the subjects, take them through alternating rounds, print and write the report."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.bars import judge
from benchmarks.driver import ServerFailed
from benchmarks.gateway_measures import measure_gateway, measure_host
from benchmarks.growth import measure_growth
from benchmarks.http_measures import measure_auth, measure_events, measure_http, measure_http_client, measure_streams
from benchmarks.instructions import can_count, measure_instructions
from benchmarks.measures import (
    Budget,
    Row,
    Sample,
    measure_client,
    measure_large,
    measure_packages,
    measure_start,
    measure_stdio,
)
from benchmarks.report import as_json, as_text
from benchmarks.shop import measure_shop
from benchmarks.subjects import GROWTH, HERE, HOST, HTTP, INSTRUCTIONS, SHOP, STDIO, SUBJECTS, Installed, install

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECTIONS = (SHOP, *STDIO, GROWTH, *HTTP, *HOST, INSTRUCTIONS)
STARTS_A_ROUND = 3
# The servers that all gateways stand before.
BEHIND = ("ours uv", "ours http")
QUICK = Budget(
    settle=0.8,
    warm=0.1,
    spend=0.15,
    echoes=6,
    results=1,
    load=0.5,
    streams=500,
    hold=2.0,
    notifications=2_000,
    stall=1.0,
    shop_warm=2.0,
    shop=2.0,
)


class Bench:
    """The subjects that can run, the samples taken so far and what failed."""

    def __init__(self, installed: Sequence[Installed], budget: Budget, helpers: Sequence[Installed] = ()) -> None:
        self.helpers = [*installed, *helpers]
        self.ready = [one for one in installed if one.problem is None]
        self.budget = budget
        self.samples: dict[tuple[Row, str], dict[int, Sample]] = defaultdict(dict)
        self.failures: dict[str, None] = {}

    def round(self, section: str, number: int) -> None:
        """Take every subject once through a section, in an order that turns with each round."""
        ready = [one for one in self.ready if _takes_part(one, section)]
        turn = number % len(ready) if ready else 0
        for subject in ready[turn:] + ready[:turn]:
            for revision in subject.subject.revisions:
                _say(f"round {number + 1}, {section}, {subject.subject.name}, {revision}")
                self._collect(number, subject, self._measure(section, subject, revision))

    def packages(self) -> None:
        """Count packages; once is enough."""
        for subject in (one for one in self.ready if _takes_part(one, "packages")):
            self._collect(0, subject, measure_packages(subject))

    def _measure(self, section: str, subject: Installed, revision: str) -> Iterator[Sample]:
        match section:
            case "stdio":
                yield from measure_stdio(subject, revision, self.budget)
            case "large":
                yield from measure_large(subject, revision, self.budget)
            case "start":
                yield from measure_start(subject, revision, self.budget)
            case "client":
                yield from measure_client(subject, revision, self.budget, targets=self._targets())
            case "http":
                yield from measure_http(subject, revision, self.budget)
            case "http auth":
                yield from measure_auth(subject, revision, self.budget)
            case "http client":
                yield from measure_http_client(subject, revision, self.budget, floor=self._floor())
            case "http streams":
                yield from measure_streams(subject, revision, self.budget)
            case "http events":
                yield from measure_events(subject, revision, self.budget)
            case "gateway":
                stdio, http = self._named("ours uv"), self._named("ours http")
                yield from measure_gateway(subject, revision, self.budget, stdio=stdio, http=http)
            case "growth":
                yield from measure_growth(subject, revision)
            case "shop":
                yield from measure_shop(subject, revision, self.budget)
            case "instructions":
                yield from measure_instructions(subject, revision)
            case _:
                yield from measure_host(subject)

    def _targets(self) -> dict[str, list[str]]:
        """Give the servers that every client talks to over stdio."""
        commands = {one.subject.name: one.server_command() for one in self.ready}
        return {f"stdio to {name}": commands[name] for name in ("mcp", "floor") if name in commands}

    def _named(self, name: str) -> Installed:
        """Give a subject that others are measured with, whether or not it is measured itself."""
        for one in self.helpers:
            if one.subject.name == name and one.problem is None:
                return one
        raise ServerFailed(f"{name} is not there to stand behind the others")

    def _floor(self) -> Installed:
        """Give the server that every client talks to over HTTP."""
        for one in self.ready:
            if one.subject.name == "asgi":
                return one
        raise ServerFailed("the bare app to talk to is not among the subjects")

    def _collect(self, number: int, subject: Installed, taken: Iterator[Sample]) -> None:
        try:
            for sample in taken:
                self.samples[sample.row, subject.subject.name][number] = sample
        except ServerFailed as failure:
            self.failures[f"{subject.subject.name}: {failure}"] = None


def _takes_part(one: Installed, section: str) -> bool:
    calls = section in ("client", "http client")
    return section in one.subject.sections and not (calls and one.subject.client is None)


def _rounds(section: str, wanted: int) -> int:
    """Say how often a section is measured: starts are short and vary, idle streams are long and do not."""
    once = {"http streams": 1, INSTRUCTIONS: 1 if can_count() else 0}
    return {"start": wanted * STARTS_A_ROUND, "host": min(wanted, 2), SHOP: min(wanted, 3), **once}.get(section, wanted)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    parser.add_argument(
        "--only",
        choices=SECTIONS,
        action="append",
        help="measure this section, http with all its parts; may be repeated",
    )
    parser.add_argument("--alone", action="store_true", help="with --only http: that section alone")
    parser.add_argument("--rounds", type=int, help="alternating rounds (5; with --quick 1)")
    parser.add_argument("--subjects", help="comma-separated names of the subjects to measure")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    """Run the bench and give the exit status: 0 when the report was written, whatever the bars say."""
    if sys.platform != "linux":
        _say("the bench reads processor time and memory as Linux shows them; it does not run elsewhere")
        return 1
    options = _arguments()
    wanted = options.subjects.split(",") if options.subjects else [subject.name for subject in SUBJECTS]
    only = options.only or SECTIONS
    with_parts = HTTP if "http" in only and not options.alone else ()
    sections = [section for section in SECTIONS if section in only or section in with_parts]
    rounds = options.rounds or (1 if options.quick else 5)
    installed: list[Installed] = []
    needed = (subject for subject in SUBJECTS if set(subject.sections) & set(sections))
    for subject in (subject for subject in needed if subject.name in wanted):
        _say(f"installing {subject.name}")
        installed.append(install(subject))
    known = {one.subject.name for one in installed}
    behind = [each for each in SUBJECTS if "gateway" in sections and each.name in BEHIND and each.name not in known]
    bench = Bench(installed, QUICK if options.quick else Budget(), [install(subject) for subject in behind])
    for section in (section for section in sections if section != "packages"):
        for number in range(_rounds(section, rounds)):
            bench.round(section, number)
    if "packages" in sections:
        bench.packages()
    verdicts = judge(bench.samples, [one.subject for one in installed], sections)
    failures = list(bench.failures)
    (HERE / "results.json").write_text(as_json(installed, bench.samples, verdicts, failures=failures), encoding="utf-8")
    sys.stdout.write(as_text(installed, bench.samples, verdicts, failures=failures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
