"""Requests that stand for themselves: the envelope, versions in it, and what every result says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interaction.rows import ALL, ANYWHERE, EVERYWHERE, HANDSHAKE, STATELESS, behaviour
from tests.interaction.wire import META, Wire
from trunkline import Server

VERSION = f"{META}protocolVersion"
CAPABILITIES = f"{META}clientCapabilities"
GONE = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "roots/list"]
READS: list[tuple[str, dict[str, Any]]] = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("tools/call", {"name": "refuse"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "note://one"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},
    ),
    ("acme/double", {"n": 1}),
]


@behaviour("versioning.discover", "2026-07-28 server/discover#response", STATELESS, EVERYWHERE)
async def test_discover_returns_versions_and_capabilities(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        result = await peer.result("server/discover")
        assert wire.revision in result["supportedVersions"]
        assert {"tools", "prompts", "resources", "completions", "logging"} <= set(result["capabilities"])
        assert result["instructions"] == "Ask for one city at a time."


@behaviour("versioning.unsupported", "2026-07-28 basic/versioning#protocol-version-negotiation", STATELESS, ANYWHERE)
@pytest.mark.parametrize("version", ["2099-01-01", "draft", "2025-11-25", ""])
async def test_a_version_that_is_not_served_this_way_is_rejected_with_those_that_are(wire: Wire, version: str) -> None:
    async with wire.open("catalog") as peer:
        error = await peer.error("tools/list", meta={VERSION: version})
        assert error["code"] == -32022
        assert (wire.revision in error["data"]["supported"], error["data"]["requested"]) == (True, version)


@behaviour(
    "versioning.unsupported-unknown-method",
    "2026-07-28 basic/versioning#protocol-version-negotiation",
    STATELESS,
    ANYWHERE,
)
async def test_an_unsupported_version_is_reported_before_an_unknown_method(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.error("no/such", meta={VERSION: "2099-01-01"}))["code"] == -32022


@behaviour("versioning.envelope-required", "2026-07-28 basic/index#meta", STATELESS, ANYWHERE)
@pytest.mark.parametrize("missing", [VERSION, CAPABILITIES])
async def test_an_incomplete_envelope_is_rejected(wire: Wire, missing: str) -> None:
    async with wire.open("catalog") as peer:
        meta = {name: value for name, value in peer.envelope().items() if name != missing}
        await peer.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
        error = (await peer.answer(1))["error"]
        assert (error["code"], missing in error["message"]) == (-32602, True)


@behaviour("versioning.envelope-types", "2026-07-28 basic/index#meta", STATELESS)
@pytest.mark.parametrize("member", [VERSION, CAPABILITIES])
async def test_an_envelope_of_the_wrong_type_is_rejected(wire: Wire, member: str) -> None:
    async with wire.open("catalog") as peer:
        assert (await peer.error("tools/list", meta={member: 7}))["code"] == -32602


@behaviour("versioning.client-info-optional", "2026-07-28 basic/index#meta", STATELESS)
async def test_a_caller_need_not_say_its_name(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        meta = {VERSION: wire.revision, CAPABILITIES: {}}
        await peer.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
        assert "result" in await peer.answer(1)


@behaviour("versioning.methods-gone", "2026-07-28 changelog#major-changes", STATELESS, ANYWHERE)
@pytest.mark.parametrize("method", GONE)
async def test_methods_that_went_are_not_found(wire: Wire, method: str) -> None:
    async with wire.open("catalog") as peer:
        error = await peer.error(method, {"uri": "note://one", "level": "info", **peer.hello()})
        assert (error["code"], error["data"]["method"]) == (-32601, method)


@behaviour("versioning.methods-not-yet", "2026-07-28 changelog#major-changes", HANDSHAKE, ANYWHERE)
@pytest.mark.parametrize("method", ["subscriptions/listen", "server/discover"])
async def test_methods_that_had_not_come_are_not_found(wire: Wire, method: str) -> None:
    async with wire.open("catalog") as peer:
        error = await peer.error(method, {"notifications": {}})
        assert (error["code"], error["data"]["method"]) == (-32601, method)


@behaviour("versioning.no-memory", "2026-07-28 basic/index#statelessness", STATELESS, ANYWHERE)
async def test_capabilities_of_one_request_do_not_apply_to_the_next(wire: Wire) -> None:
    async with wire.open("asking", capabilities={"elicitation": {}}) as peer:
        assert (await peer.call("order"))["resultType"] == "input_required"
        peer.capabilities = {}
        assert (await peer.error("tools/call", {"name": "order", "arguments": {}}))["code"] == -32021


@behaviour("versioning.result-type", "2026-07-28 basic/index#resulttype", STATELESS)
async def test_every_result_has_its_type(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        types = {method: (await peer.result(method, params))["resultType"] for method, params in READS}
        assert types == dict.fromkeys(types, "complete")


@behaviour("versioning.result-type-absent", "2026-07-28 basic/index#resulttype", HANDSHAKE)
async def test_results_of_older_revisions_have_no_type(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        assert [method for method, params in READS[1:] if "resultType" in await peer.result(method, params)] == []


@behaviour("versioning.server-info", "2026-07-28 basic/index#meta", STATELESS)
async def test_every_result_has_the_server_info(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        infos = [(await peer.result(method, params))["_meta"][f"{META}serverInfo"] for method, params in READS]
        assert [(info["name"], info["version"]) for info in infos] == [("catalog", "1.2.3")] * len(READS)


@behaviour(
    "versioning.modern-only",
    "2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions",
    STATELESS,
    ANYWHERE,
)
async def test_a_server_without_a_handshake_names_its_versions_to_an_older_client(wire: Wire) -> None:
    async with wire.open(Server("new", version="1", revisions=[ALL[-1]]), greet=False) as peer:
        await peer.say({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": peer.hello()})
        assert ALL[-1] in (await peer.answer(1))["error"]["message"]


@behaviour("versioning.handshake-only", "2026-07-28 basic/versioning#protocol-version-negotiation", STATELESS, ANYWHERE)
async def test_a_server_with_a_handshake_alone_names_its_versions_to_a_newer_client(wire: Wire) -> None:
    async with wire.open(Server("old", version="1", revisions=["2025-06-18"])) as peer:
        error = await peer.error("server/discover")
        assert (error["code"], error["data"]["supported"]) == (-32022, ["2025-06-18"])


@behaviour("versioning.interleaved", "2026-07-28 basic/index#statelessness", STATELESS, ANYWHERE)
async def test_callers_with_different_capabilities_share_one_connection(wire: Wire) -> None:
    async with wire.open("asking") as peer:
        with_forms = await peer.send("tools/call", {"name": "degrade"}, meta={CAPABILITIES: {"elicitation": {}}})
        without = await peer.send("tools/call", {"name": "degrade"})
        answers = await peer.answers(with_forms, without)
        texts = [answers[id]["result"]["content"][0]["text"] for id in (with_forms, without)]
        assert texts == ["could ask", "did without"]
