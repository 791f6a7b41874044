"""The tool calls of a turn: parsed, validated, authorized, run concurrently, and each of them answered.

Whatever goes wrong with a call is its result, for the model to read: an unknown tool, arguments that do not match the
schema, a denial by the policy or the user, a server that is unavailable. Only a cancelled call has no result; the
history adds one. Every call to a server goes through ``HostCore.call_tool``, which authorizes, asks and records.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import LinkError, PolicyDenied, TrunklineError
from trunkline.host.catalog.items import Item
from trunkline.host.catalog.search import CALL_TOOL, SEARCH_TOOL
from trunkline.host.chat.events import Began, ChatEvent, Ended, Progressed, Proposed
from trunkline.host.chat.options import ChatOptions
from trunkline.host.chat.outputs import Rendered, Renderer, result_limit
from trunkline.host.chat.own_tools import HOST, OwnToolError, inner_call, search, use_output
from trunkline.host.chat.repeats import STUCK_AT, TOLD_AT
from trunkline.host.chat.spill import Spill
from trunkline.host.chat.stopwatch import PausingDesk, PausingFace, Stopwatch
from trunkline.host.chat.toolbox import Toolbox
from trunkline.host.core import Asker, HostCore
from trunkline.host.desks import Desk
from trunkline.host.judgement.consent import Face
from trunkline.host.judgement.refusals import ALLOW_IT
from trunkline.host.models.interface import TextBlock, ToolResultBlock, ToolUseBlock
from trunkline.host.passing.fronts import LocalFront
from trunkline.host.policy.policy import Policy
from trunkline.host.session import HostSession
from trunkline.protocol.json_schema import SchemaError, Validator, compile_schema

__all__ = ["Calling", "Plan", "Round", "Tell", "read_calls"]

log = logging.getLogger("trunkline.host.chat")

Tell = Callable[[ChatEvent], None]

_PREVIEW = 400
_MOST_PROBLEMS = 5
_MOST_VALIDATORS = 1024
_RAW_SHOWN = 200


class Plan(Struct, frozen=True, kw_only=True, eq=False):
    """A parsed call: to a server, to the host itself, or the problem with it."""

    use: ToolUseBlock
    #: The name for counting repetitions.
    name: str
    arguments: dict[str, Any] | None
    item: Item | None = None
    own: str | None = None
    problem: str | None = None

    @property
    def server(self) -> str | None:
        """The server of the tool; None if there is no such tool."""
        return self.item.server if self.item is not None else HOST if self.own is not None else None

    @property
    def proposed(self) -> Proposed:
        """The event for it."""
        tool = self.item.name if self.item is not None else self.name
        return Proposed(self.use.id, self.server, tool, self.arguments)


class _Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of a call."""

    rendered: Rendered
    is_error: bool = False
    denied: bool = False
    #: The preview for the person, if it differs from what the model sees.
    preview: str | None = None


def read_calls(uses: Sequence[ToolUseBlock], toolbox: Toolbox, *, most: int) -> list[Plan]:
    """Resolve each call to a tool; calls beyond ``most`` are not made."""
    plans = [_read(use, toolbox) for use in uses[:most]]
    beyond = f"Not called: an answer may ask for at most {most} calls."
    plans += [Plan(use=use, name=use.name, arguments=use.arguments, problem=beyond) for use in uses[most:]]
    return plans


def _read(use: ToolUseBlock, toolbox: Toolbox) -> Plan:
    name, arguments = use.name, use.arguments
    if arguments is None:
        wrote = f" You wrote: {use.raw[:_RAW_SHOWN]}" if use.raw else ""
        problem = f"The arguments of {name[:100]} are not a JSON object; write the whole call again.{wrote}"
        return Plan(use=use, name=name, arguments=None, problem=problem)
    if name == CALL_TOOL and name in toolbox.own:
        try:
            name, arguments = inner_call(arguments)
        except OwnToolError as problem:
            return Plan(use=use, name=name, arguments=arguments, own=CALL_TOOL, problem=str(problem))
    elif name in toolbox.own:
        return Plan(use=use, name=name, arguments=arguments, own=name)
    item = toolbox.by_name.get(name)
    if item is None:
        return Plan(use=use, name=name, arguments=arguments, problem=_unknown(name, toolbox))
    return Plan(use=use, name=name, arguments=arguments, item=item)


