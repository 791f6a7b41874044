"""DPoP proofs at several workers: each is valid once, whichever worker gets it, and never while that is unknown."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

from tests.auth.resource_support import AUDIENCE, ISSUER, ec_key, jwks, token
from tests.auth.test_dpop import HOLDER, proof
from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import Call, modern, tool
from tests.transports.http.shared.workers import Fleets, Worker, back, connected_pair, fleet, gone, refusal, until
from trunkline import JWTVerifier


def verifies(**options: Any) -> dict[str, Any]:
    """Return the options of a worker with a verifier of its own."""
    given: dict[str, Any] = {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "keys": jwks(ec_key()),
        "dpop": "required",
        **options,
    }
    return {"auth": JWTVerifier(**given)}


def bound() -> str:
    now = int(time.time())
    return token(cnf={"jkt": HOLDER.thumbprint()}, iat=now, exp=now + 600)


def call(worker: Worker, given: str, shown: str) -> Call:
    return modern(worker.app, tool("add"), authorization=f"DPoP {given}", dpop=shown)


def fresh(given: str, **changes: Any) -> str:
    return proof(given=given, iat=int(time.time()), jti=uuid4().hex, **changes)


async def test_a_proof_is_valid_once_whatever_the_worker(fleets: Fleets) -> None:
    async with fleets(2, each=verifies) as workers:
        given = bound()
        shown = fresh(given)
        calls = [call(worker, given, shown) for worker in workers for _ in range(4)]
        ended = await asyncio.gather(*(each.whole() for each in calls))
        assert sorted(each.status or 0 for each in ended) == [200] + [401] * 7
        assert {each.json["error"]["message"] for each in ended if each.status == 401} == {
            "The proof was used before: each request needs its own"
        }


async def test_a_nonce_of_one_worker_is_accepted_at_another(fleets: Fleets) -> None:
    async with fleets(2, each=lambda: verifies(dpop_nonces=True)) as workers:
        one, other = workers
        given = bound()
        refused = await call(one, given, fresh(given)).whole()
        nonce = refused.headers["dpop-nonce"]
        assert refused.status == 401
        assert (await call(other, given, fresh(given, nonce=nonce)).whole()).status == 200


@needs_redis
async def test_a_worker_whose_first_request_found_no_redis_recovers(own_redis: RedisServer) -> None:
    async with fleet(1, url=own_redis.url, name="late", each=verifies) as workers:
        (worker,) = workers
        given = bound()
        own_redis.stop()
        assert refusal(await call(worker, given, fresh(given)).whole()) == (503, "1")
        await back(own_redis, worker)
        assert (await call(worker, given, fresh(given)).whole()).status == 200


@needs_redis
async def test_after_lost_writes_a_proof_of_before_counts_as_used(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis, each=verifies) as (one, other):
        given = bound()
        shown = proof(given=given, iat=int(time.time()) - 5, jti="before")
        assert (await call(one, given, shown).whole()).status == 200
        before = other.store.generation
        await gone(own_redis, one, other)
        own_redis.forget()
        await back(own_redis, one, other)
        await until(lambda: before != other.store.generation)
        assert (await call(other, given, shown).whole()).status == 401
        later = proof(given=given, iat=int(time.time()) + 2, jti="after")
        assert (await call(other, given, later).whole()).status == 200
