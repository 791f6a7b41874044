"""Reaching clients outside of their requests, and what a context tells about its request, through public names."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import ERAS, HANDSHAKE, STATELESS, reach, text
from trunkline import Context, Server
from trunkline.errors import RequestFailed
from trunkline.server import Session, Subscriber
from trunkline.testing.clock import FakeClock

NOTE = "note://one"


def serving(function: Any, **options: Any) -> Server:
    server = Server("s", **options)
    server.add_tool(function, name="f")
    server.add_resource(NOTE, "one")
    return server


async def _nothing() -> None:
    """Do nothing."""


# --- subscribers -----------------------------------------------------------------------------------------------------


async def test_only_the_subscribed_session_is_notified() -> None:
    server = serving(_nothing)
    async with reach(server, HANDSHAKE) as first, reach(server, HANDSHAKE) as second:
        await first.result("resources/subscribe", {"uri": NOTE})
        await second.result("resources/subscribe", {"uri": NOTE})
        wanting: list[Subscriber] = [each for each in server.subscribers() if NOTE in each.uris]
        wanting[0].resource_updated(NOTE)
        wanting[0].resource_updated("note://two")
        await first.result("ping")
        await second.result("ping")
    updated = "notifications/resources/updated"
    assert (len(wanting), first.notices(updated), second.notices(updated)) == (2, [{"uri": NOTE}], [])


async def test_a_session_gets_log_messages_outside_of_requests_by_its_level() -> None:
    server = serving(_nothing)
    async with reach(server, HANDSHAKE) as peer:
        await peer.result("logging/setLevel", {"level": "warning"})
        (subscriber,) = server.subscribers()
        subscriber.log("info", "quiet")
        subscriber.log("error", "loud", logger_name="l")
        await peer.result("ping")
    assert peer.notices("notifications/message") == [{"level": "error", "logger": "l", "data": "loud"}]


async def test_a_session_that_has_ended_has_no_subscriber() -> None:
    sessions: list[Session] = []

    async def f(ctx: Context) -> bool:
        assert ctx.session is not None
        sessions.append(ctx.session)
        return ctx.root_server.subscriber(ctx.session) is not None

    server = serving(f)
    async with reach(server, HANDSHAKE) as peer:
        assert text(await peer.call("f")) == "true"
    assert server.subscriber(sessions[0]) is None


def test_a_callback_is_called_later_unless_it_is_cancelled() -> None:
    called: list[str] = []
    clock = FakeClock()
    server = Server("s", clock=clock)
    server.call_later(1, lambda: called.append("first"))
    server.call_later(1, lambda: called.append("never")).cancel()
    clock.advance(0.5)
    assert called == []
    clock.advance(1)
    assert called == ["first"]


# --- what a context tells --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "session"), [(HANDSHAKE, "True"), (STATELESS, "False")])
async def test_a_context_describes_its_request(revision: str, session: str) -> None:
    async def f(ctx: Context) -> str:
        assert isinstance(ctx.params, t.CallToolRequestParams)
        return f"{ctx.session is not None} {ctx.transport} {ctx.params.name} {ctx.can_ask} {ctx.server.name}"

    inner = serving(f)
    outer = Server("outer")
    outer.mount(inner, "in")
    async with reach(outer, revision) as peer:
        assert text(await peer.call("in_f")) == f"{session} memory in_f True s"


async def test_the_requests_of_a_connection_have_one_key() -> None:
    keys: list[Any] = []

    async def f(ctx: Context) -> None:
        keys.append(ctx.connection)

    server = serving(f)
    async with reach(server, STATELESS) as peer:
        await peer.call("f")
        await peer.call("f")
    async with reach(server, STATELESS) as peer:
        await peer.call("f")
    assert (keys[0] == keys[1], keys[1] == keys[2]) == (True, False)


@ERAS
async def test_a_resource_is_checked_without_being_read(revision: str) -> None:
    read: list[str] = []

    async def f(ctx: Context) -> str:
        ctx.check_resource("book://a")
        try:
            ctx.check_resource("magazine://a")
        except RequestFailed as error:
            return error.message
        return "fine"

    server = serving(f)
    server.add_resource("book://{name}", lambda name: read.append(name))
    async with reach(server, revision) as peer:
        assert (text(await peer.call("f")), read) == ("Resource not found: magazine://a", [])


async def test_a_session_is_asked_for_its_roots_while_any_method_is_served() -> None:
    found: list[str] = []

    async def look(request: Any, call_next: Any) -> Any:
        if request.method == "resources/subscribe":
            found.extend(root.uri for root in await request.context.list_roots())
        return await call_next(request)

    server = serving(_nothing, middleware=[look])
    async with reach(server, HANDSHAKE, {"roots": {}}) as peer:
        await peer.converse("resources/subscribe", {"uri": NOTE}, {"roots/list": {"roots": [{"uri": "file:///a"}]}})
    assert found == ["file:///a"]
