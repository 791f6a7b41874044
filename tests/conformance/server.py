"""The server that the official conformance suite is run against: ``python tests/conformance/server.py --port N``.

It is written on public names alone, as any user would write it. The names, URIs and texts are the suite's: each
scenario calls something here and judges what comes back, in handshake and in stateless revisions alike.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import DecodeError, Meta, Raw
from msgspec.json import decode

from trunkline import Audio, Context, Image, MissingCapability, RequestFailed, Server, ToolError, UserMessage
from trunkline.server import CallNext, ServerRequest, TaskOptions
from trunkline.types import CallToolRequestParams, ElicitResult, EmbeddedResource, ResourceContents

__all__ = ["ENUMS", "SCHEMA_2020_12", "main", "server"]

#: The wait between two messages of a tool that tells what it does.
STEP_SECONDS = 0.05
#: How soon a client whose stream was closed may come back; the suite waits for it.
RETRY_MS = 100

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
WAV = b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")

#: Every keyword that must reach a client as it was written.
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

#: A form with the five ways to offer a choice.
ENUMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option one", "Option two", "Option three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]},
        },
    },
}


async def keep_unasked(request: ServerRequest, call_next: CallNext) -> Any:
    """Keep answers that come before anything was asked; ``ctx.elicit`` believes only what comes with its state."""
    params = request.params
    if isinstance(params, CallToolRequestParams) and params.input_responses and params.request_state is None:
        request.context.set_state("unasked", params.input_responses)
    return await call_next(request)


server = Server(
    "trunkline-conformance",
    "Offers what the conformance suite asks for.",
    version="1.0.0",
    cache_ttl_ms=60_000,
    skills=Path(__file__).parent / "skills",
    middleware=[keep_unasked],
)


# --- tools: content ---------------------------------------------------------------------------------------------------
# The first tool is the one the suite calls without arguments to look at headers.


@server.tool
async def test_simple_text() -> str:
    """Answer with one text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Answer with a picture."""
    return Image(data=PNG)


@server.tool
async def test_audio_content() -> Audio:
    """Answer with a sound."""
    return Audio(data=WAV)


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource inside the result."""
    text = "This is an embedded resource content."
    resource = ResourceContents(uri="test://embedded-resource", mime_type="text/plain", text=text)
    return EmbeddedResource(resource=resource)


@server.tool
async def test_multiple_content_types() -> list[Any]:
    """Answer with text, a picture and a resource."""
    data = json.dumps({"test": "data", "value": 123})
    resource = ResourceContents(uri="test://mixed-content-resource", mime_type="application/json", text=data)
    return ["Multiple content types test:", Image(data=PNG), resource]


@server.tool
async def test_error_handling() -> str:
    """Fail in a way the model should read."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool(input_schema=SCHEMA_2020_12)
async def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Take arguments under a schema that uses every part of JSON Schema 2020-12."""
    return f"JSON Schema 2020-12 tool called with: {json.dumps(arguments)}"


