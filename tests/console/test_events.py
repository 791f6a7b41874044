"""Events for the pages of the console: a page that does not read holds a bounded number and size of them."""

from __future__ import annotations

import pytest

from trunkline.console.events import ConsoleEvents


@pytest.mark.parametrize(
    ("count", "size", "left"),
    [(2001, 1, ["missed", "log", "last"]), (3, 30 * 1024 * 1024, ["missed", "last"])],
    ids=["many", "large"],
)
async def test_the_events_of_a_page_that_does_not_read_are_replaced_by_one(
    count: int, size: int, left: list[str]
) -> None:
    events = ConsoleEvents()
    stream, text = events.stream(), "x" * size
    for _ in range(count):
        events.publish("log", data=text)
    events.publish("last")
    assert [(await anext(stream))["type"] for _ in left] == left


async def test_an_event_that_is_larger_than_the_queue_is_sent_to_a_page_that_reads() -> None:
    events = ConsoleEvents()
    stream = events.stream()
    assert await anext(stream) == {"type": "hello"}
    for _ in range(2):
        events.publish("app", message="x" * (65 * 1024 * 1024))
        assert (await anext(stream))["type"] == "app"
