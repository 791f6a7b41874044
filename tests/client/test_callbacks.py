"""Running the user's callbacks."""

from __future__ import annotations

import asyncio

from tests.support import run_async
from trunkline.client.callbacks import Callbacks


def test_a_plain_callback_that_fails_hurts_nobody() -> None:
    heard: list[int] = []
    callbacks = Callbacks(5)
    callbacks.tell(lambda: 1 / 0)
    callbacks.tell(heard.append, 1)
    callbacks.tell(None, 2)
    assert heard == [1]


def test_an_async_callback_that_fails_hurts_nobody() -> None:
    async def main() -> None:
        async def broken() -> None:
            raise ZeroDivisionError

        callbacks = Callbacks(5)
        callbacks.tell(broken)
        await asyncio.sleep(0)
        await callbacks.aclose()

    run_async(main())


def test_async_callbacks_start_in_the_order_of_the_news() -> None:
    async def main() -> None:
        heard: list[int] = []

        async def hear(news: int) -> None:
            heard.append(news)

        callbacks = Callbacks(5)
        callbacks.tell(hear, 1)
        callbacks.tell(hear, 2)
        await asyncio.sleep(0)
        assert heard == [1, 2]

    run_async(main())


def test_news_that_come_too_fast_are_dropped_and_counted() -> None:
    async def main() -> None:
        async def slow(news: int) -> None:
            await asyncio.Event().wait()

        callbacks = Callbacks(2)
        callbacks.tell(slow, 1)
        callbacks.tell(slow, 2)
        callbacks.tell(slow, 3)
        assert callbacks.dropped == 1
        await callbacks.aclose()

    run_async(main())
