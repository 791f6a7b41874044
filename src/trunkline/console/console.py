"""An open console: its host, its parts, and the events for its pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from trunkline.console.calls import CallLog
from trunkline.console.events import ConsoleEvents
from trunkline.console.inbox import Inbox
from trunkline.console.requesters import Requesters
from trunkline.console.routing import Route
from trunkline.host.assembly import Assembly
from trunkline.host.core import HostCore
from trunkline.host.host import Host
from trunkline.host.session import HostSession
from trunkline.host.upstreams.routing.adopted_connection import AdoptedConnection

__all__ = ["Console", "ConsoleMode", "ConsoleOptions", "ConsolePart", "LoadProblem"]

#: What the console shows: a configuration, one server (``inspect``), a file under development, or a running gateway.
ConsoleMode: TypeAlias = Literal["console", "inspect", "dev", "gateway"]

P = TypeVar("P", bound="ConsolePart")


class ConsoleOptions(Struct, frozen=True, kw_only=True):
    """The options of a console."""

    mode: ConsoleMode = "console"
    #: The title of the page: the configuration file, the target, or the file under development.
    title: str = ""
    #: The model of chats, as ``provider:model``; None for the one of the configuration or the environment.
    model: str | None = None


class LoadProblem(Struct, frozen=True):
    """Why a file under development could not be loaded, so that an earlier version of it runs, or none."""

    text: str
    traceback: str


class ConsolePart:
    """A part of the console with its own routes; ``start`` and ``aclose`` do nothing unless overridden."""

    def __init__(self, console: Console) -> None:
        """Create the part; ``start`` starts it."""
        self.console = console

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API that this part serves."""
        return ()

    def state(self) -> dict[str, Any]:
        """Return the members that this part adds to ``GET /api/state``."""
        return {}

    async def start(self) -> None:
        """Start background tasks."""

    async def aclose(self) -> None:
        """Stop it."""


class Console:
    """The console of a host; its owner opens and closes the host."""

    def __init__(self, host: Host, options: ConsoleOptions | None = None, *, inbox: Inbox | None = None) -> None:
        """Create the parts; nothing is started before ``start``.

        ``inbox`` is the one whose prompters were passed to the host; without it only the console's own requests can ask
        the user.
        """
        self.host = host
        self.options: ConsoleOptions = options or ConsoleOptions()
        self.events: ConsoleEvents = ConsoleEvents()
        self.inbox: Inbox = inbox or Inbox()
        self.requesters: Requesters = Requesters(self)
        #: The origin of the frames of MCP Apps; None until their listener runs.
        self.apps_origin: str | None = None
        self.parts: tuple[ConsolePart, ...] = tuple(part(self) for part in _parts())
        #: Shown on every view until the file loads.
        self.load_problem: LoadProblem | None = None
        self._session: HostSession | None = None
        self._stack = AsyncExitStack()

    @property
    def assembly(self) -> Assembly:
        """The parts of the open host."""
        return self.host._open

    @property
    def core(self) -> HostCore:
        """The core of the open host."""
        return self.host._open.core

    @property
    def session(self) -> HostSession:
        """The session of the user's own calls in the console; each chat has its own."""
        assert self._session is not None, "the console is not started"
        return self._session

    @property
    def calls(self) -> CallLog:
        """The calls of all parts."""
        from trunkline.console.api.calls import CallsPart

        return self.part(CallsPart).log

    def part(self, kind: type[P]) -> P:
        """Return the part of a class."""
        return next(part for part in self.parts if isinstance(part, kind))

    def routes(self) -> Iterator[Route]:
        """Yield the routes of all parts."""
        for part in self.parts:
            yield from part.routes()

    def state(self) -> dict[str, Any]:
        """Return the state that a page loads first; members without a part are empty."""
        found: dict[str, Any] = {"mode": self.options.mode, "title": self.options.title, "model": None, "servers": []}
        found["load_problem"] = self.load_problem
        found["apps"] = None if self.apps_origin is None else {"origin": self.apps_origin}
        for part in self.parts:
            found |= part.state()
        return found

    def set_load_problem(self, problem: LoadProblem | None) -> None:
        """Show why a file under development cannot be loaded; None if it could."""
        self.load_problem = problem
        self.events.publish("load_problem", problem=problem)

    def open_session(self) -> HostSession:
        """Open a session of the host whose connections, and the state of their servers, last while a page is open."""
        session = self.host.session()
        session.connections.in_use = lambda: self.events.watched
        if self.options.mode != "gateway":
            # All sessions are those of the user of the console: servers run once.
            session.connections.adopt = AdoptedConnection
        return session

    async def start(self) -> None:
        """Start the parts; if one fails, stop those already started."""
        async with AsyncExitStack() as stack:
            self._session = self.open_session()
            stack.push_async_callback(self.core.close_session, self._session)
            seconds = self.assembly.options.get("consent_seconds", 300.0)
            stack.callback(self.inbox.attach(self.events, seconds=seconds, hide=self.core.secrets.hide))
            for part in self.parts:
                await part.start()
                stack.push_async_callback(part.aclose)
            self._stack = stack.pop_all()

    async def aclose(self) -> None:
        """Stop the parts; the host stays open."""
        await self._stack.aclose()


def _parts() -> Sequence[type[ConsolePart]]:
    from trunkline.console.api.apps import AppsPart
    from trunkline.console.api.audit import AuditPart
    from trunkline.console.api.calls import CallsPart
    from trunkline.console.api.catalog import CatalogPart
    from trunkline.console.api.chat import ChatPart
    from trunkline.console.api.inbox import InboxPart
    from trunkline.console.api.metrics import MetricsPart
    from trunkline.console.api.policy import PolicyPart
    from trunkline.console.api.saved import SavedPart
    from trunkline.console.api.server_config import ServerConfigPart
    from trunkline.console.api.servers import ServersPart
    from trunkline.console.api.sign_in import SignInPart
    from trunkline.console.api.state import StatePart
    from trunkline.console.api.subscriptions import SubscriptionsPart
    from trunkline.console.api.traffic import TrafficPart

    return (
        AppsPart,
        AuditPart,
        CallsPart,
        CatalogPart,
        ChatPart,
        InboxPart,
        MetricsPart,
        PolicyPart,
        SavedPart,
        ServerConfigPart,
        ServersPart,
        SignInPart,
        StatePart,
        SubscriptionsPart,
        TrafficPart,
    )
