"""Functions of every kind are run: async and sync, plain and generators, in threads and not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Annotated, Any

import pytest

from tests.server.talk import STATELESS, call, reach, text
from trunkline import Context, Depends, Server
from trunkline.server.handler_functions import UncheckedSignature


def serving(function: Callable[..., Any], **options: Any) -> Server:
    server = Server("s")
    server.add_tool(function, **{"name": "f", **options})
    return server


async def _pieces() -> AsyncIterator[str]:
    yield "one "
    yield "two"


def _pieces_in_a_thread() -> Iterator[str]:
    yield "one "
    yield "two"


@pytest.mark.parametrize(
    ("function", "thread", "pieces"),
    [
        (_pieces, True, [(1, "one "), (2, "two")]),
        (_pieces_in_a_thread, True, [(1, "one "), (2, "two")]),
        (_pieces_in_a_thread, False, []),
    ],
    ids=["async", "sync", "in the loop"],
)
async def test_a_generator_sends_its_pieces_as_progress(
    function: Callable[..., Any], thread: bool, pieces: list[Any]
) -> None:
    async with reach(serving(function, thread=thread), STATELESS) as peer:
        result = await peer.call("f", meta={"progressToken": 1})
    told = [(each["progress"], each["message"]) for each in peer.notices("notifications/progress")]
    assert (text(result), told) == ("one two", pieces)


@pytest.mark.parametrize("thread", [True, False])
def test_a_generator_must_yield_strings(thread: bool, caplog: pytest.LogCaptureFixture) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    assert call(serving(numbers, thread=thread), "f")["isError"] is True
    assert "must yield strings, not int" in caplog.text


async def test_an_async_generator_is_closed_when_its_request_is_cancelled() -> None:
    log: list[str] = []

    async def numbers() -> AsyncIterator[Any]:
        try:
            yield 1
        finally:
            log.append("closed")

    async with reach(serving(numbers), STATELESS) as peer:
        assert (await peer.call("f"))["isError"] is True
        assert log == ["closed"]


async def _add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@pytest.mark.parametrize("thread", [True, False])
def test_a_function_may_return_a_coroutine(thread: bool) -> None:
    def f(a: int) -> Any:
        return _add(a, b=2)

    assert text(call(serving(f, thread=thread), "f", a=1)) == "3"


@pytest.mark.parametrize(("thread", "context"), [(True, "BlockingContext"), (False, "Context")])
def test_a_sync_function_runs_in_a_thread_unless_it_shall_not(thread: bool, context: str) -> None:
    def f(n: Annotated[int, Depends(lambda: 7)], ctx: Context) -> str:
        return f"{n} {threading.current_thread() is threading.main_thread()} {type(ctx).__name__} {ctx.method}"

    assert text(call(serving(f, thread=thread), "f")) == f"7 {not thread} {context} tools/call"


def test_a_partial_is_a_tool() -> None:
    assert text(call(serving(partial(_add, b=5)), "f", a=1)) == "6"


def test_a_function_with_a_given_schema_is_not_bound_by_its_signature() -> None:
    signature = UncheckedSignature(lambda **given: given)
    with pytest.raises(TypeError, match="not bound by its signature"):
        signature.bind(b"{}")
    with pytest.raises(TypeError, match="the input schema was given"):
        signature.input_schema()
