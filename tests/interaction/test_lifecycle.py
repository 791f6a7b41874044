"""Opening a conversation: the handshake, and what stands in its place where there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.interaction.rows import (
    ALL,
    ANYWHERE,
    ELICITING,
    EVERYWHERE,
    HANDSHAKE,
    SINCE_2025_03,
    URL_COMPLETING,
    behaviour,
)
from tests.interaction.wire import INFO, META, Wire
from trunkline import Server

NEWEST_HANDSHAKE = HANDSHAKE[-1]

# --- the handshake ---------------------------------------------------------------------------------------------------


@behaviour("lifecycle.version-echoed", "2025-11-25 basic/lifecycle#version-negotiation", HANDSHAKE, ANYWHERE)
async def test_the_asked_version_is_answered(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.met())["protocolVersion"] == wire.revision


@behaviour("lifecycle.version-unknown", "2025-11-25 basic/lifecycle#version-negotiation", HANDSHAKE[-1:], ANYWHERE)
@pytest.mark.parametrize("asked", ["1999-01-01", "2099-01-01", "", "draft", "2026-07-28"])
async def test_an_unknown_version_is_answered_with_the_newest_that_has_a_handshake(wire: Wire, asked: str) -> None:
    async with wire.open("catalog", greet=False) as peer:
        result = await peer.result("initialize", {**peer.hello(), "protocolVersion": asked})
        assert result["protocolVersion"] == NEWEST_HANDSHAKE


@behaviour("lifecycle.version-served", "2025-11-25 basic/lifecycle#version-negotiation", HANDSHAKE, ANYWHERE)
async def test_a_server_of_one_revision_answers_with_that_one(wire: Wire) -> None:
    async with wire.open(Server("old", version="1", revisions=["2025-03-26"]), greet=False) as peer:
        assert (await peer.result("initialize", peer.hello()))["protocolVersion"] == "2025-03-26"


@behaviour("lifecycle.server-info", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE)
async def test_initialize_returns_the_server_info(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        met = await peer.met()
        assert (met["serverInfo"]["name"], met["serverInfo"]["version"]) == ("catalog", "1.2.3")


@behaviour("lifecycle.server-info-fields", "2025-11-25 schema#implementation", HANDSHAKE)
async def test_the_server_info_has_only_members_of_the_revision(wire: Wire) -> None:
    plain = {"name", "version"}
    members = dict(zip(HANDSHAKE, (plain, plain, plain | {"title"}, plain | {"title", "icons"}), strict=True))
    async with wire.open("catalog") as peer:
        assert set((await peer.met())["serverInfo"]) == members[wire.revision]


@behaviour("lifecycle.instructions", "2025-11-25 schema#initializeresult")
async def test_the_instructions_come_with_the_opening(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.met())["instructions"] == "Ask for one city at a time."


@behaviour("lifecycle.ping-before-initialize", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE)
async def test_a_ping_is_answered_before_the_handshake(wire: Wire) -> None:
    async with wire.open("catalog", greet=False) as peer:
        assert await peer.result("ping") == {}


@behaviour("lifecycle.request-before-initialize", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE, ANYWHERE)
async def test_other_requests_are_rejected_before_the_handshake(wire: Wire) -> None:
    async with wire.open("catalog", greet=False) as peer:
        error = await peer.error("tools/list")
        assert (error["code"], "initialize" in error["message"]) == (-32602, True)
        await peer.shake_hands()
        assert "tools" in await peer.result("tools/list")


@behaviour("lifecycle.pipelined", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE, EVERYWHERE)
async def test_a_request_right_behind_initialize_is_served(wire: Wire) -> None:
    async with wire.open("catalog", greet=False) as peer:
        first = await peer.send("initialize", peer.hello())
        await peer.tell("notifications/initialized")
        second = await peer.send("tools/list")
        answers = await peer.answers(first, second)
        assert ("result" in answers[first], "result" in answers[second]) == (True, True)


@behaviour("lifecycle.second-initialize", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE, ANYWHERE)
async def test_a_second_initialize_is_rejected(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.error("initialize", peer.hello()))["code"] == -32600
        assert "tools" in await peer.result("tools/list")


@behaviour("lifecycle.initialize-params", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE, ANYWHERE)
@pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
async def test_an_incomplete_initialize_is_rejected_and_may_be_repeated(wire: Wire, missing: str) -> None:
    async with wire.open("catalog", greet=False) as peer:
        hello = {name: value for name, value in peer.hello().items() if name != missing}
        assert (await peer.error("initialize", hello))["code"] == -32602
        assert "result" in await peer.request("initialize", peer.hello())


@behaviour("lifecycle.initialize-unknown-members", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE)
async def test_unknown_members_of_initialize_do_no_harm(wire: Wire) -> None:
    async with wire.open("catalog", greet=False) as peer:
        hello = {**peer.hello(), "x-new": [1], "clientInfo": {**INFO, "colour": "red"}}
        assert (await peer.result("initialize", hello))["protocolVersion"] == wire.revision


@behaviour("lifecycle.quiet-before-initialized", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE, EVERYWHERE)
async def test_no_notice_is_sent_before_the_client_is_ready(wire: Wire) -> None:
    async with wire.open("changing", greet=False) as peer:
        await peer.result("initialize", peer.hello())
        await peer.call("add_tools", {"names": ["fresh"]})
        assert await peer.settle() == []


@behaviour("lifecycle.questions-before-initialized", "2025-11-25 basic/lifecycle#initialization", ELICITING, ANYWHERE)
async def test_no_question_is_asked_before_the_client_is_ready(wire: Wire) -> None:
    async with wire.open("asking", capabilities={"elicitation": {}}, greet=False) as peer:
        await peer.result("initialize", peer.hello())
        await peer.send("tools/call", {"name": "order"})
        assert [message for message in await peer.settle() if "method" in message] == []


@behaviour(
    "lifecycle.discover-in-session",
    "2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions",
    HANDSHAKE,
)
async def test_a_session_has_no_discover(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.error("server/discover"))["code"] == -32601


@behaviour("lifecycle.both-eras", "2026-07-28 basic/versioning#compatibility-matrix", HANDSHAKE, EVERYWHERE)
async def test_a_request_with_an_envelope_is_served_on_the_same_connection_as_a_session(wire: Wire) -> None:
    envelope = {f"{META}protocolVersion": ALL[-1], f"{META}clientCapabilities": {}}
    async with wire.open("catalog") as peer:
        modern = await peer.result("tools/list", meta=envelope)
        legacy = await peer.result("tools/list")
        assert (modern["resultType"], "resultType" in legacy) == ("complete", False)


@behaviour("lifecycle.ping", "2025-11-25 basic/utilities/ping#behavior-requirements", HANDSHAKE)
async def test_a_ping_is_answered_by_an_empty_result(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert await peer.result("ping") == {}


# --- capabilities ----------------------------------------------------------------------------------------------------


@behaviour("lifecycle.capabilities-declared", "2025-11-25 basic/lifecycle#capability-negotiation")
async def test_offered_kinds_are_declared(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        declared = (await peer.met())["capabilities"]
        assert (declared["tools"], declared["prompts"]) == ({"listChanged": True}, {"listChanged": True})
        assert declared["resources"] == {"subscribe": True, "listChanged": True}
        assert declared["logging"] == {}


@behaviour("lifecycle.capabilities-honest", "2025-11-25 basic/lifecycle#capability-negotiation")
async def test_kinds_that_are_not_offered_are_not_declared(wire: Wire) -> None:
    async with wire.open("bare") as peer:
        declared = (await peer.met())["capabilities"]
        assert {"tools", "prompts", "resources", "completions", "experimental"} & set(declared) == set()


@behaviour("lifecycle.completions-declared", "2025-03-26 server/utilities/completion#capabilities", SINCE_2025_03)
async def test_completions_are_declared(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.met())["capabilities"]["completions"] == {}


@behaviour("lifecycle.completions-unknown", "2024-11-05 schema#servercapabilities", ALL[:1])
async def test_completions_are_not_declared_where_no_such_capability_exists(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert "completions" not in (await peer.met())["capabilities"]


@behaviour("lifecycle.undeclared", "2025-11-25 basic/lifecycle#operation")
@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list"])
async def test_a_method_of_a_capability_that_was_not_declared_is_not_found(wire: Wire, method: str) -> None:
    async with wire.open("bare") as peer:
        assert (await peer.error(method))["code"] == -32601


@behaviour("lifecycle.experimental", "2025-11-25 basic/lifecycle#capability-negotiation")
async def test_experimental_capabilities_are_readable_on_both_sides(wire: Wire) -> None:
    declared = {"experimental": {"com.example/theirs": {"on": True}}}
    async with wire.open("catalog", capabilities=declared) as peer:
        assert (await peer.met())["capabilities"]["experimental"] == {"com.example/feature": {"level": 2}}
        seen = json.loads((await peer.call("who"))["content"][0]["text"])
        assert seen["capabilities"] == declared


@behaviour("lifecycle.unknown-capabilities", "2025-11-25 schema#clientcapabilities")
async def test_unknown_capabilities_are_kept_and_unlock_nothing(wire: Wire) -> None:
    declared: dict[str, Any] = {"tools": {}, "sampling": {"maxTokens": 8192}, "teleport": {"far": 1}}
    async with wire.open("catalog", capabilities=declared) as peer:
        seen = json.loads((await peer.call("who"))["content"][0]["text"])
        assert (seen["capabilities"], seen["name"], seen["revision"]) == (declared, "raw", wire.revision)


@behaviour("lifecycle.own-methods", "2025-11-25 basic/lifecycle#capability-negotiation")
async def test_a_custom_method_is_served(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.result("acme/double", {"n": 21}))["doubled"] == 42


@behaviour("lifecycle.own-meta", "2025-11-25 basic/index#meta")
async def test_keys_of_others_in_meta_reach_the_handler(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.call("who", meta={"com.example/trace": {"id": 7}, "traceparent": "00-1-2-01"})
        meta = json.loads(result["content"][0]["text"])["meta"]
        assert (meta["com.example/trace"], meta["traceparent"]) == ({"id": 7}, "00-1-2-01")


# --- tasks, which are not offered ------------------------------------------------------------------------------------


@behaviour("tasks.undeclared", "2025-11-25 basic/utilities/tasks#capabilities", URL_COMPLETING)
@pytest.mark.parametrize("method", ["tasks/get", "tasks/list", "tasks/result", "tasks/cancel"])
async def test_a_server_without_tasks_does_not_have_their_methods(wire: Wire, method: str) -> None:
    async with wire.open("catalog") as peer:
        assert "tasks" not in (await peer.met())["capabilities"]
        assert (await peer.error(method, {"taskId": "t1"}))["code"] == -32601


@behaviour("tasks.ignored", "2025-11-25 basic/utilities/tasks#capabilities", URL_COMPLETING)
async def test_a_call_that_wishes_to_be_a_task_is_an_ordinary_call(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        params = {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {"ttl": 60000}}
        assert (await peer.result("tools/call", params))["content"][0]["text"] == "3"
