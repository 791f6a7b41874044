"""What a server needs to share sessions: a store that can be reached and the same keys; changes that are lost."""

from __future__ import annotations

import pytest

from tests.store.conftest import shared_redis
from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import SessionClient, modern, request, tool
from tests.transports.http.shared.workers import at, fleet, settled
from trunkline import Server
from trunkline.errors import ConfigError
from trunkline.server.shared_sessions import check_store
from trunkline.transports.http.server.shared import worker as shared_worker

__all__ = ["shared_redis"]

OLD, NEW, OTHER = "0a" * 32, "0b" * 32, "0c" * 32


def keyed(*keys: str) -> Server:
    return Server("checked", state_keys=list(keys))


@needs_redis
async def test_all_workers_must_have_the_same_keys(shared_redis: RedisServer) -> None:
    await check_store(keyed(OLD), shared_redis.url)
    await check_store(keyed(OLD, NEW), shared_redis.url)
    await check_store(keyed(NEW, OLD), shared_redis.url)
    with pytest.raises(ConfigError, match="with other keys: set the same TRUNKLINE_STATE_KEY"):
        await check_store(keyed(OTHER), shared_redis.url)
    await check_store(keyed(NEW), shared_redis.url)


@needs_redis
async def test_a_store_that_cannot_be_reached_is_named() -> None:
    # The port of a discard service: nothing listens there.
    with pytest.raises(ConfigError, match="the store cannot be reached"):
        await check_store(keyed(OLD), "redis://127.0.0.1:9/0")


async def test_a_server_without_keys_of_its_own_does_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUNKLINE_STATE_KEY", raising=False)
    with pytest.raises(ConfigError, match="set TRUNKLINE_STATE_KEY"):
        await check_store(Server("checked"), "memory")


async def test_a_session_that_missed_more_than_is_kept_is_told_that_anything_may_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_worker, "MAX_ANNOUNCEMENTS", 2)
    async with fleet() as (one, other):
        await modern(one.app, tool("grow")).whole()
        client = await SessionClient.open(one.app)
        await client.post(request("resources/subscribe", {"uri": "note://one"})).whole()
        for number in range(5):
            await client.post(tool("grow", id=10 + number)).whole()
        await settled(one, other)
        listening = await at(client, other).listening()
        heard = {(await listening.message())["method"] for _ in range(3)}
        assert heard == {
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
        }
        listening.hang_up()
        await listening.ended()
        assert (await modern(other.app, tool("add")).whole()).status == 200
