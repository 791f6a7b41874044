"""Every Link of the package passes the one link check, on each event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.transports.loops import LOOPS, run_on
from trunkline import Server
from trunkline.client.targets import _InProcessLink
from trunkline.host.upstreams.broker.messages import Welcome
from trunkline.host.upstreams.broker.multiplexer import LocalParticipant, Multiplexer
from trunkline.host.upstreams.broker.worker import BrokeredLink
from trunkline.protocol.caller import Origin, Session
from trunkline.protocol.jsonrpc import Notification, Outbound
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from trunkline.server.tasks.exchange import UnconnectedLink
from trunkline.testing.link_check import check_link, check_link_members
from trunkline.testing.recordings import Recorder, Recording, _Player
from trunkline.transports.http.client.headers import HeaderBuilder
from trunkline.transports.http.client.http_client import HttpClient, HttpClientOptions
from trunkline.transports.http.client.legacy_sse import LegacySseLink
from trunkline.transports.http.client.link import HttpLink
from trunkline.transports.http.server.legacy_sse import LegacySseServerLink
from trunkline.transports.http.server.open_responses import OpenResponses
from trunkline.transports.http.server.request import HttpRequest
from trunkline.transports.http.server.sessions.session import HttpSession, SessionLink, SessionRequestTransport
from trunkline.transports.http.server.single_request import HandshakeRequestTransport, SingleRequestTransport
from trunkline.transports.link import Link, LinkWrapper
from trunkline.transports.memory import MemoryLink, memory_pair
from trunkline.transports.pipes import PipeLink
from trunkline.transports.process import ProcessLink
from trunkline.transports.stdio import StdioLink
from trunkline.transports.stream import StreamLink

MakePair = Callable[[], Awaitable[tuple[Link, Link]]]

PROGRAMS = Path(__file__).parent / "programs"


async def memory() -> tuple[Link, Link]:
    return memory_pair()


async def stdio() -> tuple[Link, Link]:
    (to_server, from_client), (to_client, from_server) = os.pipe(), os.pipe()
    return PipeLink(to_client, from_client), StdioLink(to_server, from_server)


async def sockets() -> tuple[Link, Link]:
    left, right = socket.socketpair()
    return PipeLink(os.dup(left.fileno()), left.detach()), PipeLink(os.dup(right.fileno()), right.detach())


async def stream() -> tuple[Link, Link]:
    left, right = socket.socketpair()
    return StreamLink(*await asyncio.open_connection(sock=left)), StreamLink(*await asyncio.open_connection(sock=right))


async def process() -> tuple[Link, Link]:
    accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/wire"
        server = await asyncio.start_unix_server(lambda *streams: accepted.set_result(streams), path)
        link = ProcessLink.spawn([sys.executable, "-S", str(PROGRAMS / "relay.py"), path])
        streams = await accepted
        server.close()
    return link, StreamLink(*streams)


PAIRS = [memory, stdio, sockets, stream, process]


@pytest.fixture(params=PAIRS, ids=[pair.__name__ for pair in PAIRS])
def make_pair(request: pytest.FixtureRequest) -> MakePair:
    made: MakePair = request.param
    return made


@pytest.mark.parametrize("loop", LOOPS)
def test_a_link_passes_the_link_check(loop: str, make_pair: MakePair) -> None:
    run_on(loop, check_link(make_pair), seconds=120)


# --- the members, on every link of the package -----------------------------------------------------------------------


def http_request() -> HttpRequest:
    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        """Drop it."""

    return HttpRequest({"type": "http", "headers": []}, receive, send, Limits())


def open_responses() -> OpenResponses:
    return Server("links").asgi().open_responses


def http_session() -> HttpSession:
    endpoint = Server("links").asgi()
    worker = endpoint.worker
    session = Session(NEWEST_HANDSHAKE, None, {}, origin=Origin("http"))
    facts = worker.ids.facts(session, None, generation=worker.store.generation, since="")
    return endpoint.sessions.hold("s", facts, session)


def in_session() -> Link:
    return SessionRequestTransport(
        http_request(), open_responses(), session=http_session(), ids=frozenset({1}), retry_ms=1000
    )


WEB = HttpClientOptions(url="http://127.0.0.1:9/mcp")

ALONE: dict[type[Link], Callable[[], Link]] = {
    HttpLink: lambda: HttpLink(WEB, Limits()),
    LegacySseLink: lambda: LegacySseLink(HttpClient(WEB, Limits()), HeaderBuilder({}, user_agent="test"), Limits()),
    SingleRequestTransport: lambda: SingleRequestTransport(http_request(), open_responses()),
    HandshakeRequestTransport: lambda: HandshakeRequestTransport(http_request(), open_responses()),
    SessionRequestTransport: in_session,
    SessionLink: lambda: http_session().link,
    LegacySseServerLink: lambda: LegacySseServerLink(Origin("sse"), 1000),
    MemoryLink: lambda: memory_pair()[0],
    LinkWrapper: lambda: LinkWrapper(memory_pair()[0]),
    Recorder: lambda: Recorder(memory_pair()[0], side="client"),
    _InProcessLink: lambda: _InProcessLink(memory_pair()[0], None),
    _Player: lambda: _Player(Recording(()), None, 0.0),
    UnconnectedLink: UnconnectedLink,
    BrokeredLink: lambda: BrokeredLink(memory_pair()[0], Welcome(pid=7)),  # type: ignore[arg-type]  # any link
    LocalParticipant: lambda: LocalParticipant(Multiplexer(memory_pair()[0])),
}
#: Links that are checked in pairs only: they need something at their other end.
IN_PAIRS = {PipeLink, StdioLink, StreamLink, ProcessLink}


@pytest.mark.parametrize("kind", ALONE, ids=[kind.__name__ for kind in ALONE])
def test_a_link_meets_the_contract_that_needs_no_peer(kind: type[Link]) -> None:
    async def make() -> Link:
        return ALONE[kind]()

    run_on("asyncio", check_link_members(make), seconds=120)


CHECKED = {kind.__module__ for kind in ALONE.keys() | IN_PAIRS}


def test_every_link_of_the_checked_modules_is_checked() -> None:
    found, pending = set[type[Link]](), [Link]
    while pending:
        subclasses = pending.pop().__subclasses__()
        # Other packages are loaded or not, by the tests that ran before.
        found.update(kind for kind in subclasses if kind.__module__ in CHECKED)
        pending += subclasses
    assert found == ALONE.keys() | IN_PAIRS


class Special(MemoryLink):
    """A link that differs from the defaults in everything."""

    can_stream = can_receive_requests = delivers_requests = fresh = False
    independent_requests = ends_with_response = True
    pid = 7

    def __init__(self) -> None:
        super().__init__(Limits())
        self.calls: list[object] = []

    def set_revision(self, revision: Revision) -> None:
        self.calls.append(revision)

    def release_stream(self) -> bool:
        return True

    async def wait_ready(self) -> None:
        self.calls.append("ready")

    async def wait_idle(self) -> None:
        self.calls.append("idle")


def test_a_wrapper_forwards_every_member() -> None:
    async def members() -> list[object]:
        inner = Special()
        link = LinkWrapper(inner)
        link.set_revision(NEWEST)
        await link.wait_ready()
        await link.wait_idle()
        assert link.release_stream()
        return inner.calls

    assert run_on("asyncio", members(), seconds=120) == [NEWEST, "ready", "idle"]
    properties = [name for name, member in vars(Link).items() if isinstance(member, property)]
    plain, special, wrapped = MemoryLink(Limits()), Special(), LinkWrapper(Special())
    for name in properties:
        assert getattr(special, name) != getattr(plain, name), f"the special link has the default of {name}"
        assert getattr(wrapped, name) == getattr(special, name), f"the wrapper does not forward {name}"
    members_of_links = {name for name in vars(Link) if not name.startswith("_")}
    assert members_of_links - vars(LinkWrapper).keys() == {"send_event", "deliver_in_bursts"}


class Backwards(LinkWrapper):
    """A link that sends what it is given together in the wrong order."""

    def send(self, batch: Sequence[Outbound]) -> None:
        self._link.send(batch[::-1])


class Mute(LinkWrapper):
    """A link that streams nothing although it says that it does."""

    def send(self, batch: Sequence[Outbound]) -> None:
        self._link.send([outbound for outbound in batch if outbound.about is None or not _is_note(outbound)])


def _is_note(outbound: Outbound) -> bool:
    return isinstance(outbound.message, Notification)


class Restless(LinkWrapper):
    """A link that is never idle."""

    async def wait_idle(self) -> None:
        await asyncio.Event().wait()


class Loose(LinkWrapper):
    """A link that claims to release a stream, always."""

    def release_stream(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "broken"),
    [
        pytest.param(Backwards, "a link carries a burst: a burst lost or reordered messages", id="order"),
        pytest.param(Mute, "a link streams before a response: not within", id="can_stream"),
        pytest.param(Restless, "a link waits for no more than it has: not within 0.3 seconds", id="wait_idle"),
        pytest.param(Loose, "a link releases only a stream it has: release_stream was True after", id="release_stream"),
    ],
)
async def test_the_link_check_names_the_violated_rule(kind: type[LinkWrapper], broken: str) -> None:
    async def pair() -> tuple[Link, Link]:
        left, right = memory_pair()
        return (kind(left), right) if kind is Backwards else (left, kind(right))

    with pytest.raises(AssertionError, match=broken):
        await check_link(pair, seconds=0.3)
