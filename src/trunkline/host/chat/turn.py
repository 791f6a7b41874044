"""One turn: from what the person said to the moment in which it is theirs again.

The model is asked, the calls it wants are made, and it is asked again with their results, until it wants none or a
limit is reached. It all runs in one task, which tells what happens; whoever listens may stop listening at any moment.
However the task ends, no call is left without a result and no text that was said is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from trunkline.host.chat.calls import Calling, Round, read_calls
from trunkline.host.chat.events import ChatEvent, Noticed, Progressed, Said, TurnOver, TurnReason
from trunkline.host.chat.repeats import STUCK_AT, Repeats
from trunkline.host.chat.talk import Talk
from trunkline.host.models.interface import (
    Finished,
    Message,
    ModelError,
    ModelFault,
    StopReason,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    Usage,
)

__all__ = ["Turn"]

log = logging.getLogger("trunkline.host.chat")

# A listener that stays so far behind hears no more of progress until it has caught up.
_MOST_PROGRESS = 1000
_REASONS: Mapping[StopReason, tuple[TurnReason, str | None]] = MappingProxyType(
    {
        "end": ("end", None),
        "tools": ("end", None),
        "stop_sequence": ("end", None),
        "length": ("length", "The model's answer was cut off at the most tokens it may have."),
        "refusal": ("refusal", "The model refused to answer."),
    }
)


class _Over(Struct, frozen=True):
    """How a turn ended."""

    reason: TurnReason
    detail: str | None = None
    fault: ModelFault | None = None
    #: What stands as the result of calls that were not made.
    missing: str = "Not called: the turn ended."


class Turn:
    """The work of one turn, in a task of its own."""

    def __init__(self, talk: Talk, calling: Calling) -> None:
        """Take the conversation; nothing happens before ``begin``."""
        self._talk = talk
        self._calling = calling
        self._limits = talk.options.limits
        self._events: asyncio.Queue[ChatEvent | None] = asyncio.Queue()
        self._usage = Usage()
        self._cost: float | None = None
        self._repeats = Repeats()
        self._relieved = False
        #: What calls gave whose results are not in the history yet, and whose those are.
        self._results: dict[str, ToolResultBlock] = {}
        self._servers: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start it."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Call it off: what runs is stopped, and the last event says so."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Call it off and wait until it is over."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def events(self) -> AsyncIterator[ChatEvent]:
        """Give what happens, to the end."""
        while (event := await self._events.get()) is not None:
            yield event
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    def tell(self, event: ChatEvent) -> None:
        """Tell what happened."""
        if not isinstance(event, Progressed) or self._events.qsize() < _MOST_PROGRESS:
            self._events.put_nowait(event)

    # --- the task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        over = _Over("cancelled", "The turn was called off.", missing="Called off by the user.")
        watch = self._calling.watch
        try:
            async with watch.limit(self._limits.seconds):
                over = await self._rounds()
        except TimeoutError:
            if not watch.expired:
                raise
            sentence = f"The turn took its limit of {self._limits.seconds:g} s."
            over = _Over("limit", sentence, missing=f"Called off: {sentence}")
        finally:
            self._finish(over)

    def _finish(self, over: _Over) -> None:
        """Leave the history whole, and tell that it is the person's turn."""
        try:
            self._answer(over.missing)
            account = self._talk.account()
            self.tell(TurnOver(over.reason, self._usage, self._cost, account, over.detail, over.fault))
        finally:
            self._events.put_nowait(None)

    async def _rounds(self) -> _Over:
        """Ask the model and make its calls, until there are none."""
        for number in range(1, max(1, self._limits.turns) + 1):
            await self._prepare(first=number == 1)
            limit = self._spent(ahead=True)
            if limit is not None:
                return _Over("limit", limit)
            try:
                done = await self._ask()
            except ModelError as error:
                return _Over("model", str(error), error.fault)
            if not done.message.tool_uses:
                reason, detail = _REASONS[done.stop_reason]
                return _Over(reason, detail)
            limit = self._spent(ahead=False)
            if limit is None and number >= self._limits.turns:
                limit = f"The model was asked {number} times, which is the limit; say more to let it go on."
            if limit is not None:
                return _Over("limit", limit, missing=f"Not called: {limit}")
            if await self._call(done.message):
                sentence = f"The model made the same call {STUCK_AT} times in a row and was stopped."
                return _Over("stuck", sentence)
        return _Over("limit", "The limit of turns is reached.")

    async def _prepare(self, *, first: bool) -> None:
        """See which tools there are now, and that there is room."""
        notices, for_model = self._talk.refresh()
        if for_model is not None:
            self._talk.history.say(f"[Note of the host: {for_model}]")
        for notice in [*notices, *await self._talk.make_room()]:
            self.tell(Noticed(notice))
        if first and self._limits.cost is not None and self._talk.model.traits.input_price is None:
            self.tell(Noticed(f"The prices of {self._talk.model.name} are not known: the limit on cost does not hold."))

    def _spent(self, *, ahead: bool) -> str | None:
        """Say which limit is reached, with what the next request will take if that is ahead."""
        limits, talk = self._limits, self._talk
        used = talk.usage.input_tokens + talk.usage.output_tokens
        coming = talk.tokens if ahead else 0
        if limits.tokens is not None and used + coming >= limits.tokens:
            return f"The conversation took {used} of the {limits.tokens} tokens that it may take."
        if limits.cost is not None:
            cost = (talk.cost or 0.0) + (talk.model.traits.cost(Usage(coming)) or 0.0)
            if cost >= limits.cost:
                return f"The conversation took ${talk.cost or 0.0:.4f} of the ${limits.cost:g} that it may cost."
        return None

    # --- the model ---------------------------------------------------------------------------------------------------

    async def _ask(self) -> Finished:
        """Ask the model; one that finds the request too long is asked once more with a shorter one.

        Raises:
            ModelError: there is no answer, or not all of it; what came of it is kept.
        """
        try:
            return await self._stream()
        except ModelError as error:
            if error.fault != "too long" or self._relieved:
                raise
            self._relieved = True
            notices = await self._talk.make_room(harder=True)
            if not notices:
                raise
            for notice in notices:
                self.tell(Noticed(notice))
            return await self._stream()

    async def _stream(self) -> Finished:
        said: list[str] = []
        stream = self._talk.model.stream(self._talk.request())
        done: Finished | None = None
        try:
            async for event in stream:
                if isinstance(event, TextDelta):
                    said.append(event.text)
                    self.tell(Said(event.text))
                elif isinstance(event, Finished):
                    done = event
                    break
        except ModelError:
            raise
        except Exception as error:
            log.exception("the model %s failed", self._talk.model.name)
            raise ModelError(f"{self._talk.model.name} failed: {type(error).__name__}.", fault="cut off") from error
        finally:
            if done is None:
                self._talk.history.say("".join(said), role="assistant")
            await _close(stream)
        if done is None:
            raise ModelError(f"{self._talk.model.name} ended its answer early; say more to go on.", fault="cut off")
        self._usage = self._usage + done.usage
        cost = self._talk.spent(done.usage)
        if cost is not None:
            self._cost = (self._cost or 0.0) + cost
        message = self._talk.history.add(_worth(done.message))
        return Finished(message, done.stop_reason, done.usage, done.model)

    # --- its calls ---------------------------------------------------------------------------------------------------

    async def _call(self, message: Message) -> bool:
        """Make the calls of an answer; tells whether the model is stuck."""
        talk, toolbox = self._talk, self._talk.toolbox
        plans = read_calls(message.tool_uses, toolbox, most=self._limits.calls_in_a_turn)
        counted = [(plan, self._repeats.count(plan.name, plan.arguments)) for plan in plans]
        self._results = {}
        self._servers = {plan.use.id: plan.server for plan in plans if plan.server is not None}
        for plan in plans:
            self.tell(plan.proposed)
        around = Round(
            toolbox=toolbox,
            renderer=talk.renderer,
            tell=self.tell,
            results=self._results,
            kept_as=talk.kept_as,
            most_tokens=talk.room_for(len(plans)),
        )
        await self._calling.run(counted, around)
        self._answer("Not called.")
        return any(times >= STUCK_AT for _, times in counted)

    def _answer(self, missing: str) -> None:
        """Put the results of the last calls into the history, with a text for each that is missing."""
        self._talk.history.answer(self._results, self._servers, missing=missing)


def _worth(message: Message) -> Message:
    """Leave out texts with nothing in them, which providers refuse."""
    kept = tuple(block for block in message.content if not isinstance(block, TextBlock) or block.text.strip())
    return Message(message.role, kept)


async def _close(stream: AsyncIterator[object]) -> None:
    """Stop the model at its provider."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