def _unknown(name: str, toolbox: Toolbox) -> str:
    near = toolbox.near(name)
    if near is not None:
        return f"There is no tool {name[:100]!r}; did you mean {near!r}?"
    way = f" Find tools with {SEARCH_TOOL}." if toolbox.index is not None else ""
    return f"There is no tool {name[:100]!r}.{way}"


class Round(Struct, frozen=True, kw_only=True, eq=False):
    """What the calls of one model answer share."""

    toolbox: Toolbox
    renderer: Renderer
    tell: Tell
    #: Collects the results, by the id of the call.
    results: dict[str, ToolResultBlock]
    #: Collects the ids of outputs with whole results, by the id of the call.
    kept_as: dict[str, str]
    #: The maximum size of one result in tokens, so that all of them fit.
    most_tokens: int


class Calling:
    """Runs the tool calls of one conversation."""

    def __init__(
        self,
        core: HostCore,
        *,
        session: HostSession,
        policy: Policy,
        desk: Desk,
        face: Face | None,
        spill: Spill,
        options: ChatOptions,
    ) -> None:
        """Call servers through the core; the handler answers their requests, the prompter asks for approval."""
        self._core = core
        self._session = session
        self._policy = policy
        self._desk = desk
        self._face = face
        self._spill = spill
        self._options = options
        #: The time limit of the turn, which is paused while a person is asked.
        self.watch = Stopwatch()
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._everywhere = asyncio.Semaphore(max(1, options.limits.calls_at_once))
        self._validators: dict[str, Validator | None] = {}

    def asker(
        self, *, caller: str, on_progress: Callable[[t.ProgressNotificationParams], object] | None = None
    ) -> Asker:
        """Return the requester for a call."""
        desk = PausingDesk(self._desk, self.watch)
        return Asker(
            session=self._session,
            front=LocalFront(desk, self._session, on_progress=on_progress),
            policy=self._policy,
            face=None if self._face is None else PausingFace(self._face, self.watch),
            caller=caller,
        )

    async def run(self, plans: Sequence[tuple[Plan, int]], around: Round) -> None:
        """Run calls concurrently; each comes with how many times in a row it was made.

        Results are stored as calls end, so that those that exist survive a cancellation.
        """
        async with asyncio.TaskGroup() as group:
            for plan, times in plans:
                group.create_task(self._call(plan, times, around))

    async def _call(self, plan: Plan, times: int, around: Round) -> None:
        started, call_id = time.perf_counter(), plan.use.id
        try:
            outcome = await self._outcome(plan, times, around)
        except asyncio.CancelledError:
            seconds = time.perf_counter() - started
            around.tell(Ended(call_id, "cancelled", is_error=True, cancelled=True, seconds=seconds))
            raise
        rendered = outcome.rendered
        content = rendered.content
        if TOLD_AT <= times < STUCK_AT:
            note = f"[You made this same call {times} times in a row. Do something else, or answer with what you have.]"
            content = (*content, TextBlock(note))
        if rendered.output is not None:
            around.kept_as[call_id] = rendered.output
        around.results[call_id] = ToolResultBlock(call_id, content, outcome.is_error)
        around.tell(
            Ended(
                call_id,
                _clipped(rendered.text if outcome.preview is None else outcome.preview),
                is_error=outcome.is_error,
                denied=outcome.denied,
                seconds=time.perf_counter() - started,
                spilled=rendered.spilled,
            )
        )

    async def _outcome(self, plan: Plan, times: int, around: Round) -> _Outcome:
        if plan.problem is not None:
            return _failed(plan.problem)
        if times >= STUCK_AT:
            return _failed(f"Not called: you made this same call {times} times in a row.")
        if plan.own is not None:
            around.tell(Began(plan.use.id))
            return await self._at_host(plan, around)
        assert plan.item is not None
        # Calls that wait for a slow server must not use up the slots of others.
        async with self._slot(plan.item.server), self._everywhere:
            around.tell(Began(plan.use.id))
            return await self._at_server(plan, plan.item, around)

    def _slot(self, server: str) -> asyncio.Semaphore:
        slot = self._slots.get(server)
        if slot is None:
            upstream = self._core.supervisor.upstreams.get(server)
            most = 1 if upstream is None else upstream.entry.settings.concurrency
            slot = self._slots[server] = asyncio.Semaphore(max(1, most))
        return slot

    # --- the host's own tools ----------------------------------------------------------------------------------------

    async def _at_host(self, plan: Plan, around: Round) -> _Outcome:
        arguments = plan.arguments or {}
        limit = min(self._options.result_tokens, around.most_tokens)
        try:
            if plan.own == SEARCH_TOOL and around.toolbox.index is not None:
                found = search(around.toolbox.index, arguments)
                return _Outcome(rendered=Rendered(tuple(TextBlock(each.text) for each in _texts(found))))
            text = await asyncio.to_thread(use_output, self._spill, plan.own or "", arguments)
        except OwnToolError as problem:
            return _failed(str(problem))
        # A page of an output has its own bounds: spilling it again would page forever.
        shown = text[: int(limit * 3.6)]
        return _Outcome(rendered=Rendered((TextBlock(shown),)))

    # --- server tools -----------------------------------------------------------------------------------------------

    async def _at_server(self, plan: Plan, item: Item, around: Round) -> _Outcome:
        arguments = plan.arguments or {}
        problem = self._gone(item) or self._unfit(item, arguments)
        if problem is not None:
            return _failed(problem)
        asker = self.asker(caller="model", on_progress=_progress(plan.use.id, around.tell))
        try:
            result = await self._core.call_tool(item, arguments, asker)
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
        ceiling = min(self._options.result_ceiling, around.most_tokens)
        limit = result_limit(definition, usual=self._options.result_tokens, ceiling=ceiling)
        rendered = await asyncio.to_thread(around.renderer.result, result, limit=limit)
        changed = asker.face.changed if isinstance(asker.face, PausingFace) else None
        if changed is not None:
            # A model that believes its own arguments were used would draw wrong conclusions.
            note = f"[The user changed the arguments to {msgspec.json.encode(changed).decode()}]"
            rendered = replace(rendered, content=(TextBlock(note), *rendered.content))
        return _Outcome(rendered=rendered, is_error=result.is_error is True)

    def _gone(self, item: Item) -> str | None:
        """Return why a tool is no longer what was offered; None if it is."""
        current = self._core.catalog.tools.get(item.id)
        if current is None:
            return f"Not called: {item.id} is no longer available."
        return None if current.pin == item.pin else f"Not called: {item.id} has changed; look at its definition again."

    def _unfit(self, item: Item, arguments: dict[str, Any]) -> str | None:
        """Return where arguments do not match the tool's own schema; None if they do."""
        validator = self._validator(item)
        problems = [] if validator is None else validator.check(arguments, limit=_MOST_PROBLEMS)
        if not problems:
            return None
        lines = [f'- at "{each.path or "/"}": {each.message}' for each in problems]
        return "\n".join([f"Not called: the arguments do not match the input schema of {item.id}.", *lines])

    def _validator(self, item: Item) -> Validator | None:
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


def _progress(call_id: str, tell: Tell) -> Callable[[t.ProgressNotificationParams], object]:
    return lambda news: tell(Progressed(call_id, news.progress, news.total, news.message))


def _texts(result: t.CallToolResult) -> list[t.TextContent]:
    return [block for block in result.content if isinstance(block, t.TextContent)]


def _failed(text: str) -> _Outcome:
    return _Outcome(rendered=Rendered((TextBlock(text),)), is_error=True)


def _denied(reason: str) -> _Outcome:
    """Return the outcome of a denied call; how to allow it is in the preview for the person only."""
    said = reason.partition(ALLOW_IT)[0].partition("\n")[0]
    text = f"Not allowed: {said.rstrip(' .')}. Do not look for a way around it; go on without it, or say what you need."
    return _Outcome(rendered=Rendered((TextBlock(text),)), is_error=True, denied=True, preview=reason)


def _clipped(text: str) -> str:
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"
