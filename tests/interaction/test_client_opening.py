"""A client of ours meets a server: the probe, the handshake, and what it sends of itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.interaction.rows import ALL, ANYWHERE, HANDSHAKE, STATELESS, behaviour
from tests.interaction.script import SILENCE, Failure
from tests.interaction.wire import META, Wire
from trunkline import Client, Limits, MissingCapability
from trunkline.errors import LocalProtocolError, RevisionMismatch, TrunklineError
from trunkline.types import PromptReference

NEWEST = ALL[-1]
INFO = {"name": "scripted", "version": "1"}


def discovered(*versions: str) -> dict[str, Any]:
    return {"resultType": "complete", "supportedVersions": list(versions), "capabilities": {}, "ttlMs": 0}


def agreed(version: str) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "serverInfo": INFO}


# --- the handshake ---------------------------------------------------------------------------------------------------


@behaviour("client.initialize", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE, ANYWHERE)
async def test_a_client_sends_its_info_capabilities_and_version(wire: Wire) -> None:
    script = wire.script()
    async with script.client():
        params = script.received[0]["params"]
        assert (script.received[0]["method"], params["protocolVersion"]) == ("initialize", wire.revision)
        assert set(params["capabilities"]) == {"extensions"}
        assert params["clientInfo"]["name"] == "trunkline"
        assert params["clientInfo"]["version"]


@behaviour("client.initialized", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE)
async def test_a_client_sends_initialized_before_anything_else(wire: Wire) -> None:
    script = wire.script({"tools/list": {"tools": []}})
    async with script.client() as client:
        await client.list_tools()
        assert script.methods == ["initialize", "notifications/initialized", "tools/list"]


@behaviour("client.waits-for-initialize", "2025-11-25 basic/lifecycle#initialization", HANDSHAKE)
async def test_a_client_sends_nothing_before_its_handshake_is_answered(wire: Wire) -> None:
    script = wire.script({"initialize": SILENCE})
    entering = asyncio.ensure_future(script.client().__aenter__())
    request = await script.heard("initialize")
    assert script.methods == ["initialize"]
    script.answer(request, agreed(wire.revision))
    client = await entering
    await client.aclose()


@behaviour("client.initialize-uncancelled", "2025-11-25 basic/utilities/cancellation#behavior-requirements", HANDSHAKE)
async def test_a_client_does_not_cancel_its_handshake_on_the_wire(wire: Wire) -> None:
    script = wire.script({"initialize": SILENCE})
    entering = asyncio.ensure_future(script.client().__aenter__())
    await script.heard("initialize")
    entering.cancel()
    await asyncio.wait([entering])
    assert script.methods == ["initialize"]


@behaviour("client.version-lower", "2025-11-25 basic/lifecycle#version-negotiation", HANDSHAKE[-1:])
@pytest.mark.parametrize("answered", HANDSHAKE)
async def test_a_client_speaks_whichever_version_it_knows_and_was_answered(wire: Wire, answered: str) -> None:
    script = wire.script({"initialize": agreed(answered)})
    async with script.client(revision="auto") as client:
        assert client.revision == answered


@behaviour("client.version-unknown", "2025-11-25 basic/lifecycle#version-negotiation", HANDSHAKE[-1:])
@pytest.mark.parametrize("answered", ["2024-01-15", "2099-01-01", ""])
async def test_a_client_leaves_when_it_cannot_speak_the_answer_and_names_both_sides(wire: Wire, answered: str) -> None:
    script = wire.script({"initialize": agreed(answered)})
    with pytest.raises(RevisionMismatch) as caught:
        await script.client(revision="auto").__aenter__()
    assert (caught.value.theirs, HANDSHAKE[-1] in str(caught.value)) == ((answered,), True)
    await script.closed.wait()
    assert "notifications/initialized" not in script.methods


@behaviour("client.version-pinned", "2025-11-25 basic/lifecycle#version-negotiation", HANDSHAKE[1:])
async def test_a_client_with_a_pinned_version_uses_no_other(wire: Wire) -> None:
    script = wire.script({"initialize": agreed("2024-11-05")})
    with pytest.raises(RevisionMismatch):
        await script.client().__aenter__()


@behaviour("client.connect-timeout", "2025-11-25 basic/lifecycle#timeouts", transports=ANYWHERE)
async def test_a_client_does_not_wait_for_ever_for_a_silent_server(wire: Wire) -> None:
    script = wire.script({"initialize": SILENCE, "server/discover": SILENCE})
    with pytest.raises(TrunklineError, match="not connected"):
        await script.client(limits=Limits(connect_seconds=0.1)).__aenter__()
    await script.closed.wait()


# --- the probe -------------------------------------------------------------------------------------------------------


@behaviour("client.probe", "2026-07-28 basic/transports/stdio#backward-compatibility", STATELESS, ANYWHERE)
async def test_a_client_asks_what_the_server_speaks_before_all_else(wire: Wire) -> None:
    script = wire.script()
    async with script.client(revision="auto") as client:
        assert (script.methods, client.revision) == (["server/discover"], wire.revision)
        assert script.received[0]["params"]["_meta"][f"{META}protocolVersion"] == NEWEST


@behaviour(
    "client.probe-refused",
    "2026-07-28 basic/transports/stdio#backward-compatibility",
    revisions=HANDSHAKE,
    transports=("memory", "http"),
)
@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32000, -32001, 0, 7])
async def test_a_client_falls_back_to_the_handshake_whatever_the_error(wire: Wire, code: int) -> None:
    script = wire.script({"server/discover": Failure(code)})
    async with script.client(revision="auto") as client:
        assert (script.methods[:2], client.revision) == (["server/discover", "initialize"], wire.revision)


@behaviour("client.probe-silent", "2026-07-28 basic/transports/stdio#backward-compatibility", HANDSHAKE)
async def test_a_client_falls_back_to_the_handshake_when_its_probe_is_not_answered(wire: Wire) -> None:
    script = wire.script({"server/discover": SILENCE})
    async with script.client(revision="auto", limits=Limits(probe_seconds=0.05)) as client:
        assert (script.methods[:2], client.revision) == (["server/discover", "initialize"], wire.revision)


@behaviour("client.probe-unsupported", "2026-07-28 basic/versioning#protocol-version-negotiation", STATELESS, ANYWHERE)
async def test_a_client_uses_the_newest_common_version_of_an_error(wire: Wire) -> None:
    failure = Failure(-32022, "no", {"supported": ["2024-11-05", "2025-06-18"], "requested": NEWEST})
    script = wire.script({"server/discover": failure, "initialize": agreed("2025-06-18")})
    async with script.client(revision="auto") as client:
        assert (script.all("initialize")[0]["params"]["protocolVersion"], client.revision) == (
            "2025-06-18",
            "2025-06-18",
        )


@behaviour("client.probe-disjoint", "2026-07-28 basic/versioning#protocol-version-negotiation", STATELESS)
@pytest.mark.parametrize("answer", [Failure(-32022, "no", {"supported": ["2099-01-01"]}), discovered("2099-01-01")])
async def test_a_client_without_a_common_version_raises(wire: Wire, answer: Any) -> None:
    script = wire.script({"server/discover": answer})
    with pytest.raises(RevisionMismatch) as caught:
        await script.client(revision="auto").__aenter__()
    assert (caught.value.theirs, script.methods) == (("2099-01-01",), ["server/discover"])


@behaviour("client.probe-modern-error", "2026-07-28 basic/transports/stdio#backward-compatibility", STATELESS, ANYWHERE)
async def test_a_client_does_not_fall_back_from_an_error_that_only_newer_servers_know(wire: Wire) -> None:
    script = wire.script({"server/discover": Failure(-32021, "no", {"requiredCapabilities": {"sampling": {}}})})
    with pytest.raises(TrunklineError):
        await script.client(revision="auto").__aenter__()
    assert script.methods == ["server/discover"]


# --- what was agreed -------------------------------------------------------------------------------------------------


@behaviour("client.envelope", "2026-07-28 basic/index#meta", STATELESS)
async def test_each_request_has_the_client_info_version_and_capabilities(wire: Wire) -> None:
    script = wire.script({"tools/list": {"tools": []}, "prompts/list": {"prompts": []}})
    async with script.client(sampling=lambda params: "x") as client:
        await client.list_tools()
        await client.list_prompts()
        metas = [message["params"]["_meta"] for message in script.received]
        assert [meta[f"{META}protocolVersion"] for meta in metas] == [wire.revision] * 3
        assert [set(meta[f"{META}clientCapabilities"]) for meta in metas] == [{"extensions", "sampling"}] * 3
        assert [meta[f"{META}clientInfo"]["name"] for meta in metas] == ["trunkline"] * 3


@behaviour("client.envelope-absent", "2026-07-28 basic/versioning#terminology", HANDSHAKE)
async def test_no_request_has_an_envelope_after_a_handshake(wire: Wire) -> None:
    script = wire.script({"tools/list": {"tools": []}})
    async with script.client() as client:
        await client.list_tools()
        assert "_meta" not in script.all("tools/list")[0].get("params", {})


@behaviour("client.capabilities", "2025-11-25 basic/lifecycle#capability-negotiation")
async def test_a_client_declares_what_it_has_a_callback_for(wire: Wire) -> None:
    script = wire.script()
    async with script.client(sampling=lambda params: "x", elicitation=lambda params: None, roots=["/srv"]):
        declared = script.declared
        elicitation = {"2024-11-05": False, "2025-03-26": False}
        assert ("sampling" in declared, "roots" in declared) == (True, True)
        assert ("elicitation" in declared) is elicitation.get(wire.revision, True)


@behaviour("client.capabilities-experimental", "2025-11-25 basic/lifecycle#capability-negotiation")
async def test_a_client_declares_experiments(wire: Wire) -> None:
    script = wire.script()
    async with script.client(experimental={"com.example/x": {"on": True}}):
        assert script.declared["experimental"] == {"com.example/x": {"on": True}}


@behaviour("client.gated", "2025-11-25 basic/lifecycle#operation")
async def test_a_client_does_not_use_what_the_server_did_not_declare(wire: Wire) -> None:
    script = wire.script(capabilities={"tools": {}})
    async with script.client() as client:
        before = len(script.received)
        with pytest.raises(MissingCapability, match="prompts"):
            await client.list_prompts()
        with pytest.raises(MissingCapability, match="resources"):
            await client.read_resource("note://one")
        assert len(script.received) == before


@behaviour("client.gated-revision", "2026-07-28 changelog#major-changes", STATELESS)
async def test_a_client_does_not_use_what_the_revision_does_not_have(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        before = len(script.received)
        with pytest.raises(LocalProtocolError, match="resources/subscribe"):
            await client.subscribe("note://one")
        assert len(script.received) == before


@behaviour("client.gated-unknown", "2024-11-05 server/utilities/completion#capabilities", ALL[:1])
async def test_a_client_may_complete_where_no_capability_says_that_it_can(wire: Wire) -> None:
    script = wire.script({"completion/complete": {"completion": {"values": ["Ada"]}}}, capabilities={"prompts": {}})
    async with script.client() as client:
        completion = await client.complete(PromptReference(name="greet"), {"name": "name", "value": "A"})
        assert completion.values == ["Ada"]


@behaviour("client.server-known", "2025-11-25 basic/lifecycle#initialization")
async def test_a_client_has_the_server_info_and_instructions(wire: Wire) -> None:
    opening = "server/discover" if wire.stateless else "initialize"
    script = wire.script()
    script.table[opening]["instructions"] = "Be kind."
    async with script.client() as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.instructions) == ("scripted", "Be kind.")
        assert client.server_capabilities["tools"] == {"listChanged": True}


@behaviour("client.server-lenient", "2025-11-25 schema#initializeresult", HANDSHAKE)
async def test_a_client_accepts_missing_and_unknown_members_in_initialize(wire: Wire) -> None:
    hello = {
        "protocolVersion": wire.revision,
        "capabilities": {"teleport": {"far": 1}},
        "serverInfo": {"name": "odd"},
        "x": 1,
    }
    script = wire.script({"initialize": hello})
    async with script.client() as client:
        assert client.server_info is not None
        assert (client.server_info.version, client.server_capabilities) == ("", {"teleport": {"far": 1}})


@behaviour("client.ping", "2025-11-25 basic/utilities/ping#behavior-requirements")
async def test_a_client_pings_by_what_the_revision_has(wire: Wire) -> None:
    method = "server/discover" if wire.stateless else "ping"
    script = wire.script()
    async with script.client() as client:
        before = len(script.all(method))
        await client.ping()
        assert len(script.all(method)) == before + 1


@behaviour("client.closed", "2025-11-25 basic/lifecycle#shutdown")
async def test_a_closed_client_rejects_calls_and_has_closed_its_link(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        pass
    with pytest.raises(TrunklineError):
        await client.list_tools()
    await script.closed.wait()
    assert client.state == "terminated"


@behaviour("client.unopened", "2025-11-25 basic/lifecycle#initialization")
async def test_a_client_that_was_not_opened_sends_nothing(wire: Wire) -> None:
    client: Client = wire.script().client()
    with pytest.raises(LocalProtocolError):
        await client.list_tools()
