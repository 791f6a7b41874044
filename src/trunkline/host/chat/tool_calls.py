"""The tool calls of a turn: parsed, validated, authorized, run concurrently, and each of them answered.

Whatever goes wrong with a call is its result, for the model to read: an unknown tool, arguments that do not match the
schema, a denial by the policy or the user, a server that is unavailable. Only a cancelled call has no result; the
history adds one. Every call to a server goes through HostCore.call_tool, which authorizes, asks and records. The turn
timer stands still while a person is asked, and a model that repeats the same call is warned and then stopped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import LinkError, PolicyDenied, TrunklineError
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest, Prompter
from trunkline.host.authorization.denial_messages import ALLOW_IT
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.authorization.prompters import shows_several
from trunkline.host.chat.events import CallFinished, CallProgressed, CallProposed, CallStarted, ChatEvent, ChatOptions
from trunkline.host.chat.rendering import Rendered, Renderer, result_limit
from trunkline.host.chat.skill_tools import SKILL_TOOLS, LoadedSkills, find_skill
from trunkline.host.chat.spill import Spill
from trunkline.host.chat.toolbox import (
    HOST_SERVER,
    HostToolError,
    Toolbox,
    parse_inner_call,
    run_output_tool,
    search_tools,
)
from trunkline.host.config.model import ServerEntry
from trunkline.host.core import HostCore
from trunkline.host.models.interface import TextBlock, ToolResultBlock, ToolUseBlock
from trunkline.host.requester import Requester
from trunkline.host.server_requests.handlers import ServerRequestHandler
from trunkline.host.session import HostSession
from trunkline.host.skills import HostSkill
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.search import CALL_TOOL, SEARCH_TOOL
from trunkline.host.upstreams.routing.channels import LocalChannel
from trunkline.protocol.json_schema import SchemaError, Validator, compile_schema

__all__ = [
    "CURRENT_CALL",
    "STOP_AFTER_REPEATS",
    "WARN_AFTER_REPEATS",
    "CallBatch",
    "EmitEvent",
    "PausingPrompter",
    "PausingRequestHandler",
    "PlannedCall",
    "RepeatCounter",
    "ResultCallback",
    "ToolCaller",
    "TurnTimer",
    "plan_calls",
]

if TYPE_CHECKING:
    from trunkline.host.session import HostSession


class TurnTimer:
    """A pausable timeout for a turn."""

    def __init__(self) -> None:
        """Start without a limit."""
        self._timeout: asyncio.Timeout | None = None
        self._left = 0.0
        self._since = 0.0
        self._pauses = 0

    @property
    def expired(self) -> bool:
        """Whether the time limit was reached."""
        return self._timeout is not None and self._timeout.expired()

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[None]:
        """Raise TimeoutError in the block after so many seconds, not counting pauses."""
        self._pauses = 0
        if seconds is None:
            self._timeout = None
            yield
            return
        self._left, self._since = seconds, asyncio.get_running_loop().time()
        async with asyncio.timeout(seconds) as self._timeout:
            yield

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause the timer while the block runs; pauses may overlap."""
        timeout, now = self._timeout, asyncio.get_running_loop().time
        if timeout is None or timeout.expired():
            yield
            return
        if self._pauses == 0:
            self._left -= now() - self._since
            timeout.reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and timeout is self._timeout and not timeout.expired():
                self._since = now()
                timeout.reschedule(self._since + max(self._left, 0.0))


class PausingPrompter:
    """A prompter that pauses the timer; it equals the wrapped one, so that both share one queue of requests."""

    def __init__(self, prompter: Prompter, timer: TurnTimer) -> None:
        """Wrap a prompter, and pause this timer while it asks."""
        self._prompter: Callable[[ApprovalRequest], Awaitable[ApprovalAnswer | None]] = prompter
        self._timer = timer
        #: The arguments as edited by the person; None if unchanged.
        self.changed: dict[str, Any] | None = None

    @property
    def concurrent(self) -> bool:
        """Whether the wrapped prompter shows several requests at once."""
        return shows_several(self._prompter)

    async def __call__(self, question: ApprovalRequest) -> ApprovalAnswer | None:
        """Ask the person."""
        with self._timer.pause():
            answer = await self._prompter(question)
        if isinstance(answer, ApprovalAnswer) and answer.allow:
            self.changed = answer.arguments
        return answer

    def __eq__(self, other: object) -> bool:
        return other._prompter == self._prompter if isinstance(other, PausingPrompter) else other == self._prompter

    def __hash__(self) -> int:
        return hash(self._prompter)


