"""Run the bench: install the subjects, take them through alternating rounds, print and write the report."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.bars import judge
from benchmarks.driver import ServerFailed
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
from benchmarks.subjects import HERE, SUBJECTS, Installed, install

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECTIONS = ("stdio", "large", "start", "client", "packages")
STARTS_A_ROUND = 3
QUICK = Budget(settle=0.8, warm=0.1, spend=0.15, echoes=6, results=1)


class Bench:
    """The subjects that can run, the samples taken so far and what failed."""

    def __init__(self, installed: Sequence[Installed], budget: Budget) -> None:
        self.ready = [one for one in installed if one.problem is None]
        self.budget = budget
        self.samples: dict[tuple[Row, str], dict[int, Sample]] = defaultdict(dict)
        self.failures: dict[str, None] = {}

    def round(self, section: str, number: int) -> None:
        """Take every subject once through a section, in an order that turns with each round."""
        turn = number % len(self.ready) if self.ready else 0
        for subject in self.ready[turn:] + self.ready[:turn]:
            revisions = () if section == "client" and subject.subject.client is None else subject.subject.revisions
            for revision in revisions:
                _say(f"round {number + 1}, {section}, {subject.subject.name}, {revision}")
                self._collect(number, subject, self._measure(section, subject, revision))

    def packages(self) -> None:
        """Count packages; once is enough."""
        for subject in self.ready:
            self._collect(0, subject, measure_packages(subject))

    def _measure(self, section: str, subject: Installed, revision: str) -> Iterator[Sample]:
        match section:
            case "stdio":
                yield from measure_stdio(subject, revision, self.budget)
            case "large":
                yield from measure_large(subject, revision, self.budget)
            case "start":
                yield from measure_start(subject, revision, self.budget)
            case _:
                yield from measure_client(subject, revision, self.budget, targets=self._targets())

    def _targets(self) -> dict[str, list[str]]:
        """Give the servers that every client talks to over stdio."""
        commands = {one.subject.name: one.server_command() for one in self.ready}
        return {f"stdio to {name}": commands[name] for name in ("mcp", "floor") if name in commands}

    def _collect(self, number: int, subject: Installed, taken: Iterator[Sample]) -> None:
        try:
            for sample in taken:
                self.samples[sample.row, subject.subject.name][number] = sample
        except ServerFailed as failure:
            self.failures[f"{subject.subject.name}: {failure}"] = None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="measure this section; may be repeated")
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
    sections = options.only or SECTIONS
    rounds = options.rounds or (1 if options.quick else 5)
    installed: list[Installed] = []
    for subject in (subject for subject in SUBJECTS if subject.name in wanted):
        _say(f"installing {subject.name}")
        installed.append(install(subject))
    bench = Bench(installed, QUICK if options.quick else Budget())
    for section in (section for section in SECTIONS if section in sections and section != "packages"):
        for number in range(rounds * (STARTS_A_ROUND if section == "start" else 1)):
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
