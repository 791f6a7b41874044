"""A chat without a model: the user picks the tools, and is asked for their arguments field by field.

Calls pass the same policy, approval and audit trail as a model's. Arguments are validated against the tool's schema
before anything is sent.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

import trunkline.types as t
from trunkline.cli.chat.completion import visible_items
from trunkline.cli.chat.display import MOST_LINES, ChatDisplay
from trunkline.cli.chat.setup import ChatRuntime
from trunkline.cli.exit_codes import CommandError
from trunkline.cli.options import parse_pairs, typed_arguments
from trunkline.cli.ui.elicitation import FormDismissed, fill_form
from trunkline.cli.ui.output import (
    block_text,
    clip,
    contents_text,
    one_line,
    quote_lines,
    result_text,
    table,
    wire_json,
)
from trunkline.cli.ui.terminal import EndOfInput, Terminal
from trunkline.client.tool_cache import CallResult
from trunkline.errors import PolicyDenied, TrunklineError
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import item_id
from trunkline.host.upstreams.catalog.search import SearchIndex
from trunkline.protocol.json_schema import SchemaError, compile_schema

__all__ = [
    "TOOL_PICKER_HINT",
    "InvalidChatInput",
    "ToolPicker",
    "argument_problems",
    "ask_arguments",
    "find_tools",
    "missing_arguments",
    "read_arguments",
    "tool_table",
]

_PLAIN = ("string", "integer", "number", "boolean")
_WAYS_OUT = (":cancel", ":decline")
_MOST_PROBLEMS = 5  # More are not read at once.


class InvalidChatInput(ValueError):
    """The input cannot be parsed; the message says why."""


def read_arguments(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parse ``key=value`` words, or one JSON object, as the arguments of a tool.

    Raises:
        InvalidChatInput: the text is neither.
    """
    try:
        if text.startswith("{"):
            return msgspec.json.decode(text, type=dict[str, Any])
        return typed_arguments(parse_pairs(tuple(shlex.split(text))), schema)
    except click.ClickException as error:
        raise InvalidChatInput(error.format_message()) from error
    except (CommandError, ValueError, RecursionError) as error:
        raise InvalidChatInput(str(error)) from error


def missing_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of required arguments that are missing."""
    required = schema.get("required")
    return [name for name in required if name not in arguments] if isinstance(required, list) else []


def argument_problems(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return where arguments violate a schema; an invalid schema accepts everything."""
    try:
        found = compile_schema(dict(schema)).check(dict(arguments), limit=_MOST_PROBLEMS)
    except SchemaError:
        return []
    return [f"{each.path or '/'}: {each.message}" for each in found]


