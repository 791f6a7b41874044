"""The era probe and the handshake, fed by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from trunkline.errors import (
    HeaderMismatch,
    InternalError,
    MethodNotFound,
    MissingClientCapability,
    RemoteProtocolError,
    RequestFailed,
    RevisionMismatch,
    UnsupportedProtocolVersion,
    request_failed,
)
from trunkline.protocol.negotiation import (
    Agreement,
    NegotiationOutcome,
    NegotiationStep,
    SendDiscover,
    SendInitialize,
    SendInitialized,
    negotiate,
)
from trunkline.protocol.revisions import HANDSHAKE_NAMES, NEWEST, NEWEST_HANDSHAKE, REVISIONS, Revision

OLDEST = REVISIONS[0]


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def discovered(*supported: str, **more: Any) -> Raw:
    return raw({"supportedVersions": list(supported), "capabilities": {"tools": {}}, **more})


def initialized(revision: str) -> Raw:
    info = {"name": "server"}
    return raw({"protocolVersion": revision, "capabilities": {}, "serverInfo": info, "instructions": "Ask."})


def run(
    outcomes: list[NegotiationOutcome], pinned: Revision | None = None, remembered: Revision | None = None
) -> tuple[list[NegotiationStep], Agreement]:
    """Play the outcomes and return the steps and the agreement."""
    flow = negotiate(pinned, remembered=remembered, probe_seconds=2.0)
    steps = [next(flow)]
    left = list(outcomes)
    while True:
        try:
            steps.append(flow.send(left.pop(0)))
        except StopIteration as end:
            assert left == []
            return steps, end.value


def test_a_discover_result_means_the_stateless_era() -> None:
    steps, agreement = run([discovered(NEWEST.name, NEWEST_HANDSHAKE.name)])
    assert steps == [SendDiscover(NEWEST, 2.0)]
    assert agreement.revision is NEWEST


def test_the_server_info_is_kept() -> None:
    info = {"io.modelcontextprotocol/serverInfo": {"name": "server", "version": "3"}}
    _, agreement = run([discovered(NEWEST.name, _meta=info, instructions="Ask.")])
    assert agreement.server_info is not None
    assert agreement.server_info.version == "3"
    assert agreement.instructions == "Ask."
    assert agreement.capabilities == {"tools": {}}
    assert agreement.supported == (NEWEST.name,)


def test_a_nonsensical_server_info_is_the_same_as_none() -> None:
    _, agreement = run([discovered(NEWEST.name, _meta={"io.modelcontextprotocol/serverInfo": 3})])
    assert agreement.server_info is None


@pytest.mark.parametrize("code", [-32601, -32603, -32000, 7], ids=lambda code: f"code {code}")
def test_any_other_error_falls_back_to_the_handshake(code: int) -> None:
    steps, agreement = run([request_failed(code, "no"), initialized(NEWEST_HANDSHAKE.name), None])
    assert steps == [SendDiscover(NEWEST, 2.0), SendInitialize(NEWEST_HANDSHAKE), SendInitialized(NEWEST_HANDSHAKE)]
    assert agreement.revision is NEWEST_HANDSHAKE
    assert agreement.instructions == "Ask."


@pytest.mark.parametrize(
    "outcome",
    [None, raw({"tools": []}), UnsupportedProtocolVersion("no", data={})],
    ids=["silence", "no discovery", "no list of versions"],
)
def test_what_says_nothing_of_an_era_falls_back_to_the_handshake(outcome: NegotiationOutcome) -> None:
    steps, agreement = run([outcome, initialized(OLDEST.name), None])
    assert steps[1:] == [SendInitialize(NEWEST_HANDSHAKE), SendInitialized(OLDEST)]
    assert agreement.supported == (OLDEST.name,)


def test_an_unsupported_version_error_with_our_version_in_its_list_is_probed_again() -> None:
    refusal = UnsupportedProtocolVersion("no", data={"supported": [NEWEST.name]})
    steps, agreement = run([refusal, discovered(NEWEST.name)])
    assert steps == [SendDiscover(NEWEST, 2.0), SendDiscover(NEWEST, None)]
    assert agreement.revision is NEWEST


def test_a_server_that_rejects_a_version_it_lists_raises() -> None:
    refusal = UnsupportedProtocolVersion("no", data={"supported": [NEWEST.name]})
    with pytest.raises(RevisionMismatch):
        run([refusal, refusal])


@pytest.mark.parametrize(
    "outcome",
    [UnsupportedProtocolVersion("no", data={"supported": ["2099-01-01", OLDEST.name]}), discovered(OLDEST.name)],
    ids=["refused", "discovered"],
)
def test_a_server_that_shares_only_handshake_revisions_gets_the_handshake(outcome: NegotiationOutcome) -> None:
    steps, agreement = run([outcome, initialized(OLDEST.name), None])
    assert steps[1] == SendInitialize(OLDEST)
    assert agreement.revision is OLDEST


@pytest.mark.parametrize(
    "outcome",
    [
        discovered("2099-01-01"),
        UnsupportedProtocolVersion("no", data={"supported": ["2099-01-01", 3]}),
    ],
    ids=["discovered", "refused"],
)
def test_no_common_revision_names_what_both_sides_speak(outcome: NegotiationOutcome) -> None:
    with pytest.raises(RevisionMismatch) as caught:
        run([outcome])
    assert caught.value.theirs == ("2099-01-01",)
    assert NEWEST.name in caught.value.ours
    assert "2099-01-01" in str(caught.value)
    assert OLDEST.name in str(caught.value)


@pytest.mark.parametrize("kind", [HeaderMismatch, MissingClientCapability], ids=["header", "capability"])
def test_an_error_only_stateless_servers_know_never_falls_back(kind: type[RequestFailed]) -> None:
    with pytest.raises(kind):
        run([kind("no")])


def test_a_server_that_was_silent_and_rejects_the_handshake_is_probed_once_more() -> None:
    steps, agreement = run([None, MethodNotFound("no"), discovered(NEWEST.name)])
    assert steps == [SendDiscover(NEWEST, 2.0), SendInitialize(NEWEST_HANDSHAKE), SendDiscover(NEWEST, None)]
    assert agreement.revision is NEWEST


def test_a_server_that_rejects_everything_raises_the_error_of_the_handshake() -> None:
    with pytest.raises(MethodNotFound, match="not this"):
        run([None, MethodNotFound("not this"), MethodNotFound("nor that")])


def test_a_refused_handshake_after_a_refused_probe_is_final() -> None:
    with pytest.raises(MethodNotFound, match="nor that"):
        run([MethodNotFound("not this"), MethodNotFound("nor that")])


def test_an_answered_version_we_do_not_speak_ends_it_with_both_sides_versions() -> None:
    flow = negotiate(None, remembered=None, probe_seconds=2.0)
    next(flow)
    flow.send(None)
    with pytest.raises(RevisionMismatch) as caught:
        flow.send(initialized("2024-01-15"))
    assert caught.value.ours == HANDSHAKE_NAMES
    assert caught.value.theirs == ("2024-01-15",)


def test_a_handshake_answered_with_a_revision_that_has_none_is_a_mismatch() -> None:
    with pytest.raises(RevisionMismatch):
        run([initialized(NEWEST.name)], pinned=OLDEST)


def test_a_pinned_handshake_revision_is_asked_for_at_once() -> None:
    steps, agreement = run([initialized(OLDEST.name), None], pinned=OLDEST)
    assert steps == [SendInitialize(OLDEST), SendInitialized(OLDEST)]
    assert agreement.revision is OLDEST


def test_a_pinned_handshake_revision_is_not_traded_for_another() -> None:
    with pytest.raises(RevisionMismatch) as caught:
        run([initialized(NEWEST_HANDSHAKE.name)], pinned=OLDEST)
    assert caught.value.ours == (OLDEST.name,)


def test_a_pinned_handshake_that_is_rejected_by_version_is_a_mismatch() -> None:
    refusal = UnsupportedProtocolVersion("no", data={"supported": [NEWEST.name]})
    with pytest.raises(RevisionMismatch) as caught:
        run([refusal], pinned=OLDEST)
    assert caught.value.theirs == (NEWEST.name,)


def test_a_pinned_handshake_that_is_rejected_otherwise_raises_that() -> None:
    with pytest.raises(MethodNotFound):
        run([MethodNotFound("no")], pinned=OLDEST)


@pytest.mark.parametrize("outcome", [raw({}), raw([]), None], ids=["members missing", "no object", "nothing"])
def test_an_unreadable_answer_to_the_handshake_is_the_servers_fault(outcome: NegotiationOutcome) -> None:
    with pytest.raises(RemoteProtocolError, match="initialize"):
        run([outcome], pinned=OLDEST)


def test_a_pinned_stateless_revision_is_discovered_without_a_short_wait() -> None:
    steps, agreement = run([discovered(NEWEST.name)], pinned=NEWEST)
    assert steps == [SendDiscover(NEWEST, None)]
    assert agreement.revision is NEWEST


@pytest.mark.parametrize(
    ("outcome", "theirs"),
    [
        (MethodNotFound("no"), ()),
        (raw({"tools": []}), ()),
        (discovered(OLDEST.name), (OLDEST.name,)),
        (UnsupportedProtocolVersion("no", data={"supported": [OLDEST.name]}), (OLDEST.name,)),
    ],
    ids=["unknown method", "no discovery", "not in the list", "refused by version"],
)
def test_a_pinned_stateless_revision_never_falls_back(outcome: NegotiationOutcome, theirs: tuple[str, ...]) -> None:
    with pytest.raises(RevisionMismatch) as caught:
        run([outcome], pinned=NEWEST)
    assert caught.value.ours == (NEWEST.name,)
    assert caught.value.theirs == theirs


def test_a_server_that_fails_says_nothing_about_a_pinned_revision() -> None:
    with pytest.raises(InternalError, match="its lifespan"):
        run([InternalError("its lifespan")], pinned=NEWEST)


def test_a_remembered_handshake_server_is_not_probed() -> None:
    steps, _ = run([initialized(OLDEST.name), None], remembered=OLDEST)
    assert steps[0] == SendInitialize(OLDEST)


def test_a_remembered_handshake_server_that_rejects_is_probed_after_all() -> None:
    steps, agreement = run([MethodNotFound("no"), discovered(NEWEST.name)], remembered=OLDEST)
    assert steps == [SendInitialize(OLDEST), SendDiscover(NEWEST, 2.0)]
    assert agreement.revision is NEWEST


def test_a_remembered_stateless_server_is_given_all_the_time_it_needs() -> None:
    steps, _ = run([discovered(NEWEST.name)], remembered=NEWEST)
    assert steps == [SendDiscover(NEWEST, None)]
