"""Traffic: rows of messages and exchanges, limits, masking, replay, recordings, differences, events."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import command
from tests.console.support import ApiClient, library, on_console, policy, refused
from tests.host.test_host import ROOT, process
from tests.transports.http.serving_support import running
from trunkline import Client, Context, Server
from trunkline.console.api.traffic import TrafficPart
from trunkline.console.traffic import TrafficFilter, TrafficRow, TrafficStore
from trunkline.console.traffic_recording import diff_messages
from trunkline.devtools.recording.exchanges import read_exchanges
from trunkline.devtools.recording.format import Recording
from trunkline.devtools.recording.replay import ReplayServer
from trunkline.host.secrets.registry import SecretRegistry
from trunkline.host.traffic import TrafficSource
from trunkline.protocol.jsonrpc import (
    Batch,
    InvalidMessage,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
)
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from trunkline.protocol.traffic import HttpTraffic

EVERYTHING = TrafficFilter()
ALLOW = policy('[[rule]]\neffect = "allow"\nserver = "library"\ntool = "*"\ntainted = true\n')


class Wire:
    """A store with one connection, whose traffic is made up."""

    def __init__(self, secrets: SecretRegistry | None = None, **limits: int) -> None:
        self.changed: list[TrafficRow] = []
        self.store = TrafficStore(secrets or SecretRegistry(), on_row=self.changed.append, **limits)
        self.observer = self.store(TrafficSource("a", "shared"))

    def send(self, *messages: Message) -> None:
        """Send messages of ours."""
        self.observer.messages_sent([Outbound(message) for message in messages])

    def receive(self, *messages: Any) -> None:
        """Receive messages of the server."""
        for message in messages:
            self.observer.message_received(message)

    def rows(self, **where: Any) -> list[TrafficRow]:
        """Return all rows."""
        return self.store.rows(TrafficFilter(**where), limit=1000)


def called(id: int = 1, name: str = "add", **params: Any) -> Request:
    """A call of a tool."""
    return Request(id, "tools/call", {"name": name, "arguments": {"a": 1}, **params})


def answered(id: int = 1, **result: Any) -> Response:
    """Its result."""
    return Response(id, result or {"content": [{"type": "text", "text": "2"}]})


# --- rows ------------------------------------------------------------------------------------------------------------


def test_a_response_is_paired_with_its_request() -> None:
    wire = Wire()
    wire.send(called())
    wire.receive(answered())
    request, response = wire.rows()
    assert (request.kind, request.direction, request.method, request.id) == ("request", "out", "tools/call", 1)
    assert (response.kind, response.direction, response.method, response.pair) == ("response", "in", "tools/call", 1)
    assert response.ms is not None
    assert response.ms >= 0
    assert request.summary == 'add {"a":1}'
    assert response.summary == "2"


def test_requests_of_both_sides_with_one_id_are_told_apart() -> None:
    wire = Wire()
    wire.send(called(1))
    wire.receive(Request(1, "elicitation/create", {"message": "Sure?"}))
    wire.send(Response(1, {"action": "accept"}))
    wire.receive(answered(1))
    pairs = [(row.direction, row.kind, row.pair, row.method) for row in wire.rows()]
    assert pairs[2:] == [("out", "response", 2, "elicitation/create"), ("in", "response", 1, "tools/call")]


def test_a_new_connection_does_not_answer_the_requests_of_the_one_before() -> None:
    wire = Wire()
    wire.send(called(1))
    wire.observer.connected()
    wire.receive(answered(1))
    assert wire.rows()[1].pair is None


def test_rounds_of_one_call_share_the_row_of_the_first() -> None:
    wire = Wire()
    wire.send(called(1), called(2, "other"))
    wire.receive(answered(1, resultType="input_required", requestState="s1", inputRequests={"q": {}}))
    wire.receive(answered(2))
    wire.send(called(3, requestState="s1", inputResponses={"q": {}}))
    wire.receive(answered(3, resultType="input_required", requestState="s2"))
    wire.send(called(4, requestState="s2"))
    wire.receive(answered(4))
    rounds = {(row.kind, row.id): row.round for row in wire.rows()}
    assert [rounds["request", id] for id in (1, 2, 3, 4)] == [1, None, 1, 1]
    assert [rounds["response", id] for id in (1, 2, 3, 4)] == [1, None, 1, 1]
    # The first request was published before anyone knew that there would be a second round.
    assert [row.seq for row in wire.changed].count(1) == 2


def test_a_round_without_state_is_found_by_what_is_called() -> None:
    wire = Wire()
    wire.send(called(1))
    wire.receive(answered(1, resultType="input_required", inputRequests={"q": {}}))
    wire.send(called(2, inputResponses={"q": {}}), called(3))
    assert [row.round for row in wire.rows()] == [1, 1, 1, None]


def test_what_is_no_message_is_a_row_too() -> None:
    wire = Wire()
    wire.receive(InvalidMessage(-32700, "Parse error: trailing data"))
    wire.receive(Batch((InvalidMessage(-32600, "no method"), InvalidMessage(-32600, "id", response=True))))
    assert [(row.kind, row.summary) for row in wire.rows()] == [
        ("unreadable", "Parse error: trailing data"),
        ("unreadable", "no method"),
    ]


def test_an_http_exchange_belongs_to_the_request_that_it_carried() -> None:
    wire = Wire()
    wire.send(called())
    headers = {"Mcp-Session-Id": "abc", "X-Api-Key": "xyz", "Accept": "application/json"}
    wire.observer.http_exchanged(
        HttpTraffic(
            method="POST",
            url="http://x/mcp",
            status=200,
            request_headers=headers,
            response_headers={"Content-Length": "12"},
            seconds=0.25,
            about=1,
        )
    )
    wire.receive(answered())
    request, http, response = wire.rows()
    assert (http.kind, http.method, http.status, http.pair, http.ms, http.bytes) == ("http", "POST", 200, 1, 250.0, 12)
    for row in (request, http, response):
        stored = wire.store.get(row.seq)
        assert stored is not None
        shown = wire.store.http(stored)
        assert shown is not None
        assert shown["request_headers"] == {"Mcp-Session-Id": "***", "X-Api-Key": "***", "Accept": "application/json"}


def test_a_request_that_fails_without_an_answer_ends_with_the_reason() -> None:
    wire = Wire()
    wire.send(called())
    wire.observer.request_failed(1, ConnectionError("refused"))
    wire.observer.request_failed(9, ConnectionError("of another connection"))
    assert [(row.kind, row.pair, row.summary) for row in wire.rows()][1:] == [("unreadable", 1, "refused")]


@pytest.mark.parametrize(
    ("message", "summary"),
    [
        pytest.param(Notification("notifications/progress", {"progress": 1, "total": 4}), "1/4", id="progress"),
        pytest.param(
            Notification("notifications/cancelled", {"requestId": 7, "reason": "late"}),
            "request 7 late",
            id="cancelled",
        ),
        pytest.param(
            Notification("notifications/message", {"level": "info", "data": {"x": 1}}), 'info {"x":1}', id="log"
        ),
        pytest.param(Request(1, "resources/read", {"uri": "book://1"}), "book://1", id="read"),
        pytest.param(Request(1, "odd", [1, 2]), "", id="odd params"),
        pytest.param(answered(1, tools=[{}, {}]), "2 tools", id="list"),
        pytest.param(answered(1, resourceTemplates=[]), "0 templates", id="templates"),
        pytest.param(answered(1, content=[{"type": "image"}]), "image", id="image"),
        pytest.param(
            answered(1, isError=True, content=[{"type": "text", "text": "no\nway"}]), "error: no way", id="no"
        ),
        pytest.param(answered(1, content="odd"), "", id="odd content"),
        pytest.param(answered(1, content=[{"type": "text", "text": "x" * 9000}]), "x" * 159 + "…", id="long"),
    ],
)
def test_a_summary_says_in_a_line_what_a_message_is_about(message: Message, summary: str) -> None:
    wire = Wire()
    wire.receive(message)
    assert wire.rows()[0].summary == summary


# --- limits ----------------------------------------------------------------------------------------------------------


def test_the_oldest_rows_are_dropped() -> None:
    wire = Wire(max_rows=10)
    wire.send(*(called(id) for id in range(25)))
    assert [row.seq for row in wire.rows()] == list(range(16, 26))
    assert (wire.store.first, wire.store.last, wire.store.dropped) == (16, 25, 15)
    assert wire.store.get(15) is None


def test_the_oldest_bodies_are_dropped_before_their_rows() -> None:
    wire = Wire(max_bytes=1000)
    wire.send(*(called(id, "x" * 200) for id in range(10)))
    kept = [stored.row.seq for stored in wire.store.snapshot() if stored.body is not None]
    assert kept == [8, 9, 10]
    assert len(wire.rows()) == 10


def test_a_large_body_is_cut_and_its_size_is_known() -> None:
    wire = Wire(max_body=100)
    wire.receive(answered(1, text="x" * 1000))
    stored = wire.store.snapshot()[0]
    assert stored.row.bytes > 1000
    assert not stored.whole
    assert wire.store.masked(stored).startswith('{"jsonrpc":"2.0","id":1')


def test_after_a_clear_numbers_go_on() -> None:
    wire = Wire(max_bytes=500)
    wire.send(*(called(id, "x" * 200) for id in range(5)))
    wire.store.clear()
    assert wire.rows() == []
    wire.send(*(called(id, "x" * 200) for id in range(5)))
    assert [row.seq for row in wire.rows()] == [6, 7, 8, 9, 10]
    assert [stored.row.seq for stored in wire.store.snapshot() if stored.body is not None] == [10]


def test_unanswered_requests_do_not_pile_up() -> None:
    wire = Wire()
    wire.send(*(called(id) for id in range(5000)))
    assert len(wire.observer._pending) == 4096


# --- filters ---------------------------------------------------------------------------------------------------------


def test_rows_are_filtered_and_paged() -> None:
    wire = Wire()
    wire.send(*(called(id, "add" if id % 2 else "sub") for id in range(1, 11)))
    wire.receive(answered(3))
    assert [row.seq for row in wire.rows(text="SUB")] == [2, 4, 6, 8, 10]
    assert [row.seq for row in wire.rows(kinds={"response"})] == [11]
    assert wire.rows(server="b") == []
    assert [row.seq for row in wire.store.rows(EVERYTHING, limit=3)] == [9, 10, 11]
    assert [row.seq for row in wire.store.rows(EVERYTHING, before=9, limit=3)] == [6, 7, 8]
    assert [row.seq for row in wire.store.rows(EVERYTHING, after=2, limit=3)] == [3, 4, 5]
    assert [row.seq for row in wire.store.rows(EVERYTHING, after=2, before=4, limit=3)] == [3]


def test_a_search_finds_what_only_the_body_has() -> None:
    wire = Wire()
    wire.receive(answered(1, odd={"deep": "Grüße"}), answered(2, odd={"deep": "hello"}))
    assert [row.id for row in wire.rows(text="grüß")] == [1]
    assert [row.id for row in wire.rows(text="HELLO")] == [2]


# --- masking ---------------------------------------------------------------------------------------------------------


def test_secrets_are_masked_everywhere_and_cannot_be_searched_for() -> None:
    secrets = SecretRegistry(["hunter2hunter2"])
    wire = Wire(secrets)
    wire.send(called(1, arguments={"note": "use hunter2hunter2", "password": "letmein-please"}))
    stored = wire.store.snapshot()[0]
    shown = json.dumps([wire.store.masked(stored), stored.row.summary])
    assert "hunter2" not in shown
    assert "letmein" not in shown
    assert wire.rows(text="hunter2") == []
    assert wire.rows(text="letmein") == []
    assert len(wire.rows(text="password")) == 1


def test_a_secret_that_becomes_known_later_is_masked_from_then_on() -> None:
    secrets = SecretRegistry()
    wire = Wire(secrets)
    wire.send(called(1, arguments={"note": "use hunter2hunter2"}))
    secrets.add(["hunter2hunter2"])
    assert "hunter2" not in wire.rows()[0].summary
    assert "hunter2" not in wire.store.masked_text(wire.store.snapshot()[0])


# --- the API ---------------------------------------------------------------------------------------------------------


async def row_of(client: ApiClient, method: str, kind: str = "request", **query: Any) -> dict[str, Any]:
    """Return the last row of a method."""
    found = await client.get("/traffic", kind=kind, **query)
    return next(row for row in reversed(found["rows"]) if row["method"] == method)


async def test_a_call_is_seen_as_rows_and_by_its_messages(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as running:
        client = running.client()
        async with client.listen():
            await client.call("tool", "library/lend", {"title": "Emma"})
            request = await row_of(client, "tools/call")
            response = await row_of(client, "tools/call", "response")
            assert response["pair"] == request["seq"]
            shown = await client.get(f"/traffic/{request['seq']}")
            assert shown["message"]["params"]["arguments"] == {"title": "Emma"}
            assert (shown["http"], shown["cut"]) == (None, None)
            event = await client.event("traffic", lambda each: request["seq"] in [row["seq"] for row in each["rows"]])
            assert set(event["rows"][0]) == set(request)


async def test_servers_over_stdio_and_http_are_seen(tmp_path: Path) -> None:
    async with running(library().asgi()) as web:
        servers = {"proc": process(), "web": {"url": f"{web.url}/mcp"}}
        async with on_console(servers, tmp_path) as console:
            client = console.client()
            async with client.listen():
                await client.call("tool", "proc/pid")
                await client.call("tool", "web/find", {"title": "Emma"})
            assert (await row_of(client, "tools/call", server="proc"))["server"] == "proc"
            request = await row_of(client, "tools/call", server="web")
            shown = await client.get(f"/traffic/{request['seq']}")
            assert shown["http"]["url"] == f"{web.url}/mcp"
            assert shown["http"]["status"] == 200


async def test_a_console_that_is_closed_observes_no_more(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, policy=ALLOW) as console:
        part = console.console.part(TrafficPart)
        await part.aclose()
        before = part.store.last
        await console.host.call_tool("library/lend", {"title": "Emma"})
        assert part.store.last == before


async def test_events_come_in_batches_and_only_if_a_page_is_open(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, policy=ALLOW) as console:
        client = console.client()
        await console.host.call_tool("library/lend", {"title": "Emma"})
        assert console.console.part(TrafficPart)._unpublished == {}
        async with client.listen():
            started = asyncio.get_running_loop().time()
            for _ in range(200):
                await console.host.call_tool("library/lend", {"title": "Emma"})
            last = console.console.part(TrafficPart).store.last
            await client.event("traffic", lambda each: each["rows"][-1]["seq"] >= last)
            took = asyncio.get_running_loop().time() - started
        batches = [event for event in client.events if event["type"] == "traffic"]
        assert len(batches) <= took / 0.1 + 2


async def test_new_rows_come_before_changed_ones(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        client, part = console.client(), console.console.part(TrafficPart)
        async with client.listen():
            wire = part.store(TrafficSource("a", "shared"))
            wire.messages_sent([Outbound(called(1))])
            first = part.store.last
            await client.event("traffic", lambda each: first in [row["seq"] for row in each["rows"]])
            wire.message_received(answered(1, resultType="input_required", requestState="s"))
            event = await client.event("traffic", lambda each: (first, first) in _rounds(each))
            assert _rounds(event)[-1] == (first, first)
            assert event["rows"][0]["seq"] > first


def _rounds(event: dict[str, Any]) -> list[tuple[int, int | None]]:
    return [(row["seq"], row["round"]) for row in event["rows"]]


async def test_a_long_message_is_cut(tmp_path: Path) -> None:
    server = Server("big")

    @server.tool
    async def shout() -> str:
        """Shout."""
        return "x" * 2_000_000

    @server.tool
    async def say() -> str:
        """Speak up."""
        return "y" * 400_000

    async with on_console({"big": server}, tmp_path) as console:
        client = console.client()
        async with client.listen():
            await client.call("tool", "big/shout")
            await client.call("tool", "big/say")
        rows = (await client.get("/traffic", kind="response"))["rows"]
        for row in [row for row in rows if row["method"] == "tools/call"]:
            shown = await client.get(f"/traffic/{row['seq']}")
            assert isinstance(shown["message"], str)
            assert shown["cut"] == {"bytes": row["bytes"], "shown": 256 * 1024}


async def test_rows_are_cleared(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        client = console.client()
        async with client.listen():
            await client.call("tool", "library/find", {"title": "Emma"})
            await client.delete("/traffic")
        found = await client.get("/traffic", kind="request")
        assert [row for row in found["rows"] if row["method"] == "tools/call"] == []
        assert found["dropped"] == 0


@pytest.mark.parametrize("path", ["/traffic/999999", "/traffic/x", "/traffic/-1"])
async def test_a_row_that_is_not_kept_is_not_found(path: str, tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        failed = await refused(console.client().get(path))
        assert failed.status == 404


async def test_a_filter_must_be_readable(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        failed = await refused(console.client().get("/traffic", after="x"))
        assert failed.code == "invalid_request"


# --- replay ----------------------------------------------------------------------------------------------------------


async def replayed(client: ApiClient, method: str) -> dict[str, Any]:
    """Send the last request of a method again, and return the call that results."""
    row = await row_of(client, method)
    started = (await client.post(f"/traffic/{row['seq']}/replay"))["call"]
    assert started["by"] == "replay"
    return await client.finished(started["id"])


async def test_a_tool_call_is_sent_again_with_its_real_arguments(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        client = console.client()
        console.console.core.secrets.add(["Northanger Abbey"])
        async with client.listen():
            first = await client.call("tool", "library/find", {"title": "Northanger Abbey"})
            again = await replayed(client, "tools/call")
        assert again["state"] == "done"
        assert again["bytes"] == first["bytes"]
        assert len(again["arguments"]["title"]) in (3, len("Northanger Abbey"))


async def test_reads_prompts_and_lists_are_sent_again(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        client = console.client()
        async with client.listen():
            await client.call("resource", "library/book://1")
            await client.call("prompt", "library/recommend", {"genre": "novel"})
            await console.host.complete("library/recommend", "genre", "n")
            await console.console.core.upstream("library").client.request("tools/list")  # type: ignore[union-attr]
            assert (await replayed(client, "resources/read"))["result"]["contents"][0]["text"] == "Emma"
            assert (await replayed(client, "prompts/get"))["kind"] == "prompt"
            assert (await replayed(client, "completion/complete"))["result"]["completion"]["values"] == ["novel"]
            listed = await replayed(client, "tools/list")
            assert (listed["kind"], listed["target"]) == ("request", "library/tools/list")
            assert [tool["name"] for tool in listed["result"]["tools"]] == ["lend", "find"]


async def test_a_replayed_call_is_judged_by_the_policy(tmp_path: Path) -> None:
    rules = policy('[[rule]]\neffect = "deny"\nserver = "library"\ntool = "lend"\n')
    async with on_console({"library": library()}, tmp_path) as console:
        client = console.client()
        async with client.listen():
            await client.call("tool", "library/lend", {"title": "Emma"})
            row = await row_of(client, "tools/call")
            console.console.assembly.policy = rules
            started = await client.post(f"/traffic/{row['seq']}/replay")
            assert (await client.finished(started["call"]["id"]))["state"] == "denied"


async def test_only_requests_of_ours_can_be_sent_again(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, settings={"era": "handshake"}) as console:
        client = console.client()
        async with client.listen():
            await client.call("tool", "library/find", {"title": "Emma"})
        await console.host.restart("library")
        response = await row_of(client, "tools/call", "response")
        failed = await refused(client.post(f"/traffic/{response['seq']}/replay"))
        assert failed.code == "not_a_request"
        opening = await row_of(client, "initialize")
        failed = await refused(client.post(f"/traffic/{opening['seq']}/replay"))
        assert failed.code == "not_repeatable"
        failed = await refused(client.post("/calls", {"kind": "request", "id": "library/tools/call", "arguments": {}}))
        assert failed.code == "invalid_request"


# --- recordings and differences --------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", [NEWEST.name, NEWEST_HANDSHAKE.name])
async def test_a_recording_is_served_again(era: str, tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path, settings={"era": era}) as console:
        client = console.client()
        console.console.core.secrets.add(["Northanger Abbey"])
        async with client.listen():
            await client.call("tool", "library/find", {"title": "Emma"})
            await client.call("tool", "library/find", {"title": "Northanger Abbey"})
        content, media_type = await client.download("/traffic/recording", {"server": "library"})
    assert b"Northanger" not in content
    assert media_type.startswith("application/jsonl")
    recording = Recording.parse(content.decode())
    assert recording.head is not None
    assert recording.head.transport == "memory"
    assert recording.revision == era
    # The console was opened after the server: the opening was made up.
    assert next(each.method for each in read_exchanges(recording)) in ("initialize", "server/discover")
    async with Client(ReplayServer(recording), validate=False) as replayed:
        assert (await replayed.call_tool("find", {"title": "Emma"})).text == "shelf 7: Emma"
        assert "***" in (await replayed.call_tool("find", {"title": "***"})).text


async def test_a_recording_of_the_command_line_accepts_it(tmp_path: Path) -> None:
    async with on_console({"proc": process()}, tmp_path) as console:
        client = console.client()
        async with client.listen():
            await client.call("tool", "proc/pid")
            await console.host.restart("proc")
            await client.call("tool", "proc/pid")
        content, _ = await client.download("/traffic/recording", {"server": "proc"})
    file = tmp_path / "proc.jsonl"
    file.write_bytes(content)
    recording = Recording.load(file)
    assert [each.method for each in read_exchanges(recording)].count("initialize") == 1
    target = " ".join([process()["command"], *process()["args"]])
    env = {"PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    outcome = await asyncio.to_thread(command, "replay", str(file), "--as", "client", target, "--json", env=env)
    assert json.loads(outcome.out)["compared"] >= 3, outcome


async def test_what_was_not_observed_cannot_be_recorded(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        failed = await refused(console.client().post("/traffic/recording", {"server": "nobody"}))
        assert failed.status == 404


async def test_questions_of_a_server_are_part_of_a_recording(tmp_path: Path) -> None:
    server = Server("asker")

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        await ctx.elicit("Sure?", {"type": "object", "properties": {"ok": {"type": "boolean"}}})
        return "thanks"

    async with on_console({"asker": server}, tmp_path, settings={"era": "handshake"}) as console:
        client = console.client()
        async with client.listen():
            call = (await client.post("/calls", {"kind": "tool", "id": "asker/ask", "arguments": {}}))["call"]
            item = await client.item("form")
            await client.post(f"/inbox/{item['id']}", {"action": "accept", "content": {"ok": True}})
            assert (await client.finished(call["id"]))["state"] == "done"
        content, _ = await client.download("/traffic/recording", {"server": "asker"})
    recording = Recording.parse(content.decode())
    exchange = next(each for each in read_exchanges(recording) if each.method == "tools/call")
    assert [question.request["method"] for question in exchange.questions] == ["elicitation/create"]


async def test_two_messages_are_compared(tmp_path: Path) -> None:
    async with on_console({"library": library()}, tmp_path) as console:
        client = console.client()
        async with client.listen():
            await client.call("tool", "library/find", {"title": "Emma"})
            await client.call("tool", "library/find", {"title": "Persuasion"})
        rows = (await client.get("/traffic", kind="request"))["rows"]
        left, right = [row["seq"] for row in rows if row["method"] == "tools/call"][-2:]
        lines = (await client.post("/traffic/diff", {"left": left, "right": right}))["lines"]
    assert {"kind": "left", "text": '      "title": "Emma"'} in lines
    assert {"kind": "right", "text": '      "title": "Persuasion"'} in lines
    assert {"kind": "same", "text": '  "method": "tools/call",'} in lines


def test_a_difference_ignores_the_order_of_members_and_is_bounded() -> None:
    assert {line.kind for line in diff_messages({"a": 1, "b": 2}, {"b": 2, "a": 1})} == {"same"}
    assert diff_messages(None, None)[0].text == "null"
    long = diff_messages({"x": list(range(10_000))}, {"x": []})
    assert len(long) < 4100
    assert any("more lines" in line.text for line in long)
