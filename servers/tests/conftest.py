"""What the driver of MongoDB leaves behind does not fail the test that happens to run next."""

from __future__ import annotations

import gc
import warnings

import pytest

# Where no deployment answers, or one goes away, the driver is often connecting when its client is closed. pymongo then
# cancels that and leaves the socket to the collector, which warns; and a warning is an error here.
_CONNECTING = ("not_there", "comes_back", "test_all.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of MongoDB be quiet about sockets, and only about these."""
    for item in items:
        if _uses_the_driver(item):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Collect what the driver left, in silence, before another test runs."""
    if _uses_the_driver(item) and any(word in item.nodeid for word in _CONNECTING):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _uses_the_driver(item: pytest.Item) -> bool:
    return "mongodb" in item.nodeid and item.path.is_relative_to(__file__.removesuffix("conftest.py"))
