"""OpenAI only: reasoning that is returned, stop sequences, failures inside the stream, audio models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.host.models.providers import CHAT, RESPONSES, Called, Dialect, Reply, dialect_of, played
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

HELLO = ModelMessage("user", (TextBlock("Hello?"),))
LOOK = ToolSpec("look", "Looks.", {"type": "object"})
RESULT = ModelMessage("user", (ToolResultBlock("c1", (TextBlock("an apple"),)),))
CALLING = RESPONSES.reply(["Let me see."], [Called("c1", "look", ["{}"])])


@pytest.fixture(autouse=True)
def _installed() -> None:
    dialect_of(RESPONSES)


async def _events(model: Model, *messages: ModelMessage, **more: Any) -> list[Any]:
    request = ModelRequest(messages=messages, tools=(LOOK,), **more)
    return [event async for event in model.stream(request)]


def _asked(dialect: Dialect, *messages: ModelMessage, **more: Any) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with played(dialect.reply(["Yes."])) as provider:
            model = dialect.open(provider.url, **more)
            await _events(model, *messages)
            await model.aclose()
            return provider.seen[0].body

    return run_async(main())


def test_nothing_is_kept_at_the_provider() -> None:
    body = _asked(RESPONSES, HELLO)
    assert body["store"] is False
    assert body["include"] == ["reasoning.encrypted_content"]


async def test_a_model_that_does_not_think_is_not_asked_for_thoughts() -> None:
    async with played(RESPONSES.reply(["Yes."])) as provider:
        model = RESPONSES._replace(model="openai:gpt-4.1").open(provider.url)
        await _events(model, HELLO)
        await model.aclose()
        assert "include" not in provider.seen[0].body


async def test_what_was_thought_goes_back_with_the_result() -> None:
    async with played(CALLING, RESPONSES.reply(["An apple."])) as provider:
        model = RESPONSES.open(provider.url)
        finished = (await _events(model, HELLO))[-1]
        assert isinstance(finished, Finished)
        await _events(model, HELLO, finished.message, RESULT)
        await model.aclose()
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
    async with played(RESPONSES.reply(pieces)) as provider:
        model = RESPONSES.open(provider.url)
        events = await _events(model, HELLO, stop_sequences=("STOP", "END"))
        await model.aclose()
        assert events[-1].message.text == text
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == text
        assert events[-1].stop_reason == ("stop_sequence" if text == "One " else "end")


@pytest.mark.parametrize(
    ("code", "fault"),
    [("server_error", "down"), ("rate_limit_exceeded", "rate limited"), ("invalid_prompt", "refused")],
)
def test_a_response_that_failed_says_why(code: str, fault: str) -> None:
    event = {
        "type": "response.failed",
        "sequence_number": 1,
        "response": {"id": "r", "object": "response", "status": "failed", "error": {"code": code, "message": "Sorry"}},
    }

    async def main() -> ModelError:
        async with played(Reply([f"event: response.failed\ndata: {json.dumps(event)}\n\n".encode()])) as provider:
            model = RESPONSES.open(provider.url)
            with pytest.raises(ModelError, match="Sorry") as caught:
                await _events(model, HELLO)
            await model.aclose()
            return caught.value

    assert run_async(main()).fault == fault


async def test_an_audio_model_is_called_by_chat_completions() -> None:
    async with played(CHAT.reply(["A bell."])) as provider:
        model = CHAT._replace(model="openai:gpt-audio", options={}).open(provider.url)
        await _events(model, ModelMessage("user", (AudioBlock("aGk=", "audio/mpeg"),)))
        await model.aclose()
        assert provider.seen[0].path == "/v1/chat/completions"
        assert provider.seen[0].body["messages"][0]["content"] == [
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}}
        ]


def test_there_are_two_interfaces_and_no_third() -> None:
    with pytest.raises(ConfigError, match="'responses' or 'chat'"):
        RESPONSES.open("http://127.0.0.1:1", api="telegraph")


def test_chat_completions_are_asked_for_usage_and_limited_by_the_new_name() -> None:
    body = _asked(CHAT, HELLO)
    assert body["stream_options"] == {"include_usage": True}
    assert body["max_completion_tokens"] == 4096