@server.tool
async def test_x_mcp_header(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
    """Take an argument that also travels in a header."""
    return f"Region: {region}"


# --- tools: telling ---------------------------------------------------------------------------------------------------


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for percent in (0, 50, 100):
        await ctx.report_progress(percent, 100, f"Completed step {percent} of 100")
        await asyncio.sleep(STEP_SECONDS)
    return "Progress told three times."


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three times."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(message)
        await asyncio.sleep(STEP_SECONDS)
    return "Tool with logging executed successfully"


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log once, for callers who want to hear it."""
    await ctx.info("A message for those who set a level")
    return "Logged, if a level was set."


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the stream of this call before there is a result; the client fetches that by coming back."""
    await ctx.close_stream()
    await asyncio.sleep(STEP_SECONDS)
    return "Reconnection test completed successfully"


@server.tool
async def test_trigger_tool_change() -> str:
    """Tell those who listen that the list of tools changed."""
    server.changed("tools")
    return "Told of changed tools."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Tell those who listen that the list of prompts changed."""
    server.changed("prompts")
    return "Told of changed prompts."


# --- tools: asking ----------------------------------------------------------------------------------------------------


@dataclass
class Account:
    """Who somebody is."""

    username: Annotated[str, Meta(description="User's response")]
    email: Annotated[str, Meta(description="User's email address")]


@dataclass
class Filled:
    """A form that is filled in from the start."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@dataclass
class Name:
    """Somebody's name."""

    name: str


@dataclass
class Color:
    """A favourite colour."""

    color: str


@dataclass
class Confirmation:
    """A yes or a no."""

    ok: bool


@dataclass
class Background:
    """What a prompt should know."""

    context: str


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Have the client's model answer a prompt."""
    return f"LLM response: {(await ctx.sample(prompt, max_tokens=100)).text}"


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user who they are."""
    answer = await ctx.elicit(message, Account)
    return f"User response: action={answer.action}, content={answer.data}"


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form that has a default for every type of field."""
    answer = await ctx.elicit("Please review and update the form fields with defaults", Filled)
    return f"Elicitation completed: action={answer.action}, content={answer.data}"


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with a form that has every kind of choice."""
    answer = await ctx.elicit("Please select options from the enum fields", schema=ENUMS)
    return f"Elicitation completed: action={answer.action}, content={answer.data}"


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Tell of progress, then ask: the question is part of the result and no request of its own."""
    await ctx.report_progress(1, 2, "About to ask")
    answer = await ctx.elicit("Shall the work go on?", Confirmation)
    return f"The user said: {answer.action}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Refuse callers without a model."""
    if not ctx.client.supports("sampling"):
        raise MissingCapability("This tool needs the client's model", capability="sampling")
    return "The client can sample."


# --- tools: asking inside results -------------------------------------------------------------------------------------


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Greet by name: by one that came unasked if there is, else by asking."""
    unasked = _name_in(ctx.get_state("unasked") or {})
    if unasked is not None:
        return f"Hello, {unasked}!"
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.data.name}!" if answer.accepted else "Hello, stranger!"


def _name_in(responses: Mapping[str, Raw]) -> str | None:
    """Find a name among answers; what is no answer counts as none."""
    try:
        answer = decode(responses.get("user_name", b"null"), type=ElicitResult | None)
    except DecodeError:
        return None
    name = None if answer is None or answer.content is None else answer.content.get("name")
    return name if isinstance(name, str) else None


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the model one thing."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {answer.text}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the folders."""
    roots = await ctx.list_roots(key="client_roots")
    return f"Roots: {', '.join(root.uri for root in roots)}"


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask, and find the state of the first round unharmed in the second."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"state-ok after {ctx.round} round: {answer.action}"


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask three things at once."""
    user, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.list_roots(key="client_roots"),
    )
    return f"{greeting.text} {user.data.name if user.accepted else 'stranger'}, {len(roots)} roots"


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask one thing after another."""
    first = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    second = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    return f"Rounds: {ctx.round}, name: {first.data}, color: {second.data}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask, with state that a caller cannot change unnoticed."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"The state was not touched: {answer.action}"


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only what the caller can answer."""
    if ctx.client.supports("sampling"):
        return f"The model says: {(await ctx.sample('Say hello', max_tokens=50, key='greeting')).text}"
    if ctx.client.supports("elicitation"):
        return f"The user says: {(await ctx.elicit('Say hello', Name, key='user_name')).action}"
    return "There is nobody to ask."


# --- tools: tasks ----------------------------------------------------------------------------------------------------


@dataclass
class Deletion:
    """Whether a file may be deleted."""

    confirm: bool


@dataclass
class Signature:
    """A name, and that it is meant."""

    name: str
    confirm: bool


@server.tool
async def greet(name: str) -> str:
    """Greet at once: never a task."""
    return f"Hello, {name}!"


@server.tool(task=True)
async def slow_compute(seconds: float, label: str) -> str:
    """Compute for some seconds."""
    await asyncio.sleep(seconds)
    return f"{label}: computed for {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Run for a moment, then fail in a way the model should read."""
    await asyncio.sleep(STEP_SECONDS)
    raise ToolError("This job intentionally fails")


@server.tool(task=True)
async def protocol_error_job() -> str:
    """Run for a moment, then end in a protocol error."""
    await asyncio.sleep(STEP_SECONDS)
    raise RequestFailed("This job intentionally ends in a protocol error", code=-32603)


@server.tool(task=True)
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Delete a file if the user agrees."""
    answer = await ctx.elicit(f"Delete {filename}?", Deletion)
    agreed = answer.accepted and answer.data.confirm
    return f"{filename} was {'deleted' if agreed else 'kept'}"


@server.tool(task=True)
async def multi_input(ctx: Context) -> str:
    """Ask two things at once."""
    first, second = await asyncio.gather(
        ctx.elicit("Who asks first?", Signature, key="first"),
        ctx.elicit("Who asks second?", Signature, key="second"),
    )
    return f"first: {first.data}, second: {second.data}"


@server.tool(task=TaskOptions(required=True, after=None))
async def test_tool_with_task(ctx: Context) -> str:
    """Ask while the caller waits, then go on as a task."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    await ctx.continue_as_task()
    return f"Hello from a task, {answer.data.name if answer.accepted else 'stranger'}!"


# --- resources --------------------------------------------------------------------------------------------------------


@server.resource("test://static-text", name="static-text", mime_type="text/plain")
def static_text() -> str:
    """Give a text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """Give a picture that never changes."""
    return PNG


@server.resource("test://watched-resource", name="watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """Give a text that clients subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", name="template", mime_type="application/json")
def template(id: str) -> str:
    """Give the data of an id."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


# --- prompts ----------------------------------------------------------------------------------------------------------


@server.prompt
def test_simple_prompt() -> str:
    """Make one message."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Make a message of two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    """Make a message that carries a resource."""
    resource = ResourceContents(uri=resourceUri, mime_type="text/plain", text="Embedded resource content for testing.")
    return [UserMessage(resource), UserMessage("Please process the embedded resource above.")]


@server.prompt
def test_prompt_with_image() -> list[UserMessage]:
    """Make a message that carries a picture."""
    return [UserMessage(Image(data=PNG)), UserMessage("Please analyze the image above.")]


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """Ask what the prompt should know, then make it."""
    answer = await ctx.elicit("What context should the prompt use?", Background, key="user_context")
    return f"Use this context: {answer.data.context if answer.accepted else 'none'}"


@server.completion("test_prompt_with_arguments", "arg1")
def complete_arg1(value: str) -> list[str]:
    """Propose values that begin as what was typed."""
    return [word for word in ("testing", "test-value", "paris") if word.startswith(value)]


def main() -> None:
    """Serve on a port of this machine until told to stop."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, required=True)
    server.run("http", port=parser.parse_args().port, retry_ms=RETRY_MS)


if __name__ == "__main__":
    main()
