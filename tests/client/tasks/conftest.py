"""Where the servers of these tests store their tasks: as in the tests of a server's tasks."""

from __future__ import annotations

from tests.server.tasks.conftest import own_redis, shared_redis, stored

__all__ = ["own_redis", "shared_redis", "stored"]
