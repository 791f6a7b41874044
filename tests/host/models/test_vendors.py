"""What one vendor's wire alone has: reasoning that is returned, caches, stop sequences, failures inside the stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.host.models.providers import (
    ANTHROPIC,
    CHAT,
    HELLO,
    LOOK,
    RESPONSES,
    Called,
    Dialect,
    Reply,
    dialect_of,
    opened,
)
from tests.support import run_async
from trunkline.errors import ConfigError
from trunkline.host.models.interface import (
    AudioBlock,
    Finished,
    ImageBlock,
    Model,
    ModelError,
    ModelMessage,
    ModelRequest,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)

RESULT = ModelMessage("user", (ToolResultBlock("c1", (TextBlock("an apple"),)),))
THOUGHT = {"type": "thinking", "thinking": "Hmm.", "signature": "signed"}


def calling(dialect: Dialect) -> Reply:
    """Make an answer that calls a tool."""
    return dialect.reply(["Let me see."], [Called("c1", "look", ["{}"])])


async def _events(model: Model, *messages: ModelMessage, **more: Any) -> list[Any]:
    request = ModelRequest(messages=messages, **{"tools": (LOOK,), **more})
    return [event async for event in model.stream(request)]


async def _said(model: Model, *messages: ModelMessage, **more: Any) -> ModelMessage:
    finished = (await _events(model, *messages, **more))[-1]
    assert isinstance(finished, Finished)
    return finished.message


# --- Anthropic -------------------------------------------------------------------------------------------------------


def _second(change: ModelMessage = HELLO, tools: tuple[ToolSpec, ...] = (LOOK,)) -> list[dict[str, Any]]:
    """Call a tool, send its result, optionally with something changed, and return the messages of that request."""

    async def main() -> list[dict[str, Any]]:
        async with opened(ANTHROPIC, calling(ANTHROPIC), ANTHROPIC.reply(["An apple."])) as (model, provider):
            called = await _said(model, HELLO)
            await _said(model, change, called, RESULT, tools=tools)
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
    replies = (calling(ANTHROPIC), no, ANTHROPIC.reply(["An apple."]))
    async with opened(ANTHROPIC, *replies, pace={"tries": 2}) as (model, provider):
        called = await _said(model, HELLO)
        assert (await _said(model, HELLO, called, RESULT)).text == "An apple."
        assert THOUGHT not in provider.seen[2].body["messages"][1]["content"]


async def test_results_stand_before_what_else_the_user_says() -> None:
    called = ModelMessage("assistant", (ToolUseBlock("c1", "look", {}),))
    mixed = ModelMessage("user", (TextBlock("Well?"), *RESULT.content))

    async with opened(ANTHROPIC, ANTHROPIC.reply(["Yes."])) as (model, provider):
        await _said(model, HELLO, called, mixed)
        content = provider.seen[0].body["messages"][2]["content"]
    assert [block["type"] for block in content] == ["tool_result", "text"]


@pytest.mark.parametrize(
    ("cache", "tools", "asked"), [(True, (LOOK,), True), (False, (LOOK,), False), (True, (), False)]
)
async def test_a_cache_is_asked_for_where_it_pays(cache: bool, tools: tuple[ToolSpec, ...], asked: bool) -> None:
    async with opened(ANTHROPIC, ANTHROPIC.reply(["Yes."]), cache=cache) as (model, provider):
        await _said(model, HELLO, tools=tools)
        assert ("cache_control" in provider.seen[0].body) is asked


async def test_an_error_in_the_middle_of_the_stream_cuts_the_answer_off() -> None:
    parts = ANTHROPIC.reply(["One"]).parts
    text = next(at for at, part in enumerate(parts) if b"One" in part)
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'

    async with opened(ANTHROPIC, Reply([*parts[: text + 1], error])) as (model, _):
        with pytest.raises(ModelError) as caught:
            await _said(model, HELLO)
    assert caught.value.fault == "cut off"


async def test_no_more_is_asked_for_than_the_model_can_write() -> None:
    async with opened(ANTHROPIC, ANTHROPIC.reply(["Yes."]), traits={"output_tokens": 1000}) as (model, provider):
        async for _ in model.stream(ModelRequest(messages=(HELLO,), max_tokens=9999)):
            pass
        assert provider.seen[0].body["max_tokens"] == 1000


# --- OpenAI ----------------------------------------------------------------------------------------------------------


def _asked(dialect: Dialect, *messages: ModelMessage, **more: Any) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with opened(dialect, dialect.reply(["Yes."]), **more) as (model, provider):
            await _events(model, *messages)
            return provider.seen[0].body

    return run_async(main())


def test_nothing_is_kept_at_the_provider() -> None:
    body = _asked(RESPONSES, HELLO)
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]


async def test_a_model_that_does_not_think_is_not_asked_for_thoughts() -> None:
    async with opened(RESPONSES._replace(model="openai:gpt-4.1"), RESPONSES.reply(["Yes."])) as (model, provider):
        await _events(model, HELLO)
        assert "include" not in provider.seen[0].body


async def test_what_was_thought_goes_back_with_the_result() -> None:
    async with opened(RESPONSES, calling(RESPONSES), RESPONSES.reply(["An apple."])) as (model, provider):
        finished = (await _events(model, HELLO))[-1]
        assert isinstance(finished, Finished)
        await _events(model, HELLO, finished.message, RESULT)
        items = provider.seen[1].body["input"]
        assert [item.get("type", "user") for item in items] == [
            *("user", "reasoning", "message", "function_call", "function_call_output")
        ]
        assert items[1] == {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}


def test_an_image_of_a_result_goes_with_the_result() -> None:
    called = ModelMessage("assistant", (ToolUseBlock("c1", "look", {}),))
    seen = ModelMessage("user", (ToolResultBlock("c1", (ImageBlock("aGk=", "image/png"),), is_error=True),))
    output = _asked(RESPONSES, HELLO, called, seen)["input"][-1]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        pytest.param(["One STOP two"], "One ", id="in-one-piece"),
        pytest.param(["One S", "TO", "P two"], "One ", id="in-pieces"),
        pytest.param(["One S", "TO", "RE"], "One STORE", id="one-that-only-begins-like-it"),
        pytest.param(["One ST"], "One ST", id="a-beginning-at-the-end"),
    ],
)
async def test_the_text_ends_at_a_stop_sequence_however_it_is_cut(pieces: list[str], text: str) -> None:
    async with opened(RESPONSES, RESPONSES.reply(pieces)) as (model, _):
        events = await _events(model, HELLO, stop_sequences=("STOP", "END"))
        assert events[-1].message.text == text
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text
        assert events[-1].stop_reason == ("stop_sequence" if text == "One " else "end")


@pytest.mark.parametrize(
    ("code", "fault"),
    [("server_error", "down"), ("rate_limit_exceeded", "rate limited"), ("invalid_prompt", "refused")],
)
async def test_a_response_that_failed_says_why(code: str, fault: str) -> None:
    event = {
        "type": "response.failed",
        "sequence_number": 1,
        "response": {"id": "r", "object": "response", "status": "failed", "error": {"code": code, "message": "Sorry"}},
    }
    failed = Reply([f"event: response.failed\ndata: {json.dumps(event)}\n\n".encode()])
    async with opened(RESPONSES, failed) as (model, _):
        with pytest.raises(ModelError, match="Sorry") as caught:
            await _events(model, HELLO)
    assert caught.value.fault == fault


async def test_an_audio_model_is_called_by_chat_completions() -> None:
    audio = CHAT._replace(model="openai:gpt-audio", options={})
    async with opened(audio, CHAT.reply(["A bell."])) as (model, provider):
        await _events(model, ModelMessage("user", (AudioBlock("aGk=", "audio/mpeg"),)))
        assert provider.seen[0].path == "/v1/chat/completions"
        assert provider.seen[0].body["messages"][0]["content"] == [
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}}
        ]


def test_there_are_two_interfaces_and_no_third() -> None:
    with pytest.raises(ConfigError, match="'responses' or 'chat'"):
        dialect_of(RESPONSES).open("http://127.0.0.1:1", api="telegraph")


def test_chat_completions_are_asked_for_usage_and_limited_by_the_new_name() -> None:
    body = _asked(CHAT, HELLO)
    assert body["stream_options"] == {"include_usage": True}
    assert body["max_completion_tokens"] == 4096
