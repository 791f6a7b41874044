"""What the tests of a server share: both eras, a bounded loop, and short ways to talk to a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import pytest

from tests.interaction.wire import Peer, _Inside
from tests.support import run_async
from trunkline import Server
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE

__all__ = ["ERAS", "FORMS", "HANDSHAKE", "STATELESS", "accept", "again", "asked", "call", "reach", "text"]

HANDSHAKE = NEWEST_HANDSHAKE.name
STATELESS = NEWEST.name
#: Runs a test in both eras.
ERAS = pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
#: What a client declares that fills in forms.
FORMS: Mapping[str, Any] = {"elicitation": {}}

P = ParamSpec("P")


@asynccontextmanager
async def reach(
    server: Server, revision: str, capabilities: Mapping[str, Any] | None = None, *, greet: bool = True
) -> AsyncIterator[Peer]:
    """Reach a server in memory with a raw client; what is sent may be of one's own, beside the protocol."""
    carrier = _Inside(server)
    peer = Peer(carrier, revision=revision, capabilities=dict(capabilities or {}))
    carrier.start(peer)
    try:
        if greet and revision != STATELESS:
            await peer.shake_hands()
        yield peer
    finally:
        await carrier.close()


def call(server: Server, name: str, revision: str = STATELESS, **arguments: Any) -> Any:
    """Call one tool of a server and give the raw result."""

    async def main() -> Any:
        async with reach(server, revision) as peer:
            return await peer.call(name, arguments)

    return run_async(main())


def text(result: Any) -> str:
    """Give the text of a raw tool result."""
    found: str = result["content"][0]["text"]
    return found


def accept(value: Any) -> dict[str, Any]:
    """Answer a form of one value."""
    return {"action": "accept", "content": {"value": value}}


def asked(result: Any) -> list[str]:
    """Give the messages of the questions that a result asks, in order."""
    assert result["resultType"] == "input_required", result
    return [question["params"]["message"] for question in result["inputRequests"].values()]


def again(params: Mapping[str, Any], result: Any, answer: Any) -> dict[str, Any]:
    """Make the params that take a call up again, with one answer to all that was asked."""
    responses = dict.fromkeys(result["inputRequests"], answer)
    return {**params, "inputResponses": responses, "requestState": result["requestState"]}
