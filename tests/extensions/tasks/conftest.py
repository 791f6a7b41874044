"""Redis servers for the tests of tasks that several workers share."""

from __future__ import annotations

from tests.store.conftest import own_redis, shared_redis, workers

__all__ = ["own_redis", "shared_redis", "workers"]
