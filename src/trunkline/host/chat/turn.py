"""One turn: from the person's message to the end of the model's answer.

The model is called, its tool calls are made, and it is called again with their results, until it makes no more calls or
a limit is reached. It all runs in one task, which emits events; a listener may stop listening at any moment. However
the task ends, no call is left without a result and no text of the model is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from trunkline.host.chat.events import CallProgressed, ChatEvent, ChatNotice, TextReceived, TurnEnded, TurnEndReason
from trunkline.host.chat.prompt_builder import PromptBuilder
from trunkline.host.chat.tool_calls import STOP_AFTER_REPEATS, CallBatch, RepeatCounter, ToolCaller, plan_calls
from trunkline.host.models.interface import (
    Finished,
    ModelError,
    ModelFault,
    ModelMessage,
    StopReason,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    Usage,
)

__all__ = ["ChatTurn"]

log = logging.getLogger("trunkline.host.chat")

# A listener that is this far behind gets no more progress events until it has caught up.
_MOST_PROGRESS = 1000
_REASONS: Mapping[StopReason, tuple[TurnEndReason, str | None]] = MappingProxyType(
    {
        "end": ("end", None),
        "tools": ("end", None),
        "stop_sequence": ("end", None),
        "length": ("length", "The model's answer was truncated at the maximum number of tokens."),
        "refusal": ("refusal", "The model refused to answer."),
    }
)


class _TurnOutcome(Struct, frozen=True):
    """How a turn ended."""

    reason: TurnEndReason
    detail: str | None = None
    fault: ModelFault | None = None
    #: The result of calls that were not made.
    missing: str = "Not called: the turn ended."


class ChatTurn:
    """One turn, run in its own task."""

    def __init__(self, prompt: PromptBuilder, caller: ToolCaller) -> None:
        """Prepare a turn of a conversation; it starts with ``begin``."""
        self._prompt = prompt
        self._caller = caller
        self._limits = prompt.options.limits
        self._events: asyncio.Queue[ChatEvent | None] = asyncio.Queue()
        self._usage = Usage()
        self._cost: float | None = None
        self._repeats = RepeatCounter()
        self._relieved = False
        #: Results that are not in the history yet, and their servers, by the id of the call.
        self._results: dict[str, ToolResultBlock] = {}
        self._servers: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the task."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Cancel the turn; its last event says so."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Cancel the turn and wait until it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def events(self) -> AsyncIterator[ChatEvent]:
        """Yield the events until the turn ends."""
        while (event := await self._events.get()) is not None:
            yield event
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    def tell(self, event: ChatEvent) -> None:
        """Emit an event."""
        if not isinstance(event, CallProgressed) or self._events.qsize() < _MOST_PROGRESS:
            self._events.put_nowait(event)

    # --- the task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        over = _TurnOutcome("cancelled", "The turn was cancelled.", missing="Cancelled by the user.")
        timer = self._caller.timer
        try:
            async with timer.limit(self._limits.seconds):
                over = await self._rounds()
        except TimeoutError:
            if not timer.expired:
                raise
            sentence = f"The turn reached its time limit of {self._limits.seconds:g} s."
            over = _TurnOutcome("limit", sentence, missing=f"Cancelled: {sentence}")
        finally:
            self._finish(over)

    def _finish(self, over: _TurnOutcome) -> None:
        """Complete the history, and emit the last event."""
        try:
            self._answer(over.missing)
            account = self._prompt.context_usage()
            self.tell(TurnEnded(over.reason, self._usage, self._cost, account, over.detail, over.fault))
        finally:
            self._events.put_nowait(None)

    async def _rounds(self) -> _TurnOutcome:
        """Call the model and make its tool calls, until there are none."""
        for number in range(1, max(1, self._limits.turns) + 1):
            await self._prepare(first=number == 1)
            limit = self._spent(ahead=True)
            if limit is not None:
                return _TurnOutcome("limit", limit)
            try:
                done = await self._ask()
            except ModelError as error:
                return _TurnOutcome("model", str(error), error.fault)
            if not done.message.tool_uses:
                reason, detail = _REASONS[done.stop_reason]
                return _TurnOutcome(reason, detail)
            limit = self._spent(ahead=False)
            if limit is None and number >= self._limits.turns:
                limit = f"The model was called {number} times, which is the limit; send a message to let it continue."
            if limit is not None:
                return _TurnOutcome("limit", limit, missing=f"Not called: {limit}")
            if await self._call(done.message):
                sentence = f"The model made the same call {STOP_AFTER_REPEATS} times in a row and was stopped."
                return _TurnOutcome("stuck", sentence)
        return _TurnOutcome("limit", "The limit of turns is reached.")

    async def _prepare(self, *, first: bool) -> None:
        """Update the tools, and make room in the window."""
        notices, for_model = self._prompt.refresh()
        if for_model is not None:
            self._prompt.history.say(f"[Note from the host: {for_model}]")
        for notice in [*notices, *await self._prompt.make_room()]:
            self.tell(ChatNotice(notice))
        if first and self._limits.cost is not None and self._prompt.model.traits.input_price is None:
            self.tell(
                ChatNotice(f"The prices of {self._prompt.model.name} are not known: the cost limit has no effect.")
            )

    def _spent(self, *, ahead: bool) -> str | None:
        """Return the limit that is reached, if any; ``ahead`` includes the estimate of the next request."""
        limits, prompt = self._limits, self._prompt
        used = prompt.usage.input_tokens + prompt.usage.output_tokens
        coming = prompt.tokens if ahead else 0
        if limits.tokens is not None and used + coming >= limits.tokens:
            return f"The conversation has used {used} of its limit of {limits.tokens} tokens."
        if limits.cost is not None:
            cost = (prompt.cost or 0.0) + (prompt.model.traits.cost(Usage(coming)) or 0.0)
            if cost >= limits.cost:
                return f"The conversation has cost ${prompt.cost or 0.0:.4f} of its limit of ${limits.cost:g}."
        return None

    # --- the model ---------------------------------------------------------------------------------------------------

    async def _ask(self) -> Finished:
        """Call the model; if the request is too long, call it once more with a shorter one.

        Raises:
            ModelError: there is no answer, or only part of it, which is kept.
        """
        try:
            return await self._stream()
        except ModelError as error:
            if error.fault != "too long" or self._relieved:
                raise
            self._relieved = True
            notices = await self._prompt.make_room(harder=True)
            if not notices:
                raise
            for notice in notices:
                self.tell(ChatNotice(notice))
            return await self._stream()

    async def _stream(self) -> Finished:
        said: list[str] = []
        stream = self._prompt.model.stream(self._prompt.request())
        done: Finished | None = None
        try:
            async for event in stream:
                if isinstance(event, TextDelta):
                    said.append(event.text)
                    self.tell(TextReceived(event.text))
                elif isinstance(event, Finished):
                    done = event
                    break
        except ModelError:
            raise
        except Exception as error:
            log.exception("the model %s failed", self._prompt.model.name)
            raise ModelError(f"{self._prompt.model.name} failed: {type(error).__name__}.", fault="cut off") from error
        finally:
            if done is None:
                self._prompt.history.say("".join(said), role="assistant")
            await _close(stream)
        if done is None:
            raise ModelError(f"{self._prompt.model.name} stopped early; send a message to continue.", fault="cut off")
        self._usage = self._usage + done.usage
        cost = self._prompt.add_usage(done.usage)
        if cost is not None:
            self._cost = (self._cost or 0.0) + cost
        message = self._prompt.history.add(_without_empty_text(done.message))
        return Finished(message, done.stop_reason, done.usage, done.model)

    # --- its calls ---------------------------------------------------------------------------------------------------

    async def _call(self, message: ModelMessage) -> bool:
        """Make the calls of an answer; return True if the model is stuck."""
        prompt, toolbox = self._prompt, self._prompt.toolbox
        plans = plan_calls(message.tool_uses, toolbox, most=self._limits.calls_in_a_turn)
        counted = [(plan, self._repeats.count(plan.name, plan.arguments)) for plan in plans]
        self._results = {}
        self._servers = {plan.use.id: plan.server for plan in plans if plan.server is not None}
        for plan in plans:
            self.tell(plan.proposed)
        batch = CallBatch(
            toolbox=toolbox,
            renderer=prompt.renderer,
            tell=self.tell,
            results=self._results,
            spilled_ids=prompt.spilled_ids,
            most_tokens=prompt.tokens_per_result(len(plans)),
        )
        await self._caller.run(counted, batch)
        self._answer("Not called.")
        return any(times >= STOP_AFTER_REPEATS for _, times in counted)

    def _answer(self, missing: str) -> None:
        """Add the results of the last calls to the history, with a text for each that is missing."""
        self._prompt.history.answer(self._results, self._servers, missing=missing)


def _without_empty_text(message: ModelMessage) -> ModelMessage:
    """Remove empty text blocks, which providers reject."""
    kept = tuple(block for block in message.content if not isinstance(block, TextBlock) or block.text.strip())
    return ModelMessage(message.role, kept)


async def _close(stream: AsyncIterator[object]) -> None:
    """Stop the model at its provider."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
