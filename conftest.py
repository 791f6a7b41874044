"""Settings and hooks of all tests, those of the reference servers included."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import random
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.support import run_async

if find_spec("hypothesis") is not None:  # the smoke tests of an installed wheel run without it
    from hypothesis import HealthCheck, settings

    # A loaded machine is no counterexample: the global timeout bounds a test, not Hypothesis's clock. Failures print
    # the blob that reproduces them; no database is written into the tree.
    settings.register_profile(
        "default", deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell that runs the tests in the background has them ignore interrupts, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_ORDER_SEED = "TEST_ORDER_SEED"


def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed of the order, once for all workers of a run, which inherit the variable; print how to repeat it."""
    if os.environ.get("PYTEST_XDIST_WORKER") is None:
        seed = os.environ.setdefault(_ORDER_SEED, str(random.SystemRandom().randrange(1_000_000)))
        print(f"order of the tests: {_ORDER_SEED}={seed}", flush=True)  # noqa: T201 - the terminal of a test run


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the files and the tests of each file; a file's tests stay together, for they share its fixtures."""
    files: dict[object, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    rng = random.Random(os.environ[_ORDER_SEED])
    order = list(files.values())
    rng.shuffle(order)
    for tests in order:
        rng.shuffle(tests)
    items[:] = [item for tests in order for item in tests]


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Keep the garbage of earlier tests while this one counts: its finalizers close descriptors and run code."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an ``async def`` test in an event loop of its own, bounded in time."""
    test = pyfuncitem.obj
    inner = getattr(getattr(test, "hypothesis", None), "inner_test", None)
    if inspect.iscoroutinefunction(inner):  # each example gets a loop of its own

        @functools.wraps(inner)
        def run_example(*args: Any, **kwargs: Any) -> None:
            run_async(inner(*args, **kwargs))

        test.hypothesis.inner_test = run_example
        return None
    if not inspect.iscoroutinefunction(test):
        return None
    run_async(test(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print the name of a test as soon as it fails: the report of a long run comes only at its end."""
    if report.failed and os.environ.get("PYTEST_XDIST_WORKER") is None:
        print(f"\nFAILED {report.nodeid} ({report.when})", flush=True)  # noqa: T201 - the terminal of a test run
