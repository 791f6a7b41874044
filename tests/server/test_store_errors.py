"""What callers read while the store cannot be reached: one sentence, without hosts and ports."""

from __future__ import annotations

import logging

import pytest

from trunkline import Client, Server
from trunkline.errors import RequestFailed, StoreUnavailable
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE

DETAIL = "Redis did not answer: Error 111 connecting to 127.0.0.1:16399. Connection refused."
PUBLIC = "The store of this server cannot be reached now; try again"


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in a group"])
@pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE.name, NEWEST.name])
async def test_the_detail_is_logged_and_not_sent(
    grouped: bool, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("shared")

    @server.tool
    async def fail() -> str:
        error = StoreUnavailable(DETAIL)
        raise ExceptionGroup("several", [error]) if grouped else error

    with caplog.at_level(logging.WARNING, "trunkline"):
        async with Client(server, revision=revision) as client:
            with pytest.raises(RequestFailed) as caught:
                await client.call_tool("fail")
    assert (caught.value.code, caught.value.message) == (503, PUBLIC)
    assert DETAIL in caplog.text
