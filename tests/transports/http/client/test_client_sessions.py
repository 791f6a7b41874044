"""The client in a handshake session over HTTP: its id, the GET stream, resuming streams, and the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import run_async
from tests.transports.http.scripted_http import (
    LISTENING,
    Got,
    HttpScript,
    Status,
    Writer,
    handshake_script,
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


def test_the_session_id_is_sent_with_all_requests_and_deleted_at_the_end() -> None:
    async def main() -> HttpScript:
        script = handshake_script({"GET": LISTENING})
        async with script, Client(script.url, revision="legacy") as client:
            await client.call_tool("add")
        return script

    script = run_async(main())
    assert script.names == ["initialize", "notifications/initialized", "GET", "tools/call", "DELETE"]
    assert [got.headers.get("mcp-session-id") for got in script.requests] == [None, *["session-1"] * 4]


def test_a_server_without_sessions_is_sent_no_id_and_no_delete() -> None:
    async def main() -> HttpScript:
        script = handshake_script(session=None)
        async with script, Client(script.url, revision="legacy") as client:
            await client.call_tool("add")
        return script

    script = run_async(main())
    assert script.names == ["initialize", "notifications/initialized", "GET", "tools/call"]
    assert {got.headers.get("mcp-session-id") for got in script.requests} == {None}


async def test_a_session_id_that_is_not_visible_ascii_is_refused() -> None:
    async with handshake_script(session="a b") as script:
        with pytest.raises(RemoteProtocolError, match="session id"):
            await Client(script.url, revision="legacy").__aenter__()


@pytest.mark.parametrize("reply", [Status(405), Status(500), Status(404)], ids=["405", "500", "404"])
def test_a_client_closes_although_its_delete_fails(reply: Status) -> None:
    async def main() -> ClientState:
        script = handshake_script({"DELETE": reply})
        async with script, Client(script.url) as client:
            pass
        return client.state

    assert run_async(main()) is ClientState.TERMINATED


def test_a_server_that_does_not_answer_the_delete_does_not_delay_closing() -> None:
    async def hang(got: Got, writer: Writer) -> None:
        await writer.until_left()

    async def main() -> ClientState:
        script = handshake_script({"DELETE": hang})
        async with script, Client(script.url) as client:
            pass
        return client.state

    assert run_async(main()) is ClientState.TERMINATED


# --- the GET stream --------------------------------------------------------------------------------------------------


def test_the_stream_is_open_before_the_first_call() -> None:
    async def main() -> list[str]:
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
        return order

    assert run_async(main()) == ["open", "call"]


def test_waiting_for_the_get_stream_is_bounded() -> None:
    async def hang(got: Got, writer: Writer) -> None:
        await writer.until_left()

    async def main() -> str:
        script = handshake_script({"GET": hang})
        async with script, Client(script.url, limits=Limits(ready_seconds=0.05)) as client:
            return (await client.call_tool("add")).text

    assert run_async(main()) == "3"


def test_messages_that_belong_to_no_request_are_delivered() -> None:
    async def stream(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.event(id="1")
        writer.event(CHANGED, id="2")
        await writer.until_left()

    async def main() -> str:
        heard: asyncio.Queue[str] = asyncio.Queue()
        script = handshake_script({"GET": stream})
        async with script, Client(script.url, on_notification=lambda method, params: heard.put_nowait(method)):
            return await heard.get()

    assert run_async(main()) == CHANGED["method"]


def test_a_server_request_on_the_get_stream_is_answered_and_a_response_there_is_dropped() -> None:
    async def main() -> tuple[Any, str]:
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
        return answers()[0].message["result"], text

    assert run_async(main()) == ({}, "3")


def test_a_get_stream_that_ends_is_resumed_after_its_last_event() -> None:
    async def main() -> list[str | None]:
        async def first(got: Got, writer: Writer) -> None:
            writer.stream()
            writer.event(CHANGED, id="a-1", retry=10)

        async def second(got: Got, writer: Writer) -> None:
            writer.stream()
            writer.event(CHANGED, id="a-2")
            await writer.until_left()

        heard: asyncio.Queue[str] = asyncio.Queue()
        script = handshake_script({"GET": [first, second]})
        async with script, Client(script.url, on_notification=lambda method, params: heard.put_nowait(method)):
            await heard.get()
            await heard.get()
        return [got.headers.get("last-event-id") for got in script.of("GET")]

    assert run_async(main()) == [None, "a-1"]


def test_a_get_stream_that_keeps_ending_is_given_up() -> None:
    async def short(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.raw(b"retry: 1\n\n")

    async def main() -> tuple[int, str]:
        script = handshake_script({"GET": short})
        async with script, Client(script.url, limits=Limits(resumptions=1)) as client:
            await given_up.wait()
            return len(script.of("GET")), (await client.call_tool("add")).text

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            given_up.set()

    given_up = asyncio.Event()
    handler = Told(logging.WARNING)
    logging.getLogger("trunkline.transports").addHandler(handler)
    try:
        assert run_async(main()) == (2, "3")
    finally:
        logging.getLogger("trunkline.transports").removeHandler(handler)


async def test_a_stream_that_cannot_be_opened_any_more_ends_the_connection() -> None:
    async def first(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.raw(b"retry: 1\n\n")

    script = handshake_script({"GET": [first, Status(502)]})
    reasons: asyncio.Queue[Exception] = asyncio.Queue()

    def on_state(state: ClientState, reason: Exception | None) -> None:
        if reason is not None:
            reasons.put_nowait(reason)

    async with script, Client(script.url, limits=Limits(resumptions=1), on_state=on_state) as client:
        assert "502" in str(await reasons.get())
        assert (await client.call_tool("add")).text == "3"
    assert len(script.of("initialize")) == 2


def test_a_stream_that_is_cut_before_it_opens_is_tried_again() -> None:
    async def second(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.event(CHANGED)
        await writer.until_left()

    async def main() -> str:
        heard: asyncio.Queue[str] = asyncio.Queue()
        script = handshake_script({"GET": [broken, second]})
        async with script, Client(script.url, on_notification=lambda method, params: heard.put_nowait(method)):
            return await heard.get()

    assert run_async(main()) == CHANGED["method"]


def test_a_client_works_although_its_initialized_notification_was_refused() -> None:
    async def main() -> list[str]:
        script = handshake_script({"notifications/initialized": Status(500)})
        async with script, Client(script.url, revision="legacy") as client:
            await client.call_tool("add")
        return script.names

    assert run_async(main()) == ["initialize", "notifications/initialized", "tools/call", "DELETE"]


# --- resuming --------------------------------------------------------------------------------------------------------


async def polled(got: Got, writer: Writer) -> None:
    writer.stream()
    writer.event(id="event-1", retry=60)


def taken_up(*turns: Any, resumptions: int = 5) -> tuple[Any, HttpScript, list[float]]:
    """Call a tool whose stream ends early; the GETs that follow are answered in turn."""
    times: list[float] = []

    async def main() -> Any:
        loop = asyncio.get_running_loop()

        async def call(got: Got, writer: Writer) -> None:
            await polled(got, writer)
            await writer.flush()
            times.append(loop.time())

        def timed(turn: Any) -> Any:
            async def reply(got: Got, writer: Writer) -> None:
                times.append(loop.time())
                if isinstance(turn, Status):
                    writer.status(turn)
                else:
                    await turn(got, writer)

            return reply

        script.table["tools/call"] = call
        script.table["GET"] = [Status(405), *map(timed, turns)]
        async with script, Client(script.url, limits=Limits(resumptions=resumptions)) as client:
            return await client.call_tool("add")

    script = handshake_script()
    try:
        return run_async(main()), script, times
    except ConnectionLost as error:
        return error, script, times


def last_ids(script: HttpScript) -> list[str | None]:
    return [got.headers.get("last-event-id") for got in script.of("GET")]


async def answered(got: Got, writer: Writer) -> None:
    writer.stream()
    writer.event(answer(3), id="event-9")


def test_a_stream_that_ends_without_its_answer_is_resumed_after_the_time_it_asked_for() -> None:
    result, script, times = taken_up(answered)
    assert result.text == "3"
    assert last_ids(script) == [None, "event-1"]
    assert times[1] - times[0] >= 0.06
    assert script.of("GET")[1].headers["accept"] == "text/event-stream"
    assert script.of("GET")[1].headers["mcp-session-id"] == "session-1"
    assert len(script.of("tools/call")) == 1


def test_a_stream_is_resumed_after_the_newest_event_each_time() -> None:
    async def more(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.event(id="event-2", retry=1)

    result, script, _ = taken_up(more, Status(503), answered)
    assert result.text == "3"
    assert last_ids(script) == [None, "event-1", "event-2", "event-2"]


async def nothing(got: Got, writer: Writer) -> None:
    writer.stream()


async def broken(got: Got, writer: Writer) -> None:
    writer.break_off()


@pytest.mark.parametrize("turn", [nothing, broken, Status(502)], ids=["empty", "broken", "502"])
def test_a_stream_that_brings_nothing_new_is_given_up(turn: Any) -> None:
    error, script, _ = taken_up(turn, resumptions=1)
    assert isinstance(error, ConnectionLost)
    assert "brought nothing new" in str(error)
    assert last_ids(script)[:2] == [None, "event-1"]


@pytest.mark.parametrize("turn", [Status(404), Status(405), Status(200, b"{}", type="application/json")])
def test_a_stream_that_the_server_dropped_is_lost_and_the_call_not_repeated(turn: Status) -> None:
    error, script, _ = taken_up(turn)
    assert type(error) is ConnectionLost
    assert "cannot be resumed" in str(error)
    assert len(script.of("tools/call")) == 1


def test_a_stream_without_event_ids_is_lost_when_it_ends() -> None:
    async def main() -> tuple[type[Exception], list[str]]:
        script = handshake_script({"tools/call": nothing})
        async with script, Client(script.url, revision="legacy") as client:
            with pytest.raises(ConnectionLost) as failure:
                await client.call_tool("add")
        return type(failure.value), script.names

    assert run_async(main()) == (
        ConnectionLost,
        ["initialize", "notifications/initialized", "GET", "tools/call", "DELETE"],
    )


# --- a session that ends ---------------------------------------------------------------------------------------------


def test_a_lost_session_is_opened_again_and_the_call_repeated() -> None:
    async def main() -> tuple[str, HttpScript, ClientState]:
        script = handshake_script({"initialize": numbered("one", "two"), "tools/call": [GONE, DONE]})
        async with script, Client(script.url, revision="legacy") as client:
            result = await client.call_tool("add", {"a": 1})
            return result.text, script, client.state

    text, script, state = run_async(main())
    assert (text, state) == ("3", ClientState.ACTIVE)
    assert sessions(script, "tools/call") == ["one", "two"]
    assert sessions(script, "initialize") == [None, None]


def test_a_custom_request_is_repeated_too() -> None:
    async def main() -> Any:
        script = handshake_script({"initialize": numbered("one", "two"), "acme/x": [GONE, {"y": 1}]})
        async with script, Client(script.url, revision="legacy", restart=False) as client:
            return await client.request("acme/x")

    assert run_async(main()) == {"y": 1}


def test_a_call_fails_when_its_new_session_is_lost_too() -> None:
    async def main() -> list[str | None]:
        script = handshake_script({"initialize": numbered("one", "two"), "tools/call": GONE})
        async with script, Client(script.url, revision="legacy") as client:
            with pytest.raises(SessionExpired):
                await client.call_tool("add")
        return sessions(script, "tools/call")

    assert run_async(main()) == ["one", "two"]


def test_calls_in_flight_in_the_old_session_still_get_their_answers() -> None:
    async def main() -> tuple[str, str, int]:
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
            return (await first).text, second.text, len(script.of("initialize"))

    assert run_async(main()) == ("late", "3", 2)


def test_several_calls_in_a_lost_session_open_one_new_session() -> None:
    async def main() -> tuple[list[str], int]:
        script = handshake_script({"initialize": numbered("one", "two"), "tools/call": [GONE, GONE, GONE, DONE]})
        async with script, Client(script.url, revision="legacy") as client:
            results = await asyncio.gather(*(client.call_tool("add") for _ in range(3)))
            return [result.text for result in results], len(script.of("initialize"))

    assert run_async(main()) == (["3", "3", "3"], 2)


async def test_closing_does_not_wait_for_calls_of_the_old_session() -> None:
    async def hang(got: Got, writer: Writer) -> None:
        await writer.until_left()

    script = handshake_script({"initialize": numbered("one", "two"), "tools/call": [hang, GONE, DONE]})
    async with script:
        async with Client(script.url, revision="legacy") as client:
            first = asyncio.ensure_future(client.call_tool("slow"))
            await script.until(lambda: script.of("tools/call"))
            await client.call_tool("add")
        with pytest.raises(ConnectionLost):
            await first


async def test_waiting_for_a_call_of_the_old_session_is_bounded() -> None:
    async def hang(got: Got, writer: Writer) -> None:
        await writer.until_left()

    script = handshake_script({"initialize": numbered("one", "two"), "tools/call": [hang, GONE, DONE]})
    limits = Limits(total_seconds=0.1)
    async with script, Client(script.url, revision="legacy", limits=limits) as client:
        first = asyncio.ensure_future(client.call_tool("slow", total_timeout=60))
        await script.until(lambda: script.of("tools/call"))
        await client.call_tool("add")
        with pytest.raises(ConnectionLost):
            await first


def test_a_stream_whose_session_is_gone_lets_listeners_start_again() -> None:
    async def first(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.raw(b"retry: 1\n\n")

    async def again(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.event(CHANGED)
        await writer.until_left()

    async def main() -> tuple[list[Change], list[str | None]]:
        script = handshake_script({"initialize": numbered("one", "two"), "GET": [first, Status(404), again]})
        async with script, Client(script.url, revision="legacy") as client, client.listen(tools=True) as changes:
            seen = [await anext(changes), await anext(changes)]
        return seen, sessions(script, "GET")

    seen, ids = run_async(main())
    assert set(seen) == {Change("missed"), Change("tools")}
    assert ids == ["one", "one", "two"]


def test_the_log_level_and_subscriptions_are_restored_in_the_new_session() -> None:
    async def main() -> HttpScript:
        table = {"initialize": numbered("one", "two"), "tools/call": [GONE, DONE], "resources/subscribe": {}}
        script = handshake_script(table)
        async with script, Client(script.url, revision="legacy") as client:
            await client.set_logging_level("error")
            await client.subscribe("file:///x")
            await client.call_tool("add")
        return script

    script = run_async(main())
    assert sessions(script, "logging/setLevel") == ["one", "two"]
    assert sessions(script, "resources/subscribe") == ["one", "two"]


def test_an_answer_that_is_refused_breaks_nothing() -> None:
    async def main() -> str:
        async def call(got: Got, writer: Writer) -> None:
            writer.stream()
            writer.event({"jsonrpc": "2.0", "id": "q", "method": "ping"})
            await writer.flush()
            await script.until(lambda: [got for got in script.requests if got.message.get("id") == "q"])
            writer.event(answer(got.id))

        script = handshake_script({"tools/call": call, "POST": Status(500)})
        async with script, Client(script.url) as client:
            return (await client.call_tool("add")).text

    assert run_async(main()) == "3"
