"""A host's inspector without a host, and the servers that it looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trunkline.types as t
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.events import DefinitionInspected, EventBus
from trunkline.host.integrity.pins.inspector import Inspector
from trunkline.host.integrity.pins.records import Pin
from trunkline.host.integrity.pins.store import PinStore
from trunkline.host.integrity.pins.views import find_views, pin_views
from trunkline.host.upstreams.catalog.catalog import Catalog, build_catalog
from trunkline.host.upstreams.catalog.items import Offering

__all__ = ["PinBench", "entry", "offering", "tool"]


def tool(name: str = "read", description: str = "Read a file.", **members: Any) -> t.Tool:
    return t.Tool(**{"name": name, "description": description, "input_schema": {"type": "object"}, **members})


def offering(*tools: t.Tool, **members: Any) -> Offering:
    return Offering(**{"revision": "any", "capabilities": {}, "tools": tools, **members})


def entry(name: str = "files", *command: str, **members: Any) -> ServerEntry:
    launch = {} if "url" in members or "target" in members else {"command": command or ("npx", "files")}
    return ServerEntry(**{"name": name, "source": Source("user"), **launch, **members})


class PinBench:
    """A host's inspector, and what it sees."""

    def __init__(self, folder: Path, pins: Any = "strict") -> None:
        self.path = folder / "pins.json"
        self.entries = {"files": entry(), "mail": entry("mail", "npx", "mail"), "own": entry("own", target=object())}
        self.events = EventBus()
        self.heard = self.events.subscribe()
        self.options: dict[str, Any] = {}
        self.settings = {name: ServerSettings(pins=pins) for name in self.entries}
        self.now = 1_000_000.0
        self.restart()

    def restart(self, **options: Any) -> None:
        self.options |= options
        self.book = PinStore(self.path, clock=lambda: self.now)
        self.inspector = Inspector(self.book, entry_of=self.entries.get, events=self.events, **self.options)

    def shows(self, **offerings: Offering) -> Catalog:
        self.now += 1
        return self.inspector(build_catalog(offerings, self.settings, counter=1))

    def files(self, *tools: t.Tool, **members: Any) -> Catalog:
        return self.shows(files=offering(*tools, **members))

    def pin(self, name: str = "read", kind: str = "tool", server: str = "files") -> Pin:
        (found,) = [pin for each in self.book.servers() if each.name == server for pin in each.pins if pin.name == name]
        assert found.kind == kind
        return found

    def accept(self, target: str, *, exact: bool = False) -> None:
        (view,) = find_views(pin_views(self.book.servers()), target)
        self.book.accept(view.server, view.pin.kind, view.pin.name, pin=view.now, exact=exact)

    def told(self) -> list[tuple[str, str]]:
        waiting = list(self.heard._waiting)
        self.heard._waiting.clear()
        return [(each.name, each.what) for each in waiting if isinstance(each, DefinitionInspected)]
