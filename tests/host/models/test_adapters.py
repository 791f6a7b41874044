"""What every adapter guarantees, over each vendor's wire format."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest

from tests.host.models.providers import (
    DIALECTS,
    KEY,
    Called,
    Dialect,
    Reply,
    cut_short,
    dialect_of,
    opened,
    played,
)
from tests.support import run_async
from trunkline.host.models.interface import (
    AudioBlock,
    Finished,
    ImageBlock,
    Model,
    ModelError,
    ModelEvent,
    ModelMessage,
    ModelRequest,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBegun,
    ToolUseBlock,
    Usage,
)

PIXEL = ImageBlock("aGk=", "image/png")
SOUND = AudioBlock("aGk=", "audio/wav")
ASKED = ModelRequest(messages=(ModelMessage("user", (TextBlock("Hello?"),)),))
LOOK = ToolSpec("files__look", "Looks.", {"type": "object", "properties": {"path": {"type": "string"}}})


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    each: Dialect = request.param
    return dialect_of(each)


async def _all(model: Model, request: ModelRequest = ASKED) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


def turn(dialect: Dialect, *replies: Reply, asked: ModelRequest = ASKED, **more: Any) -> list[ModelEvent]:
    async def main() -> list[ModelEvent]:
        async with opened(dialect, *replies, **more) as (model, _):
            return await _all(model, asked)

    return run_async(main())


def sent(dialect: Dialect, asked: ModelRequest, **more: Any) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        async with opened(dialect, dialect.reply(["Yes."]), **more) as (model, provider):
            await _all(model, asked)
            assert provider.seen[0].path == dialect.path
            return provider.seen[0].body

    return run_async(main())


def failure(dialect: Dialect, *replies: Reply, asked: ModelRequest = ASKED, **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        turn(dialect, *replies, asked=asked, **more)
    return caught.value


def last(events: list[ModelEvent]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def _until(dialect: Dialect, text: str) -> list[bytes]:
    """Return the beginning of an answer, up to its first text."""
    parts = dialect.reply([text]).parts
    return list(parts[: 1 + next(at for at, part in enumerate(parts) if text.encode() in part)])


def _of(kind: type, events: list[ModelEvent]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# --- answers ---------------------------------------------------------------------------------------------------------


def test_text_comes_in_pieces_and_then_whole(dialect: Dialect) -> None:
    events = turn(dialect, dialect.reply(["Gr", "üezi", "!"]))
    assert "".join(event.text for event in _of(TextDelta, events)) == "Grüezi!"
    assert len(_of(TextDelta, events)) == 3
    assert last(events).message == ModelMessage("assistant", (TextBlock("Grüezi!"),))
    assert last(events).stop_reason == "end"


def test_usage_counts_what_was_read_from_and_written_to_a_cache(dialect: Dialect) -> None:
    assert last(turn(dialect, dialect.reply(["Yes."]))).usage == Usage(10, 7, 4, 1)


def test_calls_side_by_side_are_put_together_from_their_pieces(dialect: Dialect) -> None:
    calls = [Called("c1", "files__look", ['{"pa', 'th": "/a"}']), Called("c2", "clock", [])]
    events = turn(dialect, dialect.reply(["Let me see."], calls))
    assert last(events).message.content == (
        TextBlock("Let me see."),
        ToolUseBlock("c1", "files__look", {"path": "/a"}),
        ToolUseBlock("c2", "clock", {}),
    )
    assert last(events).stop_reason == "tools"
    assert _of(ToolUseBegun, events) == [ToolUseBegun("files__look"), ToolUseBegun("clock")]


@pytest.mark.parametrize("written", ['{"path": ', "[1]", "not JSON at all"])
def test_arguments_that_are_no_object_stay_what_was_written(dialect: Dialect, written: str) -> None:
    events = turn(dialect, dialect.reply([], [Called("c1", "files__look", [written])]))
    assert last(events).message.content == (ToolUseBlock("c1", "files__look", None, written),)


@pytest.mark.parametrize("reason", ["length", "refusal"])
def test_an_answer_that_did_not_end_by_itself_says_why(dialect: Dialect, reason: str) -> None:
    assert last(turn(dialect, dialect.reply(["Then"], stop=reason))).stop_reason == reason


# --- requests --------------------------------------------------------------------------------------------------------


async def test_the_key_is_sent_and_nothing_is_asked_twice(dialect: Dialect) -> None:
    async with opened(dialect, dialect.reply(["Yes."])) as (model, provider):
        await _all(model)
        headers = provider.seen[0].headers
        assert KEY in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))
        assert len(provider.seen) == 1


def test_a_whole_conversation_is_sent_with_its_calls_and_results(dialect: Dialect) -> None:
    asked = ModelRequest(
        messages=(
            ModelMessage("user", (TextBlock("Look at /a"), PIXEL)),
            ModelMessage("assistant", (TextBlock("Yes."), ToolUseBlock("c1", "files__look", {"path": "/a"}))),
            ModelMessage("user", (ToolResultBlock("c1", (TextBlock("an apple"), PIXEL)),)),
            ModelMessage("assistant", (TextBlock("An apple."),)),
            ModelMessage("user", (TextBlock("And /b?"),)),
        ),
        system="Be brief.",
        tools=(LOOK,),
        max_tokens=99,
    )
    body = str(sent(dialect, asked))
    for part in ("Look at /a", "Be brief.", "an apple", "An apple.", "And /b?", "files__look", "Looks.", "99", "c1"):
        assert part in body
    assert body.count("aGk=") == 2


@pytest.mark.parametrize("choice", ["auto", "any", "none", "files__look"])
def test_every_choice_of_tools_is_put_in_the_providers_words(dialect: Dialect, choice: str) -> None:
    body = sent(dialect, ModelRequest(messages=ASKED.messages, tools=(LOOK,), tool_choice=choice))
    assert body["tool_choice"] in (
        {"auto": "auto", "any": "required", "none": "none"}.get(choice),
        {"type": choice},
        {"type": "tool", "name": choice},
        {"type": "function", "name": choice},
        {"type": "function", "function": {"name": choice}},
    )


def test_a_temperature_is_sent_where_the_model_takes_one(dialect: Dialect) -> None:
    warm = ModelRequest(messages=ASKED.messages, temperature=0.5)
    assert sent(dialect, warm, traits={"temperature": True})["temperature"] == 0.5
    assert "temperature" not in sent(dialect, warm, traits={"temperature": False})


def test_a_call_that_was_no_json_goes_back_as_an_object(dialect: Dialect) -> None:
    asked = ModelRequest(
        messages=(
            *ASKED.messages,
            ModelMessage("assistant", (ToolUseBlock("c1", "files__look", None, '{"path'),)),
            ModelMessage("user", (ToolResultBlock("c1", (TextBlock("no JSON"),), is_error=True),)),
        ),
        tools=(LOOK,),
    )
    assert "not_json" in str(sent(dialect, asked))


def test_empty_texts_and_messages_are_left_out(dialect: Dialect) -> None:
    empty, more = ModelMessage("assistant", (TextBlock(""),)), ModelMessage("user", (TextBlock("Still there?"),))
    body = sent(dialect, ModelRequest(messages=(*ASKED.messages, empty, more)))
    said = body["input"] if "input" in body else body["messages"]
    assert [each["role"] for each in said] == ["user", "user"]


# --- what a model cannot take ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "traits", "word"),
    [
        pytest.param(PIXEL, {"images": False}, "images", id="an-image"),
        pytest.param(ImageBlock("aGk=", "image/tiff"), {"images": True}, "image/tiff", id="an-image-of-a-strange-type"),
        pytest.param(SOUND, {"audio": False}, "audio", id="audio"),
    ],
)
def test_what_a_model_cannot_take_is_refused_by_name_before_anything_is_sent(
    dialect: Dialect, block: ImageBlock | AudioBlock, traits: dict[str, bool], word: str
) -> None:
    error = failure(
        dialect,
        dialect.reply(["Yes."]),
        asked=ModelRequest(messages=(ModelMessage("user", (TextBlock("This?"), block)),)),
        traits=traits,
    )
    assert error.fault == "refused"
    assert dialect.model in str(error)
    assert word in str(error)


def test_in_the_result_of_a_tool_it_becomes_a_note(dialect: Dialect) -> None:
    asked = ModelRequest(
        messages=(
            *ASKED.messages,
            ModelMessage("assistant", (ToolUseBlock("c1", "files__look", {}),)),
            ModelMessage("user", (ToolResultBlock("c1", (PIXEL, TextBlock("seen"))),)),
        ),
        tools=(LOOK,),
    )
    body = str(sent(dialect, asked, traits={"images": False}))
    assert "cannot be shown" in body
    assert "aGk=" not in body


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "words", "fault"),
    [
        pytest.param(401, "invalid_api_key", f"Incorrect API key: {KEY}", "refused key", id="a-wrong-key"),
        pytest.param(403, "permission_error", "Not for you", "refused key", id="a-key-that-may-not"),
        pytest.param(429, "rate_limit_error", "Slow down", "rate limited", id="too-often"),
        pytest.param(429, "insufficient_quota", "You exceeded your current quota", "refused", id="nothing-paid"),
        pytest.param(400, "invalid_request_error", "tools.0: bad schema", "refused", id="a-bad-request"),
        pytest.param(400, "context_length_exceeded", "maximum context length is 8", "too long", id="too-long-for-gpt"),
        pytest.param(413, "request_too_large", "Too large", "too long", id="too-many-bytes"),
        pytest.param(529, "overloaded_error", "Overloaded", "down", id="overloaded"),
    ],
)
def test_a_refusal_becomes_a_sentence_with_the_fix(
    dialect: Dialect, status: int, kind: str, words: str, fault: str
) -> None:
    error = failure(dialect, dialect.refuse(status, kind, words))
    assert error.fault == fault
    assert str(error).endswith(".")
    assert KEY not in "".join(traceback.format_exception(error))


def test_a_key_that_a_provider_repeats_is_not_shown(dialect: Dialect) -> None:
    error = failure(dialect, dialect.refuse(400, "x", f"I got {KEY} from you\x1b[31m"))
    assert KEY not in str(error)
    assert "\x1b" not in str(error)


def test_a_provider_that_is_busy_is_asked_again_before_the_first_word(dialect: Dialect) -> None:
    busy = dialect.refuse(429, "rate_limit_error", "Slow down", retry_after="0.01")
    broken = dialect.refuse(503, "api_error", "Not now")
    events = turn(dialect, busy, broken, dialect.reply(["At last."]), pace={"tries": 3})
    assert last(events).message.text == "At last."


async def test_it_is_asked_so_often_and_no_oftener(dialect: Dialect) -> None:
    async with opened(dialect, dialect.refuse(529, "overloaded_error", "Full"), pace={"tries": 3}) as (
        model,
        there,
    ):
        with pytest.raises(ModelError, match="try again"):
            await _all(model)
        assert len(there.seen) == 3


def test_a_retry_delay_that_is_too_long_is_reported_instead(dialect: Dialect) -> None:
    busy = dialect.refuse(429, "rate_limit_error", "Slow down", retry_after="3600")
    error = failure(dialect, busy, dialect.reply(["Late."]), pace={"tries": 3})
    assert error.retry_after == 3600
    assert error.fault == "rate limited"


def test_what_would_fail_again_is_not_tried_again(dialect: Dialect) -> None:
    error = failure(dialect, dialect.refuse(400, "x", "no"), dialect.reply(["Yes."]), pace={"tries": 3})
    assert error.fault == "refused"


async def test_a_closed_port_is_a_provider_that_is_down(dialect: Dialect) -> None:
    async with played() as provider:
        url = provider.url
    model = dialect.open(url)
    try:
        with pytest.raises(ModelError) as caught:
            await _all(model)
    finally:
        await model.aclose()
    assert caught.value.fault == "down"


@pytest.mark.parametrize("then", ["break", "end"])
async def test_a_stream_that_is_cut_gives_what_came_and_then_fails(dialect: Dialect, then: str) -> None:
    cut = Reply(_until(dialect, "One"), then=then)
    async with opened(dialect, cut, dialect.reply(["Again"]), pace={"tries": 3}) as (model, _):
        events, error = await cut_short(model, ASKED)
        assert events == [TextDelta("One")]
        assert error is not None
        assert error.fault == "cut off"


def test_silence_ends_a_turn(dialect: Dialect) -> None:
    quiet = Reply(dialect.reply(["One"]).parts[:1], then="wait")
    assert failure(dialect, quiet, pace={"idle_seconds": 0.2}).fault in ("down", "cut off")


async def test_an_answer_without_an_end_is_ended(dialect: Dialect) -> None:
    endless = Reply(_until(dialect, "more "), then="repeat")

    async with opened(dialect, endless, pace={"answer_bytes": 50_000}) as (model, provider):
        with pytest.raises(ModelError, match="50000 bytes"):
            await _all(model)
        await provider.hung_up.wait()


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply([b"<html>Hello</html>"], kind="text/html"), id="a-page"),
        pytest.param(Reply([b"data: {{{\n\n"]), id="no-json"),
    ],
)
def test_another_kind_of_server_at_the_url_is_reported(dialect: Dialect, reply: Reply) -> None:
    assert failure(dialect, reply).fault in ("down", "cut off", "refused")


# --- ending a turn ---------------------------------------------------------------------------------------------------


async def test_closing_the_iterator_closes_the_stream_at_the_provider(dialect: Dialect) -> None:
    async with opened(dialect, Reply(_until(dialect, "One"), then="wait")) as (model, provider):
        events = model.stream(ASKED)
        assert await anext(events) == TextDelta("One")
        await events.aclose()  # type: ignore[attr-defined]
        await provider.hung_up.wait()


async def test_cancelling_the_task_closes_the_stream_at_the_provider(dialect: Dialect) -> None:
    async with opened(dialect, Reply(_until(dialect, "One"), then="wait")) as (model, provider):
        came = asyncio.Event()

        async def listen() -> None:
            async for _ in model.stream(ASKED):
                came.set()

        task = asyncio.create_task(listen())
        await came.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await provider.hung_up.wait()
