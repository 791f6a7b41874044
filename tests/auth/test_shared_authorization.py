"""One authorization server at several workers: what one issues the others accept, once; nothing while Redis is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.auth.authorization_server.support import (
    CALLBACK,
    ISSUER,
    KEYS,
    VERIFIER,
    Browser,
    Clock,
    Contents,
    FileEngine,
    PublicEngine,
    Response,
    authorize_url,
    exchange,
    make_server,
    register,
    server_store,
    written,
    written_values,
)
from tests.auth.authorization_server.test_oauth_proxy import TOKEN, a_provider, make_proxy, sent_on
from tests.store.conftest import Workers, own_redis, shared_redis, workers
from tests.store.redis_server import RedisServer, needs_redis
from trunkline.auth.authorization_server.server import AuthorizationServer
from trunkline.auth.verifiers import InvalidToken
from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.store.interface import Commit, Step, Store
from trunkline.store.redis import RedisEngine

__all__ = ["own_redis", "shared_redis", "workers"]

Pair = tuple[AuthorizationServer, AuthorizationServer]


def shared(store: Store, **options: Any) -> AuthorizationServer:
    return make_server(store=store, state_keys=KEYS, **options)


@asynccontextmanager
async def two(workers: Workers, **options: Any) -> AsyncIterator[Pair]:
    async with workers(2) as (one, other):
        servers = shared(one, **options), shared(other, **options)
        yield servers
        for server in servers:
            await server.aclose()


async def code_of(server: AuthorizationServer, client_id: str, browser: Browser | None = None) -> str:
    """Sign in, allow, and return the code."""
    browser = browser or Browser(server)
    return (await browser.allow(await browser.get(authorize_url(client_id)))).answer["code"]


async def redeem(server: AuthorizationServer, client_id: str, code: str) -> Response:
    form = {"grant_type": "authorization_code", "client_id": client_id, "redirect_uri": CALLBACK}
    return await exchange(server, code=code, code_verifier=VERIFIER, **form)


async def refresh(server: AuthorizationServer, client_id: str, token: str) -> Response:
    return await exchange(server, grant_type="refresh_token", client_id=client_id, refresh_token=token)


async def subject(server: AuthorizationServer, token: str) -> str:
    found = await server.verify({"authorization": f"Bearer {token}"})
    return "" if found is None else found.subject


async def eventually_invalid(server: AuthorizationServer, token: str) -> None:
    """Wait until a worker has heard that a token was revoked."""
    async with asyncio.timeout(120):
        while await is_valid(server, token):  # noqa: ASYNC110  the announcement to a worker has no event here
            await asyncio.sleep(0.005)


async def is_valid(server: AuthorizationServer, token: str) -> bool:
    try:
        return bool(await subject(server, token))
    except InvalidToken:
        return False


async def tokens(pair: Pair) -> tuple[str, dict[str, Any]]:
    """Register a client at one worker, and return its id and tokens."""
    client = (await register(pair[0]))["client_id"]
    answer = await redeem(pair[0], client, await code_of(pair[0], client))
    assert answer.status == 200, answer.text
    return client, answer.json


# --- across workers ---------------------------------------------------------------------------------------------------


async def test_each_step_of_a_login_may_reach_another_worker(workers: Workers) -> None:
    async with two(workers) as (one, other):
        client = (await register(one))["client_id"]
        browser = Browser(other)
        page = await browser.get(authorize_url(client))
        browser.app = one
        code = (await browser.allow(page)).answer["code"]
        answer = await redeem(other, client, code)
        assert [await subject(each, answer.json["access_token"]) for each in (one, other)] == ["ada", "ada"]
        again = await refresh(one, client, answer.json["refresh_token"])
        assert await subject(other, again.json["access_token"]) == "ada"


async def test_a_browser_is_signed_in_at_every_worker(workers: Workers) -> None:
    async with two(workers) as (one, other):
        client = (await register(one))["client_id"]
        browser = Browser(one)
        await code_of(one, client, browser)
        browser.app = other
        page = await browser.get(authorize_url(client))
        assert "Signed in as" in page.text


async def test_the_keys_of_all_workers_are_published_by_each(workers: Workers) -> None:
    async with two(workers) as pair:
        await tokens(pair)
        kids = [{key["kid"] for key in (await each._tokens.published())["keys"]} for each in pair]
        assert kids[0] == kids[1] != set()


async def test_a_page_is_decided_once_whatever_the_worker(workers: Workers) -> None:
    async with two(workers) as (one, other):
        client = (await register(one))["client_id"]
        browsers = [Browser(one), Browser(other)]
        page = await browsers[0].get(authorize_url(client))
        browsers[1].jar = dict(browsers[0].jar)
        decided = await asyncio.gather(*(browser.allow(page) for browser in browsers))
        assert sorted(each.status for each in decided) == [303, 403]


async def test_a_code_used_at_two_workers_is_redeemed_at_most_once_and_revokes_its_grant(workers: Workers) -> None:
    async with two(workers) as (one, other):
        client = (await register(one))["client_id"]
        code = await code_of(one, client)
        answers = await asyncio.gather(*(redeem(each, client, code) for each in (one, other) for _ in range(4)))
        good = [each for each in answers if each.status == 200]
        assert len(good) <= 1
        assert {each.json["error"] for each in answers if each.status != 200} == {"invalid_grant"}
        for each in (one, other):
            for answer in good:
                await eventually_invalid(each, answer.json["access_token"])
                refused = await refresh(each, client, answer.json["refresh_token"])
                assert refused.json["error"] == "invalid_grant"


async def test_a_refresh_token_used_at_two_workers_revokes_its_grant_at_both(workers: Workers) -> None:
    async with two(workers) as (one, other):
        client, given = await tokens((one, other))
        assert [await subject(each, given["access_token"]) for each in (one, other)] == ["ada", "ada"]
        fresh = (await refresh(one, client, given["refresh_token"])).json
        reused = await refresh(other, client, given["refresh_token"])
        assert reused.json["error"] == "invalid_grant"
        for each in (one, other):
            await eventually_invalid(each, given["access_token"])
            await eventually_invalid(each, fresh["access_token"])
            assert (await refresh(each, client, fresh["refresh_token"])).status == 400


async def test_a_refresh_token_is_exchanged_once_by_concurrent_workers(workers: Workers) -> None:
    async with two(workers) as (one, other):
        client, given = await tokens((one, other))
        answers = await asyncio.gather(
            *(refresh(each, client, given["refresh_token"]) for each in (one, other) for _ in range(4))
        )
        assert sum(each.status == 200 for each in answers) <= 1


async def test_a_revoked_token_is_refused_at_every_worker(workers: Workers) -> None:
    async with two(workers) as (one, other):
        client, given = await tokens((one, other))
        assert await subject(other, given["access_token"]) == "ada"
        revoked = await exchange(one, path="revoke", client_id=client, token=given["refresh_token"])
        assert revoked.status == 200
        await eventually_invalid(other, given["access_token"])


async def test_attempts_to_sign_in_are_counted_over_all_workers(workers: Workers) -> None:
    async with two(workers) as (one, other):
        client = (await register(one))["client_id"]
        browser = Browser(one)
        page = await browser.get(authorize_url(client))
        answers = []
        for number in range(6):
            browser.app = (one, other)[number % 2]
            answers.append(await browser.allow(page, password="wrong"))
        assert [each.status for each in answers] == [403] * 5 + [429]
        assert int(answers[5].headers["retry-after"]) >= 1


async def test_registered_clients_have_a_bound_over_all_workers(workers: Workers) -> None:
    async with two(workers, registered_clients=3) as (one, other):
        for each in (one, other, one):
            await register(each)
        with pytest.raises(AssertionError, match="temporarily_unavailable"):
            await register(other)


# --- what is stored ---------------------------------------------------------------------------------------------------


async def test_nothing_readable_is_stored() -> None:
    contents = Contents(Clock())
    server = shared(PublicEngine(contents), clock=Clock())
    client, given = await tokens((server, server))
    stored = b"\n".join(written_values(contents))
    secrets = (given["access_token"], given["refresh_token"], '"d"', "files:read", "ada", "jwk")
    assert [each for each in secrets if each.encode() in stored] == []
    assert client.encode() in stored
    assert len(contents.written) > 5


async def test_records_stay_readable_while_keys_rotate() -> None:
    contents = Contents(Clock())

    def server(*keys: bytes) -> AuthorizationServer:
        return make_server(store=PublicEngine(contents), state_keys=keys, clock=Clock())

    old, new = b"o" * 32, b"n" * 32
    before, during, after = server(old), server(new, old), server(new)
    client, given = await tokens((before, before))
    assert await subject(during, given["access_token"]) == "ada"
    browser = Browser(before)
    page = await browser.get(authorize_url(client))
    browser.app = during
    assert (await browser.allow(page)).status == 303
    with pytest.raises(InvalidToken):
        await subject(after, given["access_token"])


def test_a_store_that_others_can_read_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUNKLINE_STATE_KEY", raising=False)
    with pytest.raises(ConfigError, match="TRUNKLINE_STATE_KEY, or pass state_keys="):
        make_server(store=PublicEngine(Contents()))
    monkeypatch.setenv("TRUNKLINE_STATE_KEY", "11" * 32)
    make_server(store=PublicEngine(Contents()))


async def test_a_chosen_file_stays_in_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    contents = Contents()
    server = make_server(store=FileEngine(tmp_path / "auth.db"))
    server._share(server_store(PublicEngine(contents)))
    await tokens((server, server))
    assert (contents.written, len(written(tmp_path)) > 0) == ({}, True)
    assert caplog.text.count("is a file of this machine") == 1
    await server.aclose()


async def test_without_a_store_that_of_the_server_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    contents = Contents()
    server = make_server(store=None)
    server._share(server_store(PublicEngine(contents)))
    await tokens((server, server))
    await server.aclose()
    assert (len(contents.written) > 5, written(tmp_path)) == (True, b"")


async def test_users_are_warned_of_a_server_that_forgets_them(caplog: pytest.LogCaptureFixture) -> None:
    await tokens((server := make_server(store=None), server))
    assert caplog.text.count("must sign in again after a restart; set store=") == 1


# --- the number of verbs ----------------------------------------------------------------------------------------------


class Counting(PublicEngine):
    """Counts the verbs that are called."""

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents)
        self.verbs: list[str] = []

    def count(self, verb: str) -> None:
        # A commit of the memory engine reads by itself.
        self.verbs.append(verb)

    async def get(self, key: str) -> bytes | None:
        self.count("get")
        return await super().get(key)

    async def commit(self, *steps: Step) -> Commit:
        self.count("commit")
        before = len(self.verbs)
        outcome = await super().commit(*steps)
        del self.verbs[before:]
        return outcome

    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        self.count("members")
        return await super().members(index, after=after, limit=limit)

    async def admit(self, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        self.count("admit")
        return await super().admit(key, rate=rate, burst=burst, cost=cost)


async def test_a_token_request_is_few_verbs() -> None:
    store = Counting(Contents())
    server = shared(store)
    client, given = await tokens((server, server))
    code = await code_of(server, client)
    store.verbs.clear()
    await redeem(server, client, code)
    redeeming = store.verbs.copy()
    store.verbs.clear()
    assert (await refresh(server, client, given["refresh_token"])).status == 200
    # The client, the code; the client, the token, its grant.
    assert (redeeming, store.verbs) == (["get", "get", "commit"], ["get", "get", "get", "commit"])


# --- failure ----------------------------------------------------------------------------------------------------------


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110  what is observed has no event
            await asyncio.sleep(0.005)


@asynccontextmanager
async def on_redis(redis: RedisServer, **options: Any) -> AsyncIterator[tuple[AuthorizationServer, RedisEngine]]:
    store = RedisEngine(redis.url, name="authorization", timeout=1.0)
    await store.connect()
    server = shared(store, **options)
    try:
        yield server, store
    finally:
        await server.aclose()
        await store.aclose()


@needs_redis
async def test_nothing_is_issued_or_accepted_while_redis_is_gone(own_redis: RedisServer) -> None:
    async with on_redis(own_redis) as (server, store):
        client, given = await tokens((server, server))
        code = await code_of(server, client)
        own_redis.stop()
        await until(lambda: not store.available)
        answers = [
            await redeem(server, client, code),
            await refresh(server, client, given["refresh_token"]),
            await exchange(server, path="revoke", client_id=client, token=given["refresh_token"]),
        ]
        assert [(each.status, each.headers["retry-after"]) for each in answers] == [(503, "1")] * 3
        assert {each.json["error"] for each in answers} == {"temporarily_unavailable"}
        with pytest.raises(StoreUnavailable):
            await subject(server, given["access_token"])
        own_redis.start()
        await until(lambda: store.available)
        assert (await redeem(server, client, code)).status == 200
        assert await subject(server, given["access_token"]) == "ada"


@needs_redis
async def test_a_token_that_was_just_verified_is_accepted_for_a_minute_without_redis(own_redis: RedisServer) -> None:
    clock = Clock()
    async with on_redis(own_redis, clock=clock) as (server, store):
        _, given = await tokens((server, server))
        assert await subject(server, given["access_token"]) == "ada"
        own_redis.stop()
        await until(lambda: not store.available)
        clock.now += 59
        assert await subject(server, given["access_token"]) == "ada"
        clock.now += 2
        with pytest.raises(StoreUnavailable):
            await subject(server, given["access_token"])


async def test_nothing_of_before_a_loss_of_writes_can_be_used() -> None:
    contents = Contents()
    store = PublicEngine(contents)
    await store.connect()
    server = shared(store)
    client, given = await tokens((server, server))
    code, page = await code_of(server, client), await (browser := Browser(server)).get(authorize_url(client))
    contents.lose_writes()
    # Nothing was deleted: all that is not known is whether it was used.
    answers = [await redeem(server, client, code), await refresh(server, client, given["refresh_token"])]
    assert [each.json["error"] for each in answers] == ["invalid_grant"] * 2
    assert (await browser.allow(page)).status == 403
    assert await subject(server, given["access_token"]) == "ada"
    answer = await redeem(server, client, await code_of(server, client))
    assert (await refresh(server, client, answer.json["refresh_token"])).status == 200


@needs_redis
async def test_what_was_to_be_used_once_counts_as_used_after_lost_writes(own_redis: RedisServer) -> None:
    async with on_redis(own_redis) as (server, store):
        client, _ = await tokens((server, server))
        browser = Browser(server)
        page = await browser.get(authorize_url(client))
        before = store.generation
        own_redis.stop()
        await until(lambda: not store.available)
        own_redis.forget()
        own_redis.start()
        await until(lambda: store.generation != before)
        client = (await register(server))["client_id"]
        refused = await browser.allow(page)
        assert refused.status in (400, 403)
        assert (await redeem(server, client, await code_of(server, client))).status == 200


# --- the proxy --------------------------------------------------------------------------------------------------------


async def test_a_sign_in_at_a_provider_may_end_at_another_worker(workers: Workers) -> None:
    async with workers(2) as (first, second):
        provider, clock = a_provider(), Clock()
        one, other = (
            make_proxy(provider, store=store, state_keys=KEYS, client_secret="same", clock=clock)
            for store in (first, second)
        )
        browser = Browser(one)
        sent = await sent_on(browser)
        browser.app = other
        url = f"{ISSUER}/callback?code=upstream-code&state={sent['state']}"
        back = await browser.get(url)
        again = await browser.get(url)
        assert (back.status, again.status) == (303, 400)
        answer = (await redeem(one, browser.client_id, back.answer["code"])).json
        principals = [await each.verify({"authorization": f"Bearer {answer['access_token']}"}) for each in (one, other)]
        assert all(each is not None for each in principals)
        assert [await proxy.upstream_token(who) for proxy, who in zip((one, other), principals, strict=True)] == [  # type: ignore[arg-type]
            "upstream-secret-token"
        ] * 2
        # The provider's token expires: two workers refresh it once.
        clock.now += 3590
        provider.found[TOKEN] = {"access_token": "upstream-second", "expires_in": 3600, "refresh_token": "next"}
        asked = len(provider.asked)
        found = await asyncio.gather(*(proxy.upstream_token(principals[0]) for proxy in (one, other, one, other)))  # type: ignore[arg-type]
        assert found == ["upstream-second"] * 4
        assert provider.asked[asked:] == [f"POST {TOKEN}"]
