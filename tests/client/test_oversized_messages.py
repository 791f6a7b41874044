"""Answers over the limit, from a real process: their call fails at once with the reason, and no other is affected."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.client.scripted_server import settle
from tests.support import run_async
from trunkline import Client, Limits
from trunkline.errors import RemoteProtocolError
from trunkline.protocol.revisions import NEWEST_HANDSHAKE

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-S", "-m", "tests.host.servers.long_answers"]
SMALL = Limits(message_bytes=6000)
WORDS = "longer than 6000 bytes, the limit message_bytes: raise it with limits=Limits(message_bytes=...)"


def connected(**options: Any) -> Client:
    env = {"PYTHONPATH": str(ROOT)}
    return Client(COMMAND, **{"env": env, "revision": NEWEST_HANDSHAKE.name, "limits": SMALL, **options})


async def text(client: Client, length: int, id: str = "first") -> str:
    return _only(await client.call_tool("text", {"length": length, "id": id}))


def _only(result: Any) -> str:
    (content,) = result.content
    assert isinstance(content, t.TextContent)
    return content.text


@pytest.mark.parametrize("place", ["first", "last", "hidden"])
async def test_an_answer_over_the_limit_fails_its_call_with_the_limit(place: str) -> None:
    async with connected() as client:
        with pytest.raises(RemoteProtocolError) as caught:
            await text(client, 10_000, place)
        assert WORDS in str(caught.value)
        assert await text(client, 10) == "x" * 10


@pytest.mark.parametrize("place", ["first", "last"])
async def test_other_calls_go_on_when_an_answer_is_over_the_limit(place: str) -> None:
    async with connected() as client:
        held = asyncio.ensure_future(client.call_tool("hold"))
        large = asyncio.ensure_future(text(client, 200_000, place))
        small = asyncio.ensure_future(text(client, 20))
        with pytest.raises(RemoteProtocolError, match="longer than 6000 bytes"):
            await large
        assert await small == "x" * 20
        assert not held.done()
        held.cancel()


def test_which_of_two_calls_was_answered_is_not_guessed(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with connected() as client:
            held = asyncio.ensure_future(client.call_tool("hold"))
            large = asyncio.ensure_future(text(client, 10_000, "hidden"))
            await settle()
            # Answered after the other: it shows that the long one has arrived.
            assert await text(client, 20) == "x" * 20
            assert not held.done()
            assert not large.done()
            held.cancel()
            large.cancel()

    with caplog.at_level(logging.WARNING, logger="trunkline"):
        run_async(main())
    assert "a response to an unknown request was dropped" in caplog.text


async def test_an_answer_within_a_raised_limit_is_read() -> None:
    async with connected(limits=Limits(message_bytes=20_000)) as client:
        assert await text(client, 10_000) == "x" * 10_000


def test_a_question_over_the_limit_is_answered_with_an_error_under_its_id() -> None:
    async def main() -> str:
        async with connected(limits=Limits(message_bytes=4000), roots=[]) as client:
            return _only(await client.call_tool("ask"))

    answer = run_async(main())
    assert '"code": -32700' in answer
    assert "a line longer than 4000 bytes" in answer
