"""The tools that show tasks: one that runs as a task, and two whose requests the client runs as tasks."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta

import trunkline.types as t
from trunkline import Context, MissingCapability, RequestFailed, Server, TaskOptions, ToolError
from trunkline_servers.everything.basic_tools import ACTS, ACTS_OUTSIDE, sleep
from trunkline_servers.everything.client_request_tools import CAPABILITY_TAG, pretty_json, show_value

__all__ = ["add_task_tools", "client_form", "interpretations"]

_STAGES = ("Gathering sources", "Analyzing content", "Synthesizing findings", "Generating report")
#: The stage before which an ambiguous query is clarified.
_UNCLEAR_STAGE = 2
_LONGEST_TOPIC = 10_000
#: How long the client may take for a sampling request, and a person for a form, in seconds.
_SAMPLING_SECONDS = 60.0
_FORM_SECONDS = 600.0


def add_task_tools(server: Server, *, stage: float) -> None:
    """Register the tools with tasks that the official server has; a stage of the research takes that many seconds."""

    async def simulate_research_query(
        ctx: Context,
        topic: Annotated[str, Meta(description="What to look into")],
        ambiguous: Annotated[
            bool, Meta(description="Pretend that the topic is unclear, and ask the user what is meant")
        ] = False,
    ) -> str:
        """Pretend to research a topic in four stages, as a task whose status names the stage."""
        return await _research(ctx, topic, ambiguous=ambiguous, seconds=stage)

    server.add_tool(
        simulate_research_query,
        name="simulate-research-query",
        title="Simulate research query",
        annotations=ACTS,
        output_schema=None,
        task=TaskOptions(required=True, ttl=300.0, poll=1.0),
    )
    _add(server, trigger_sampling_request_async, "trigger-sampling-request-async", ACTS_OUTSIDE, "sampling")
    _add(server, trigger_elicitation_request_async, "trigger-elicitation-request-async", ACTS, "elicitation")


def _add(server: Server, function: Any, name: str, annotations: Any, capability: str) -> None:
    method = {"sampling": "sampling.createMessage", "elicitation": "elicitation.create"}[capability]
    tags = {f"{CAPABILITY_TAG}{capability}", f"{CAPABILITY_TAG}tasks.requests.{method}"}
    title = name.replace("-", " ").capitalize()
    server.add_tool(function, name=name, title=title, annotations=annotations, tags=tags, output_schema=None)


# --- a tool that runs as a task --------------------------------------------------------------------------------------


async def _research(ctx: Context, topic: str, *, ambiguous: bool, seconds: float) -> str:
    if len(topic) > _LONGEST_TOPIC:
        raise ToolError(f"topic must not have more than {_LONGEST_TOPIC} characters.")
    meant: str | None = None
    for number, stage in enumerate(_STAGES):
        await ctx.info(f"{stage}...")
        if number == _UNCLEAR_STAGE and ambiguous and ctx.client.supports("elicitation"):
            await ctx.info(f'Found multiple interpretations for "{topic}". Requesting clarification...')
            meant = await _clarify(ctx, topic)
            await ctx.info(f'Continuing with interpretation: "{meant}"...')
        await sleep(ctx, seconds)
    return _report(topic, meant)


async def _clarify(ctx: Context, topic: str) -> str:
    form = {
        "type": "object",
        "properties": {
            "interpretation": {
                "type": "string",
                "title": "Meaning",
                "description": "What the topic means",
                "oneOf": interpretations(topic),
            }
        },
        "required": ["interpretation"],
    }
    try:
        answer = await ctx.elicit(f'"{topic}" can mean several things. Which one is meant?', schema=form)
    except (RequestFailed, MissingCapability):
        return "technical (default - elicitation unavailable)"
    if answer.action == "accept":
        return str(answer.data["interpretation"])
    action = "declined" if answer.action == "decline" else "cancelled"
    return f"User {action} - using default interpretation"


def interpretations(topic: str) -> list[dict[str, str]]:
    """Return what a topic may mean, as the choices of a form."""
    if "python" in topic.lower():
        return [
            {"const": "programming", "title": "The programming language"},
            {"const": "snake", "title": "The snake"},
            {"const": "comedy", "title": "The comedians"},
        ]
    return [
        {"const": "technical", "title": "Science and technology"},
        {"const": "historical", "title": "History"},
        {"const": "current", "title": "The news"},
    ]


def _report(topic: str, meant: str | None) -> str:
    """Return the report: names as in the official server, sentences of our own."""
    about = topic if meant is None else f"{topic} ({meant})"
    stages = "\n".join(f"- Stage {number}: {stage} ✓" for number, stage in enumerate(_STAGES, 1))
    clarified = "" if meant is None else f"\n- **Clarification**: {meant}"
    asked = "" if meant is None else " While the task waited for the user, its status was `input_required`."
    return (
        f"# Research Report: {about}\n\n"
        f"## Research Parameters\n- **Topic**: {topic}{clarified}\n\n"
        f"## Synthesis\n{stages}\n\n"
        f"Nothing was really researched: this call shows a task, whose result is fetched later.{asked}\n"
    )


# --- requests that the client runs as tasks --------------------------------------------------------------------------


class _Progress:
    """The lines that tell how the client's task went."""

    def __init__(self) -> None:
        self.last: t.Task | None = None
        self._lines: list[str] = []
        self._polls = 0

    def __call__(self, task: t.Task) -> None:
        """Note a state of the task."""
        if self.last is None:
            self._lines.append(f"Task created: {task.task_id}")
        else:
            self._polls += 1
            # A person may take minutes: only the first poll, every tenth and every other status are told.
            if self._polls == 1 or self._polls % 10 == 0 or task.status != "input_required":
                self._lines.append(f"Poll {self._polls}: {task.status}{_message(task)}")
        self.last = task

    def __str__(self) -> str:
        return "\n".join(self._lines)

    def failure(self, error: Exception, seconds: float) -> str:
        """Return the text about a task that gave no result.

        Raises:
            ToolError: there was no task.
        """
        if self.last is None:
            raise ToolError(f"The client did not run the request: {error}") from error
        if isinstance(error, TimeoutError):
            return f"[TIMEOUT] Task timed out after {seconds:g} seconds\n\nProgress:\n{self}"
        reason = self.last.status_message or "No message"
        return f"[{self.last.status.upper()}] {reason}\n\nProgress:\n{self}"


