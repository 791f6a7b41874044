"""Messages: ids, errors, notifications, batches, and everything that is no message at all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.interaction.rows import (
    ALL,
    ANYWHERE,
    BATCHING,
    EVERYWHERE,
    HANDSHAKE,
    ONE_LINK,
    STATELESS,
    WITHOUT_BATCHES,
    behaviour,
)
from tests.interaction.wire import Peer, Wire

NOT_JSON = {
    "cut off": b'{"jsonrpc": "2.0", "id": 1, "method": "ping"',
    "two values": b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "no UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff\xfe"}}',
    "UTF-16": '{"jsonrpc":"2.0","id":1}'.encode("utf-16-le").replace(b"\n", b" "),
    "control character": b'{"jsonrpc":"2.0","id":1,"method":"pi\x01ng"}',
    "surrogate bytes": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xed\xa0\x80"}}',
    "words": b"hello",
}
NO_REQUEST = {
    "no version": '{"id": 1, "method": "ping"}',
    "other version": '{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
    "null id": '{"jsonrpc": "2.0", "id": null, "method": "ping"}',
    "fraction as id": '{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}',
    "flag as id": '{"jsonrpc": "2.0", "id": true, "method": "ping"}',
    "object as id": '{"jsonrpc": "2.0", "id": {}, "method": "ping"}',
    "number as method": '{"jsonrpc": "2.0", "id": 1, "method": 7}',
    "no method": '{"jsonrpc": "2.0", "id": 1}',
    "a text": '"ping"',
    "a number": "7",
    "method and result": '{"jsonrpc": "2.0", "id": 1, "method": "ping", "result": {}}',
    "id twice": '{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}',
    "method twice": '{"jsonrpc": "2.0", "id": 1, "method": "ping", "m\\u0065thod": "tools/list"}',
}
ODD_VALUES = {
    "huge exponent": '{"text": 1e999}',
    "very long integer": '{"text": %s}' % ("9" * 5000),
    "lone surrogate": '{"text": "\\ud800"}',
    "null byte": '{"text": "\\u0000"}',
    "member twice": '{"text": "a", "text": "b"}',
}
STRAY = {
    "an unknown notification": '{"jsonrpc":"2.0","method":"notifications/no-such"}',
    "a notification with bad params": '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
    "a request's method without id": '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"crash"}}',
    "progress of nothing": '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}',
    "being ready once more": '{"jsonrpc":"2.0","method":"notifications/initialized"}',
}
STRAY_ANSWERS = {
    "an answer to nothing": '{"jsonrpc":"2.0","id":77,"result":{}}',
    "an error to nothing": '{"jsonrpc":"2.0","id":77,"error":{"code":-32603,"message":"no"}}',
    "an error without id": '{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}',
    "an answer with both": '{"jsonrpc":"2.0","id":77,"result":{},"error":{"code":1,"message":"no"}}',
}


async def said(peer: Peer, line: str | bytes) -> Any:
    """Send a line and return the next message."""
    await peer.say(line)
    return await peer.hear()


@behaviour("jsonrpc.parse-error", "2025-11-25 basic/index#messages", transports=ANYWHERE)
async def test_invalid_json_is_a_parse_error_and_the_connection_lives(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        answers = {name: await said(peer, line) for name, line in NOT_JSON.items()}
        codes = {name: (answer["error"]["code"], answer.get("id")) for name, answer in answers.items()}
        assert codes == dict.fromkeys(NOT_JSON, (-32700, None))
        assert "tools" in await peer.result("tools/list")


@behaviour("jsonrpc.invalid-request", "2025-11-25 basic/index#requests", transports=ANYWHERE)
async def test_json_that_is_not_a_message_is_an_invalid_request_and_the_connection_lives(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        codes = {name: (await said(peer, line))["error"]["code"] for name, line in NO_REQUEST.items()}
        assert codes == dict.fromkeys(NO_REQUEST, -32600)
        assert "tools" in await peer.result("tools/list")


@behaviour("jsonrpc.error-id", "2025-11-25 basic/index#error-responses", transports=ANYWHERE)
async def test_an_error_has_the_id_of_a_bad_request_where_it_can_be_read(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.say('{"jsonrpc": "2.0", "id": "here", "method": 7}')
        assert (await peer.hear())["id"] == "here"


@behaviour("jsonrpc.odd-values", "2025-11-25 basic/index#messages")
async def test_odd_values_are_answered_and_the_connection_lives(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        request = json.dumps(peer.request_of("tools/call", {"name": "echo", "arguments": "HERE"}, id="odd"))
        answers = [await said(peer, request.replace('"HERE"', arguments)) for arguments in ODD_VALUES.values()]
        assert [answer for answer in answers if "jsonrpc" not in answer or answer.get("id") not in ("odd", None)] == []
        assert "tools" in await peer.result("tools/list")


@behaviour("jsonrpc.stray", "2025-11-25 basic/index#notifications", transports=ANYWHERE)
async def test_notifications_are_never_answered(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        for line in STRAY.values():
            await peer.say(line)
        assert await peer.settle() == []


@behaviour("jsonrpc.stray-answers", "2025-11-25 basic/index#responses", HANDSHAKE, ANYWHERE)
async def test_stray_answers_are_never_answered(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        for line in STRAY_ANSWERS.values():
            await peer.say(line)
        assert await peer.settle() == []


@behaviour("jsonrpc.stray-answers-stateless", "2026-07-28 basic/index#responses", STATELESS)
async def test_answers_where_nothing_is_ever_asked_are_never_answered(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        for line in STRAY_ANSWERS.values():
            await peer.say(line)
        assert await peer.settle() == []


@behaviour("jsonrpc.id-echoed", "2025-11-25 basic/index#result-responses")
async def test_an_answer_has_the_id_of_its_request(wire: Wire) -> None:
    ids = [0, -1, 2**53 - 1, "", "abc", "1", "žluť"]
    async with wire.open("catalog") as peer:
        answers = [await peer.request("tools/list", id=id) for id in ids]
        assert [(answer["jsonrpc"], answer["id"]) for answer in answers] == [("2.0", id) for id in ids]


@behaviour("jsonrpc.id-types", "2025-11-25 basic/index#requests", transports=ANYWHERE)
async def test_a_number_and_a_text_that_look_alike_are_different_ids(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.send("tools/call", {"name": "hold", "arguments": {"name": "n"}}, id=51)
        await peer.send("tools/call", {"name": "hold", "arguments": {"name": "t"}}, id="51")
        await peer.call("release", {"name": "t"})
        assert (await peer.answer("51"))["result"]["content"][0]["text"] == "t"
        await peer.call("release", {"name": "n"})
        assert (await peer.answer(51))["result"]["content"][0]["text"] == "n"


@behaviour("jsonrpc.id-in-flight", "2026-07-28 basic/index#requests", transports=ONE_LINK)
async def test_an_id_in_flight_is_rejected_and_the_first_request_is_still_answered(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.send("tools/call", {"name": "hold", "arguments": {"name": "a"}}, id=51)
        assert (await peer.request("tools/list", id=51))["error"]["code"] == -32600
        await peer.call("release", {"name": "a"})
        assert (await peer.answer(51))["result"]["content"][0]["text"] == "a"


@behaviour("jsonrpc.id-again", "2026-07-28 basic/index#requests")
async def test_an_id_may_come_again_once_it_was_answered(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.request("tools/list", id="same")
        assert "result" in await peer.request("tools/list", id="same")


@behaviour("jsonrpc.method-not-found", "2025-11-25 basic/index#error-responses", transports=ANYWHERE)
@pytest.mark.parametrize("method", ["no/such", "Tools/List", "sampling/createMessage", "shutdown", ""])
async def test_an_unknown_method_is_named_in_the_error(wire: Wire, method: str) -> None:
    async with wire.open("catalog") as peer:
        error = await peer.error(method)
        assert (error["code"], error["data"]["method"]) == (-32601, method)


@behaviour("jsonrpc.params-object", "2025-11-25 basic/index#requests")
async def test_params_that_are_not_an_object_are_rejected(wire: Wire) -> None:
    call = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": %s}'
    async with wire.open("catalog") as peer:
        answers = [await said(peer, call % params) for params in ("[]", '[{"name": "add"}]', "7", '"x"', "null")]
        assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, -32602)] * 5


@behaviour("jsonrpc.params-members", "2025-11-25 server/tools#error-handling")
async def test_params_with_a_missing_or_ill_typed_member_are_rejected(wire: Wire) -> None:
    wrong: list[dict[str, Any]] = [{}, {"name": 7}, {"name": None}, {"name": "add", "arguments": [1]}]
    async with wire.open("catalog") as peer:
        assert [(await peer.error("tools/call", params))["code"] for params in wrong] == [-32602] * 4


@behaviour("jsonrpc.unknown-members", "2025-11-25 basic/index#messages")
async def test_unknown_members_are_ignored(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        request = peer.request_of("tools/list", {"colour": "red"}, id=1)
        await peer.say({**request, "x-extra": {"a": 1}})
        assert "tools" in (await peer.answer(1))["result"]


@behaviour("jsonrpc.too-deep", "2025-11-25 basic/index#messages", transports=ANYWHERE)
async def test_a_message_nested_too_deep_is_a_parse_error_and_the_connection_lives(wire: Wire) -> None:
    async with wire.open("limited") as peer:
        await peer.say('{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + "[" * 30 + "]" * 30 + "}}")
        assert (await peer.hear())["error"]["code"] == -32700
        assert "tools" in await peer.result("tools/list")


@behaviour("jsonrpc.in-flight-limit", "2025-11-25 server/tools#security-considerations", transports=ONE_LINK)
async def test_too_many_requests_at_once_are_rejected_and_the_connection_lives(wire: Wire) -> None:
    async with wire.open("limited") as peer:
        await peer.send("tools/call", {"name": "hold"}, id="a")
        await peer.send("tools/call", {"name": "hold"}, id="b")
        assert "limit is 2" in (await peer.request("tools/list", id="c"))["error"]["message"]
        await peer.tell("notifications/cancelled", {"requestId": "a"})
        assert "result" in await peer.request("tools/list", id="d")
        await peer.tell("notifications/cancelled", {"requestId": "b"})


@behaviour("jsonrpc.concurrent", "2025-11-25 basic/index#messages", transports=EVERYWHERE)
async def test_requests_run_at_once_and_are_answered_in_any_order(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        first = await peer.send("tools/call", {"name": "hold", "arguments": {"name": "a"}})
        second = await peer.send("tools/call", {"name": "hold", "arguments": {"name": "b"}})
        await peer.call("release", {"name": "b"})
        await peer.answer(second)
        await peer.call("release", {"name": "a"})
        assert (await peer.answer(first))["result"]["content"][0]["text"] == "a"


@behaviour("jsonrpc.flood", "2025-11-25 basic/index#messages", ALL[-2:], EVERYWHERE)
async def test_many_requests_at_once_are_all_answered(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        calls = [
            peer.request_of("tools/call", {"name": "add", "arguments": {"a": 1, "b": id}}, id=id) for id in range(150)
        ]
        await asyncio.gather(*map(peer.say, calls))
        answers = await peer.answers(*range(150))
        assert {id: answer["result"]["content"][0]["text"] for id, answer in answers.items()} == {
            id: str(id + 1) for id in range(150)
        }


@behaviour("jsonrpc.large", "2025-11-25 basic/transports#stdio", revisions=ALL[-2:], transports=("memory", "stdio"))
async def test_a_message_of_some_megabytes_arrives_whole(wire: Wire) -> None:
    text = "ř" * 3_000_000
    async with wire.open("catalog") as peer:
        assert (await peer.call("echo", {"text": text}))["content"][0]["text"] == text


@behaviour(
    "jsonrpc.large-body", "2025-11-25 basic/transports#sending-messages-to-the-server", transports=("http", "sse")
)
async def test_a_message_of_a_megabyte_arrives_whole_over_http(wire: Wire) -> None:
    text = "x" * 1_000_000
    async with wire.open("catalog") as peer:
        assert (await peer.call("echo", {"text": text}))["content"][0]["text"] == text


@behaviour("jsonrpc.unicode", "2025-11-25 basic/transports#transports", transports=EVERYWHERE)
async def test_every_character_arrives_as_it_was_sent(wire: Wire) -> None:
    text = 'žluťoučký 🐎 \u2028\u0000\u007f "quoted" \\ /'
    async with wire.open("catalog") as peer:
        assert (await peer.call("echo", {"text": text}))["content"][0]["text"] == text


# --- batches ---------------------------------------------------------------------------------------------------------


@behaviour("jsonrpc.batch", "2025-03-26 basic/index#batching", BATCHING, EVERYWHERE)
async def test_a_batch_is_answered_by_one_array(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        batch: list[Any] = [peer.request_of(method, None, id=method) for method in ("ping", "tools/list", "no/such")]
        await peer.say([*batch, {"jsonrpc": "2.0", "method": "notifications/no-such"}])
        answers = {answer["id"]: answer for answer in await peer.hear()}
        assert (set(answers), answers["ping"]["result"]) == ({"ping", "tools/list", "no/such"}, {})
        assert answers["no/such"]["error"]["code"] == -32601


@behaviour("jsonrpc.batch-bad-item", "2025-03-26 basic/index#batching", BATCHING)
async def test_a_bad_message_in_a_batch_is_answered_among_the_others(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.say([1, peer.request_of("ping", None, id="ping")])
        codes = {answer.get("id"): answer.get("error", {}).get("code") for answer in await peer.hear()}
        assert codes == {None: -32600, "ping": None}


@behaviour("jsonrpc.batch-empty", "2025-03-26 basic/index#batching", BATCHING, ANYWHERE)
async def test_an_empty_batch_is_an_invalid_request(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.say("[]")
        assert (await peer.hear())["error"]["code"] == -32600


@behaviour("jsonrpc.batch-initialize", "2025-03-26 basic/lifecycle#initialization", BATCHING, ANYWHERE)
async def test_initialize_cannot_be_part_of_a_batch(wire: Wire) -> None:
    async with wire.open("catalog", greet=False) as peer:
        await peer.say([peer.request_of("initialize", peer.hello(), id=1)])
        assert (await peer.hear())["error"]["code"] == -32600


@behaviour("jsonrpc.batch-limit", "2025-03-26 basic/index#batching", BATCHING)
async def test_a_batch_over_the_limit_is_rejected_whole(wire: Wire) -> None:
    async with wire.open("limited") as peer:
        await peer.say([peer.request_of("ping", None, id=id) for id in range(4)])
        assert (await peer.hear())["error"]["code"] == -32600


@behaviour("jsonrpc.batch-mixed", "2025-03-26 basic/index#batching", BATCHING, ANYWHERE)
async def test_a_batch_of_requests_and_answers_is_rejected(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.say([peer.request_of("ping", None, id=1), {"jsonrpc": "2.0", "id": 7, "result": {}}])
        assert (await peer.hear())["error"]["code"] == -32600


@behaviour("jsonrpc.batch-notifications", "2025-03-26 basic/index#batching", BATCHING, ANYWHERE)
async def test_a_batch_of_notifications_is_not_answered(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.say([{"jsonrpc": "2.0", "method": "notifications/no-such"}] * 2)
        assert await peer.settle() == []


@behaviour("jsonrpc.batch-refused", "2025-06-18 changelog#major-changes", WITHOUT_BATCHES, ANYWHERE)
async def test_a_batch_is_rejected_where_the_revision_has_none(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        await peer.say([peer.request_of("tools/list", None, id=1)])
        assert (await peer.hear())["error"]["code"] == -32600
        assert "tools" in await peer.result("tools/list")