class PausingRequestHandler:
    """A server request handler that pauses the timer."""

    def __init__(self, request_handler: ServerRequestHandler, timer: TurnTimer) -> None:
        """Wrap a handler, and pause this timer while it answers."""
        self._request_handler = request_handler
        self._timer = timer

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the wrapped handler."""
        return self._request_handler.capabilities

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Answer the request through the wrapped handler."""
        with self._timer.pause():
            return await self._request_handler.answer(entry, method, params, session)


#: Repetitions of the same call: when the model is warned, and when the turn ends.
WARN_AFTER_REPEATS = 3
STOP_AFTER_REPEATS = 5  # A model that ignores two warnings will ignore more, and each call costs money.


class RepeatCounter:
    """Counts the same call in a row."""

    def __init__(self) -> None:
        """Start without calls."""
        self._last: bytes | None = None
        self._count = 0

    def count(self, tool: str, arguments: dict[str, Any] | None) -> int:
        """Count a call; return how many times in a row it was made."""
        key = msgspec.json.encode([tool, arguments], order="sorted")
        self._count = self._count + 1 if key == self._last else 1
        self._last = key
        return self._count

    def clear(self) -> None:
        """Reset the count when the person sends a message."""
        self._last, self._count = None, 0


log = logging.getLogger("trunkline.host.chat")

EmitEvent = Callable[[ChatEvent], None]
#: Called with the id of a call, its tool, its arguments, and its complete result.
ResultCallback = Callable[[str, CatalogItem, dict[str, Any], t.CallToolResult], None]
#: The id of the call made by the current asyncio task; a prompter shows its question beside that call.
CURRENT_CALL: ContextVar[str | None] = ContextVar("trunkline.chat.call", default=None)

_PREVIEW = 400  # A few lines in a user interface.
_MOST_PROBLEMS = 5  # A model corrects a few at once.
_MOST_VALIDATORS = 1024  # As many tools as the largest provider accepts.
_RAW_SHOWN = 200  # Enough for a model to recognize what it wrote.


class PlannedCall(Struct, frozen=True, kw_only=True, eq=False):
    """A parsed call: to a server, to the host itself, or the problem with it."""

    use: ToolUseBlock
    #: The name for counting repetitions.
    name: str
    arguments: dict[str, Any] | None
    item: CatalogItem | None = None
    own: str | None = None
    #: The skill, if it is loaded or one of its files is read.
    skill: HostSkill | None = None
    problem: str | None = None

    @property
    def server(self) -> str | None:
        """The server of the tool or skill; None if there is no such tool."""
        if self.skill is not None:
            return self.skill.server
        return self.item.server if self.item is not None else HOST_SERVER if self.own is not None else None

    @property
    def proposed(self) -> CallProposed:
        """The event for it."""
        tool = self.item.name if self.item is not None else self.name
        return CallProposed(self.use.id, self.server, tool, self.arguments)


