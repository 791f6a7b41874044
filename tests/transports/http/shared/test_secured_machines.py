"""Two server processes on one Redis: logins, proofs, single use, large states and handles, whichever gets a request."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import aiohttp
import pytest

from tests.auth.authorization_server.support import CALLBACK, VERIFIER, authorize_url
from tests.auth.resource_support import AUDIENCE, ISSUER, ec_key, jwks, token
from tests.auth.test_dpop import HOLDER, proof
from tests.backplane.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import BOTH, META, modern_headers, tool
from tests.transports.http.shared.machines import PROGRAM, Machine, machine, web_client
from tests.transports.http.shared.test_shared_state import ELICITS, answered

pytestmark = needs_redis

Pair = tuple[Machine, Machine]
SECURED = PROGRAM.with_name("secured.py")
LOOPBACK = "http://127.0.0.1:9"


class Caller:
    """A client of the stateless revision."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http

    async def post(self, machine: Machine, message: dict[str, Any], **headers: str) -> tuple[int, Any]:
        params = {**message["params"], "_meta": {**META, **ELICITS}}
        head = {"accept": BOTH, **modern_headers("tools/call", params["name"]), **headers}
        async with self.http.post(machine.url, json={**message, "params": params}, headers=head) as response:
            return response.status, json.loads(await response.text())

    async def text(self, machine: Machine, name: str, **arguments: Any) -> str:
        status, body = await self.post(machine, tool(name, **arguments))
        assert status == 200, body
        return str(body["result"]["content"][0]["text"])


@contextmanager
def two(redis: RedisServer, **options: Any) -> Iterator[Pair]:
    given = {"program": SECURED, "backplane": redis.url, **options}
    with machine(**given) as one, machine(**given) as other:
        yield one, other


@pytest.fixture(scope="module")
def open_pair(shared_redis: RedisServer) -> Iterator[Pair]:
    """Two machines that anyone may call."""
    with two(shared_redis) as pair:
        yield pair


@pytest.fixture(scope="module")
def proving_pair(shared_redis: RedisServer) -> Iterator[Pair]:
    """Two machines whose callers prove that they have a key."""
    given = {"issuer": ISSUER, "audience": AUDIENCE, "keys": jwks(ec_key()), "dpop": "required"}
    with two(shared_redis, verifier=given, resource=AUDIENCE) as pair:
        yield pair


async def test_a_handle_of_one_process_is_changed_in_another(open_pair: Pair) -> None:
    one, other = open_pair
    async with web_client() as client:
        caller = Caller(client.http)
        cart = await caller.text(one, "open_cart")
        assert await caller.text(other, "fill", cart=cart, item="second") == "first second"
        assert await caller.text(one, "fill", cart=cart, item="third") == "first second third"


async def test_a_state_is_used_once_in_all_processes(open_pair: Pair) -> None:
    one, other = open_pair
    async with web_client() as client:
        caller = Caller(client.http)
        _, asked = await caller.post(one, tool("buy"))
        message = answered(asked["result"], "buy", "tea")
        bodies = await asyncio.gather(*(caller.post(each, message) for each in open_pair for _ in range(4)))
        assert sum("result" in body for _, body in bodies) == 1
        assert (await caller.post(other, message))[1]["error"]["code"] == -32602


async def test_a_large_state_of_one_process_is_opened_in_another(open_pair: Pair) -> None:
    one, other = open_pair
    async with web_client() as client:
        caller = Caller(client.http)
        _, asked = await caller.post(one, tool("order"))
        _, body = await caller.post(other, answered(asked["result"], "order", "tea"))
        assert body["result"]["content"][0]["text"] == "100000 tea"


async def test_a_proof_is_valid_once_in_all_processes(proving_pair: Pair) -> None:
    now = int(time.time())
    given = token(cnf={"jkt": HOLDER.thumbprint()}, iat=now, exp=now + 600)
    async with web_client() as client:
        caller = Caller(client.http)
        shown = [proof(given=given, iat=now, jti=uuid4().hex) for _ in range(2)]
        calls = [
            caller.post(each, tool("who"), authorization=f"DPoP {given}", dpop=one)
            for one in shown
            for each in proving_pair
            for _ in range(3)
        ]
        answers = await asyncio.gather(*calls)
        assert sorted(status for status, _ in answers) == [200] * 2 + [401] * 10


class Login:
    """A login at several machines that are one authorization server."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http

    async def form(self, machine: Machine, path: str, **form: str) -> tuple[int, Any]:
        async with self.http.post(beside(machine, path), data=form) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def register(self, machine: Machine) -> str:
        given = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none", "client_name": "Notes"}
        given["grant_types"] = ["authorization_code", "refresh_token"]
        async with self.http.post(beside(machine, "/register"), json=given) as response:
            assert response.status == 201, await response.text()
            return str((await response.json())["client_id"])

    async def code(self, machine: Machine, client_id: str) -> str:
        query = urlsplit(authorize_url(client_id, resource=None)).query
        async with self.http.get(beside(machine, f"/authorize?{query}"), allow_redirects=False) as response:
            assert response.status == 303, await response.text()
            return dict(parse_qsl(urlsplit(response.headers["location"]).query))["code"]

    async def redeem(self, machine: Machine, client_id: str, code: str) -> tuple[int, Any]:
        form = {"grant_type": "authorization_code", "client_id": client_id, "redirect_uri": CALLBACK}
        return await self.form(machine, "/token", code=code, code_verifier=VERIFIER, **form)


def beside(machine: Machine, path: str) -> str:
    return machine.url.removesuffix("/mcp") + path


def issues() -> dict[str, Any]:
    return {"issuer": LOOPBACK, "auto_approve": "ada", "scopes": ["files:read"], "resource": f"{LOOPBACK}/mcp"}


async def test_two_processes_are_one_authorization_server(own_redis: RedisServer) -> None:
    with two(own_redis, issuer=issues()) as (one, other):
        async with web_client() as client:
            login, caller = Login(client.http), Caller(client.http)
            name = await login.register(one)
            code = await login.code(other, name)
            status, tokens = await login.redeem(one, name, code)
            assert status == 200, tokens
            bearer = {"authorization": f"Bearer {tokens['access_token']}"}
            for each in (one, other):
                status, body = await caller.post(each, tool("who"), **bearer)
                assert (status, body["result"]["content"][0]["text"]) == (200, "ada")
            # Reuse at the other process revokes everything, in both.
            assert (await login.redeem(other, name, code))[1]["error"] == "invalid_grant"
            for each in (one, other):
                await until_refused(caller, each, bearer)


async def until_refused(caller: Caller, machine: Machine, bearer: dict[str, str]) -> None:
    async with asyncio.timeout(30):
        while (await caller.post(machine, tool("who"), **bearer))[0] != 401:  # noqa: ASYNC110  heard by another process
            await asyncio.sleep(0.01)


async def test_the_workers_of_one_supervisor_are_one_authorization_server(own_redis: RedisServer) -> None:
    given: dict[str, Any] = {"program": SECURED, "backplane": own_redis.url, "issuer": issues(), "workers": 2}
    with machine(**given) as both:
        async with web_client() as client:
            # A connection for each request: any worker gets it.
            login, caller = Login(client.http), Caller(client.http)
            for _ in range(5):
                name = await login.register(both)
                status, tokens = await login.redeem(both, name, await login.code(both, name))
                assert status == 200, tokens
                bearer = {"authorization": f"Bearer {tokens['access_token']}"}
                assert (await caller.post(both, tool("who"), **bearer))[0] == 200
