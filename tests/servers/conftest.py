"""What the driver of MongoDB leaves behind does not fail the test that happens to run next."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

# Where no deployment answers, or one goes away, the driver is often connecting when its client is closed. pymongo then
# cancels that and leaves the socket to the collector, which warns; and a warning is an error here.
_CONNECTING = ("not_there", "comes_back", "test_all.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of MongoDB be quiet about sockets, and only about these."""
    for item in items:
        if "mongodb" in item.nodeid and item.path.is_relative_to(__file__.removesuffix("conftest.py")):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            if any(word in item.nodeid for word in _CONNECTING):
                item.fixturenames.append("driver_sockets_collected")  # type: ignore[attr-defined]


@pytest.fixture
def driver_sockets_collected() -> Iterator[None]:
    """Collect what the driver left, in silence, before another test runs."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
