"""The tools that a model is offered at a moment, converted for its provider, and the mapping back from names.

The policy decides what a model may see; the share of its window whether tools are listed or searched; the provider's
dialect how each is converted, and which cannot be. The toolbox is rebuilt when the catalog changes, with a summary of
what changed. The model is offered tools only: no prompts and no resources.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.host.catalog.catalog import Catalog
from trunkline.host.catalog.items import Item, estimate_tokens
from trunkline.host.catalog.names import unambiguous, wire_name
from trunkline.host.catalog.search import CALL_TOOL, SEARCH_TOOL, Mode, SearchIndex, choose, meta_tools
from trunkline.host.chat.own_tools import HOST, output_tools
from trunkline.host.chat.projection import Dialect, Unfit, project
from trunkline.host.judgement.taint import Taint
from trunkline.host.models.interface import ToolSpec
from trunkline.host.policy.acts import Act
from trunkline.host.policy.policy import Policy

__all__ = ["Toolbox", "Viewpoint", "changes", "instructions_text", "offered_servers", "open_toolbox"]

_MOST_NAMED = 12
_NOTHING: Mapping[str, str] = MappingProxyType({})
_MOST_INSTRUCTIONS = 32 * 1024


class Viewpoint(Struct, frozen=True, kw_only=True):
    """For whom a toolbox is built, and with how much space."""

    policy: Policy
    dialect: Dialect
    session: str
    principal: str | None = None
    profile: str | None = None
    taint: Taint | None = None
    search: Mode = "auto"
    window_tokens: int = 128_000
    share: float = 0.10
    #: Servers whose tools are always listed.
    always: frozenset[str] = frozenset()
    #: Notes on servers that cannot be used now.
    notes: Mapping[str, str] = _NOTHING
    #: Whether there may be spilled outputs, so that the tools for them are offered.
    outputs: bool = False

    def sees(self, item: Item) -> bool:
        """Return True if the model may see a tool."""
        act = Act(
            kind="tool",
            server=item.server,
            name=item.name,
            annotations=item.annotations,
            pin=item.pin,
            trusted=item.trusted,
            tainted=self.taint is not None and self.taint.reaches(item.server, item.name, hints=item.annotations),
            flagged=bool(item.flagged),
            changed=bool(item.changed),
            caller="model",
            principal=self.principal,
            session=self.session,
            profile=self.profile,
        )
        return self.policy.sees(act)


class Toolbox(Struct, frozen=True, kw_only=True, eq=False):
    """The tools of a turn."""

    #: The tools as sent to the provider.
    specs: tuple[ToolSpec, ...] = ()
    #: Tools of servers by the name that the model uses, including those found by searching.
    by_name: Mapping[str, Item] = MappingProxyType({})
    #: The host's own tools, by name.
    own: Mapping[str, t.Tool] = MappingProxyType({})
    #: The tools that are not offered, with the reasons, by id.
    skipped: Mapping[str, str] = _NOTHING
    #: The search index; None if tools are listed.
    index: SearchIndex | None = None
    #: An overview of the searchable tools, if it is too long for the description of the search tool.
    overview: str | None = None
    #: The size of the tools in tokens, and their number, by server.
    tokens: Mapping[str, int] = MappingProxyType({})
    counts: Mapping[str, int] = MappingProxyType({})

    def near(self, name: str) -> str | None:
        """Return the closest known name; None if there is none."""
        names = [*self.by_name, *self.own]
        own = [each for each, item in self.by_name.items() if item.name == name]
        return own[0] if own else next(iter(difflib.get_close_matches(name[:200], names, n=1, cutoff=0.5)), None)


def open_toolbox(catalog: Catalog, view: Viewpoint) -> Toolbox:
    """Choose and convert what a model is offered of a catalog."""
    items = [item for item in catalog.tools.values() if view.sees(item)]
    named, clashing = unambiguous((wire_name(item.server, item.name, view.dialect.naming), item) for item in items)
    skipped = {item.id: f"its name would be {name}, like that of another tool" for name, item in clashing}
    exposure = choose(
        named.values(),
        mode="on" if view.search == "auto" and len(named) > view.dialect.most_tools - 4 else view.search,
        window_tokens=view.window_tokens,
        share=view.share,
        always=view.always,
    )
    listed = set(exposure.listed)
    specs: dict[str, ToolSpec] = {}
    for name, item in named.items():
        if item in listed:
            try:
                assert isinstance(item.definition, t.Tool)
                specs[name] = project(item.definition, name, view.dialect)
            except Unfit as problem:
                skipped[item.id] = str(problem)
    usable = {name: item for name, item in named.items() if item.id not in skipped}
    own = _own_tools(catalog, view, usable.values(), searched=exposure.searched)
    own, overview = _brief(own, view.dialect.longest_description)
    own_specs = [project(tool, tool.name, view.dialect) for tool in own]
    tokens, counts = _shares(specs, usable, own_specs)
    return Toolbox(
        specs=(*own_specs, *specs.values()),
        by_name=MappingProxyType(usable),
        own=MappingProxyType({tool.name: tool for tool in own}),
        skipped=MappingProxyType(skipped),
        index=SearchIndex(usable.values(), instructions=catalog.instructions) if exposure.searched else None,
        overview=overview,
        tokens=tokens,
        counts=counts,
    )


def _own_tools(catalog: Catalog, view: Viewpoint, items: Iterable[Item], *, searched: bool) -> list[t.Tool]:
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
    specs: Mapping[str, ToolSpec], items: Mapping[str, Item], own: Iterable[ToolSpec]
) -> tuple[dict[str, int], dict[str, int]]:
    tokens: dict[str, int] = {}
    counts: dict[str, int] = {}
    for server, spec in [
        *((items[name].server, spec) for name, spec in specs.items()),
        *((HOST, each) for each in own),
    ]:
        tokens[server] = tokens.get(server, 0) + estimate_tokens(msgspec.structs.asdict(spec))
        counts[server] = counts.get(server, 0) + 1
    return tokens, counts


# --- changes ---------------------------------------------------------------------------------------------------------


def changes(before: Toolbox, after: Toolbox) -> str | None:
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