class _CallOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a call."""

    rendered: Rendered
    is_error: bool = False
    denied: bool = False
    #: The preview for the person, if it differs from what the model sees.
    preview: str | None = None


def plan_calls(uses: Sequence[ToolUseBlock], toolbox: Toolbox, *, most: int) -> list[PlannedCall]:
    """Resolve each call to a tool; calls beyond ``most`` are not made."""
    plans = [_plan_call(use, toolbox) for use in uses[:most]]
    beyond = f"Not called: an answer may ask for at most {most} calls."
    plans += [PlannedCall(use=use, name=use.name, arguments=use.arguments, problem=beyond) for use in uses[most:]]
    return plans


def _plan_call(use: ToolUseBlock, toolbox: Toolbox) -> PlannedCall:
    name, arguments = use.name, use.arguments
    if arguments is None:
        wrote = f" You wrote: {use.raw[:_RAW_SHOWN]}" if use.raw else ""
        problem = f"The arguments of {name[:100]} are not a JSON object; write the whole call again.{wrote}"
        return PlannedCall(use=use, name=name, arguments=None, problem=problem)
    if name == CALL_TOOL and name in toolbox.own:
        try:
            name, arguments = parse_inner_call(arguments)
        except HostToolError as problem:
            return PlannedCall(use=use, name=name, arguments=arguments, own=CALL_TOOL, problem=str(problem))
    elif name in SKILL_TOOLS and name in toolbox.own:
        found = find_skill(toolbox.skills, toolbox.skill_servers, arguments)
        if isinstance(found, str):
            return PlannedCall(use=use, name=name, arguments=arguments, own=name, problem=found)
        return PlannedCall(use=use, name=name, arguments=arguments, own=name, skill=found)
    elif name in toolbox.own:
        return PlannedCall(use=use, name=name, arguments=arguments, own=name)
    item = toolbox.by_name.get(name)
    if item is None:
        return PlannedCall(use=use, name=name, arguments=arguments, problem=_unknown(name, toolbox))
    return PlannedCall(use=use, name=name, arguments=arguments, item=item)


def _unknown(name: str, toolbox: Toolbox) -> str:
    near = toolbox.closest_name(name)
    if near is not None:
        return f"There is no tool {name[:100]!r}; did you mean {near!r}?"
    way = f" Find tools with {SEARCH_TOOL}." if toolbox.index is not None else ""
    return f"There is no tool {name[:100]!r}.{way}"


class CallBatch(Struct, frozen=True, kw_only=True, eq=False):
    """What the calls of one model answer share."""

    toolbox: Toolbox
    renderer: Renderer
    tell: EmitEvent
    #: Collects the results, by the id of the call.
    results: dict[str, ToolResultBlock]
    #: Collects the ids of outputs with whole results, by the id of the call.
    spilled_ids: dict[str, str]
    #: The maximum size of one result in tokens, so that all of them fit.
    most_tokens: int


class ToolCaller:
    """Runs the tool calls of one conversation."""

    def __init__(
        self,
        core: HostCore,
        *,
        session: HostSession,
        policy: Policy,
        request_handler: ServerRequestHandler,
        prompter: Prompter | None,
        spill: Spill,
        options: ChatOptions,
        typed: bool = False,
        on_result: ResultCallback | None = None,
    ) -> None:
        """Call servers through the core; the handler answers their requests, the prompter asks for approval.

        ``typed``: default rules require no approval for attachments and prompts that the user picks.
        """
        self._core = core
        self._session = session
        self._policy = policy
        self._request_handler = request_handler
        self._prompter = prompter
        self._spill = spill
        self._options = options
        self._typed = typed
        self._on_result = on_result
        #: The time limit of the turn, which is paused while a person is asked.
        self.timer: TurnTimer = TurnTimer()
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._everywhere = asyncio.Semaphore(max(1, options.limits.calls_at_once))
        self._validators: dict[str, Validator | None] = {}
        #: The skills that are loaded in this conversation.
        self.skills: LoadedSkills = LoadedSkills(core, session)

    def requester(
        self, *, caller: str, on_progress: Callable[[t.ProgressNotificationParams], object] | None = None
    ) -> Requester:
        """Return the requester for a call."""
        request_handler = PausingRequestHandler(self._request_handler, self.timer)
        return Requester(
            session=self._session,
            channel=LocalChannel(request_handler, self._session, on_progress=on_progress),
            policy=self._policy,
            prompter=None if self._prompter is None else PausingPrompter(self._prompter, self.timer),
            caller=caller,
            consented_by="user" if self._typed and caller == "user" else None,
        )

    async def run(self, plans: Sequence[tuple[PlannedCall, int]], batch: CallBatch) -> None:
        """Run calls concurrently; each comes with how many times in a row it was made.

        Results are stored as calls end, so that those that exist survive a cancellation.
        """
        async with asyncio.TaskGroup() as group:
            for plan, times in plans:
                group.create_task(self._call(plan, times, batch))

    async def _call(self, plan: PlannedCall, times: int, batch: CallBatch) -> None:
        started, call_id = time.perf_counter(), plan.use.id
        # Each call has a task of its own, so that nothing needs to be reset.
        CURRENT_CALL.set(call_id)
        try:
            outcome = await self._outcome(plan, times, batch)
        except asyncio.CancelledError:
            seconds = time.perf_counter() - started
            batch.tell(CallFinished(call_id, "cancelled", is_error=True, cancelled=True, seconds=seconds))
            raise
        rendered = outcome.rendered
        content = rendered.content
        if WARN_AFTER_REPEATS <= times < STOP_AFTER_REPEATS:
            note = f"[You made this same call {times} times in a row. Do something else, or answer with what you have.]"
            content = (*content, TextBlock(note))
        if rendered.output is not None:
            batch.spilled_ids[call_id] = rendered.output
        batch.results[call_id] = ToolResultBlock(call_id, content, outcome.is_error)
        batch.tell(
            CallFinished(
                call_id,
                _clipped(rendered.text if outcome.preview is None else outcome.preview),
                is_error=outcome.is_error,
                denied=outcome.denied,
                seconds=time.perf_counter() - started,
                spilled=rendered.spilled,
            )
        )

    async def _outcome(self, plan: PlannedCall, times: int, batch: CallBatch) -> _CallOutcome:
        if plan.problem is not None:
            return _failed(plan.problem)
        if times >= STOP_AFTER_REPEATS:
            return _failed(f"Not called: you made this same call {times} times in a row.")
        if plan.skill is not None:
            async with self._slot(plan.skill.server), self._everywhere:
                batch.tell(CallStarted(plan.use.id))
                return await self._with_skill(plan, plan.skill, batch)
        if plan.own is not None:
            batch.tell(CallStarted(plan.use.id))
            return await self._at_host(plan, batch)
        assert plan.item is not None
        # Calls that wait for a slow server must not use up the slots of others.
        async with self._slot(plan.item.server), self._everywhere:
            batch.tell(CallStarted(plan.use.id))
            return await self._at_server(plan, plan.item, batch)

    def _slot(self, server: str) -> asyncio.Semaphore:
        slot = self._slots.get(server)
        if slot is None:
            upstream = self._core.supervisor.upstreams.get(server)
            most = 1 if upstream is None else upstream.entry.settings.concurrency
            slot = self._slots[server] = asyncio.Semaphore(max(1, most))
        return slot

    # --- the host's own tools ----------------------------------------------------------------------------------------

    async def _at_host(self, plan: PlannedCall, batch: CallBatch) -> _CallOutcome:
        arguments = plan.arguments or {}
        limit = min(self._options.result_tokens, batch.most_tokens)
        try:
            if plan.own == SEARCH_TOOL and batch.toolbox.index is not None:
                found = search_tools(batch.toolbox.index, arguments)
                return _CallOutcome(rendered=Rendered(tuple(TextBlock(each.text) for each in _texts(found))))
            text = await asyncio.to_thread(run_output_tool, self._spill, plan.own or "", arguments)
        except HostToolError as problem:
            return _failed(str(problem))
        # A page of an output has its own bounds: spilling it again would page forever.
        shown = text[: int(limit * 3.6)]
        return _CallOutcome(rendered=Rendered((TextBlock(shown),)))

    async def _with_skill(self, plan: PlannedCall, skill: HostSkill, batch: CallBatch) -> _CallOutcome:
        """Load a skill, or read one of its files."""
        assert plan.own is not None
        try:
            text = await self.skills.run(plan.own, skill, plan.arguments or {}, self.requester(caller="model"))
        except PolicyDenied as denial:
            return _denied(str(denial))
        except TrunklineError as error:
            return _failed(str(error))
        except Exception as error:
            log.exception("%s of %s failed", plan.own, skill.label)
            return _failed(f"{skill.label} failed inside the host: {type(error).__name__}")
        # A skill is not shortened to the usual size: part of the instructions may be worse than none.
        limit = min(self._options.result_ceiling, batch.most_tokens)
        result = t.CallToolResult(content=[t.TextContent(text=text)])
        return _CallOutcome(rendered=await asyncio.to_thread(batch.renderer.result, result, limit=limit))

    # --- server tools -----------------------------------------------------------------------------------------------

    async def _at_server(self, plan: PlannedCall, item: CatalogItem, batch: CallBatch) -> _CallOutcome:
        arguments = plan.arguments or {}
        problem = self._gone(item) or self._unfit(item, arguments)
        if problem is not None:
            return _failed(problem)
        requester = self.requester(caller="model", on_progress=_progress(plan.use.id, batch.tell))
        try:
            result = await self._core.call_tool(item, arguments, requester)
        except PolicyDenied as denial:
            return _denied(str(denial))
        except LinkError as error:
            return _failed(f"{item.id} did not answer: {error} Whether it was carried out is not known.")
        except TrunklineError as error:
            return _failed(f"{item.id} failed: {error}")
        except Exception as error:
            log.exception("calling %s failed", item.id)
            return _failed(f"{item.id} failed inside the host: {type(error).__name__}")
        definition = item.definition if isinstance(item.definition, t.Tool) else None
        ceiling = min(self._options.result_ceiling, batch.most_tokens)
        limit = result_limit(definition, usual=self._options.result_tokens, ceiling=ceiling)
        rendered = await asyncio.to_thread(batch.renderer.result, result, limit=limit)
        changed = requester.prompter.changed if isinstance(requester.prompter, PausingPrompter) else None
        if self._on_result is not None:
            self._on_result(plan.use.id, item, arguments if changed is None else changed, result)
        if changed is not None:
            # A model that believes its own arguments were used would draw wrong conclusions.
            note = f"[The user changed the arguments to {msgspec.json.encode(changed).decode()}]"
            rendered = replace(rendered, content=(TextBlock(note), *rendered.content))
        return _CallOutcome(rendered=rendered, is_error=result.is_error is True)

    def _gone(self, item: CatalogItem) -> str | None:
        """Return why a tool is no longer what was offered; None if it is."""
        current = self._core.catalog.tools.get(item.id)
        if current is None:
            return f"Not called: {item.id} is no longer available."
        return None if current.pin == item.pin else f"Not called: {item.id} has changed; look at its definition again."

    def _unfit(self, item: CatalogItem, arguments: dict[str, Any]) -> str | None:
        """Return where arguments do not match the tool's own schema; None if they do."""
        validator = self._validator(item)
        problems = [] if validator is None else validator.check(arguments, limit=_MOST_PROBLEMS)
        if not problems:
            return None
        lines = [f'- at "{each.path or "/"}": {each.message}' for each in problems]
        return "\n".join([f"Not called: the arguments do not match the input schema of {item.id}.", *lines])

    def _validator(self, item: CatalogItem) -> Validator | None:
        if item.pin not in self._validators:
            if len(self._validators) >= _MOST_VALIDATORS:
                self._validators.clear()
            assert isinstance(item.definition, t.Tool)
            try:
                self._validators[item.pin] = compile_schema(item.definition.input_schema)
            except SchemaError:
                # The catalog has no such tools; if there is one, its server validates the arguments.
                self._validators[item.pin] = None
        return self._validators[item.pin]


def _progress(call_id: str, tell: EmitEvent) -> Callable[[t.ProgressNotificationParams], object]:
    return lambda news: tell(CallProgressed(call_id, news.progress, news.total, news.message))


def _texts(result: t.CallToolResult) -> list[t.TextContent]:
    return [block for block in result.content if isinstance(block, t.TextContent)]


def _failed(text: str) -> _CallOutcome:
    return _CallOutcome(rendered=Rendered((TextBlock(text),)), is_error=True)


def _denied(reason: str) -> _CallOutcome:
    """Return the outcome of a denied call; how to allow it is in the preview for the person only."""
    said = reason.partition(ALLOW_IT)[0].partition("\n")[0]
    text = f"Not allowed: {said.rstrip(' .')}. Do not look for a way around it; go on without it, or say what you need."
    return _CallOutcome(rendered=Rendered((TextBlock(text),)), is_error=True, denied=True, preview=reason)


def _clipped(text: str) -> str:
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"
