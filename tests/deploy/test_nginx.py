"""Two machines behind a real nginx with the configuration of ``deploy/``, on one Redis, without sticky routing."""

from __future__ import annotations

import asyncio
import io
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import psutil  # type: ignore[import-untyped]
import pytest

from tests.deploy.nginx_front import Front, needs_nginx, nginx_front
from tests.store.conftest import own_redis, shared_redis
from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import initialize, tool
from tests.transports.http.shared.machines import Machine, Stream, WebClient, machine
from trunkline import Client
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import HANDSHAKE_NAMES, NEWEST

__all__ = ["own_redis", "shared_redis"]

pytestmark = [needs_redis, needs_nginx]

PUBLIC = "mcp.example.com"
ASKED: dict[str, Any] = {"elicitation": {}}
ERAS = [HANDSHAKE_NAMES[-1], NEWEST.name]


class Site(NamedTuple):
    """nginx, as the address of all requests, and the machines behind it."""

    front: Front
    machines: tuple[Machine, Machine]


@pytest.fixture(scope="module")
def site(shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Machines that the tests leave running."""
    yield from _site(shared_redis, tmp_path_factory.mktemp("nginx"))


@pytest.fixture
def own_site(own_redis: RedisServer, tmp_path: Path) -> Iterator[Site]:
    """Machines for a test that ends one of them."""
    yield from _site(own_redis, tmp_path)


def _site(redis: RedisServer, folder: Path) -> Iterator[Site]:
    options: dict[str, Any] = {"store": redis.url, "allowed_hosts": [PUBLIC]}
    with (
        machine(**options) as one,
        machine(**options) as other,
        nginx_front(folder, [_address(one), _address(other)]) as front,
    ):
        yield Site(front, (one, other))


def _address(machine: Machine) -> str:
    return machine.url.removeprefix("http://").removesuffix("/mcp")


@asynccontextmanager
async def web_client(site: Site) -> AsyncIterator[tuple[WebClient, Any]]:
    """Return a handshake client, and the address in front of the machines."""
    connector = aiohttp.TCPConnector(force_close=True, ssl=site.front.trust)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(sock_read=60)) as http:
        client = WebClient(http)
        try:
            yield client, site.front
        finally:
            client.close()
    await disconnected(site)


@asynccontextmanager
async def clients(
    site: Site, count: int, *, revision: str = NEWEST.name, path: str = ""
) -> AsyncIterator[tuple[Client, ...]]:
    """Connect clients of ours."""
    async with AsyncExitStack() as stack:
        connecting = [
            Client(f"{site.front.url}{path}", revision=revision, ca_file=site.front.certificate) for _ in range(count)
        ]
        yield tuple([await stack.enter_async_context(client) for client in connecting])
    await disconnected(site)


async def disconnected(site: Site) -> None:
    """Wait until the connections of this process have ended: TLS says goodbye, for which aiohttp does not wait."""
    process = psutil.Process()
    async with asyncio.timeout(120):
        # What is observed has no event.
        while any(each.raddr and each.raddr.port == site.front.port for each in process.net_connections()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def served_by(stream: Stream) -> str:
    """Return the address of the machine that sends a stream."""
    return stream.response.headers["x-machine"]


def text(message: Any) -> str:
    return str(message["result"]["content"][0]["text"])


@pytest.mark.parametrize("revision", ERAS)
async def test_both_machines_serve_each_client(site: Site, revision: str) -> None:
    # Two clients, since each has an open stream at one of the machines, and nginx counts it.
    async with clients(site, 2, revision=revision) as (one, other):
        for each in (one, other):
            served = {(await each.call_tool("pid")).content[0].text for _ in range(8)}  # type: ignore[union-attr]
            assert served == {str(machine.process.pid) for machine in site.machines}


@pytest.mark.slow
async def test_the_transport_of_2024_is_served(site: Site) -> None:
    async with clients(site, 1, revision=HANDSHAKE_NAMES[0], path="/sse") as (client,):
        assert (await client.call_tool("walk", {"n": 3})).content[0].text == "walked"  # type: ignore[union-attr]


@pytest.mark.slow
async def test_events_are_not_buffered(site: Site) -> None:
    async with web_client(site) as (client, front):
        await client.open(front)
        call = await client.stream(front, tool("wait"))
        # The call goes on for a minute after this event.
        assert (await call.message())["params"]["data"].startswith("waiting")


async def test_a_question_of_one_machine_is_answered_through_the_other(site: Site) -> None:
    async with web_client(site) as (client, front):
        await client.open(front, ASKED)
        call = await client.stream(front, tool("greet"))
        question = await call.message()
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"value": "Ada"}}}
        # The machine that asked has one connection more, so the answer goes to the other.
        assert (await client.post(front, answer))[0] == 202
        assert text(await call.message()) == "hello Ada"


async def test_a_stream_is_resumed_at_the_other_machine_without_a_gap(site: Site) -> None:
    async with web_client(site) as (client, front):
        await client.open(front)
        call = await client.stream(front, tool("walk", n=40))
        said = [(await call.message())["params"]["data"] for _ in range(5)]
        resumed = await client.get(front, last=call.last)
        assert served_by(resumed) != served_by(call)
        while (message := await resumed.message()) is not None and "params" in message:
            said.append(message["params"]["data"])
        assert (said, text(message)) == ([f"step {n}" for n in range(40)], "walked")


@pytest.mark.slow
async def test_a_change_on_any_machine_reaches_listeners_of_both_once(site: Site) -> None:
    async with (
        clients(site, 3) as (one, other, changing),
        one.listen(tools=True) as first,
        other.listen(tools=True) as second,
        asyncio.timeout(120),
    ):
        for _ in range(3):
            await changing.call_tool("grow")
            assert [(await anext(each)).kind for each in (first, second)] == ["tools"] * 2
        assert (first._pending, second._pending) == ({}, {})


@pytest.mark.slow
async def test_a_machine_that_is_killed_interrupts_only_its_own_requests(own_site: Site) -> None:
    async with web_client(own_site) as (client, front), clients(own_site, 1) as (stateless,):
        await client.open(front, ASKED)
        call = await client.stream(front, tool("greet", id=9))
        assert (await call.message())["method"] == "elicitation/create"
        killed = next(each for each in own_site.machines if _address(each) == served_by(call))
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(120)
        assert await call.message() is None
        left = next(each for each in own_site.machines if each is not killed)
        # nginx finds out with the first request, which it passes on; none is answered with an error.
        for _ in range(6):
            assert text((await client.post(front, tool("pid")))[1]) == str(left.process.pid)
            assert (await stateless.call_tool("pid")).content[0].text == str(left.process.pid)  # type: ignore[union-attr]
        resumed = await client.get(front, last=call.last)
        error = await resumed.message()
        assert (error["id"], "has ended" in error["error"]["message"]) == (9, True)


async def test_names_are_checked_by_nginx_and_by_the_server(site: Site) -> None:
    async def status(url: str, host: str) -> int:
        headers = {"host": host, "accept": "application/json, text/event-stream", "x-forwarded-host": PUBLIC}
        async with http.post(url, json=initialize(), headers=headers, ssl=site.front.trust) as response:
            return response.status

    async with aiohttp.ClientSession() as http:
        assert await status(site.front.url, PUBLIC) == 200
        assert await status(site.front.url, "other.example.com") == 421
        # Past nginx the server decides, and no header but Host counts.
        assert await status(site.machines[0].url, "other.example.com") == 403


async def test_a_body_over_the_limit_is_refused_by_nginx(site: Site) -> None:
    body = io.BytesIO(b" " * (Limits().body_bytes + 1))
    async with (
        aiohttp.ClientSession() as http,
        http.post(site.front.url, data=body, ssl=site.front.trust) as response,
    ):
        assert response.status == 413
