"""What a model is offered at a moment.

The tools that it may see, converted for its provider, the mapping back from names, and the host's own tools (two that
page and search outputs, two that stand for a large catalog, two for skills). The policy decides what a model may see,
the share of its window whether tools are listed or searched, and the provider's dialect how each is converted and which
cannot be. The toolbox is rebuilt when the catalog changes, with a summary of what changed. The host's own tools read
only what the conversation has already, so they need no approval; what call_tool calls is authorized as if it had been
called by its own name. The model is offered tools and skills only: no prompts and no resources.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.host.authorization.authorizer import act_for_item
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.chat.skill_tools import skill_tools
from trunkline.host.chat.spill import Spill, SpillError
from trunkline.host.chat.tool_schemas import SchemaDialect, UnsupportedTool, to_tool_spec
from trunkline.host.models.interface import ToolSpec
from trunkline.host.session import HostSession
from trunkline.host.skills import HostSkill, act_for_skill, unlisted_skill
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import CatalogItem, estimate_tokens
from trunkline.host.upstreams.catalog.names import split_ambiguous, wire_name
from trunkline.host.upstreams.catalog.search import (
    CALL_TOOL,
    SEARCH_TOOL,
    SearchIndex,
    SearchMode,
    choose_exposure,
    meta_tools,
    render_hits,
)

__all__ = [
    "HOST_SERVER",
    "READ_OUTPUT",
    "SEARCH_OUTPUT",
    "HostToolError",
    "Toolbox",
    "ToolboxContext",
    "build_toolbox",
    "describe_changes",
    "instructions_text",
    "offered_servers",
    "output_tools",
    "parse_inner_call",
    "run_output_tool",
    "search_tools",
]

#: The name under which the host's own tools are shown and accounted for.
HOST_SERVER = "trunkline"
READ_OUTPUT = "read_output"
SEARCH_OUTPUT = "search_output"
_USUAL_PAGE = 8000  # Characters: about 2000 tokens, as in the preview of a result.
_LONGEST_PAGE = 30_000  # Characters: about 8000 tokens, so that one page does not fill a small window.
_MOST_HITS = 50  # As many as the search returns at most.


class HostToolError(ValueError):
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


def run_output_tool(spill: Spill, tool: str, arguments: Mapping[str, Any]) -> str:
    """Page or search an output; this blocks while the file is read.

    Raises:
        HostToolError: the arguments are invalid, or the output cannot be read.
    """
    name = arguments.get("id")
    if not isinstance(name, str):
        raise HostToolError(f"{tool} takes the id of an output, such as out-1.")
    try:
        if tool == READ_OUTPUT:
            offset, limit = arguments.get("offset", 0), arguments.get("limit", _USUAL_PAGE)
            if not isinstance(offset, int) or not isinstance(limit, int):
                raise HostToolError(f"{tool} takes offset and limit as integers.")
            return spill.read(name, offset=offset, limit=min(limit, _LONGEST_PAGE))
        pattern = arguments.get("pattern")
        if not isinstance(pattern, str):
            raise HostToolError(f"{tool} takes a pattern.")
        return spill.search(name, pattern)
    except SpillError as problem:
        raise HostToolError(str(problem)) from None


def search_tools(index: SearchIndex, arguments: Mapping[str, Any]) -> t.CallToolResult:
    """Search the tools.

    Raises:
        HostToolError: the arguments are invalid.
    """
    query, limit = arguments.get("query"), arguments.get("limit", 10)
    if not isinstance(query, str) or not isinstance(limit, int):
        raise HostToolError(f"{SEARCH_TOOL} takes query (a string) and limit (an integer).")
    return render_hits(index.search(query, max(1, min(limit, _MOST_HITS))))


def parse_inner_call(arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
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
        raise HostToolError(f"{CALL_TOOL} takes name (a string) and arguments (an object).")
    return name, inner


_MOST_NAMED = 12  # Names in one sentence.
_NOTHING: Mapping[str, str] = MappingProxyType({})
_MOST_INSTRUCTIONS = 32 * 1024  # Bytes of all servers' instructions together: about 9000 tokens, in every request.


class ToolboxContext(Struct, frozen=True, kw_only=True):
    """For whom a toolbox is built, and with how much space."""

    policy: Policy
    dialect: SchemaDialect
    session: HostSession
    search: SearchMode = "auto"
    window_tokens: int = 128_000
    share: float = 0.10
    #: Servers whose tools are always listed.
    always: frozenset[str] = frozenset()
    #: Notes on servers that cannot be used now.
    notes: Mapping[str, str] = _NOTHING
    #: Whether there may be spilled outputs, so that the tools for them are offered.
    outputs: bool = False
    #: The skills of the servers.
    skills: tuple[HostSkill, ...] = ()
    #: The servers that declare skills; they need not list them.
    skill_servers: tuple[str, ...] = ()

    def is_visible(self, item: CatalogItem) -> bool:
        """Return True if the model may see a tool; never one that is for pages alone."""
        return item.for_model and self.policy.is_visible(act_for_item(item, caller="model", session=self.session))

    def visible_skills(self) -> list[HostSkill]:
        """Return the skills that the model may see."""
        acts = ((each, act_for_skill(each, caller="model", session=self.session)) for each in self.skills)
        return [each for each, act in acts if self.policy.is_visible(act)]

    def visible_skill_servers(self) -> list[str]:
        """Return the servers of which the model may load skills that are not listed."""
        unlisted = (unlisted_skill(each, "") for each in self.skill_servers)
        acts = ((each.server, act_for_skill(each, caller="model", session=self.session)) for each in unlisted)
        return [server for server, act in acts if self.policy.is_visible(act)]


class Toolbox(Struct, frozen=True, kw_only=True, eq=False):
    """The tools of a turn."""

    #: The tools as sent to the provider.
    specs: tuple[ToolSpec, ...] = ()
    #: Tools of servers by the name that the model uses, including those found by searching.
    by_name: Mapping[str, CatalogItem] = MappingProxyType({})
    #: The host's own tools, by name.
    own: Mapping[str, t.Tool] = MappingProxyType({})
    #: The skills that can be loaded, by label.
    skills: Mapping[str, HostSkill] = MappingProxyType({})
    #: The servers of which skills can be loaded by URI.
    skill_servers: frozenset[str] = frozenset()
    #: The tools that are not offered, with the reasons, by id.
    skipped: Mapping[str, str] = _NOTHING
    #: The search index; None if tools are listed.
    index: SearchIndex | None = None
    #: An overview of the searchable tools, if it is too long for the description of the search tool.
    overview: str | None = None
    #: The size of the tools in tokens, and their number, by server.
    tokens: Mapping[str, int] = MappingProxyType({})
    counts: Mapping[str, int] = MappingProxyType({})

    def closest_name(self, name: str) -> str | None:
        """Return the closest known name; None if there is none."""
        names = [*self.by_name, *self.own]
        own = [each for each, item in self.by_name.items() if item.name == name]
        return own[0] if own else next(iter(difflib.get_close_matches(name[:200], names, n=1, cutoff=0.5)), None)


def build_toolbox(catalog: Catalog, view: ToolboxContext) -> Toolbox:
    """Choose and convert what a model is offered of a catalog."""
    items = [item for item in catalog.tools.values() if view.is_visible(item)]
    named, clashing = split_ambiguous((wire_name(item.server, item.name, view.dialect.naming), item) for item in items)
    skipped = {item.id: f"its name would be {name}, like that of another tool" for name, item in clashing}
    exposure = choose_exposure(
        named.values(),
        mode=view.search,
        window_tokens=view.window_tokens,
        share=view.share,
        # Tools of the chat itself are added.
        most_tools=view.dialect.most_tools - 4,
        always=view.always,
    )
    listed = set(exposure.listed)
    specs: dict[str, ToolSpec] = {}
    for name, item in named.items():
        if item in listed:
            try:
                assert isinstance(item.definition, t.Tool)
                specs[name] = to_tool_spec(item.definition, name, view.dialect)
            except UnsupportedTool as problem:
                skipped[item.id] = str(problem)
    usable = {name: item for name, item in named.items() if item.id not in skipped}
    skills, servers = view.visible_skills(), view.visible_skill_servers()
    own = [*_own_tools(catalog, view, usable.values(), searched=exposure.searched), *skill_tools(skills, servers)]
    own, overview = _brief(own, view.dialect.longest_description)
    own_specs = [to_tool_spec(tool, tool.name, view.dialect) for tool in own]
    tokens, counts = _shares(specs, usable, own_specs)
    return Toolbox(
        specs=(*own_specs, *specs.values()),
        by_name=MappingProxyType(usable),
        own=MappingProxyType({tool.name: tool for tool in own}),
        skills=MappingProxyType({each.label: each for each in skills}),
        skill_servers=frozenset(servers),
        skipped=MappingProxyType(skipped),
        index=SearchIndex(usable.values(), instructions=catalog.instructions) if exposure.searched else None,
        overview=overview,
        tokens=tokens,
        counts=counts,
    )


def _own_tools(catalog: Catalog, view: ToolboxContext, items: Iterable[CatalogItem], *, searched: bool) -> list[t.Tool]:
    own = output_tools() if view.outputs else []
    if searched:
        seen = list(items)
        servers = {item.server for item in seen}
        said = {server: text for server, text in catalog.instructions.items() if server in servers}
        own += meta_tools(seen, instructions=said, notes=view.notes)
    return own


def _brief(tools: list[t.Tool], longest: int) -> tuple[list[t.Tool], str | None]:
    """Shorten descriptions that are too long for the provider; return the tools, and the removed text."""
    brief, rest = [], []
    for tool in tools:
        said = tool.description or ""
        first, _, more = said.partition("\n\n")
        if len(said) > longest and more:
            rest.append(more)
            tool = replace(tool, description=first)
        brief.append(tool)
    return brief, "\n".join(rest) or None


def _shares(
    specs: Mapping[str, ToolSpec], items: Mapping[str, CatalogItem], own: Iterable[ToolSpec]
) -> tuple[dict[str, int], dict[str, int]]:
    tokens: dict[str, int] = {}
    counts: dict[str, int] = {}
    for server, spec in [
        *((items[name].server, spec) for name, spec in specs.items()),
        *((HOST_SERVER, each) for each in own),
    ]:
        tokens[server] = tokens.get(server, 0) + estimate_tokens(msgspec.structs.asdict(spec))
        counts[server] = counts.get(server, 0) + 1
    return tokens, counts


# --- changes ---------------------------------------------------------------------------------------------------------


def describe_changes(before: Toolbox, after: Toolbox) -> str | None:
    """Return a summary of tools that were added, removed or changed; None if there are none."""
    old = {item.id: (name, item.pin) for name, item in before.by_name.items()}
    new = {item.id: (name, item.pin) for name, item in after.by_name.items()}
    groups = (
        ("now available", [new[each][0] for each in new if each not in old]),
        ("no longer available", [old[each][0] for each in old if each not in new]),
        ("changed", [new[each][0] for each in new if each in old and old[each][1] != new[each][1]]),
    )
    parts = [f"{what}: {_some(names)}" for what, names in groups if names]
    if not parts:
        return None
    hint = f" Find tools with {SEARCH_TOOL}, and call them with {CALL_TOOL}." if after.index is not None else ""
    return f"Tools {'; '.join(parts)}.{hint}"


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown


# --- instructions of servers ----------------------------------------------------------------------------------------


def instructions_text(catalog: Catalog, servers: Iterable[str], *, most_bytes: int) -> dict[str, str]:
    """Return the instructions of these servers, bounded, and marked as the server's text."""
    found: dict[str, str] = {}
    room = _MOST_INSTRUCTIONS
    said = catalog.instructions
    for server in dict.fromkeys(servers):
        text = _plain(said.get(server, ""))
        data = text.encode("utf-8", "replace")
        size = min(len(data), most_bytes, room)
        if size <= 0:
            continue
        room -= size
        kept = data[:size].decode("utf-8", "ignore")
        more = "\n[cut off]" if size < len(data) else ""
        found[server] = f'<server_instructions server="{server}">\n{kept}{more}\n</server_instructions>'
    return found


def _plain(text: str) -> str:
    """Remove invisible characters, and text that would end the marking."""
    seen = "".join(character for character in text if character.isprintable() or character in "\n\t")
    return seen.replace("server_instructions", "server instructions").strip()


def offered_servers(toolbox: Toolbox) -> list[str]:
    """Return the servers with a tool in the toolbox, including those found by searching."""
    return list(dict.fromkeys(item.server for item in toolbox.by_name.values()))
