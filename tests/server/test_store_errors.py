"""What callers read while the store cannot be reached, without hosts and ports, and when to try again."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.transports.http.serving_support import modern, tool
from trunkline import Client, Server
from trunkline.errors import RequestFailed, StoreUnavailable, TooManyRequests
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


@pytest.mark.parametrize(
    ("data", "seconds"),
    [
        ({"retryAfter": 7}, "7"),
        ({"retryAfter": 0.2}, "1"),
        ({"retryAfter": "x"}, "1"),
        ({"retryAfter": -5}, "1"),
        (None, "1"),
    ],
    ids=["whole", "part", "text", "negative", "none"],
)
async def test_a_limit_of_a_handler_is_a_status_that_says_when_to_try_again(data: Any, seconds: str) -> None:
    server = Server("limited")

    @server.tool
    async def fail() -> str:
        raise TooManyRequests("Not so often", data=data)

    call = await modern(server.asgi(), tool("fail")).whole()
    await server.aclose()
    assert (call.status, call.headers["retry-after"]) == (429, seconds)
    assert call.json["error"]["message"] == "Not so often"
