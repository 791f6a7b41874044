"""Which tests reach which mutation, and what each test costs: one run of all tests on an instrumented copy.

`instrument` puts a call before each statement that a mutation changes. It notes the place and the test that is running,
in processes that a test starts as well: they inherit ``PYTEST_CURRENT_TEST``. Loaded as a pytest plug-in (``-p
tests.mutation.reach``), this module writes the processor time of each test, its processes included.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.mutation.draw import Mutation

FOLDER = "MUTATION_REACH"
"""The environment variable with the folder that the records are written to."""

_PROBE = '''"""Notes which test reaches which place: present only in an instrumented copy."""

import os

_SEEN = set()


def reach(index):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    folder = os.environ.get("MUTATION_REACH")
    if test and folder and (index, test) not in _SEEN:
        _SEEN.add((index, test))
        with open(f"{folder}/reach-{os.getpid()}", "a") as file:
            file.write(f"{index} {test}\\n")
'''


@dataclass
class TestCosts:
    """What the instrumented run found: seconds of each test, and the tests that reach each mutation."""

    __test__ = False

    seconds: dict[str, float] = field(default_factory=dict)
    """Processor seconds of a test and its processes, or the time it waited for them if that was longer."""
    reached: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))


def instrument(root: Path, mutations: Sequence[Mutation]) -> None:
    """Put a probe before each mutation's statement, in the copy of the tree at ``root``."""
    (root / "src/trunkline/_reach.py").write_text(_PROBE)
    probes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, mutation in enumerate(mutations):
        probes[mutation.path].append((mutation.probe, index))
    for path, places in probes.items():
        source = (root / path).read_bytes()
        for offset, index in sorted(places, reverse=True):
            line = source[offset:]
            indent = line[: len(line) - len(line.lstrip(b" "))]
            probe = "".join(f"{indent.decode()}{text}\n" for text in _probe(root, index)).encode()
            source = source[:offset] + probe + source[offset:]
        (root / path).write_bytes(source)


def _probe(root: Path, index: int) -> Iterator[str]:
    """Yield the lines of one probe. The watcher of a process runs without the package, so it reads the probe's file."""
    yield "try:"
    yield f"    from trunkline._reach import reach as _mutation_reach; _mutation_reach({index})"
    yield "except ImportError:"
    yield f"    exec(open({str(root / 'src/trunkline/_reach.py')!r}).read(), _mutation_scope := {{}})"
    yield f"    _mutation_scope['reach']({index})"


def read(folder: Path) -> TestCosts:
    """Read the records of a run."""
    costs = TestCosts()
    for path in folder.glob("reach-*"):
        for line in path.read_text().splitlines():
            index, _, test = line.partition(" ")
            costs.reached[int(index)].add(test)
    for path in folder.glob("costs-*"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            costs.seconds[record["test"]] = max(record["cpu"], record["wall"])
    return costs


def _processor_time() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write what a test cost, fixtures included."""
    folder = os.environ.get(FOLDER)
    cpu, wall = _processor_time(), time.perf_counter()
    try:
        return (yield)
    finally:
        if folder is not None:
            record = {
                "test": item.nodeid,
                "cpu": round(_processor_time() - cpu, 4),
                "wall": round(time.perf_counter() - wall, 4),
            }
            with open(f"{folder}/costs-{os.getpid()}", "a") as file:
                file.write(json.dumps(record) + "\n")
