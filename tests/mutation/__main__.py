"""Draw mutations, run the tests that reach them, and print which are noticed.

``--before FILE`` compares: a mutation that was killed when FILE was written must be killed again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutation import reach
from tests.mutation.draw import Mutation, draw, layer_of
from tests.mutation.run import Copy, Outcome, choose, make_copy, try_mutation

_ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the command."""
    options = _options().parse_args()
    mutations = draw(_ROOT, seed=options.seed, count=options.count)
    before = json.loads(options.before.read_text()) if options.before else {}
    work = options.work or Path(tempfile.mkdtemp(prefix="mutation-"))
    print(f"{len(mutations)} mutations, seed {options.seed}; copies in {work}", flush=True)  # noqa: T201
    tried = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    costs = _reached(mutations, work, options)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    copies: SimpleQueue[Copy] = SimpleQueue()
    for index in range(options.jobs):
        copies.put(make_copy(_ROOT, work / f"copy-{index}", tests_at=options.tests_at))

    def try_one(index: int) -> Outcome:
        mutation = mutations[index]
        name = mutation.describe((_ROOT / mutation.path).read_bytes())
        if before and not before[name]["killed"]:
            return Outcome(mutation, False, "not killed before either", 0)
        if name in tried:
            return Outcome(mutation, tried[name]["killed"], tried[name]["by"], 0)
        tests = choose(
            costs.reached[index], costs.seconds, near=layer_of(mutation.path).rpartition("/")[2], budget=options.budget
        )
        copy = copies.get()
        try:
            outcome = try_mutation(copy, mutation, tests, seconds=4 * options.budget + 60, environment=environment)
        finally:
            copies.put(copy)
        verdict = f"killed by {outcome.by}" if outcome.killed else f"SURVIVED {outcome.by}"
        print(f"{index:3} {name}\n      {verdict} ({outcome.tests} tests)", flush=True)  # noqa: T201
        tried[name] = {"killed": outcome.killed, "by": outcome.by}
        if options.out:
            options.out.write_text(json.dumps(tried, indent=1))
        return outcome

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(try_one, range(len(mutations))))
    return _report(outcomes, before)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="copies of the tree that are tried at once"
    )
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests for one mutation")
    parser.add_argument("--tests-at", help="take the tests of this git revision instead of those of the work tree")
    parser.add_argument(
        "--costs", type=Path, help="folder with the records of an instrumented run; made if it is empty"
    )
    parser.add_argument("--only-reach", action="store_true", help="stop after the instrumented run")
    parser.add_argument("--before", type=Path, help="outcomes to compare with")
    parser.add_argument("--out", type=Path, help="file of the outcomes: what it has is not tried again")
    parser.add_argument("--work", type=Path, help="folder for the copies of the tree")
    return parser


def _reached(mutations: list[Mutation], work: Path, options: argparse.Namespace) -> reach.TestCosts:
    """Run all tests once on an instrumented copy, unless its records are there."""
    folder = (options.costs or work / "costs").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        copy = make_copy(_ROOT, work / "instrumented", tests_at=options.tests_at)
        reach.instrument(copy.root, mutations)
        code = copy.pytest(
            "-n", str(1 + (os.cpu_count() or 1)), "--dist", "worksteal", "-p", "tests.mutation.reach", "--timeout=180",
            "--ignore=tests/interop", "--ignore=tests/browser", "--ignore=tests/architecture",
            seconds=3600, environment={**os.environ, reach.FOLDER: str(folder)},
        )  # fmt: skip
        print(f"the instrumented run ended with {code}: {copy.root / 'pytest.log'}", flush=True)  # noqa: T201
    if options.only_reach:
        sys.exit(0)
    return reach.read(folder)


def _report(outcomes: list[Outcome], before: dict[str, dict[str, object]]) -> int:
    """Print the table by layer; fail if a mutation that was killed before survives."""
    layers: dict[str, list[int]] = {}
    named = {o.mutation.describe((_ROOT / o.mutation.path).read_bytes()): o for o in outcomes}
    for outcome in outcomes:
        row = layers.setdefault(layer_of(outcome.mutation.path), [0, 0])
        row[0] += outcome.killed
        row[1] += 1
    print("\nlayer                          killed of")  # noqa: T201
    for layer, (killed, drawn) in sorted(layers.items()):
        print(f"{layer:30} {killed:6} {drawn:2}")  # noqa: T201
    print(f"{'all':30} {sum(o.killed for o in outcomes):6} {len(outcomes)}")  # noqa: T201
    lost = [name for name, outcome in named.items() if before.get(name, {}).get("killed") and not outcome.killed]
    for name in lost:
        print(f"LOST: {name}: killed before by {before[name]['by']}")  # noqa: T201
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
