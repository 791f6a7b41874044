"""Streamable HTTP, the server's side: statuses, headers, streams and sessions, as each revision has them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.interaction.posting import code_of, post, request, until, web
from tests.interaction.rows import ALL, BATCHING, SESSIONS, SINCE_2025_03, SINCE_2025_06, STATELESS, http_behaviour
from tests.interaction.web import Reply
from tests.interaction.wire import META, Peer, Wire

CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}
PROGRESS = "notifications/progress"
LISTS = "notifications/tools/list_changed"


# --- sending ---------------------------------------------------------------------------------------------------------


@http_behaviour("http.accepted", "2025-11-25 basic/transports#sending-messages-to-the-server", SESSIONS)
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
        {"jsonrpc": "2.0", "method": "acme/unheard-of"},
        {"jsonrpc": "2.0", "id": 77, "result": {}},
        {"jsonrpc": "2.0", "id": 77, "error": {"code": 1, "message": "no"}},
    ],
    ids=["notification", "unknown notification", "result", "error"],
)
async def test_notifications_and_answers_are_accepted_without_a_body(wire: Wire, message: Any) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(peer, message)
        assert (reply.status, reply.body) == (202, b"")


@http_behaviour("http.accepted-stateless", "2026-07-28 basic/transports/streamable-http#sending-messages", STATELESS)
async def test_a_notification_is_accepted_without_a_body(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(peer, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        assert (reply.status, reply.body) == (202, b"")


@http_behaviour("http.answers-refused", "2026-07-28 basic/transports/streamable-http#sending-messages", STATELESS)
@pytest.mark.parametrize("members", [{"result": {}}, {"error": {"code": 1, "message": "no"}}], ids=["result", "error"])
async def test_an_answer_is_rejected_where_servers_never_ask(wire: Wire, members: Any) -> None:
    async with wire.open("catalog") as peer:
        assert code_of(await post(peer, {"jsonrpc": "2.0", "id": 1, **members})) == (400, -32600)


@http_behaviour("http.json", "2025-11-25 basic/transports#sending-messages-to-the-server", SINCE_2025_03)
async def test_an_answer_without_anything_before_it_is_one_json_object(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(peer, request(peer, "tools/call", CALL))
        assert (reply.status, reply.kind, reply.messages[0]["id"]) == (200, "application/json", "r")


@http_behaviour("http.stream", "2025-11-25 basic/transports#sending-messages-to-the-server", SINCE_2025_03)
async def test_messages_before_a_response_come_on_the_same_stream_which_then_ends(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        counting = request(peer, "tools/call", {"name": "count", "arguments": {"to": 2}}, meta={"progressToken": "p"})
        reply = await post(peer, counting)
        assert (reply.status, reply.kind, reply.finished) == (200, "text/event-stream", True)
        assert [message.get("method", message.get("id")) for message in reply.messages] == [PROGRESS, PROGRESS, "r"]


@http_behaviour(
    "http.stream-unbuffered", "2026-07-28 basic/transports/streamable-http#receiving-messages", SINCE_2025_03
)
async def test_a_stream_tells_proxies_not_to_hold_it_back(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        counting = request(peer, "tools/call", {"name": "count", "arguments": {"to": 1}}, meta={"progressToken": "p"})
        assert (await post(peer, counting)).headers["X-Accel-Buffering"] == "no"


@http_behaviour("http.batch-accepted", "2025-03-26 basic/transports#sending-messages-to-the-server", BATCHING)
async def test_a_batch_of_notifications_or_answers_is_accepted_without_a_body(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        told = await post(peer, [{"jsonrpc": "2.0", "method": "acme/unheard-of"}] * 2)
        answered = await post(peer, [{"jsonrpc": "2.0", "id": id, "result": {}} for id in (77, 78)])
        assert [(each.status, each.body) for each in (told, answered)] == [(202, b""), (202, b"")]


@http_behaviour("http.batch-answered", "2025-03-26 basic/transports#sending-messages-to-the-server", BATCHING)
async def test_every_request_of_a_batch_is_answered_on_its_response(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        counting = {"name": "count", "arguments": {"to": 1}}
        calls = [request(peer, "tools/call", counting, id=id, meta={"progressToken": id}) for id in ("a", "b")]
        reply = await post(peer, calls)
        flat = [each for message in reply.messages for each in (message if isinstance(message, list) else [message])]
        assert (reply.status, {each["id"] for each in flat if "result" in each}) == (200, {"a", "b"})


@http_behaviour("http.batch-refused", "2025-06-18 basic/transports#sending-messages-to-the-server", SINCE_2025_06)
async def test_an_array_is_rejected_where_the_revision_has_none(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert code_of(await post(peer, [request(peer)])) == (400, -32600)


@http_behaviour("http.unreadable", "2025-11-25 basic/transports#sending-messages-to-the-server", SINCE_2025_03)
@pytest.mark.parametrize(
    ("body", "code"), [(b"hello", -32700), (b'{"jsonrpc":"2.0"', -32700), (b'{"jsonrpc":"2.0","id":1}', -32600)]
)
async def test_a_body_that_is_not_a_message_is_a_bad_request(wire: Wire, body: bytes, code: int) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(peer, body, Content_Type="application/json")
        assert code_of(reply) == (400, code)


@http_behaviour("http.content-type", "2025-11-25 basic/transports#security-warning", SINCE_2025_03)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_body_of_another_type_is_rejected(wire: Wire, kind: str) -> None:
    async with wire.open("catalog") as peer:
        assert (await post(peer, request(peer), Content_Type=kind)).status == 415


@http_behaviour("http.same-id", "2025-11-25 basic/transports#sending-messages-to-the-server", SINCE_2025_03)
async def test_two_requests_with_one_id_are_each_answered_on_their_own_response(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        held = [request(peer, "tools/call", {"name": "hold", "arguments": {"name": name}}) for name in ("a", "b")]
        first, second = [asyncio.ensure_future(post(peer, message)) for message in held]
        await peer.call("release", {"name": "b"})
        await peer.call("release", {"name": "a"})
        answers = [reply.messages[-1]["result"]["content"][0]["text"] for reply in (await first, await second)]
        assert answers == ["a", "b"]


# --- who may call ----------------------------------------------------------------------------------------------------


@http_behaviour("http.origin", "2025-11-25 basic/transports#security-warning", SINCE_2025_03)
async def test_a_web_page_of_another_origin_is_rejected(wire: Wire) -> None:
    origins = ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://localhost@evil"]
    async with wire.open("catalog") as peer:
        body, headers = json.dumps(request(peer)).encode(), web(peer).headers(request(peer))
        asked = [(verb, origins[0]) for verb in ("GET", "DELETE", "OPTIONS")] + [("POST", each) for each in origins]
        replies = [await web(peer).exchange(verb, {**headers, "Origin": each}, data=body) for verb, each in asked]
        assert [reply.status for reply in replies] == [403] * len(asked)
        assert "tools" in await peer.result("tools/list")


@http_behaviour("http.origin-own", "2025-11-25 basic/transports#security-warning", SINCE_2025_03)
async def test_a_page_of_the_same_machine_is_let_in(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await post(peer, request(peer), Origin="http://localhost:3000")).status == 200


@http_behaviour("http.host", "2025-11-25 basic/transports#security-warning", SINCE_2025_03)
async def test_a_name_that_is_not_the_servers_is_rejected(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await post(peer, request(peer), Host="rebound.example")).status == 403


# --- sessions --------------------------------------------------------------------------------------------------------


@http_behaviour("http.session-id", "2025-11-25 basic/transports#session-management", SESSIONS)
async def test_a_session_id_is_random_and_has_visible_characters(wire: Wire) -> None:
    async with wire.open("catalog", greet=False) as peer:
        hello = request(peer, "initialize", peer.hello())
        ids = [(await post(peer, hello, without="Mcp-Session-Id")).headers["Mcp-Session-Id"] for _ in range(2)]
        assert [all("!" <= character <= "~" for character in id) and len(id) >= 22 for id in ids] == [True, True]
        assert ids[0] != ids[1]


@http_behaviour("http.session-required", "2025-11-25 basic/transports#session-management", SESSIONS)
async def test_a_request_without_the_id_of_its_session_is_a_bad_request(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await post(peer, request(peer), without="Mcp-Session-Id")).status == 400


@http_behaviour("http.session-unknown", "2025-11-25 basic/transports#session-management", SESSIONS)
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_an_unknown_session_is_not_found(wire: Wire, verb: str) -> None:
    async with wire.open("catalog") as peer:
        headers = {**web(peer).headers(request(peer)), "Mcp-Session-Id": "no-such-session"}
        assert (await web(peer).exchange(verb, headers, data=json.dumps(request(peer)).encode())).status == 404


@http_behaviour("http.session-ended", "2025-11-25 basic/transports#session-management", SESSIONS)
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_a_session_that_was_ended_is_not_found(wire: Wire, verb: str) -> None:
    async with wire.open("catalog") as peer:
        headers = web(peer).headers(request(peer))
        ended = await web(peer).exchange("DELETE", headers)
        again = await web(peer).exchange(verb, headers, data=json.dumps(request(peer)).encode())
        assert (ended.status // 100, again.status) == (2, 404)


@http_behaviour("http.session-ended-streams", "2025-11-25 basic/transports#session-management", SESSIONS)
async def test_a_session_that_is_ended_ends_its_stream_and_its_calls(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        stream, reading = web(peer).begin("GET", web(peer).url, {**web(peer).headers(), "Accept": "text/event-stream"})
        await web(peer).head(stream, reading)
        message = request(peer, "tools/call", {"name": "hold", "arguments": {"name": "a"}})
        held = asyncio.ensure_future(post(peer, message))
        await peer.call("happened", {"event": "a started"})
        await web(peer).exchange("DELETE", web(peer).headers())
        await reading
        assert (stream.finished, (await held).status) == (True, 404)


@http_behaviour("http.session-of-its-own", "2025-11-25 basic/transports#session-management", SESSIONS)
async def test_ending_one_session_leaves_the_others(wire: Wire) -> None:
    async with wire.open("catalog", greet=False) as peer:
        other = await post(peer, request(peer, "initialize", peer.hello()))
        web(peer).session = None
        await peer.shake_hands()
        await web(peer).exchange("DELETE", {**web(peer).headers(), "Mcp-Session-Id": other.headers["Mcp-Session-Id"]})
        assert "tools" in await peer.result("tools/list")


@http_behaviour("http.version-absent", "2025-11-25 basic/transports#protocol-version-header", SESSIONS)
async def test_a_request_without_a_version_is_served_in_that_of_its_session(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(peer, request(peer, "tools/call", {"name": "who"}), without="MCP-Protocol-Version")
        assert json.loads(reply.messages[0]["result"]["content"][0]["text"])["revision"] == wire.revision


@http_behaviour("http.version-assumed", "2025-11-25 basic/transports#protocol-version-header", ALL[1:2])
async def test_a_request_without_a_version_and_session_gets_the_default_version(wire: Wire) -> None:
    async with wire.open("catalog", greet=False, stateless_http=True) as peer:
        reply = await post(peer, request(peer, "tools/call", {"name": "who"}))
        assert json.loads(reply.messages[0]["result"]["content"][0]["text"])["revision"] == wire.revision


@http_behaviour("http.version-wrong", "2025-11-25 basic/transports#protocol-version-header", SESSIONS)
@pytest.mark.parametrize("version", ["1999-01-01", "nonsense", "2024-11-05"])
async def test_a_version_that_is_not_the_sessions_is_a_bad_request(wire: Wire, version: str) -> None:
    async with wire.open("catalog") as peer:
        assert (await post(peer, request(peer), MCP_Protocol_Version=version)).status == 400


# --- the stream of a session -----------------------------------------------------------------------------------------


async def streams(peer: Peer, *, until: int) -> list[Reply]:
    """Wait until so many messages came on GET streams, and give all GET streams."""
    found = [reply for reply in web(peer).replies if reply.verb == "GET"]
    while sum(len(reply.messages) for reply in found) < until:
        await peer.hear()
    return found


@http_behaviour("http.get-stream", "2025-11-25 basic/transports#listening-for-messages-from-the-server", SESSIONS)
async def test_messages_without_a_request_come_on_the_stream_of_the_session(wire: Wire) -> None:
    async with wire.open("streaming") as peer:
        grown = await post(peer, request(peer, "tools/call", {"name": "grow", "arguments": {"name": "fresh"}}))
        [stream] = await streams(peer, until=1)
        assert (stream.status, stream.kind) == (200, "text/event-stream")
        assert ([each["method"] for each in stream.messages], len(grown.messages)) == ([LISTS], 1)


@http_behaviour("http.get-accept", "2025-11-25 basic/transports#listening-for-messages-from-the-server", SESSIONS)
async def test_a_get_that_does_not_accept_a_stream_is_rejected(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        reply = await web(peer).exchange("GET", {**web(peer).headers(), "Accept": "application/json"})
        assert reply.status in (405, 406)


@http_behaviour("http.get-no-answers", "2025-11-25 basic/transports#listening-for-messages-from-the-server", SESSIONS)
async def test_no_answer_and_nothing_of_a_request_comes_on_the_stream_of_the_session(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        counting = request(peer, "tools/call", {"name": "count", "arguments": {"to": 3}}, meta={"progressToken": "p"})
        reply = await post(peer, counting)
        await peer.settle()
        [stream] = await streams(peer, until=0)
        assert (stream.messages, len(reply.messages)) == ([], 4)


@http_behaviour("http.get-two", "2025-11-25 basic/transports#multiple-connections", SESSIONS)
async def test_no_message_comes_on_two_streams(wire: Wire) -> None:
    async with wire.open("streaming") as peer:
        await web(peer).listen()
        await peer.call("grow", {"name": "one"})
        await peer.notice(LISTS)
        await peer.call("grow", {"name": "two"})
        await peer.notice(LISTS)
        await peer.settle()
        both = await streams(peer, until=2)
        assert (len(both), sum(len(stream.messages) for stream in both)) == (2, 2)


@http_behaviour("http.question-place", "2025-11-25 basic/transports#sending-messages-to-the-server", SESSIONS)
async def test_a_question_of_a_call_comes_on_the_response_of_that_call(wire: Wire) -> None:
    async with wire.open("asking", capabilities={"elicitation": {}, "sampling": {}, "roots": {}}) as peer:
        asked = request(peer, "tools/call", {"name": "sum_up", "arguments": {"text": "long"}})
        reply, _ = web(peer).begin(
            "POST", web(peer).url, web(peer).headers(asked), peer, data=json.dumps(asked).encode()
        )
        question = await peer.hear()
        assert (question["method"], reply.messages) == ("sampling/createMessage", [question])


# --- streams that are cut --------------------------------------------------------------------------------------------


async def cut(peer: Peer, *, before: int, after: int) -> Reply:
    """Start a call, take what it reports first, hang up, and let it report the rest."""
    steps = {"name": "steps", "arguments": {"before": before, "after": after}}
    message = request(peer, "tools/call", steps, meta={"progressToken": "p"})
    data = json.dumps(message).encode()
    reply, task = web(peer).begin("POST", web(peer).url, web(peer).headers(message), peer, data=data)
    await until(peer, reply, before)
    task.cancel()
    await asyncio.wait([task])
    await peer.call("go", {"name": "steps"})
    return reply


@http_behaviour("http.cut-goes-on", "2025-11-25 basic/transports#resumability-and-redelivery", SESSIONS)
async def test_a_response_that_is_cut_is_taken_up_where_it_ended(wire: Wire) -> None:
    async with wire.open("streaming") as peer:
        first = await cut(peer, before=2, after=2)
        last = [event.id for event in first.events][-1]
        assert last is not None
        second = await web(peer).listen(last=last)
        assert (await peer.answer("r"))["result"]["content"][0]["text"] == "done"
        progress = [message["params"]["progress"] for message in second.messages if "method" in message]
        assert progress == [3, 4]


@http_behaviour("http.cut-own-stream", "2025-11-25 basic/transports#resumability-and-redelivery", SESSIONS)
async def test_a_resumed_stream_has_no_messages_of_other_streams(wire: Wire) -> None:
    async with wire.open("streaming") as peer:
        first = await cut(peer, before=1, after=1)
        await peer.call("grow", {"name": "fresh"})
        second = await web(peer).listen(last=str([event.id for event in first.events][-1]))
        await peer.answer("r")
        assert LISTS not in [message.get("method") for message in second.messages]


@http_behaviour("http.cut-listening", "2025-11-25 basic/transports#resumability-and-redelivery", SESSIONS)
async def test_the_stream_of_a_session_is_taken_up_where_it_was_cut(wire: Wire) -> None:
    async with wire.open("streaming", listening=False) as peer:
        first, task = web(peer).begin("GET", web(peer).url, {**web(peer).headers(), "Accept": "text/event-stream"})
        await web(peer).head(first, task)
        await peer.call("grow", {"name": "one"})
        await first.spoken.wait()
        task.cancel()
        await asyncio.wait([task])
        await peer.call("grow", {"name": "two"})
        second = await web(peer).listen(last=str(first.events[-1].id))
        await peer.notice(LISTS)
        await peer.settle()
        assert ([each["method"] for each in first.messages], [each["method"] for each in second.messages]) == (
            [LISTS],
            [LISTS],
        )


@http_behaviour("http.event-ids", "2025-11-25 basic/transports#resumability-and-redelivery", SESSIONS)
async def test_no_event_id_is_used_twice_in_a_session(wire: Wire) -> None:
    async with wire.open("streaming") as peer:
        await peer.call("go", {"name": "steps"})
        await peer.call("steps", {"before": 2, "after": 2}, meta={"progressToken": 1})
        await peer.call("steps", {"before": 2, "after": 2}, meta={"progressToken": 2})
        await peer.call("grow", {"name": "fresh"})
        await streams(peer, until=1)
        ids = [event.id for reply in web(peer).replies for event in reply.events]
        assert (None in ids, len(ids) == len(set(ids)), len(ids) >= 11) == (False, True, True)


@http_behaviour("http.event-ids-unknown", "2025-11-25 basic/transports#resumability-and-redelivery", SESSIONS)
@pytest.mark.parametrize("last", ["nonsense", "999-1", "1-999", "-1"])
async def test_an_unknown_stream_cannot_be_resumed(wire: Wire, last: str) -> None:
    async with wire.open("catalog") as peer:
        assert (await web(peer).listen(last=last)).status in (400, 404)


@http_behaviour("http.primed", "2025-11-25 basic/transports#sending-messages-to-the-server", ALL[3:4])
async def test_a_stream_begins_with_an_id_to_come_back_with(wire: Wire) -> None:
    async with wire.open("streaming") as peer:
        await peer.call("go", {"name": "steps"})
        await peer.call("steps", {"before": 1, "after": 0}, meta={"progressToken": 1})
        streamed = [reply for reply in web(peer).replies if reply.kind == "text/event-stream"]
        assert [(reply.events[0].data, bool(reply.events[0].id)) for reply in streamed] == [(b"", True)] * 2


@http_behaviour("http.not-primed", "2025-06-18 basic/transports#sending-messages-to-the-server", ALL[1:3])
async def test_no_event_is_empty_where_clients_do_not_expect_it(wire: Wire) -> None:
    async with wire.open("streaming") as peer:
        await peer.call("go", {"name": "steps"})
        await peer.call("steps", {"before": 1, "after": 0}, meta={"progressToken": 1})
        assert [event for reply in web(peer).replies for event in reply.events if not event.data] == []


@http_behaviour("http.polling", "2025-11-25 basic/transports#sending-messages-to-the-server", ALL[3:4])
async def test_a_response_ended_early_has_a_retry_time_and_can_be_resumed(wire: Wire) -> None:
    async with wire.open("streaming") as peer:
        reply = await post(peer, request(peer, "tools/call", {"name": "leave"}))
        assert (reply.finished, reply.messages, reply.events[-1].retry is not None) == (True, [], True)
        await peer.call("go", {"name": "leave"})
        await web(peer).listen(last=str(reply.events[-1].id))
        assert (await peer.answer("r"))["result"]["content"][0]["text"] == "left: True"


@http_behaviour("http.hangup", "2025-11-25 basic/transports#sending-messages-to-the-server", SESSIONS)
async def test_a_client_that_hangs_up_has_not_cancelled(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        message = request(peer, "tools/call", {"name": "hold", "arguments": {"name": "a"}})
        task = await web(peer).hand_over(web(peer).url, json.dumps(message).encode(), web(peer).headers(message), peer)
        await peer.call("happened", {"event": "a started"})
        task.cancel()
        await asyncio.wait([task])
        await peer.call("release", {"name": "a"})
        history = (await peer.call("happened", {"event": "a finished"}))["content"][0]["text"]
        assert "a cancelled" not in history


@http_behaviour("http.hangup-cancels", "2026-07-28 basic/transports/streamable-http#cancellation", STATELESS)
@pytest.mark.parametrize("tool", ["hold", "stubborn"])
async def test_a_client_that_hangs_up_has_cancelled(wire: Wire, tool: str) -> None:
    async with wire.open("slow") as peer:
        message = request(peer, "tools/call", {"name": tool, "arguments": {"name": "a"}})
        task = await web(peer).hand_over(web(peer).url, json.dumps(message).encode(), web(peer).headers(message), peer)
        await peer.call("happened", {"event": "a started"})
        task.cancel()
        assert "a cancelled" in (await peer.call("happened", {"event": "a cancelled"}))["content"][0]["text"]


# --- where there are no sessions -------------------------------------------------------------------------------------


@http_behaviour(
    "http.stateless-verbs", "2026-07-28 basic/transports/streamable-http#earlier-streamable-http-revisions", STATELESS
)
@pytest.mark.parametrize("verb", ["GET", "DELETE", "PUT", "PATCH"])
async def test_only_post_is_used(wire: Wire, verb: str) -> None:
    async with wire.open("catalog") as peer:
        assert (await web(peer).exchange(verb, web(peer).headers())).status == 405


@http_behaviour(
    "http.stateless-session", "2026-07-28 basic/transports/streamable-http#earlier-streamable-http-revisions", STATELESS
)
async def test_a_session_id_is_ignored_and_none_is_given(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(peer, request(peer), Mcp_Session_Id="from-elsewhere", Last_Event_ID="1-1")
        assert (reply.status, "Mcp-Session-Id" in reply.headers) == (200, False)


@http_behaviour("http.stateless-events", "2026-07-28 basic/transports/streamable-http#receiving-messages", STATELESS)
async def test_events_have_no_ids_and_ask_nothing(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        counting = request(peer, "tools/call", {"name": "count", "arguments": {"to": 2}}, meta={"progressToken": "p"})
        reply = await post(peer, counting)
        assert [(event.id, event.retry, bool(event.data)) for event in reply.events] == [(None, None, True)] * 3


@http_behaviour("http.listen-alone", "2026-07-28 basic/transports/streamable-http#receiving-messages", STATELESS)
async def test_a_listener_gets_no_notifications_of_other_requests(wire: Wire) -> None:
    async with wire.open("streaming") as peer:
        listen = request(peer, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="l")
        data = json.dumps(listen).encode()
        reply, _ = web(peer).begin("POST", web(peer).url, web(peer).headers(listen), peer, data=data)
        await peer.hear()
        await peer.call("go", {"name": "steps"})
        await peer.call("steps", {"before": 1, "after": 1}, meta={"progressToken": 1})
        await peer.call("grow", {"name": "fresh"})
        await until(peer, reply, 2)
        assert [each["method"] for each in reply.messages] == ["notifications/subscriptions/acknowledged", LISTS]


@http_behaviour("http.unknown-method", "2026-07-28 basic/transports/streamable-http#protocol-version-header", STATELESS)
async def test_an_unknown_method_is_not_found(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(peer, request(peer, "no/such"))
        assert (code_of(reply), json.loads(reply.body)["id"]) == ((404, -32601), "r")


@http_behaviour(
    "http.unknown-version", "2026-07-28 basic/transports/streamable-http#protocol-version-header", STATELESS
)
async def test_a_version_that_is_not_served_is_a_bad_request_with_those_that_are(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(peer, request(peer, meta={f"{META}protocolVersion": "2099-01-01"}))
        assert (code_of(reply), ALL[-1] in json.loads(reply.body)["error"]["data"]["supported"]) == (
            (400, -32022),
            True,
        )


@http_behaviour(
    "http.missing-capability", "2026-07-28 basic/transports/streamable-http#backward-compatibility", STATELESS
)
async def test_a_capability_that_is_missing_is_a_bad_request(wire: Wire) -> None:
    async with wire.open("asking") as peer:
        assert code_of(await post(peer, request(peer, "tools/call", {"name": "order"}))) == (400, -32021)
