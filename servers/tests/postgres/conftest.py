"""One PostgreSQL for all tests of a process, with a shop that no test may change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.tests.postgres.shop import fill
from servers.tests.postgres_cluster import Cluster, started
from tests.support import run_async

__all__: list[str] = []


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running PostgreSQL with the shop in it."""
    pytest.importorskip("asyncpg", reason="asyncpg is not installed")
    with started() as running:
        run_async(fill(running))
        yield running
