"""How the adapters translate rare cases of the wire formats; without a connection."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.host.models.providers import HELLO, LOOK, RESPONSES, Called, opened
from trunkline.errors import ConfigError
from trunkline.host.models.anthropic import MessagesAccumulator
from trunkline.host.models.chat_completions import chat_body
from trunkline.host.models.interface import (
    Finished,
    ModelMessage,
    ModelRequest,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolUseBlock,
    Traits,
)
from trunkline.host.models.openai import ResponsesAccumulator
from trunkline.host.models.provider import error_text, load_sdk, retry_after
from trunkline.host.models.reasoning import ConversationDigest, ReasoningStore
from trunkline.host.models.selection import open_model


def _fed(answer: MessagesAccumulator | ResponsesAccumulator, *events: dict[str, Any]) -> list[Any]:
    return [found for event in events for found in answer.feed(event)]


def _begins(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


# --- messages --------------------------------------------------------------------------------------------------------


def test_a_block_may_have_all_of_it_in_its_beginning() -> None:
    answer = MessagesAccumulator()
    events = _fed(
        answer,
        _begins(0, type="text", text="Yes."),
        _begins(1, type="tool_use", id="c1", name="look", input={"path": "/a"}),
    )
    assert events[0] == TextDelta("Yes.")
    assert answer.finished().message.content == (TextBlock("Yes."), ToolUseBlock("c1", "look", {"path": "/a"}))


def test_blocks_and_events_that_are_not_known_are_passed_over() -> None:
    answer = MessagesAccumulator()
    _fed(
        answer,
        {"type": "a_thing_to_come"},
        {},
        _begins(0, type="server_tool_use", id="s", name="search", input={}),
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "lost"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "a_delta_to_come"}},
        {"type": "message_delta", "delta": None, "usage": "none"},
    )
    assert answer.finished().message.content == ()
    assert answer.provider_form() is None


def test_thoughts_that_are_hidden_go_back_too() -> None:
    answer = MessagesAccumulator()
    _fed(answer, _begins(0, type="redacted_thinking", data="sealed"), _begins(1, type="text", text=" "))
    assert answer.provider_form() == [{"type": "redacted_thinking", "data": "sealed"}]


def test_a_thought_that_was_not_finished_does_not_go_back() -> None:
    answer = MessagesAccumulator()
    _fed(answer, _begins(0, type="thinking", thinking="Hm", signature=""), _begins(1, type="text", text="Yes."))
    assert answer.provider_form() is None


# --- responses -------------------------------------------------------------------------------------------------------


def test_a_refusal_is_text_and_the_reason() -> None:
    answer = ResponsesAccumulator()
    events = _fed(
        answer,
        {"type": "response.refusal.delta", "delta": "I will not."},
        {"type": "response.completed", "response": {"status": "completed", "model": "gpt", "usage": None}},
    )
    assert events == [TextDelta("I will not.")]
    assert answer.finished().stop_reason == "refusal"


def test_an_error_among_the_events_is_kept() -> None:
    answer = ResponsesAccumulator()
    _fed(answer, {"type": "error", "code": "server_error", "message": "Sorry"}, {"type": "response.queued"})
    assert error_text(answer.failure) == ("Sorry", "server_error error")


async def test_thoughts_that_are_refused_are_left_out_and_the_turn_is_made() -> None:
    calling = RESPONSES.reply([], [Called("c1", "look", ["{}"])])
    no = RESPONSES.refuse(400, "invalid_encrypted_content", "The encrypted reasoning could not be read")

    async with opened(RESPONSES, calling, no, RESPONSES.reply(["Yes."]), pace={"tries": 2}) as (model, provider):
        events = [event async for event in model.stream(ModelRequest(messages=(HELLO,), tools=(LOOK,)))]
        assert isinstance(events[-1], Finished)
        result = ModelMessage("user", (ToolResultBlock("c1", ()),))
        more = ModelRequest(messages=(HELLO, events[-1].message, result), tools=(LOOK,))
        assert TextDelta("Yes.") in [event async for event in model.stream(more)]
        assert "sealed" in str(provider.seen[1].body)
        assert "sealed" not in str(provider.seen[2].body)


# --- chat ------------------------------------------------------------------------------------------------------------


def test_stop_sequences_are_sent_where_there_is_a_place_for_them() -> None:
    request = ModelRequest(messages=(HELLO,), stop_sequences=("END",))
    assert chat_body(request, model="x", traits=Traits(), limit_member="max_tokens")["stop"] == ["END"]


# --- what is remembered ----------------------------------------------------------------------------------------------


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first() -> None:
    reasoning, trail = ReasoningStore(), ConversationDigest("model")
    keys = [trail.key(number) for number in range(2000)]
    for key in keys:
        reasoning.keep(key, ["thought"])
    assert len(reasoning) == 1024
    assert reasoning.recall(keys[0]) is None
    assert reasoning.recall(keys[-1]) == ["thought"]


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e99"}, None),
        ({}, None),
    ],
)
def test_a_wait_is_read_if_it_is_one(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("Sorry", "Sorry"),
        ({"error": "Sorry"}, "Sorry"),
        ({"error": {"message": "Sorry"}}, "Sorry"),
        ({"message": "Sorry"}, "Sorry"),
        ({"detail": "Sorry"}, "Sorry"),
        ({"error": {"message": {"deep": 1}}}, ""),
        ({"error": [1]}, ""),
        (None, ""),
        (5, ""),
    ],
)
def test_words_are_found_in_every_shape(body: Any, words: str) -> None:
    assert error_text(body)[0] == words


# --- what is not installed -------------------------------------------------------------------------------------------


def test_a_missing_http_client_of_an_endpoint_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ConfigError, match=r"pip install 'trunkline\[http\]'"):
        open_model("ollama:qwen3", environ={})


def test_a_broken_sdk_is_not_reported_as_missing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_sdk.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        load_sdk("broken_sdk")


# --- silence ---------------------------------------------------------------------------------------------------------
