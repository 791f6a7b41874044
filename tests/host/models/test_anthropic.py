"""Anthropic only: reasoning that is returned, caches, the order of results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.models.providers import ANTHROPIC, Called, Reply, dialect_of, played
from tests.support import run_async
from trunkline.host.models.interface import (
    Finished,
    Model,
    ModelError,
    ModelMessage,
    ModelRequest,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)

HELLO = ModelMessage("user", (TextBlock("Hello?"),))
LOOK = ToolSpec("look", "Looks.", {"type": "object"})
RESULT = ModelMessage("user", (ToolResultBlock("c1", (TextBlock("an apple"),)),))
THOUGHT = {"type": "thinking", "thinking": "Hmm.", "signature": "signed"}
CALLING = ANTHROPIC.reply(["Let me see."], [Called("c1", "look", ["{}"])])


@pytest.fixture(autouse=True)
def _installed() -> None:
    dialect_of(ANTHROPIC)


async def _said(model: Model, *messages: ModelMessage, tools: tuple[ToolSpec, ...] = (LOOK,)) -> ModelMessage:
    events = [event async for event in model.stream(ModelRequest(messages=messages, tools=tools))]
    assert isinstance(events[-1], Finished)
    return events[-1].message


def _second(change: ModelMessage = HELLO, tools: tuple[ToolSpec, ...] = (LOOK,)) -> list[dict[str, Any]]:
    """Call a tool, send its result, optionally with something changed, and return the messages of that request."""

    async def main() -> list[dict[str, Any]]:
        async with played(CALLING, ANTHROPIC.reply(["An apple."])) as provider:
            model = ANTHROPIC.open(provider.url)
            called = await _said(model, HELLO)
            await _said(model, change, called, RESULT, tools=tools)
            await model.aclose()
            found: list[dict[str, Any]] = provider.seen[1].body["messages"]
            return found

    return run_async(main())


def test_what_was_thought_goes_back_unchanged_with_the_result() -> None:
    assert _second()[1]["content"] == [
        THOUGHT,
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
    ]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"change": ModelMessage("user", (TextBlock("Hello!"),))}, id="what-was-said-before"),
        pytest.param({"tools": (LOOK, ToolSpec("listen", "", {"type": "object"}))}, id="the-tools"),
    ],
)
def test_it_does_not_once_something_before_it_has_changed(changed: Any) -> None:
    assert [block["type"] for block in _second(**changed)[1]["content"]] == ["text", "tool_use"]


async def test_thoughts_that_are_refused_are_left_out_and_the_turn_is_made() -> None:
    no = ANTHROPIC.refuse(400, "invalid_request_error", "messages.1: Invalid `signature` in `thinking` block")
    async with played(CALLING, no, ANTHROPIC.reply(["An apple."])) as provider:
        model = ANTHROPIC.open(provider.url, pace={"tries": 2})
        called = await _said(model, HELLO)
        assert (await _said(model, HELLO, called, RESULT)).text == "An apple."
        assert THOUGHT not in provider.seen[2].body["messages"][1]["content"]
        await model.aclose()


async def test_results_stand_before_what_else_the_user_says() -> None:
    called = ModelMessage("assistant", (ToolUseBlock("c1", "look", {}),))
    mixed = ModelMessage("user", (TextBlock("Well?"), *RESULT.content))

    async with played(ANTHROPIC.reply(["Yes."])) as provider:
        model = ANTHROPIC.open(provider.url)
        await _said(model, HELLO, called, mixed)
        await model.aclose()
        assert [block["type"] for block in provider.seen[0].body["messages"][2]["content"]] == [
            "tool_result",
            "text",
        ]


@pytest.mark.parametrize(
    ("cache", "tools", "asked"), [(True, (LOOK,), True), (False, (LOOK,), False), (True, (), False)]
)
async def test_a_cache_is_asked_for_where_it_pays(cache: bool, tools: tuple[ToolSpec, ...], asked: bool) -> None:
    async with played(ANTHROPIC.reply(["Yes."])) as provider:
        model = ANTHROPIC.open(provider.url, cache=cache)
        await _said(model, HELLO, tools=tools)
        await model.aclose()
        assert ("cache_control" in provider.seen[0].body) is asked


def test_an_error_in_the_middle_of_the_stream_cuts_the_answer_off() -> None:
    parts = ANTHROPIC.reply(["One"]).parts
    text = next(at for at, part in enumerate(parts) if b"One" in part)
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'

    async def main() -> ModelError:
        async with played(Reply([*parts[: text + 1], error])) as provider:
            model = ANTHROPIC.open(provider.url)
            with pytest.raises(ModelError) as caught:
                await _said(model, HELLO)
            await model.aclose()
            return caught.value

    assert run_async(main()).fault == "cut off"


async def test_no_more_is_asked_for_than_the_model_can_write() -> None:
    async with played(ANTHROPIC.reply(["Yes."])) as provider:
        model = ANTHROPIC.open(provider.url, traits={"output_tokens": 1000})
        async for _ in model.stream(ModelRequest(messages=(HELLO,), max_tokens=9999)):
            pass
        await model.aclose()
        assert provider.seen[0].body["max_tokens"] == 1000
