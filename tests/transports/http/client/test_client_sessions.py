"""The client in a handshake session over HTTP: its id, the GET stream, resuming streams, and the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.transports.http.scripted_http import (
    LISTENING,
    Got,
    HttpScript,
    Status,
    Writer,
    break_off,
    handshake_script,
    streaming,
)
from trunkline.client.changes import Change
from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.errors import ConnectionLost, RemoteProtocolError, SessionExpired
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST_HANDSHAKE

DONE = {"content": [{"type": "text", "text": "3"}]}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
GONE = Status(404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"x"}}', type="application/json")


def answer(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": DONE}


def numbered(*ids: str) -> Callable[[Got, Writer], Any]:
    """Make an ``initialize`` that gives these session ids in turn."""
    left = list(ids)

    async def initialize(got: Got, writer: Writer) -> None:
        agreed = {
            "protocolVersion": NEWEST_HANDSHAKE.name,
            "capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}},
            "serverInfo": {"name": "x", "version": "1"},
        }
        writer.result(got, agreed, {"Mcp-Session-Id": left.pop(0)})

    return initialize


def sessions(script: HttpScript, name: str) -> list[str | None]:
    return [got.headers.get("mcp-session-id") for got in script.of(name)]


# --- the id ----------------------------------------------------------------------------------------------------------


async def test_a_session_id_that_is_not_visible_ascii_is_refused() -> None:
    async with handshake_script(session="a b") as script:
        with pytest.raises(RemoteProtocolError, match="session id"):
            await Client(script.url, revision="legacy").__aenter__()


async def hang(got: Got, writer: Writer) -> None:
    """Answer nothing until the client leaves."""
    await writer.until_left()


#: A stream that ends at once, after it has asked the client to come back soon.
RETRY = streaming(b"retry: 1\n\n")
CHANGING = streaming(CHANGED, stay=True)


@pytest.mark.parametrize("reply", [Status(405), Status(500), hang], ids=["405", "500", "no answer"])
async def test_a_client_closes_although_its_delete_fails(reply: Any) -> None:
    script = handshake_script({"DELETE": reply})
    async with script, Client(script.url) as client:
        pass
    assert client.state is ClientState.TERMINATED


# --- the GET stream --------------------------------------------------------------------------------------------------


async def test_the_stream_is_open_before_the_first_call() -> None:
    async def slow_stream(got: Got, writer: Writer) -> None:
        await asyncio.sleep(0.05)
        order.append("open")
        await LISTENING(got, writer)

    async def call(got: Got, writer: Writer) -> None:
        order.append("call")
        writer.result(got, DONE)

    order: list[str] = []
    script = handshake_script({"GET": slow_stream, "tools/call": call})
    async with script, Client(script.url) as client:
        await client.call_tool("add")
    assert order == ["open", "call"]


async def test_waiting_for_the_get_stream_is_bounded() -> None:
    script = handshake_script({"GET": hang})
    async with script, Client(script.url, limits=Limits(ready_seconds=0.05)) as client:
        assert (await client.call_tool("add")).text == "3"


async def test_a_server_request_on_the_get_stream_is_answered_and_a_response_there_is_dropped() -> None:
    async def stream(got: Got, writer: Writer) -> None:
        writer.stream()
        await script.until(lambda: script.of("tools/call"))
        writer.event(answer(script.of("tools/call")[0].id) | {"result": {"content": []}})
        writer.raw(b"data: nonsense\n\n")
        writer.event({"jsonrpc": "2.0", "id": "q", "method": "ping"})
        await writer.until_left()

    async def call(got: Got, writer: Writer) -> None:
        await script.until(lambda: answers())
        writer.result(got, DONE)

    def answers() -> list[Got]:
        return [got for got in script.requests if got.message.get("id") == "q"]

    script = handshake_script({"GET": stream, "tools/call": call})
    async with script, Client(script.url) as client:
        text = (await client.call_tool("add")).text
    assert (answers()[0].message["result"], text) == ({}, "3")


async def test_a_get_stream_that_keeps_ending_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = asyncio.Event()
    monkeypatch.setattr(logging.getLogger("trunkline.transports"), "warning", lambda *_: given_up.set())
    script = handshake_script({"GET": RETRY})
    async with script, Client(script.url, limits=Limits(resumptions=1)) as client:
        await given_up.wait()
        assert (len(script.of("GET")), (await client.call_tool("add")).text) == (2, "3")


async def test_a_stream_that_cannot_be_opened_any_more_ends_the_connection() -> None:
    script = handshake_script({"GET": [RETRY, Status(502)]})
    reasons: asyncio.Queue[Exception] = asyncio.Queue()

    def on_state(state: ClientState, reason: Exception | None) -> None:
        if reason is not None:
            reasons.put_nowait(reason)

    async with script, Client(script.url, limits=Limits(resumptions=1), on_state=on_state) as client:
        assert "502" in str(await reasons.get())
        assert (await client.call_tool("add")).text == "3"
    assert len(script.of("initialize")) == 2


async def test_a_stream_that_is_cut_before_it_opens_is_tried_again() -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    script = handshake_script({"GET": [break_off, CHANGING]})
    async with script, Client(script.url, on_notification=lambda method, params: heard.put_nowait(method)):
        assert await heard.get() == CHANGED["method"]


async def test_a_client_works_although_its_initialized_notification_was_refused() -> None:
    script = handshake_script({"notifications/initialized": Status(500)})
    async with script, Client(script.url, revision="legacy") as client:
        await client.call_tool("add")
    assert script.names == ["initialize", "notifications/initialized", "tools/call", "DELETE"]


# --- resuming --------------------------------------------------------------------------------------------------------


async def resumed(*turns: Any, resumptions: int = 5) -> tuple[Any, HttpScript]:
    """Call a tool whose stream ends early; the GETs that follow are answered in turn."""
    polled = streaming(None, id="event-1", retry=1)
    script = handshake_script({"tools/call": polled, "GET": [Status(405), *turns]})
    async with script, Client(script.url, limits=Limits(resumptions=resumptions)) as client:
        try:
            return await client.call_tool("add"), script
        except ConnectionLost as error:
            return error, script


def last_ids(script: HttpScript) -> list[str | None]:
    return [got.headers.get("last-event-id") for got in script.of("GET")]


async def test_a_stream_is_resumed_after_the_newest_event_each_time() -> None:
    more, answered = streaming(None, id="event-2", retry=1), streaming(answer(3), id="event-9")
    result, script = await resumed(more, Status(503), answered)
    assert result.text == "3"
    assert last_ids(script) == [None, "event-1", "event-2", "event-2"]
    assert (script.names.count("tools/call"), script.of("GET")[1].headers["mcp-session-id"]) == (1, "session-1")


@pytest.mark.parametrize("turn", [streaming(), break_off, Status(502)], ids=["empty", "broken", "502"])
async def test_a_stream_that_brings_nothing_new_is_given_up(turn: Any) -> None:
    error, script = await resumed(turn, resumptions=1)
    assert isinstance(error, ConnectionLost)
    assert "brought nothing new" in str(error)
    assert last_ids(script)[:2] == [None, "event-1"]


@pytest.mark.parametrize("turn", [Status(404), Status(405), Status(200, b"{}", type="application/json")])
async def test_a_stream_that_the_server_dropped_is_lost_and_the_call_not_repeated(turn: Status) -> None:
    error, script = await resumed(turn)
    assert type(error) is ConnectionLost
    assert "cannot be resumed" in str(error)
    assert len(script.of("tools/call")) == 1


# --- a session that ends ---------------------------------------------------------------------------------------------


async def test_a_custom_request_is_repeated_too() -> None:
    script = handshake_script({"initialize": numbered("one", "two"), "acme/x": [GONE, {"y": 1}]})
    async with script, Client(script.url, revision="legacy", restart=False) as client:
        assert (await client.request("acme/x")) == {"y": 1}


async def test_a_call_fails_when_its_new_session_is_lost_too() -> None:
    script = handshake_script({"initialize": numbered("one", "two"), "tools/call": GONE})
    async with script, Client(script.url, revision="legacy") as client:
        with pytest.raises(SessionExpired):
            await client.call_tool("add")
    assert sessions(script, "tools/call") == ["one", "two"]


async def test_calls_in_flight_in_the_old_session_still_get_their_answers() -> None:
    begun = asyncio.Event()

    async def slow(got: Got, writer: Writer) -> None:
        await begun.wait()
        writer.result(got, {"content": [{"type": "text", "text": "late"}]})

    script = handshake_script({"initialize": numbered("one", "two"), "tools/call": [slow, GONE, DONE]})
    async with script, Client(script.url, revision="legacy") as client:
        first = asyncio.ensure_future(client.call_tool("slow"))
        await script.until(lambda: script.of("tools/call"))
        second = await client.call_tool("add")
        begun.set()
        assert ((await first).text, second.text, len(script.of("initialize"))) == ("late", "3", 2)


async def test_several_calls_in_a_lost_session_open_one_new_session() -> None:
    script = handshake_script({"initialize": numbered("one", "two"), "tools/call": [GONE, GONE, GONE, DONE]})
    async with script, Client(script.url, revision="legacy") as client:
        results = await asyncio.gather(*(client.call_tool("add") for _ in range(3)))
        assert ([result.text for result in results], len(script.of("initialize"))) == (["3", "3", "3"], 2)


@pytest.mark.parametrize("closes", [True, False], ids=["closing", "waiting"])
async def test_a_call_of_the_old_session_is_waited_for_a_bounded_time_and_not_when_closing(closes: bool) -> None:
    script = handshake_script({"initialize": numbered("one", "two"), "tools/call": [hang, GONE, DONE]})
    limits = Limits() if closes else Limits(total_seconds=0.1)
    async with script, Client(script.url, revision="legacy", limits=limits) as client:
        first = asyncio.ensure_future(client.call_tool("slow", total_timeout=60))
        await script.until(lambda: script.of("tools/call"))
        await client.call_tool("add")
        if closes:
            await client.aclose()
        with pytest.raises(ConnectionLost):
            await first


async def test_a_stream_whose_session_is_gone_lets_listeners_start_again() -> None:
    script = handshake_script({"initialize": numbered("one", "two"), "GET": [RETRY, Status(404), CHANGING]})
    async with script, Client(script.url, revision="legacy") as client, client.listen(tools=True) as changes:
        seen = [await anext(changes), await anext(changes)]
    assert set(seen) == {Change("missed"), Change("tools")}
    assert sessions(script, "GET") == ["one", "one", "two"]


async def test_the_log_level_and_subscriptions_are_restored_in_the_new_session() -> None:
    table = {"initialize": numbered("one", "two"), "tools/call": [GONE, DONE], "resources/subscribe": {}}
    script = handshake_script(table)
    async with script, Client(script.url, revision="legacy") as client:
        await client.set_logging_level("error")
        await client.subscribe("file:///x")
        await client.call_tool("add")
    assert sessions(script, "logging/setLevel") == ["one", "two"]
    assert sessions(script, "resources/subscribe") == ["one", "two"]


async def test_an_answer_that_is_refused_breaks_nothing() -> None:
    async def call(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.event({"jsonrpc": "2.0", "id": "q", "method": "ping"})
        await writer.flush()
        await script.until(lambda: [got for got in script.requests if got.message.get("id") == "q"])
        writer.event(answer(got.id))

    script = handshake_script({"tools/call": call, "POST": Status(500)})
    async with script, Client(script.url) as client:
        assert (await client.call_tool("add")).text == "3"
