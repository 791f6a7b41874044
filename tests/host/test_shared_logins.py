"""Logins that the programs of several machines share: stored encrypted, refreshed once, never readable in Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from tests.auth.client_web import SERVER, Web, answer
from tests.auth.test_client import TOKEN, Scene, token
from tests.store.conftest import own_redis
from tests.store.redis_server import RedisServer, needs_redis
from trunkline.auth.credential_store import FileStore
from trunkline.errors import AuthError, ConfigError
from trunkline.host import SharedLogins
from trunkline.host.shared_logins import find_logins

__all__ = ["own_redis"]

pytestmark = needs_redis

KEY, OTHER = "11" * 32, "22" * 32


def logins(server: RedisServer, *keys: str) -> SharedLogins:
    return SharedLogins(server.url, keys=keys or (KEY,))


async def test_what_one_machine_stores_another_reads(own_redis: RedisServer) -> None:
    one, other = logins(own_redis), logins(own_redis)
    await one.put("server|a", "first")
    await other.put("server|b", "second")
    await one.put("server|a", "changed")
    assert [await other.get("server|a"), await one.get("server|b"), await one.get("none")] == [
        "changed",
        "second",
        None,
    ]
    assert await other.keys() == ["server|a", "server|b"]
    await other.delete("server|a")
    await other.delete("server|a")
    assert (await one.get("server|a"), await one.keys()) == (None, ["server|b"])


async def test_concurrent_changes_lose_no_login(own_redis: RedisServer) -> None:
    stores = [logins(own_redis) for _ in range(4)]
    await asyncio.gather(*(store.put(f"login|{number}", "x") for number, store in enumerate(stores)))
    assert await stores[0].keys() == [f"login|{number}" for number in range(4)]


async def test_nothing_readable_is_stored(own_redis: RedisServer) -> None:
    await logins(own_redis).put("server|https://mcp.example.com", "secret-token")
    client = redis.Redis(port=own_redis.port)
    names: Any = client.keys()
    # The hash of the process that wrote has counts only.
    found: list[Any] = [*names, *(client.get(name) for name in names if client.type(name) == b"string")]
    client.close()
    assert len(names) >= 2
    assert [text for text in found if b"secret-token" in text or b"mcp.example.com" in text] == []


async def test_keys_rotate_and_a_wrong_one_is_an_error(own_redis: RedisServer) -> None:
    await logins(own_redis).put("server|a", "first")
    assert await logins(own_redis, OTHER, KEY).get("server|a") == "first"
    with pytest.raises(AuthError, match="another key"):
        await logins(own_redis, OTHER).get("server|a")


async def test_four_programs_refresh_once(own_redis: RedisServer) -> None:
    web = Web({TOKEN: [token("a", refresh_token="r1"), token("b", refresh_token="r2"), answer({"error": "x"}, 400)]})
    scene = Scene(web, store=logins(own_redis))
    await scene.refuse()
    programs = []
    for _ in range(4):
        # Each program has its own store, as on a machine of its own.
        scene._options["store"] = logins(own_redis)
        programs.append(scene.again())
    for program in programs:
        await program.prepare()
    refusals = (program.refused(401, ["Bearer"], shown="Bearer a", nonce=None) for program in programs)
    async with asyncio.timeout(120):
        await asyncio.gather(*refusals)
    assert [program.headers("POST", SERVER)["Authorization"] for program in programs] == ["Bearer b"] * 4
    assert [form["grant_type"] for form in web.sent("/token")] == ["authorization_code", "refresh_token"]


async def test_logins_that_cannot_be_reached_are_an_error(own_redis: RedisServer) -> None:
    store = logins(own_redis)
    own_redis.stop()
    with pytest.raises(AuthError, match="cannot be reached"):
        await store.get("server|a")
    with pytest.raises(AuthError, match="cannot be reached"):
        async with store.lock("server|a"):
            pass


def test_the_environment_names_the_shared_logins(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_LOGINS", own_redis.url)
    monkeypatch.setenv("TRUNKLINE_STATE_KEY", KEY)
    store = find_logins()
    assert isinstance(store, SharedLogins)

    async def work() -> list[str]:
        await store.put("server|a", "first")
        return await store.keys()

    # A command runs more than one event loop.
    assert [asyncio.run(work()) for _ in range(2)] == [["server|a"]] * 2


def test_without_it_logins_are_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("TRUNKLINE_LOGINS", raising=False)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    assert isinstance(find_logins(), FileStore)


@pytest.mark.parametrize(("url", "key"), [("redis://127.0.0.1:1", None), ("https://example.com", KEY)])
def test_a_missing_key_or_a_wrong_url_is_an_error(url: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUNKLINE_STATE_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"TRUNKLINE_STATE_KEY|store="):
        SharedLogins(url, keys=None if key is None else (key,))
