"""The lifespan of a server: entered once, left when the last connection has gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.server.talk import ERAS, reach, text
from trunkline import Client, Context, Server
from trunkline.errors import TrunklineError
from trunkline.server.run import Lifespan


def making(lifespan: Any) -> Server:
    server = Server("s", lifespan=lifespan)

    @server.tool
    async def value(ctx: Context) -> str:
        return str(ctx.lifespan_context)

    return server


@ERAS
async def test_a_handler_sees_the_value_of_the_lifespan(revision: str) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        yield f"pool of {server.name}"

    async with reach(making(lifespan), revision) as peer:
        assert text(await peer.call("value")) == "pool of s"


@ERAS
async def test_a_lifespan_is_entered_once_and_exited_after_the_last_connection(revision: str) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        log.append("enter")
        yield
        log.append("leave")

    server = making(lifespan)
    async with reach(server, revision) as first:
        await first.call("value")
        async with reach(server, revision) as second:
            await second.call("value")
        log.append("first alone")
    assert log == ["enter", "first alone", "leave"]
    async with reach(server, revision) as third:
        await third.call("value")
    assert log == ["enter", "first alone", "leave", "enter", "leave"]


@ERAS
async def test_a_lifespan_is_entered_before_the_first_request(revision: str) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        log.append("entered")
        yield "ready"

    server = making(lifespan)

    @server.tool
    async def note() -> None:
        log.append("served")

    async with reach(server, revision) as peer:
        await peer.call("note")
    assert log == ["entered", "served"]


@ERAS
async def test_a_lifespan_that_cannot_be_entered_fails_every_request(
    revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise OSError("database password is 1234")
        yield

    async with reach(making(lifespan), revision, greet=False) as peer:
        method = {"2025-11-25": "initialize"}.get(revision, "tools/list")
        error = await peer.error(method, peer.hello())
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert "database password is 1234" in caplog.text


@ERAS
async def test_a_client_gets_an_error_if_the_lifespan_fails(revision: str) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise OSError("secret")
        yield

    with pytest.raises(TrunklineError, match="Internal error"):
        async with Client(making(lifespan), revision=revision) as client:
            await client.list_tools()


@ERAS
async def test_a_lifespan_that_fails_on_exit_is_logged(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        raise OSError("stuck")

    async with reach(making(lifespan), revision) as peer:
        await peer.call("value")
    assert "the lifespan of server 's' failed on exit" in caplog.text


async def test_a_lifespan_knows_whether_it_is_entered() -> None:
    @asynccontextmanager
    async def enter() -> AsyncIterator[int]:
        yield 5

    lifespan = Lifespan(enter)
    before = lifespan.entered
    lifespan.acquire()
    lifespan.acquire()
    assert lifespan.ready is not None
    await lifespan.ready
    during = (lifespan.entered, lifespan.value)
    await lifespan.release()
    shared = (lifespan.entered, lifespan.value)
    await lifespan.release()
    assert (before, during, shared, (lifespan.entered, lifespan.value)) == (False, (True, 5), (True, 5), (False, None))
