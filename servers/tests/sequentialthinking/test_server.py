"""The sequential thinking server: results, the owners of state, handles, and the drawn boxes."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from servers.tests.commands import started
from servers.tests.over_http import texts
from tests.support import run_async
from trunkline import Client, Server, ToolError
from trunkline.testing import FakeClock
from trunkline_servers.sequentialthinking import make_server
from trunkline_servers.sequentialthinking import server as module

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
REVISIONS = [pytest.param(HANDSHAKE, id="handshake"), pytest.param(STATELESS, id="stateless")]
STEP = {"thought": "first", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 3}


async def think(client: Client, **changes: Any) -> Any:
    return (await client.call_tool("sequentialthinking", {**STEP, **changes})).structured_content


def quiet(**options: Any) -> Server:
    return make_server(show_thoughts=False, **options)


def alone(revision: str = HANDSHAKE, **changes: Any) -> Any:
    async def scene() -> Any:
        async with Client(quiet(), revision=revision) as client:
            return await think(client, **changes)

    return run_async(scene())


async def test_the_result_of_a_step_states_the_position() -> None:
    async with Client(quiet(), revision=HANDSHAKE) as client:
        result = await client.call_tool("sequentialthinking", STEP)

    assert result.structured_content == {
        "thoughtNumber": 1,
        "totalThoughts": 3,
        "nextThoughtNeeded": True,
        "branches": [],
        "thoughtHistoryLength": 1,
    }
    assert texts(result) == [
        '{\n  "thoughtNumber": 1,\n  "totalThoughts": 3,\n  "nextThoughtNeeded": true,\n  "branches": [],\n'
        '  "thoughtHistoryLength": 1\n}'
    ]


@pytest.mark.parametrize(
    ("changes", "member", "value"),
    [
        pytest.param({"thoughtNumber": 5}, "totalThoughts", 5, id="more-than-expected"),
        pytest.param({"thoughtNumber": "2"}, "thoughtNumber", 2, id="number-as-text"),
        pytest.param({"nextThoughtNeeded": "FALSE"}, "nextThoughtNeeded", False, id="false-as-text"),
        pytest.param({"nextThoughtNeeded": "true"}, "nextThoughtNeeded", True, id="true-as-text"),
        pytest.param({"branchFromThought": "1", "branchId": "b"}, "branches", ["b"], id="branch"),
        pytest.param({"branchId": "b"}, "branches", [], id="branch-from-nowhere"),
        pytest.param({"branchFromThought": 1, "branchId": ""}, "branches", [], id="branch-without-name"),
        pytest.param({"isRevision": "true", "revisesThought": "1"}, "thoughtHistoryLength", 1, id="revision"),
        pytest.param({"isRevision": None, "needsMoreThoughts": "true"}, "thoughtHistoryLength", 1, id="more-needed"),
    ],
)
def test_arguments_are_parsed_leniently(changes: dict[str, Any], member: str, value: object) -> None:
    assert alone(**changes)[member] == value


@pytest.mark.parametrize(
    "changes",
    [
        {"nextThoughtNeeded": "yes"},
        {"nextThoughtNeeded": 2},
        {"isRevision": "maybe"},
        {"needsMoreThoughts": "2"},
        {"thoughtNumber": 0},
        {"thoughtNumber": 1.5},
        {"thoughtNumber": "one"},
        {"thoughtNumber": 2**53},
        {"thought": 5},
        {"branchFromThought": 1, "branchId": "x" * 201},
        {"handle": "never-given"},
    ],
    ids=str,
)
async def test_wrong_arguments_are_refused_and_nothing_is_counted(changes: dict[str, Any]) -> None:
    async with Client(quiet(), revision=HANDSHAKE) as client:
        refused = await client.call_tool("sequentialthinking", {**STEP, **changes}, raise_on_error=False)
        assert (refused.is_error, (await think(client))["thoughtHistoryLength"]) == (True, 1)


# --- whose state -----------------------------------------------------------------------------------------------------


async def test_steps_of_a_session_form_one_chain_that_no_other_session_shares() -> None:
    server = quiet()
    async with Client(server, revision=HANDSHAKE) as one, Client(server, revision=HANDSHAKE) as other:
        answers = [await think(client) for client in (one, one, other, one)]
    assert [each["thoughtHistoryLength"] for each in answers] == [1, 2, 1, 3]


async def test_without_sessions_a_step_without_a_handle_begins_a_line() -> None:
    async with Client(quiet(), revision=STATELESS) as client:
        first, second = [await think(client), await think(client)]
    assert (first["thoughtHistoryLength"], second["thoughtHistoryLength"]) == (1, 1)
    assert first["handle"] != second["handle"]
    assert len(first["handle"]) >= 22


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_handle_goes_on_with_its_line_in_any_connection(revision: str) -> None:
    server = quiet()
    async with Client(server, revision=STATELESS) as client:
        begun = await think(client, branchFromThought=1, branchId="b")
    async with Client(server, revision=revision) as client:
        more = await think(client, handle=begun["handle"])
    assert more == {**begun, "thoughtHistoryLength": 2}


async def test_a_handle_that_was_not_used_for_an_hour_is_forgotten() -> None:
    clock = FakeClock()
    async with Client(quiet(now=clock.now), revision=STATELESS) as client:
        handle = (await think(client))["handle"]
        clock.advance(3000)
        kept = await think(client, handle=handle)
        clock.advance(3601)
        with pytest.raises(ToolError, match="Leave the handle out"):
            await think(client, handle=handle)
        assert int(kept["thoughtHistoryLength"]) == 2


def test_only_the_owner_can_use_a_handle() -> None:
    kept = module.ThoughtChains(lambda: 0.0)
    handle = kept.begin(("issuer", "ann")).handle
    assert handle is not None
    assert kept.for_handle(handle, ("issuer", "ann")).handle == handle
    with pytest.raises(ToolError):
        kept.for_handle(handle, ("issuer", "bob"))
    with pytest.raises(ToolError):
        kept.for_handle(handle, None)


def test_beginning_too_many_chains_drops_the_oldest_of_the_same_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_OF_ONE", 2)
    kept = module.ThoughtChains(lambda: 0.0)
    handles = [str(kept.begin(owner).handle) for owner in ("bob", "ann", "ann", "ann")]
    with pytest.raises(ToolError):
        kept.for_handle(handles[1], "ann")
    assert [kept.for_handle(handles[0], "bob").handle, kept.for_handle(handles[2], "ann").handle] == [
        handles[0],
        handles[2],
    ]


def test_sessions_and_lines_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    monkeypatch.setattr(module, "_MOST_SESSIONS", 2)
    kept = module.ThoughtChains(lambda: 0.0)
    sessions = [object() for _ in range(3)]
    first, *_ = [kept.for_session(each) for each in sessions]
    handles = [str(kept.begin(owner).handle) for owner in ("ann", "bob", "eve")]
    assert kept.for_session(sessions[0]) is not first
    with pytest.raises(ToolError):
        kept.for_handle(handles[0], "ann")


def test_a_line_has_a_limited_number_of_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BRANCHES", 1)
    line = module.ThoughtChain()
    line.add(module.Thought("x", 1, 1, more=True, branches_from=1, branch="a"))
    with pytest.raises(ToolError, match="at most 1 branches"):
        line.add(module.Thought("x", 1, 1, more=True, branches_from=1, branch="b"))
    assert line.add(module.Thought("x", 1, 1, more=True, branches_from=1, branch="a"))["branches"] == ["a"]


# --- drawing ---------------------------------------------------------------------------------------------------------


def drawn(capfd: pytest.CaptureFixture[str], server: Server, **changes: Any) -> str:
    async def scene() -> None:
        async with Client(server, revision=HANDSHAKE) as client:
            await think(client, **changes)

    run_async(scene())
    return capfd.readouterr().err


def test_thoughts_are_drawn_on_stderr(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISABLE_THOUGHT_LOGGING", raising=False)
    assert drawn(capfd, make_server(), thought="one\ntwo lines") == (
        "┌─────────────┐\n│ Thought 1/3 │\n├─────────────┤\n│ one         │\n│ two lines   │\n└─────────────┘\n"
    )


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        pytest.param({"isRevision": True, "revisesThought": 1}, "Revision 1/3 (of thought 1)", id="revision"),
        pytest.param({"branchFromThought": 1, "branchId": "b"}, "Branch 1/3 (from thought 1, id b)", id="branch"),
    ],
)
def test_the_box_says_what_a_thought_is(capfd: pytest.CaptureFixture[str], changes: dict[str, Any], title: str) -> None:
    assert f"│ {title} │" in drawn(capfd, make_server(show_thoughts=True), **changes)


def test_a_thought_cannot_send_control_sequences_to_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b]52;c;aGk=\x07b\x9b2J\u202ec"
    box = drawn(capfd, make_server(show_thoughts=True), thought=hostile, branchFromThought=1, branchId="\x1b[2J")
    assert [each for each in box if not each.isprintable() and each != "\n"] == []
    assert "a\\x1b]52" in box


def test_a_long_thought_is_drawn_in_part(capfd: pytest.CaptureFixture[str]) -> None:
    assert len(drawn(capfd, make_server(show_thoughts=True), thought="word " * 100_000)) < 12_000


def test_a_variable_turns_the_drawing_off(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_THOUGHT_LOGGING", "True")
    assert drawn(capfd, make_server()) == ""


def test_the_options_of_the_command_reach_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    assert drawn(capfd, started("sequentialthinking", "--hide-thoughts").server) == ""


def test_drawing_thoughts_does_not_block_on_an_unread_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of these fill the pipe."""
    reader, writer = os.pipe()
    server = make_server(show_thoughts=True)

    async def scene() -> int:
        async with Client(server, revision=HANDSHAKE) as client:
            answers = [await think(client, thought="x" * 9000) for _ in range(12)]
            return int(answers[-1]["thoughtHistoryLength"])

    with open(reader, "rb"), open(writer, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setattr(module, "_FULL_PIPE_SECONDS", 0.0)
        length = run_async(scene())

    assert length == 12
