"""Run the simulation: ``python -m tests.simulation --runs 1000 --seed 0``; replay one with ``--runs 1 --trace``."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from tests.simulation.broken import BROKEN
from tests.simulation.run import simulate

#: How many seeds are printed in full; the rest are counted.
_SHOWN = 10
#: Runs between two collections of garbage, which a run itself does not need; also the runs of one process at a time.
_GROUP = 50


class _Group(NamedTuple):
    """The outcome of some runs in a row."""

    runs: int
    steps: int
    #: Of each run that failed: its seed, and what did not hold.
    failed: list[tuple[int, str]]
    used: float


def _run(seeds: range, *, variant: str | None, tracing: bool, stop: bool) -> _Group:
    gc.disable()
    used, steps, done = time.process_time(), 0, 0
    failed: list[tuple[int, str]] = []
    for seed in seeds:
        outcome = simulate(seed, variant=variant, tracing=tracing)
        done, steps = done + 1, steps + outcome.steps
        if tracing:
            _say(*outcome.trace)
        if outcome.violations:
            failed.append((seed, outcome.violations[0]))
            if stop:
                break
    gc.collect()
    return _Group(done, steps, failed, time.process_time() - used)


def _groups(arguments: argparse.Namespace) -> Iterator[_Group]:
    end = arguments.seed + arguments.runs
    parts = [range(start, min(start + _GROUP, end)) for start in range(arguments.seed, end, _GROUP)]
    run = partial(_run, variant=arguments.broken, tracing=arguments.trace, stop=arguments.stop)
    if arguments.jobs == 1 or arguments.trace or len(parts) == 1:
        yield from map(run, parts)
        return
    with ProcessPoolExecutor(arguments.jobs) as pool:
        try:
            yield from pool.map(run, parts)
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> int:
    """Run the seeds; return 1 if an invariant did not hold in one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, metavar="N", help="how many runs (1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the seed of the first run (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (all processors)")
    parser.add_argument("--trace", action="store_true", help="print what happens in each run")
    parser.add_argument("--broken", choices=sorted(BROKEN), metavar="NAME", help="break the code in one way")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    arguments = parser.parse_args()
    began, used, failed, steps, done = time.perf_counter(), 0.0, 0, 0, 0
    for group in _groups(arguments):
        done, steps, used = done + group.runs, steps + group.steps, used + group.used
        _say(*(f"seed {seed}: {violation}" for seed, violation in group.failed[: max(0, _SHOWN - failed)]))
        failed += len(group.failed)
        if failed and arguments.stop:
            break
    seconds = time.perf_counter() - began
    _say(
        f"{done} runs in {seconds:.1f} s: {done / seconds * 60:.0f} a minute "
        f"({done / used * 60:.0f} a minute of processor time), {steps // done} steps each; {failed} failed"
    )
    if failed and not arguments.trace:
        option = f" --broken {arguments.broken}" if arguments.broken else ""
        _say(f"replay one: python -m tests.simulation --runs 1 --trace{option} --seed SEED")
    return 1 if failed else 0


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
