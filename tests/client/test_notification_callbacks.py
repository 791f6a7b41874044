"""Running the user's callbacks."""

from __future__ import annotations

import asyncio

from trunkline.client.notifications import CallbackRunner


def test_an_error_in_a_sync_callback_is_contained() -> None:
    heard: list[int] = []
    callbacks = CallbackRunner(5)
    callbacks.notify(lambda: 1 / 0)
    callbacks.notify(heard.append, 1)
    callbacks.notify(None, 2)
    assert heard == [1]


async def test_an_error_in_an_async_callback_is_contained() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    callbacks = CallbackRunner(5)
    callbacks.notify(broken)
    await asyncio.sleep(0)
    await callbacks.aclose()


async def test_async_callbacks_start_in_the_order_of_the_news() -> None:
    heard: list[int] = []

    async def hear(news: int) -> None:
        heard.append(news)

    callbacks = CallbackRunner(5)
    callbacks.notify(hear, 1)
    callbacks.notify(hear, 2)
    await asyncio.sleep(0)
    assert heard == [1, 2]


async def test_news_that_come_too_fast_are_dropped_and_counted() -> None:
    async def slow(news: int) -> None:
        await asyncio.Event().wait()

    callbacks = CallbackRunner(2)
    callbacks.notify(slow, 1)
    callbacks.notify(slow, 2)
    callbacks.notify(slow, 3)
    assert callbacks.dropped == 1
    await callbacks.aclose()
