"""Endpoints with their own variants of chat completions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.host.models.providers import COMPATIBLE, HELLO, LOOK, Dialect, Reply, opened, played
from tests.support import run_async
from trunkline.host.models.interface import (
    Finished,
    ModelError,
    ModelMessage,
    ModelRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from trunkline.host.models.selection import open_model


def _chunks(*chunks: Any, done: bool = True) -> Reply:
    end = [b"data: [DONE]\n\n"] if done else []
    return Reply([*(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks), *end])


def _delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "qwen3", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _call(index: int | None, arguments: Any, **more: Any) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {**place, **more, "type": "function", "function": {"name": "look", "arguments": arguments}}


def _turn(reply: Reply, *messages: ModelMessage, dialect: Dialect = COMPATIBLE, **more: Any) -> Finished:
    async def main() -> Finished:
        async with opened(dialect, reply, **more) as (model, _):
            request = ModelRequest(messages=messages or (HELLO,), tools=(LOOK,))
            events = [event async for event in model.stream(request)]
        assert isinstance(events[-1], Finished)
        return events[-1]

    return run_async(main())


def _fails(reply: Reply, **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        _turn(reply, **more)
    return caught.value


def _arguments(finished: Finished) -> list[dict[str, Any] | None]:
    return [use.arguments for use in finished.message.tool_uses]


def test_calls_that_all_have_index_0_are_distinguished_by_their_ids() -> None:
    both = [_call(0, '{"path": "/a"}', id="call_a"), _call(0, '{"path": "/b"}', id="call_b")]
    finished = _turn(_chunks(_delta(tool_calls=both), _delta("stop")))
    assert _arguments(finished) == [{"path": "/a"}, {"path": "/b"}]
    assert [use.id for use in finished.message.tool_uses] == ["call_a", "call_b"]


def test_calls_without_ids_get_ids_of_their_own() -> None:
    both = [_call(0, '{"path": "/a"}', id=""), _call(0, '{"path": "/b"}')]
    finished = _turn(_chunks(_delta(tool_calls=both), _delta("tool_calls")))
    assert _arguments(finished) == [{"path": "/a"}, {"path": "/b"}]
    assert len({use.id for use in finished.message.tool_uses}) == 2


def test_an_id_and_a_name_that_are_repeated_go_on_with_the_same_call() -> None:
    pieces = [_delta(tool_calls=[_call(0, piece, id="c1")]) for piece in ('{"path"', ': "/a"}')]
    assert _arguments(_turn(_chunks(*pieces, _delta("tool_calls")))) == [{"path": "/a"}]


def test_arguments_that_are_an_object_already_are_taken() -> None:
    finished = _turn(_chunks(_delta(tool_calls=[_call(None, {"path": "/a"}, id="c1")]), _delta("tool_calls")))
    assert _arguments(finished) == [{"path": "/a"}]


def test_an_end_that_says_stop_although_tools_are_called_means_tools() -> None:
    finished = _turn(_chunks(_delta(tool_calls=[_call(0, "{}", id="c1")]), _delta("stop")))
    assert finished.stop_reason == "tools"


def test_an_end_without_its_mark_and_without_usage_is_an_end() -> None:
    finished = _turn(_chunks(_delta(content="Yes."), _delta("stop"), done=False))
    assert finished.message.text == "Yes."
    assert finished.usage.output_tokens == 0


def test_reasoning_is_not_shown() -> None:
    finished = _turn(_chunks(_delta(reasoning_content="Hm."), _delta(reasoning="Hm."), _delta("stop", content="Yes.")))
    assert finished.message.text == "Yes."


def test_a_refusal_is_text_and_the_reason() -> None:
    finished = _turn(_chunks(_delta(refusal="I will not."), _delta("stop")))
    assert (finished.message.text, finished.stop_reason) == ("I will not.", "refusal")


def test_members_of_other_shapes_are_read_as_nothing() -> None:
    odd = [
        {"choices": None},
        {"choices": [None, 5]},
        _delta(content=7, tool_calls="x"),
        _delta(tool_calls=[{"index": 0}, None]),
        {"choices": [{"index": 1, "delta": {"content": "another answer"}}], "usage": "much"},
    ]
    assert _turn(_chunks(*odd, _delta("stop", content="Yes."))).message.text == "Yes."


def test_a_whole_completion_from_who_does_not_stream_is_taken() -> None:
    message = {"role": "assistant", "content": "Yes.", "tool_calls": [_call(None, '{"path": "/a"}', id="c1")]}
    whole = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3}}
    finished = _turn(Reply([json.dumps(whole).encode()], kind="application/json"))
    assert finished.message.text == "Yes."
    assert _arguments(finished) == [{"path": "/a"}]
    assert finished.usage.input_tokens == 3


@pytest.mark.parametrize(
    ("status", "body", "fault", "word"),
    [
        pytest.param(404, {"error": 'model "x" not found, try pulling it'}, "refused", "ollama pull x", id="ollama"),
        pytest.param(
            400, {"error": {"message": "x does not support tools"}}, "refused", "cannot use tools", id="tools"
        ),
        pytest.param(400, {"object": "error", "message": "bad"}, "refused", "bad", id="vllm"),
        pytest.param(422, {"detail": "bad member"}, "refused", "bad member", id="fastapi"),
        pytest.param(
            400,
            {"error": {"code": 400, "message": "too big", "type": "exceed_context_size_error"}},
            "too long",
            "too long",
            id="llama.cpp",
        ),
        pytest.param(404, "404 page not found", "refused", "/v1", id="nothing-there"),
        pytest.param(503, {"error": {"message": "Loading model"}}, "down", "Loading model", id="loading"),
    ],
)
def test_errors_in_every_shape_become_a_sentence(status: int, body: Any, fault: str, word: str) -> None:
    reply = Reply([json.dumps(body).encode()], status, "application/json")
    error = _fails(reply, dialect=COMPATIBLE._replace(model="ollama:x"))
    assert error.fault == fault
    assert word in str(error)


def test_an_error_in_the_middle_of_the_stream_cuts_the_answer_off() -> None:
    error = _fails(_chunks(_delta(content="On"), {"error": {"message": "CUDA out of memory"}}))
    assert error.fault == "cut off"
    assert "CUDA out of memory" in str(error)


def test_an_event_of_enormous_size_cuts_the_answer_off() -> None:
    reply = Reply([b"data: " + b"x" * 65_536, b"x" * 65_536], then="repeat")
    error = _fails(reply, pace={"answer_bytes": 64 * 1024 * 1024})
    assert error.fault == "cut off"
    assert "longer than" in str(error)


async def test_a_redirect_to_elsewhere_is_not_followed_with_the_key() -> None:
    async with played(COMPATIBLE.reply(["Stolen."])) as thief:
        there = Reply([], 307, "text/plain", [("Location", f"{thief.url}/v1/chat/completions")])
        async with opened(COMPATIBLE, there) as (model, _):
            with pytest.raises(ModelError):
                async for _ in model.stream(ModelRequest(messages=(HELLO,))):
                    pass
        assert thief.seen == []


async def test_without_a_key_none_is_sent_and_where_one_is_needed_that_is_said() -> None:
    async with played(Reply([b"{}"], 401, "application/json")) as provider:
        environ = {"TRUNKLINE_MODEL_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "sk-not-for-you-0123456789"}
        model = open_model("compatible:x", environ=environ)
        with pytest.raises(ModelError, match="TRUNKLINE_MODEL_KEY") as caught:
            async for _ in model.stream(ModelRequest(messages=(HELLO,))):
                pass
        await model.aclose()
        assert caught.value.fault == "no key"
        assert "authorization" not in provider.seen[0].headers


async def test_the_error_of_a_closed_port_says_how_to_start_the_server() -> None:
    async with played() as provider:
        url = provider.url
    model = open_model("ollama:qwen3", environ={"TRUNKLINE_MODEL_URL": f"{url}/v1"})
    with pytest.raises(ModelError, match="ollama serve") as caught:
        async for _ in model.stream(ModelRequest(messages=(HELLO,))):
            pass
    await model.aclose()
    assert "refused" in str(caught.value).lower()


async def test_results_are_messages_of_their_own_and_texts_are_texts() -> None:
    called = ModelMessage("assistant", (ToolUseBlock("c1", "look", {}), ToolUseBlock("c2", "look", {})))
    results = ModelMessage(
        "user",
        (
            TextBlock("Well?"),
            ToolResultBlock("c1", (TextBlock("an apple"),)),
            ToolResultBlock("c2", (TextBlock("no"),), is_error=True),
        ),
    )

    async with opened(COMPATIBLE, COMPATIBLE.reply(["Yes."])) as (model, provider):
        async for _ in model.stream(ModelRequest(messages=(HELLO, called, results), tools=(LOOK,))):
            pass
        assert provider.seen[0].body["messages"][2:] == [
            {"role": "tool", "tool_call_id": "c1", "content": "an apple"},
            {"role": "tool", "tool_call_id": "c2", "content": "The call failed:\nno"},
            {"role": "user", "content": "Well?"},
        ]
