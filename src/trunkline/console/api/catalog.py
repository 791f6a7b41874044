"""The catalog of all servers: rows for lists, and complete items.

Rows are short: the page loads and searches all of them. They are cached until the catalog or the policy changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

import trunkline.types as t
from trunkline.console.console import Console, ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.host.authorization.authorizer import act_for_item, act_for_unlisted
from trunkline.host.authorization.policy.decisions import Act, Decision, ToolHints, effective_hints
from trunkline.host.integrity.pins.store import PinStore, endpoint_identity
from trunkline.host.skills import HostSkill, act_for_skill
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import item_id
from trunkline.protocol.revisions import find_revision

__all__ = ["CatalogPart", "connection_of", "effect_of", "pin_store"]

_SHOWN = 300  # Characters of a description in a row; about what two lines of a list show.
_SKILL_SECONDS = 3.0  # Skills of a slower server are left out until the next request.


def effect_of(hints: ToolHints) -> str:
    """Return the effect that a tool's annotations declare: ``reads``, ``writes``, ``destroys`` or ``unknown``."""
    if hints.read_only is None and hints.destructive is None:
        return "unknown"
    full = effective_hints(hints)
    return "reads" if full.read_only else "destroys" if full.destructive else "writes"


def connection_of(console: Console, server: str) -> dict[str, Any]:
    """Return the command or URL of a server, for commands that the user copies; secrets are masked."""
    upstream = console.core.upstream(server)
    entry, revision = upstream.entry, find_revision(upstream.status.era or "")
    transport = "http" if entry.url is not None else "stdio" if entry.command is not None else "memory"
    return {
        "transport": transport,
        "url": entry.shown if entry.url is not None else None,
        "command": entry.shown if entry.command is not None else None,
        "config": entry.source.file,
        "revision": None if revision is None else revision.name,
        "handshake": revision is None or revision.handshake,
    }


def pin_store(console: Console) -> PinStore | None:
    """Return the pin store of the host; None if pins are off."""
    inspector = console.core.inspector
    return None if inspector is None else inspector.store


class CatalogPart(ConsolePart):
    """Lists the tools, resources, prompts and skills of the servers."""

    def __init__(self, console: Console) -> None:
        """Create the part; rows are built on the first request."""
        super().__init__(console)
        self._rows: dict[str, Any] | None = None
        self._unfollow: Callable[[], None] | None = None

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (Route("GET", "/catalog", self._catalog), Route("GET", "/items/{kind}/{id...}", self._item))

    def state(self) -> dict[str, Any]:
        """Return the number of items of each kind."""
        return {"counts": self.counts()}

    def counts(self) -> dict[str, int]:
        """Return the number of items of each kind; skills count once they were listed."""
        catalog = self.console.host.catalog
        return {
            "tools": len(catalog.tools),
            "resources": len(catalog.resources),
            "templates": len(catalog.templates),
            "prompts": len(catalog.prompts),
            "skills": len(self.console.core.skills.known(self.console.session)),
        }

    async def start(self) -> None:
        """Publish changes of the catalog and of the policy."""
        self._unfollow = self.console.core.follow_catalog(self._changed)

    async def aclose(self) -> None:
        """Stop following."""
        if self._unfollow is not None:
            self._unfollow()

    def _changed(self, kinds: tuple[str, ...]) -> None:
        self._rows = None

    async def _catalog(self, request: ApiRequest) -> Any:
        core = self.console.core
        await core.first_lists()
        skills = await core.skills.listed(self.console.session, seconds=_SKILL_SECONDS)
        catalog = core.catalog
        if self._rows is None or self._rows["counter"] != catalog.counter:
            drops = (*catalog.hidden, *catalog.dropped)
            self._rows = {
                "counter": catalog.counter,
                "tools": [self._tool(item) for item in catalog.tools.values()],
                "resources": [_resource(item) for item in catalog.resources.values()],
                "templates": [_template(item) for item in catalog.templates.values()],
                "prompts": [_prompt(item) for item in catalog.prompts.values()],
                "hidden": [
                    {"kind": drop.kind, "server": drop.server, "name": drop.name, "reason": drop.reason}
                    for drop in drops
                ],
            }
        return {**self._rows, "skills": [_skill(skill) for skill in skills]}

    # --- rows --------------------------------------------------------------------------------------------------------

    def _tool(self, item: CatalogItem) -> dict[str, Any]:
        tool = item.definition
        assert isinstance(tool, t.Tool)
        execution = None if tool.execution is None else tool.execution.task_support
        return {
            **_common(item),
            "arguments": _arguments(tool.input_schema),
            "effect": effect_of(item.annotations),
            "decision": self._decide(act_for_item(item, caller="model")).effect,
            "tokens": item.tokens,
            "changed": bool(item.changed),
            "flagged": bool(item.flagged),
            "app": item.app_uri,
            "task": None if execution == "forbidden" else execution,
        }

    def _decide(self, act: Act) -> Decision:
        return self.console.host.policy.decide(act, now=time.time())

    # --- one item ----------------------------------------------------------------------------------------------------

    async def _item(self, request: ApiRequest) -> Any:
        kind, id = request.params["kind"], request.params["id"]
        if kind == "skill":
            return await self._skill_item(id)
        if kind not in _ROWS:
            raise ApiError(404, "not_found", f"Unknown kind {kind!r}; use {', '.join(_ROWS)} or skill.")
        catalog = self.console.host.catalog
        item = catalog.of(kind).get(id)  # type: ignore[arg-type]
        if item is None and kind == "resource":
            found = catalog.find_resource(id)
            item = None if found is None else found[2]
            file = None if found is None or item is not None else self._skill_file(found[0], found[1])
            if file is not None:
                return file
        if item is None:
            raise ApiError(404, "not_found", f"No server has a {kind} {id!r}.")
        row = self._tool(item) if kind == "tool" else _ROWS[kind](item)
        return {
            **row,
            "definition": msgspec.to_builtins(item.definition),
            "decision": _decision(self._decide(act_for_item(item, caller="model"))),
            "findings": list(item.flagged),
            "changes": list(item.changed),
            "pin": self._pin(item),
            "connection": connection_of(self.console, item.server),
        }

    def _skill_file(self, server: str, uri: str) -> dict[str, Any] | None:
        """Return a file that an entry of a skill lists; servers need not list it as a resource."""
        session = self.console.session
        for skill in self.console.core.skills.known(session):
            listed = [] if skill.entry.resources == "dynamic" else skill.entry.resources
            file = next((each for each in listed if (skill.server, each.uri) == (server, uri)), None)
            if file is not None:
                act = act_for_unlisted("resource", server, uri, caller="model", trusted=skill.trusted, session=session)
                return {
                    **_skill_file_row(skill, file),
                    "definition": msgspec.to_builtins(file),
                    "decision": _decision(self._decide(act)),
                    "findings": [],
                    "changes": [],
                    "pin": None,
                    "connection": connection_of(self.console, server),
                }
        return None

    async def _skill_item(self, id: str) -> dict[str, Any]:
        core, session = self.console.core, self.console.session
        skill = await core.skills.find(id, session)
        return {
            **_skill(skill),
            "definition": msgspec.to_builtins(skill.entry),
            "decision": _decision(self._decide(act_for_skill(skill, caller="model", session=session))),
            "findings": list(skill.flagged),
            "changes": [],
            "pin": None if skill.pin is None else {"since": None, "digest": skill.pin},
            "connection": connection_of(self.console, skill.server),
        }

    def _pin(self, item: CatalogItem) -> dict[str, Any] | None:
        store, entry = pin_store(self.console), self.console.core.upstream(item.server).entry
        if store is None or entry.target is not None:
            return None
        key = endpoint_identity(entry)[0]
        records = (record for record in store.servers() if (record.name, record.key) == (item.server, key))
        pin = next((pin for record in records if (pin := record.find(item.kind, item.name)) is not None), None)
        return None if pin is None else {"since": pin.since, "digest": pin.pin}


