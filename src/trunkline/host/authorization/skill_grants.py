"""The tools that a skill requests (``allowed-tools``), and the grants for them if the user approves.

A request alone has no effect. The names are resolved against the tools of the skill's own server; a tool of another
server counts only if it is named with its server, and needs an answer of its own. The user sees the resolved tools. An
approval is bound to the digest of the skill's files and to the pin of each tool, and ends with the session, or when the
skill is unloaded or changes. It only answers approval requests: it allows nothing that the policy denies, and no tool
that is flagged or changed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from trunkline.host.authorization.grants import MAX_TOOLS_PER_GRANT, Grant, ServerTool, make_server_grant
from trunkline.host.authorization.policy.decisions import Act
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import item_id

__all__ = ["SkillTool", "make_skill_grants", "requested_tools"]

_MOST_TOOLS = 30  # The prompts show all of them, and more names are not read before an answer.


class SkillTool(Struct, frozen=True):
    """A tool that a skill requests, as it is defined now."""

    server: str
    name: str
    pin: str
    read_only: bool = False

    @property
    def id(self) -> str:
        """``server/name``."""
        return item_id(self.server, self.name)


def requested_tools(
    names: Iterable[str], server: str, catalog: Catalog, may_use: Callable[[CatalogItem], bool]
) -> tuple[SkillTool, ...]:
    """Return the tools that a skill of a server requests: usable, neither flagged nor changed; none if there are many.

    A glob matches only tools of the skill's own server. A name with a rule, such as ``Bash(git log:*)``, matches
    nothing: the rule could not be enforced.
    """
    found: dict[str, SkillTool] = {}
    for item in catalog.tools.values():
        usable = item.for_model and not item.flagged and not item.changed and may_use(item)
        if usable and any(_names(each, item, server) for each in names):
            found[item.id] = SkillTool(item.server, item.name, item.pin, item.annotations.read_only is True)
    return tuple(found.values()) if len(found) <= _MOST_TOOLS else ()


def _names(requested: str, item: CatalogItem, server: str) -> bool:
    if item.server != server:
        return requested in (item.id, item.wire)
    return requested == item.wire or any(fnmatchcase(each, requested) for each in (item.name, item.id))


def make_skill_grants(act: Act, tools: Iterable[SkillTool], *, now: float) -> list[Grant]:
    """Make the grants for the tools of an approved skill, one for each server, for the session of the approval.

    The text of the skill came into the session with the approval, so the grants for tools of other servers hold in the
    session that it taints.

    Raises:
        ValueError: the skill has no digest, or no session.
    """
    if act.kind != "skill" or act.pin is None or act.session is None:
        raise ValueError(f"{act.server}/{act.name} has no digest or no session, so nothing identifies the skill")
    by_server: dict[str, list[ServerTool]] = {}
    for tool in list(tools)[:MAX_TOOLS_PER_GRANT]:
        by_server.setdefault(tool.server, []).append(ServerTool(tool.name, tool.pin, tool.read_only))
    made = []
    for server, own in by_server.items():
        grant = make_server_grant(replace(act, server=server), "session", own, now=now)
        tainted = act.tainted or server != act.server
        made.append(replace(grant, skill=item_id(act.server, act.name), skill_pin=act.pin, tainted=tainted))
    return made
