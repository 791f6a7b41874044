"""Fleets of workers over each kind of backplane."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import pytest

from tests.backplane.conftest import own_redis, shared_redis
from tests.backplane.redis_server import needs_redis
from tests.transports.http.shared.workers import Fleets, fleet

__all__ = ["fleets", "own_redis", "shared_redis"]


@pytest.fixture(params=["memory", pytest.param("redis", marks=needs_redis)])
def fleets(request: pytest.FixtureRequest) -> Fleets:
    """Start workers that share a new backplane."""
    if request.param == "memory":
        return fleet
    return partial(fleet, url=request.getfixturevalue("shared_redis").url, name=uuid4().hex)
