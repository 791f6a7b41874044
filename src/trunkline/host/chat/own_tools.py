"""The host's own tools in a conversation: two that page and search outputs, two that stand for a large catalog.

They read what the conversation has already, so they need no approval. What ``call_tool`` calls is authorized as if it
had been called by its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

import trunkline.types as t
from trunkline.host.catalog.search import CALL_TOOL, SEARCH_TOOL, SearchIndex, render_hits
from trunkline.host.chat.spill import Spill, SpillError

__all__ = ["HOST", "READ_OUTPUT", "SEARCH_OUTPUT", "OwnToolError", "inner_call", "output_tools", "search", "use_output"]

#: The name under which the host's own tools are shown and accounted for.
HOST = "trunkline"
READ_OUTPUT = "read_output"
SEARCH_OUTPUT = "search_output"
_USUAL_PAGE = 8000
_LONGEST_PAGE = 30_000
_MOST_HITS = 50


class OwnToolError(ValueError):
    """The model used one of the host's tools incorrectly; the message tells it how to do it."""


def output_tools() -> list[t.Tool]:
    """Return the tools that page and search outputs."""
    name = {"type": "string", "description": "The output's id, such as out-1."}
    read = t.Tool(
        name=READ_OUTPUT,
        description="Read a part of an output that was too long to be shown.",
        input_schema={
            "type": "object",
            "properties": {
                "id": name,
                "offset": {"type": "integer", "minimum": 0, "description": "The character to start at."},
                "limit": {"type": "integer", "minimum": 1, "maximum": _LONGEST_PAGE, "default": _USUAL_PAGE},
            },
            "required": ["id"],
            "additionalProperties": False,
        },
        annotations=t.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )
    search = t.Tool(
        name=SEARCH_OUTPUT,
        description="Find matches of a regular expression (RE2) in an output that was too long to be shown.",
        input_schema={
            "type": "object",
            "properties": {"id": name, "pattern": {"type": "string"}},
            "required": ["id", "pattern"],
            "additionalProperties": False,
        },
        annotations=t.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )
    return [read, search]


def use_output(spill: Spill, tool: str, arguments: Mapping[str, Any]) -> str:
    """Page or search an output; this blocks while the file is read.

    Raises:
        HostToolError: the arguments are invalid, or the output cannot be read.
    """
    name = arguments.get("id")
    if not isinstance(name, str):
        raise OwnToolError(f"{tool} takes the id of an output, such as out-1.")
    try:
        if tool == READ_OUTPUT:
            offset, limit = arguments.get("offset", 0), arguments.get("limit", _USUAL_PAGE)
            if not isinstance(offset, int) or not isinstance(limit, int):
                raise OwnToolError(f"{tool} takes offset and limit as integers.")
            return spill.read(name, offset=offset, limit=min(limit, _LONGEST_PAGE))
        pattern = arguments.get("pattern")
        if not isinstance(pattern, str):
            raise OwnToolError(f"{tool} takes a pattern.")
        return spill.search(name, pattern)
    except SpillError as problem:
        raise OwnToolError(str(problem)) from None


def search(index: SearchIndex, arguments: Mapping[str, Any]) -> t.CallToolResult:
    """Search the tools.

    Raises:
        HostToolError: the arguments are invalid.
    """
    query, limit = arguments.get("query"), arguments.get("limit", 10)
    if not isinstance(query, str) or not isinstance(limit, int):
        raise OwnToolError(f"{SEARCH_TOOL} takes query (a string) and limit (an integer).")
    return render_hits(index.search(query, max(1, min(limit, _MOST_HITS))))


def inner_call(arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the tool to call, and its arguments.

    Raises:
        HostToolError: the arguments are invalid.
    """
    name, inner = arguments.get("name"), arguments.get("arguments", {})
    if isinstance(inner, str):
        # Some models write the arguments as a JSON string.
        try:
            inner = msgspec.json.decode(inner)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            inner = None
    if not isinstance(name, str) or not isinstance(inner, dict):
        raise OwnToolError(f"{CALL_TOOL} takes name (a string) and arguments (an object).")
    return name, inner
