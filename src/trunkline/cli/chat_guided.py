"""A chat without a model: the user picks the tools.

A line is the number or the name of a tool, or words to search for. Calls pass the same policy, approval and audit trail
as a model's. Prompts and resources are shown.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import trunkline.types as t
from trunkline.cli.blocks import block_text, contents_text, result_text
from trunkline.cli.chat_forms import Unreadable, ask_arguments, missing, problems_of, read_arguments
from trunkline.cli.chat_opening import Room
from trunkline.cli.chat_proposals import visible
from trunkline.cli.chat_screen import ChatScreen, marked
from trunkline.cli.form import Left
from trunkline.cli.output import clip, one_line, table, wire_json
from trunkline.cli.terminal import InputEnded, Terminal
from trunkline.client.tool_facts import CallResult
from trunkline.errors import PolicyDenied, TrunklineError
from trunkline.host.catalog.items import Item
from trunkline.host.catalog.names import id_of
from trunkline.host.catalog.search import SearchIndex

__all__ = ["HINT", "Guided", "found_tools", "tool_table"]

HINT = "Type the number or the name of a tool to call it, or words to search for one; /help shows more."
_MOST_FOUND = 30
_LONGEST_ARGUMENTS = 1000


def found_tools(room: Room, words: str) -> list[Item]:
    """Return the tools that match some words, the best match first; without words, all tools."""
    tools = visible(room.host, "tool", room.session)
    if not words.strip():
        return tools
    index = SearchIndex(tools, instructions=room.host.catalog.instructions)
    return [hit.item for hit in index.search(words, _MOST_FOUND)]


def tool_table(tools: Sequence[Item], *, numbered: bool) -> str:
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
    needed = missing(tool.input_schema, {})
    names = list(properties) if isinstance(properties, dict) else []
    return " ".join(name if name in needed else f"[{name}]" for name in names)


def _with_arguments(text: str, name: str) -> bool:
    """Return True if a line is a tool's name followed by arguments, not words that begin like a name."""
    rest = text[len(name) :].lstrip()
    return text.startswith(f"{name} ") and (rest.startswith("{") or "=" in rest.partition(" ")[0])


class Guided:
    """Calls the tools that the user picks."""

    def __init__(self, room: Room, show: ChatScreen, *, asks: bool) -> None:
        """Start with no list shown; ``asks`` is True if the user can be prompted for arguments."""
        self._room = room
        self._show = show
        self._asks = asks
        self._listed: list[Item] = []

    async def line(self, text: str) -> None:
        """Call the tool that a line names, or list the tools that match its words."""
        item, rest = self._meant(text)
        if item is None:
            self.list(text)
        else:
            await self.call(item, rest)

    def list(self, words: str) -> None:
        """Print a numbered list of tools."""
        self._listed = found_tools(self._room, words)
        if self._listed:
            self._show.tell(tool_table(self._listed, numbered=True))
        else:
            self._show.line("note", f"no tools match {words!r}" if words else "no tools")

    def _meant(self, text: str) -> tuple[Item | None, str]:
        first, _, rest = text.partition(" ")
        if first.isascii() and first.isdigit() and 0 < int(first) <= len(self._listed):
            return self._listed[int(first) - 1], rest.strip()
        tools = visible(self._room.host, "tool", self._room.session)
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

    async def call(self, item: Item, typed: str) -> None:
        """Prompt for missing arguments, and call a tool."""
        definition = item.definition
        assert isinstance(definition, t.Tool)
        schema = definition.input_schema
        try:
            arguments = read_arguments(typed, schema) if typed else {}
            if self._asks and (not typed or missing(schema, arguments)):
                arguments = await self._asked(item, definition, arguments)
            problems = problems_of(schema, arguments)
        except Unreadable as error:
            problems = [str(error)]
        except (Left, InputEnded):
            self._show.line("stopped", "cancelled, nothing was called")
            return
        if problems:
            self._show.line("failed", f"{item.id} was not called: {'; '.join(problems)}")
            return
        await self._perform(item, arguments)

    async def _asked(self, item: Item, tool: t.Tool, known: dict[str, object]) -> dict[str, object]:
        if item.description:
            self._show.tell(f"{one_line(item.server)} describes {one_line(item.name)} as:\n{marked(item.description)}")
        terminal, schema = Terminal(self._room.screen), tool.input_schema
        while True:
            known = await ask_arguments(terminal, schema, known)
            problems = problems_of(schema, known)
            if not problems:
                return known
            terminal.show(f"  {one_line('; '.join(problems))}")

    async def _perform(self, item: Item, arguments: dict[str, object]) -> None:
        room, started = self._room, time.perf_counter()
        self._show.line("call", f"{item.id} {clip(wire_json(arguments).decode(), _LONGEST_ARGUMENTS)}")
        try:
            result = await room.host.call_tool(
                item.id,
                arguments,
                session=room.session,
                on_progress=room.screen.progress,
                raise_on_error=False,
            )
        except PolicyDenied as error:
            self._show.line("denied", str(error))
        except TrunklineError as error:
            self._show.line("failed", f"{item.id}: {error or type(error).__name__}")
        else:
            self._show_result(item, result, time.perf_counter() - started)
        finally:
            room.screen.clear()

    def _show_result(self, item: Item, result: CallResult, seconds: float) -> None:
        self._show.line("failed" if result.is_error else "done", f"{item.id} ({seconds:.1f} s)")
        text = result_text(result.content, result.structured_content)
        if text:
            self._show.tell(text)

    # --- prompts and resources ---------------------------------------------------------------------------------------

    async def show_prompt(self, item: Item, arguments: dict[str, str]) -> None:
        """Render a prompt and show it.

        Raises:
            TrunklineError: it cannot be rendered, or the policy or the user denied it.
        """
        result = await self._room.host.get_prompt(item.id, arguments, session=self._room.session)
        for message in result.messages:
            self._show.tell(f"{message.role}:\n{marked(block_text(message.content), most=1000)}")

    async def show_resource(self, server: str, uri: str) -> None:
        """Read a resource and show it.

        Raises:
            TrunklineError: it cannot be read, or the policy or the user denied it.
        """
        for contents in await self._room.host.read_resource(id_of(server, uri), session=self._room.session):
            self._show.tell(marked(contents_text(contents), most=1000))
