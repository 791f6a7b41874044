"""However a turn is called off, the conversation is one that a provider takes, and it goes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from tests.host.chat.support import Talking, calls, consistent, ended, heard, of, results, talking, text_in
from trunkline import Context, Server
from trunkline.host.chat.events import CallStarted, ChatEvent, TurnEnded
from trunkline.host.models.scripted import ScriptedTurn


class Waiting:
    """A server with a tool that waits until it is cancelled, and one that does not."""

    def __init__(self) -> None:
        """Make its tools."""
        self.server = Server("waiting")
        self.cancelled = 0
        self.server.tool(self.wait)
        self.server.tool(self.quick)

    async def wait(self, ctx: Context) -> str:
        await ctx.report_progress(1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "never"

    async def quick(self) -> str:
        return "quick"


async def until(talk: Talking, kind: str, text: str = "Hello.") -> list[ChatEvent]:
    """Say something, and call it off at the first event of a kind."""
    heard_so_far = []
    async for event in talk.conversation.say(text):
        heard_so_far.append(event)
        if type(event).__name__ == kind:
            talk.conversation.cancel()
    return heard_so_far


async def test_the_text_of_a_cancelled_answer_is_kept(tmp_path: Path) -> None:
    async with talking(tmp_path, {}, [ScriptedTurn(says="I think that", hangs=True), "go on"]) as talk:
        events = await until(talk, "TextReceived")
        first = talk.conversation.messages
        await talk.say("And?")
        last, stopped = talk.conversation.messages, talk.model.stopped
    assert heard(events)[1].reason == "cancelled"
    assert [message.text for message in first] == ["Hello.", "I think that"]
    assert [message.text for message in last] == ["Hello.", "I think that", "And?", "go on"]
    assert stopped == 1


async def test_calls_that_are_called_off_are_cancelled_at_the_server_and_say_so(tmp_path: Path) -> None:
    waiting = Waiting()
    async with talking(tmp_path, {"waiting": waiting.server}, [calls("quick", "wait"), "on"]) as talk:
        events = await until(talk, "CallFinished")
        said = heard(await talk.say("And?"))[0]
        conversation, cancelled = talk.conversation, waiting.cancelled
    assert [end.cancelled for end in ended(events)] == [False, True]
    assert [text_in(result) for result in results(conversation)] == ["quick", "Cancelled by the user."]
    assert consistent(conversation.messages)
    assert (said, cancelled) == ("on", 1)


@pytest.mark.parametrize("number", range(12))
async def test_a_task_that_is_cancelled_at_any_event_leaves_a_consistent_conversation(
    tmp_path: Path, number: int
) -> None:
    waiting = Waiting()
    looks = calls("quick", "wait", "nothing", says="One moment, I look.", when="Hello.")
    script = [looks, ScriptedTurn(says="Fine.", again=True)]
    async with talking(tmp_path, {"waiting": waiting.server}, script) as talk:
        await _cancelled_at(talk, number)
        last = heard(await talk.say("Still there?"))[0]
        messages = talk.conversation.messages
    assert consistent(messages)
    assert last == "Fine."


async def _cancelled_at(talk: Talking, number: int) -> None:
    """Cancel the task that listens, when it has heard so many events; one that hears too few is cancelled too."""
    count = 0
    enough = asyncio.Event()

    async def listen() -> None:
        nonlocal count
        async for _ in talk.conversation.say("Hello."):
            count += 1
            if count >= number:
                enough.set()
                await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(listen())
    with suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            await enough.wait() if number else await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def test_leaving_the_loop_ends_the_turn(tmp_path: Path) -> None:
    waiting = Waiting()
    async with talking(tmp_path, {"waiting": waiting.server}, [calls("wait"), "on"]) as talk:
        stream = talk.conversation.say("Hello.")
        await anext(stream)
        await stream.aclose()
        messages, said = talk.conversation.messages, heard(await talk.say())[0]
    assert consistent(messages)
    assert said == "on"


async def test_a_new_message_calls_off_the_turn_that_runs(tmp_path: Path) -> None:
    waiting = Waiting()
    async with talking(tmp_path, {"waiting": waiting.server}, [calls("wait"), "on"]) as talk:
        first = talk.conversation.say("Hello.")
        while not isinstance(await anext(first), CallStarted):
            pass
        second = await talk.say("Never mind.")
        rest = [event async for event in first]
        messages, said, over = talk.conversation.messages, heard(second)[0], of(rest, TurnEnded)
    assert consistent(messages)
    assert said == "on"
    assert [each.reason for each in over] == ["cancelled"]


async def test_clear_forgets_what_was_said_but_not_while_a_turn_runs(tmp_path: Path) -> None:
    async with talking(tmp_path, {}, [ScriptedTurn(says="so", hangs=True), "b"]) as talk:
        stream = talk.conversation.say("Hello.")
        await anext(stream)
        with pytest.raises(RuntimeError, match="cancel it first"):
            talk.conversation.clear()
        await talk.conversation.aclose()
        await stream.aclose()
        talk.conversation.clear()
    assert talk.conversation.messages == ()
