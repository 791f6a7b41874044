"""The history: blocks that can be written down, room that is made from the oldest, and the time that stands still."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.chat.support import LoopClock
from tests.host.chat.support import consistent as is_consistent
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest
from trunkline.host.chat.history import History, HistoryEntry, block_tokens, repair_history
from trunkline.host.chat.tool_calls import PausingPrompter, TurnTimer
from trunkline.host.models.interface import AudioBlock, Block, ModelMessage, TextBlock, ToolResultBlock, ToolUseBlock


def kept(role: Any, *blocks: Block) -> HistoryEntry:
    """Make a message of a file."""
    return HistoryEntry(ModelMessage(role, blocks), (None,) * len(blocks), (1,) * len(blocks))


USE = ToolUseBlock("a", "tool", {})
RESULT = ToolResultBlock("a", (TextBlock("ok"),))


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([kept("user", TextBlock("x")), kept("assistant", USE)], id="no-result"),
        pytest.param([kept("user", RESULT)], id="a-result-of-nothing"),
        pytest.param([kept("assistant", USE), kept("user", TextBlock("x"))], id="a-text-in-its-place"),
        pytest.param([kept("assistant", USE), kept("user", ToolResultBlock("b", ()))], id="the-result-of-another"),
        pytest.param([kept("assistant", USE, USE), kept("user", RESULT)], id="one-id-twice"),
        pytest.param([kept("assistant", USE), kept("user", RESULT, TextBlock("and"))], id="a-text-beside-it"),
        pytest.param([kept("assistant", ToolUseBlock("", "tool", {}))], id="no-id"),
    ],
)
def test_messages_of_a_file_become_what_a_provider_takes(messages: list[HistoryEntry]) -> None:
    assert is_consistent([each.message for each in repair_history(messages)])


def test_halves_of_characters_can_be_written_down() -> None:
    history = History()
    history.say("a\ud800b", role="assistant")
    history.add(ModelMessage("assistant", (ToolUseBlock("a", "t\ud800", {"x": "\udfff"}),)))
    first, second = history.messages
    assert first.text == "a?b"
    assert second.tool_uses[0].arguments is None


def test_sound_is_counted() -> None:
    assert block_tokens(AudioBlock("x" * 600, "audio/wav")) == 11


def test_what_is_left_out_begins_with_a_message_of_the_person() -> None:
    history = History()
    for number in range(3):
        history.say(f"{number} " + "long " * 100)
        history.add(ModelMessage("assistant", (ToolUseBlock(f"c{number}", "tool", {}),)))
        history.settle("nothing")
    assert history.drop_oldest(200) == 6
    assert history.sent[0].text.startswith("2 ")
    assert is_consistent(history.sent)
    assert history.drop_oldest(0) == 0


# --- time ------------------------------------------------------------------------------------------------------------


async def test_several_pauses_at_once_are_one() -> None:
    clock, timer = LoopClock(), TurnTimer()
    async with timer.limit(4):
        with timer.pause():
            with timer.pause():
                await clock.advance(8)
            await clock.advance(8)
        await clock.advance(2)
    assert not timer.expired


async def test_time_that_went_before_a_pause_counts() -> None:
    clock, timer = LoopClock(), TurnTimer()

    async def turn() -> None:
        async with timer.limit(4):
            await clock.advance(3)
            with timer.pause():
                await clock.advance(8)
            await clock.advance(2)

    with pytest.raises(TimeoutError):
        await turn()


async def test_without_a_limit_nothing_is_timed() -> None:
    clock, timer = LoopClock(), TurnTimer()
    async with timer.limit(None):
        with timer.pause():
            await clock.advance(8)
    assert not timer.expired


def test_a_pausing_prompter_equals_the_prompter_it_wraps() -> None:
    async def prompter(question: ApprovalRequest) -> ApprovalAnswer | None:
        return None

    async def other(question: ApprovalRequest) -> ApprovalAnswer | None:
        return None

    pausing = PausingPrompter(prompter, TurnTimer())
    assert pausing == PausingPrompter(prompter, TurnTimer())
    assert pausing == prompter
    assert hash(pausing) == hash(prompter)
    assert pausing != PausingPrompter(other, TurnTimer())