def _common(item: CatalogItem) -> dict[str, Any]:
    definition = item.definition
    return {
        "id": item.id,
        "server": item.server,
        "name": definition.name,
        "title": definition.title,
        "description": _short(item.description),
    }


def _resource(item: CatalogItem) -> dict[str, Any]:
    resource = item.definition
    if isinstance(resource, t.ResourceTemplate):
        return _template(item)
    assert isinstance(resource, t.Resource)
    return {**_common(item), "uri": resource.uri, "mime_type": resource.mime_type, "size": resource.size}


def _template(item: CatalogItem) -> dict[str, Any]:
    template = item.definition
    assert isinstance(template, t.ResourceTemplate)
    return {**_common(item), "uri_template": template.uri_template, "mime_type": template.mime_type}


def _prompt(item: CatalogItem) -> dict[str, Any]:
    prompt = item.definition
    assert isinstance(prompt, t.Prompt)
    arguments = [
        {"name": each.name, "description": each.description, "required": each.required is True}
        for each in prompt.arguments or ()
    ]
    return {**_common(item), "arguments": arguments}


#: How the row of each kind is built; a tool's depends on the policy too.
_ROWS: Mapping[str, Callable[[CatalogItem], dict[str, Any]]] = MappingProxyType(
    {"tool": _common, "resource": _resource, "template": _template, "prompt": _prompt}
)


def _skill(skill: HostSkill) -> dict[str, Any]:
    return {
        "id": item_id(skill.server, skill.uri),
        "server": skill.server,
        "uri": skill.uri,
        "name": skill.name,
        "title": skill.label,
        "description": _short(skill.description),
    }


def _skill_file_row(skill: HostSkill, file: t.SkillResource) -> dict[str, Any]:
    return {
        "id": item_id(skill.server, file.uri),
        "server": skill.server,
        "uri": file.uri,
        "name": file.uri[len(skill.root) + 1 :],
        "title": None,
        "description": f"A file of the skill {skill.label}.",
        "mime_type": None,
        "size": file.size,
    }


def _arguments(schema: dict[str, Any]) -> list[str]:
    """Return the names of the arguments; required ones end with an asterisk."""
    properties, required = schema.get("properties"), schema.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    needed = set(map(str, required)) if isinstance(required, list) else set()
    return [f"{name}*" if name in needed else name for name in names]


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "effect": decision.effect,
        "rule": decision.rule,
        "reason": decision.reason,
        "cause": decision.cause,
    }


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
