"""A supervisor on a stage: entries for the odd programs here, a record of what happened, and ways to wait for it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.client.scripted_server import settle
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.events import Event, EventBus, ServerState, ServerStateChanged
from trunkline.host.upstreams.catalog.catalog import CatalogCache
from trunkline.host.upstreams.supervision.supervisor import Supervisor
from trunkline.host.upstreams.supervision.upstream import Upstream
from trunkline.testing.clock import FakeClock

__all__ = ["ROOT", "Stage", "kept_in", "no_trust", "program", "scripted", "supervising"]

ROOT = Path(__file__).parents[2]


def program(name: str, module: str, *arguments: str, **more: Any) -> ServerEntry:
    """Make the entry of one of the programs in ``servers``; settings go by their names."""
    settings = {key: more.pop(key) for key in list(more) if key in ServerSettings.__struct_fields__}
    return ServerEntry(
        name=name,
        source=more.pop("source", Source("given")),
        command=(sys.executable, "-S", "-m", f"tests.host.servers.{module}", *arguments),
        env={"PYTHONPATH": str(ROOT)},
        settings=ServerSettings(**{"era": "handshake", **settings}),
        **more,
    )


def scripted(name: str, server: Any, **settings: Any) -> ServerEntry:
    """Make the entry of a server in this process."""
    return ServerEntry(name=name, source=Source("given"), target=server, settings=ServerSettings(**settings))


async def _trust(entry: ServerEntry) -> tuple[bool, str | None]:
    return True, None


async def no_trust(entry: ServerEntry) -> tuple[bool, str | None]:
    """Trust nobody."""
    return False, "nobody approved it"


class _Record(EventBus):
    """Events that are kept, and wake whoever waits for one."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[ServerStateChanged] = []
        self.news = asyncio.Event()

    def publish(self, event: Event) -> None:
        assert isinstance(event, ServerStateChanged)
        self.kept.append(event)
        self.news.set()
        super().publish(event)


class Stage:
    """A supervisor and what is known of it."""

    def __init__(self, **options: Any) -> None:
        """Make a supervisor with a clock that stands still unless another is given."""
        self.events = _Record()
        self.clock = FakeClock()
        #: The names of servers whose offering changed, in order.
        self.offered: list[str] = []
        self.supervisor = Supervisor(
            **{
                "trust": _trust,
                "events": self.events,
                "on_offering": self._on_offering,
                "clock": self.clock,
                "spread": lambda: 1.0,
                **options,
            }
        )

    def _on_offering(self, upstream: Upstream) -> None:
        self.offered.append(upstream.entry.name)
        self.events.news.set()

    def upstream(self, name: str = "a") -> Upstream:
        """Give a server."""
        return self.supervisor.upstreams[name]

    def states(self, name: str = "a") -> list[ServerState]:
        """Give the states a server was in, in order."""
        return [event.state for event in self.events.kept if event.server == name]

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something holds that events make true."""
        while not condition():
            self.events.news.clear()
            await self.events.news.wait()

    async def until_state(self, state: ServerState, name: str = "a") -> None:
        """Wait until a server is in a state."""
        await self.until(lambda: self.upstream(name).state == state)

    async def until_count(self, state: ServerState, count: int, name: str = "a") -> None:
        """Wait until a server has been in a state so often."""
        await self.until(lambda: self.states(name).count(state) >= count)

    async def pass_time(self, seconds: float, *, steps: int = 1) -> None:
        """Move the clock, in one go or in so many steps, and let what follows happen."""
        for _ in range(steps):
            await settle()
            self.clock.advance(seconds / steps)
        await settle()


@asynccontextmanager
async def supervising(entries: Mapping[str, ServerEntry], **options: Any) -> AsyncIterator[Stage]:
    """Supervise servers as long as the block runs."""
    stage = Stage(**options)
    try:
        await stage.supervisor.apply(entries)
        yield stage
    finally:
        await stage.supervisor.aclose()


def kept_in(folder: Path) -> CatalogCache:
    """Keep catalogs in a folder."""
    return CatalogCache(folder / "catalogs")
