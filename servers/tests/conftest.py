"""Sockets left open by the MongoDB driver do not fail the next test."""

from __future__ import annotations

import gc
import warnings

import pytest

# If no deployment answers, or one goes away, the driver is often still connecting when its client is closed. pymongo
# cancels the attempt and leaves the socket to the garbage collector, which warns; and a warning is an error here.
_CONNECTING = ("not_there", "comes_back", "nonsense_in_any_argument")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings about unclosed sockets in the tests that use the MongoDB driver."""
    for item in items:
        if _uses_the_driver(item):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Collect the sockets that the driver left open, without warnings, before the next test runs."""
    if _uses_the_driver(item) and any(word in item.nodeid for word in _CONNECTING):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _uses_the_driver(item: pytest.Item) -> bool:
    return "mongodb" in item.nodeid and item.path.is_relative_to(__file__.removesuffix("conftest.py"))