def _message(task: t.Task) -> str:
    return f" - {task.status_message}" if task.status_message else ""


async def trigger_sampling_request_async(
    ctx: Context,
    prompt: Annotated[str, Meta(description="The prompt for the model")],
    maxTokens: Annotated[float, Meta(description="The maximum length of its answer, in tokens")] = 100,
) -> str:
    """Send a prompt to the client's model as a task of the client, follow the task, and return the answer."""
    if not 1 <= maxTokens < 2**31:
        raise ToolError("maxTokens must be a whole number from 1.")
    progress = _Progress()
    try:
        async with asyncio.timeout(_SAMPLING_SECONDS):
            answer = await ctx.sample(
                f"Resource trigger-sampling-request-async context: {prompt}",
                max_tokens=int(maxTokens),
                system_prompt="You are a helpful test server.",
                temperature=0.7,
                task=progress,
            )
    except (TimeoutError, RequestFailed) as error:
        return progress.failure(error, _SAMPLING_SECONDS)
    result = msgspec.to_builtins(answer.result)
    result.pop("_meta", None)
    shown = pretty_json(result)
    if progress.last is None:
        return f"[SYNC] Client executed synchronously:\n{shown}"
    return f"[COMPLETED] Async sampling completed!\n\n**Progress:**\n{progress}\n\n**Result:**\n{shown}"


def client_form() -> dict[str, Any]:
    """Return the form; names, types and choices are those of the official server."""
    colors = ["Red", "Blue", "Green", "Yellow", "Purple"]
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "description": "What you are called"},
            "favoriteColor": {"type": "string", "title": "Color", "description": "One you like", "enum": colors},
            "agreeToTerms": {"type": "boolean", "title": "Yes or no", "description": "Whether you agree"},
        },
        "required": ["name"],
    }


_LINES = (("name", "Name"), ("favoriteColor", "Favorite Color"), ("agreeToTerms", "Agreed to terms"))


async def trigger_elicitation_request_async(ctx: Context) -> list[t.TextContent]:
    """Ask the user to fill in a form as a task of the client, follow the task, and return the answer."""
    progress = _Progress()
    message = "Please provide inputs for the following fields (async task demo):"
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            answer = await ctx.elicit(message, schema=client_form(), task=progress)
    except (TimeoutError, RequestFailed) as error:
        return [t.TextContent(text=progress.failure(error, _FORM_SECONDS))]
    raw: dict[str, Any] = {"action": answer.action}
    if answer.action == "accept":
        raw["content"] = answer.data
    if progress.last is None:
        return [t.TextContent(text=f"[SYNC] Client executed synchronously:\n{pretty_json(raw)}")]
    told = [*_told(raw), f"\nProgress:\n{progress}\n\nRaw result: {pretty_json(raw)}"]
    return [t.TextContent(text=text) for text in told]


def _told(raw: dict[str, Any]) -> list[str]:
    if raw["action"] == "decline":
        return ["[DECLINED] User declined to provide the requested information."]
    if raw["action"] == "cancel":
        return ["[CANCELLED] User cancelled the elicitation dialog."]
    content = raw["content"]
    lines = [f"- {label}: {show_value(content[name])}" for name, label in _LINES if name in content]
    return ["[COMPLETED] User provided the requested information!", "User inputs:\n" + "\n".join(lines)]
