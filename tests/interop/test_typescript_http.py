"""Clients on the official TypeScript SDK, both its versions, of our server over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.peers import ASKING, HANDSHAKE, NEWEST, NEWEST_HANDSHAKE
from tests.interop.web import node, our_url, program_json

SEEN = {
    "sum": "42",
    "failed": [True, "out of paper"],
    "note": "as it was",
    "prompt": "Greet Ann in a kind tone.",
    "completed": ["kind", "keen"],
    "refused": -32602,
    "many": [str(number + 1) for number in range(20)],
    "stopped": "true",
    "told": "note://fixed",
}
ASKED = ["you?, 7", "parrot: Say hello.", '["file:///home/ann"]']


def part(seen: dict[str, Any]) -> dict[str, Any]:
    """Give what every client sees alike."""
    return {name: seen.get(name) for name in SEEN}


@pytest.mark.parametrize("revision", HANDSHAKE[1:])
def test_the_first_client_sees_our_server(revision: str) -> None:
    asks = revision in ASKING
    command = node("ts1_client.mjs")
    with our_url(revision) as url:
        seen = program_json([*command, f"{url}/mcp", "asked" if asks else "plain"])
    assert (part(seen), len(seen["tools"]), seen["progress"]) == (SEEN, 20, [1, 2, 3])
    assert seen.get("asked") == (ASKED if asks else None)


@pytest.mark.parametrize("revision", [HANDSHAKE[0], NEWEST_HANDSHAKE])
@pytest.mark.parametrize("program", [("ts1_client.mjs",), ("ts2_client.mjs", "legacy")], ids=["first", "second"])
def test_either_client_sees_our_server_over_the_old_transport(program: tuple[str, ...], revision: str) -> None:
    name, *mode = program
    command = node(name)
    with our_url(revision) as url:
        seen = program_json([*command, f"{url}/mcp/sse", *mode, "plain"])
    # These clients lose progress that comes in one piece with the answer.
    assert (part(seen), len(seen["tools"])) == (SEEN, 20)


@pytest.mark.parametrize(("mode", "agreed"), [("auto", NEWEST), (NEWEST, NEWEST), ("legacy", NEWEST_HANDSHAKE)])
def test_the_second_client_sees_our_server(mode: str, agreed: str) -> None:
    command = node("ts2_client.mjs")
    with our_url() as url:
        seen = program_json([*command, f"{url}/mcp", mode, "asked"])
    assert (part(seen), len(seen["tools"]), seen["progress"]) == (SEEN, 20, [1, 2, 3])
    assert (seen["asked"], seen["version"]) == (ASKED, agreed)


def test_the_second_client_falls_back_to_an_older_server_of_ours() -> None:
    command = node("ts2_client.mjs")
    with our_url(*HANDSHAKE) as url:
        seen = program_json([*command, f"{url}/mcp", "auto", "plain"])
    assert (part(seen), seen["version"]) == (SEEN, NEWEST_HANDSHAKE)