async def ask_arguments(terminal: Terminal, schema: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Prompt for all arguments; ``before`` holds known values, which Enter accepts.

    Raises:
        FormDismissed: the user cancelled.
        EndOfInput: the input ended.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return dict(before)
    terminal.show("(Enter accepts the value in brackets or skips an optional field; :cancel cancels.)")
    required = missing_arguments(schema, {})
    given: dict[str, Any] = {}
    for name, field in properties.items():
        needed = name in required
        if _is_plain(field):
            one = {"properties": {name: field}, "required": [name] if needed else []}
            given |= await fill_form(terminal, one, before)
        else:
            given |= await _ask_json(terminal, name, schema, before=before, needed=needed)
    return given


def _is_plain(field: Any) -> bool:
    """Return True if a form supports the field."""
    if not isinstance(field, dict) or any(key in field for key in ("$ref", "anyOf", "allOf", "const")):
        return False
    if field.get("type") == "array":
        items = field.get("items")
        return isinstance(items, dict) and "enum" in items
    choices = field.get("enum")
    texts = not isinstance(choices, list) or all(isinstance(each, str) for each in choices)
    return field.get("type") in _PLAIN and texts and "oneOf" not in field


async def _ask_json(
    terminal: Terminal, name: str, schema: Mapping[str, Any], *, before: Mapping[str, Any], needed: bool
) -> dict[str, Any]:
    """Prompt for a field that a form does not support."""
    field = schema["properties"][name]
    about = field.get("description") if isinstance(field, dict) else None
    if about:
        terminal.show(f"  {one_line(str(about))}")
    hint = f" [{wire_json(before[name]).decode()}]" if name in before else "" if needed else " (optional)"
    while True:
        typed = await terminal.ask(f"{one_line(name)}{hint} (as JSON): ")
        if typed in _WAYS_OUT:
            raise FormDismissed(typed[1:])
        if not typed and name in before:
            return {name: before[name]}
        if not typed and not needed:
            return {}
        # Here an @ does not refer to a file.
        text = f"@{typed}" if typed.startswith("@") else typed
        if typed:
            return typed_arguments({name: text}, schema)
        terminal.show("  a value is required (:cancel cancels)")


TOOL_PICKER_HINT = "Type the number or the name of a tool to call it, or words to search for one; /help shows more."
_MOST_FOUND = 30  # About the height of a terminal.
_LONGEST_ARGUMENTS = 1000  # About ten lines of a terminal.


def find_tools(runtime: ChatRuntime, words: str) -> list[CatalogItem]:
    """Return the tools that match some words, the best match first; without words, all tools."""
    tools = visible_items(runtime.host, "tool", runtime.session)
    if not words.strip():
        return tools
    index = SearchIndex(tools, instructions=runtime.host.catalog.instructions)
    return [hit.item for hit in index.search(words, _MOST_FOUND)]


def tool_table(tools: Sequence[CatalogItem], *, numbered: bool) -> str:
    """Format tools as a table with arguments and descriptions."""
    rows = []
    for number, item in enumerate(tools, 1):
        definition = item.definition
        assert isinstance(definition, t.Tool)
        row = (item.id, _parameters(definition), clip(one_line(item.description), 200))
        rows.append((str(number), *row) if numbered else row)
    headings = ("TOOL", "ARGUMENTS", "DESCRIPTION")
    return table(("", *headings) if numbered else headings, rows)


def _parameters(tool: t.Tool) -> str:
    properties = tool.input_schema.get("properties")
    needed = missing_arguments(tool.input_schema, {})
    names = list(properties) if isinstance(properties, dict) else []
    return " ".join(name if name in needed else f"[{name}]" for name in names)


def _with_arguments(text: str, name: str) -> bool:
    """Return True if a line is a tool's name followed by arguments, not words that begin like a name."""
    rest = text[len(name) :].lstrip()
    return text.startswith(f"{name} ") and (rest.startswith("{") or "=" in rest.partition(" ")[0])


class ToolPicker:
    """Calls the tools that the user picks."""

    def __init__(self, runtime: ChatRuntime, show: ChatDisplay, *, asks: bool) -> None:
        """Start with no list shown; ``asks`` is True if the user can be prompted for arguments."""
        self._runtime = runtime
        self._show = show
        self._asks = asks
        self._listed: list[CatalogItem] = []

    async def line(self, text: str) -> None:
        """Call the tool that a line names, or list the tools that match its words."""
        item, rest = self._meant(text)
        if item is None:
            self.list(text)
        else:
            await self.call(item, rest)

    def list(self, words: str) -> None:
        """Print a numbered list of tools."""
        self._listed = find_tools(self._runtime, words)
        if self._listed:
            self._show.show_text(tool_table(self._listed, numbered=True))
        else:
            self._show.line("note", f"no tools match {words!r}" if words else "no tools")

    def _meant(self, text: str) -> tuple[CatalogItem | None, str]:
        first, _, rest = text.partition(" ")
        if first.isascii() and first.isdigit() and 0 < int(first) <= len(self._listed):
            return self._listed[int(first) - 1], rest.strip()
        tools = visible_items(self._runtime.host, "tool", self._runtime.session)
        named = {item.id: item for item in tools}
        for item in tools:
            if sum(each.name == item.name for each in tools) == 1:
                named.setdefault(item.name, item)
        fitting = [name for name in named if text == name or _with_arguments(text, name)]
        if not fitting:
            return None, ""
        name = max(fitting, key=len)
        return named[name], text[len(name) :].strip()

    # --- calling -----------------------------------------------------------------------------------------------------

    async def call(self, item: CatalogItem, typed: str) -> None:
        """Prompt for missing arguments, and call a tool."""
        definition = item.definition
        assert isinstance(definition, t.Tool)
        schema = definition.input_schema
        try:
            arguments = read_arguments(typed, schema) if typed else {}
            if self._asks and (not typed or missing_arguments(schema, arguments)):
                arguments = await self._asked(item, definition, arguments)
            problems = argument_problems(schema, arguments)
        except InvalidChatInput as error:
            problems = [str(error)]
        except (FormDismissed, EndOfInput):
            self._show.line("stopped", "cancelled, nothing was called")
            return
        if problems:
            self._show.line("failed", f"{item.id} was not called: {'; '.join(problems)}")
            return
        await self._perform(item, arguments)

    async def _asked(self, item: CatalogItem, tool: t.Tool, known: dict[str, object]) -> dict[str, object]:
        if item.description:
            description = quote_lines(item.description, most=MOST_LINES)
            self._show.show_text(f"{one_line(item.server)} describes {one_line(item.name)} as:\n{description}")
        terminal, schema = Terminal(self._runtime.screen), tool.input_schema
        while True:
            known = await ask_arguments(terminal, schema, known)
            problems = argument_problems(schema, known)
            if not problems:
                return known
            terminal.show(f"  {one_line('; '.join(problems))}")

    async def _perform(self, item: CatalogItem, arguments: dict[str, object]) -> None:
        runtime, started = self._runtime, time.perf_counter()
        self._show.line("call", f"{item.id} {clip(wire_json(arguments).decode(), _LONGEST_ARGUMENTS)}")
        try:
            result = await runtime.host.call_tool(
                item.id,
                arguments,
                session=runtime.session,
                on_progress=runtime.screen.progress,
                raise_on_error=False,
            )
        except PolicyDenied as error:
            self._show.line("denied", str(error))
        except TrunklineError as error:
            self._show.line("failed", f"{item.id}: {str(error) or type(error).__name__}")
        else:
            self._show_result(item, result, time.perf_counter() - started)
        finally:
            runtime.screen.clear()

    def _show_result(self, item: CatalogItem, result: CallResult, seconds: float) -> None:
        self._show.line("failed" if result.is_error else "done", f"{item.id} ({seconds:.1f} s)")
        text = result_text(result.content, result.structured_content)
        if text:
            self._show.show_text(text)

    # --- prompts and resources ---------------------------------------------------------------------------------------

    async def show_prompt(self, item: CatalogItem, arguments: dict[str, str]) -> None:
        """Render a prompt and show it.

        Raises:
            TrunklineError: it cannot be rendered, or the policy or the user denied it.
        """
        result = await self._runtime.host.get_prompt(item.id, arguments, session=self._runtime.session)
        for message in result.messages:
            self._show.show_text(f"{message.role}:\n{quote_lines(block_text(message.content), most=1000)}")

    async def show_resource(self, server: str, uri: str) -> None:
        """Read a resource and show it.

        Raises:
            TrunklineError: it cannot be read, or the policy or the user denied it.
        """
        for contents in await self._runtime.host.read_resource(item_id(server, uri), session=self._runtime.session):
            self._show.show_text(quote_lines(contents_text(contents), most=1000))
