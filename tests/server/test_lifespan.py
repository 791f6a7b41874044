"""The lifespan of a server: entered once, left when the last connection has gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.server.talk import ERAS, reach
from trunkline import Context, Server


def making(lifespan: Any) -> Server:
    server = Server("s", lifespan=lifespan)

    @server.tool
    async def value(ctx: Context) -> str:
        return str(ctx.lifespan_context)

    return server


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
async def test_a_lifespan_that_fails_on_exit_is_logged(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        yield
        raise OSError("stuck")

    async with reach(making(lifespan), revision) as peer:
        await peer.call("value")
    assert "the lifespan of server 's' failed on exit" in caplog.text


async def _undecorated(server: Server) -> AsyncIterator[None]:
    yield


def test_a_lifespan_without_its_decorator_is_rejected_at_once() -> None:
    with pytest.raises(TypeError, match=r"decorate _undecorated with @contextlib.asynccontextmanager"):
        making(_undecorated)
    with pytest.raises(TypeError, match="lifespan= takes a function of the server, not dict"):
        making({})
