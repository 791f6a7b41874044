"""Fleets of workers over each kind of store."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

import pytest

from tests.store.conftest import own_redis, shared_redis
from tests.store.redis_server import needs_redis
from tests.transports.http.shared.workers import Fleets, fleet
from trunkline.transports.http.server.sessions import endpoint, get_stream, streams, worker

__all__ = ["fleets", "hurried", "own_redis", "shared_redis"]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the times after which a worker is gone, a turn is looked at again, and an event is late."""
    for module in (endpoint, worker):
        monkeypatch.setattr(module, "GRACE_SECONDS", 0.3)
    for module in (endpoint, get_stream):
        monkeypatch.setattr(module, "TURN_SECONDS", 0.05)
    monkeypatch.setattr(streams, "LATE_SECONDS", 0.2)


@pytest.fixture(params=["memory", pytest.param("redis", marks=needs_redis)])
def fleets(request: pytest.FixtureRequest) -> Fleets:
    """Start workers that share a new store."""
    if request.param == "memory":
        return fleet
    return partial(fleet, url=request.getfixturevalue("shared_redis").url, name=uuid4().hex)
