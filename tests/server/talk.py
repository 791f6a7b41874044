"""Helpers of the server tests: both eras, and short ways to call a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import pytest

from tests.interaction.wire import Peer, _Inside
from tests.support import run_async
from trunkline import Server
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE

__all__ = ["ERAS", "FORMS", "HANDSHAKE", "STATELESS", "accept", "again", "asked", "call", "reach", "serving", "text"]

HANDSHAKE = NEWEST_HANDSHAKE.name
STATELESS = NEWEST.name
#: Runs a test in both eras.
ERAS = pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
#: The capabilities of a client that supports elicitation forms.
FORMS: Mapping[str, Any] = {"elicitation": {}}

P = ParamSpec("P")


def serving(function: Callable[..., Any], **options: Any) -> Server:
    """Return a server with one tool, ``f``."""
    server = Server("s", **options)
    server.add_tool(function, name="f")
    return server


@asynccontextmanager
async def reach(
    server: Server, revision: str, capabilities: Mapping[str, Any] | None = None, *, greet: bool = True
) -> AsyncIterator[Peer]:
    """Connect to a server in memory with a raw client, which may also send custom messages."""
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
    """Call one tool of a server and return the raw result."""

    async def main() -> Any:
        async with reach(server, revision) as peer:
            return await peer.call(name, arguments)

    return run_async(main())


def text(result: Any) -> str:
    """Return the text of a raw tool result."""
    found: str = result["content"][0]["text"]
    return found


def accept(value: Any) -> dict[str, Any]:
    """Return the answer to a form with one value."""
    return {"action": "accept", "content": {"value": value}}


def asked(result: Any) -> list[str]:
    """Return the messages of the requests in an ``input_required`` result, in order."""
    assert result["resultType"] == "input_required", result
    return [request["params"]["message"] for request in result["inputRequests"].values()]


def again(params: Mapping[str, Any], result: Any, answer: Any) -> dict[str, Any]:
    """Return the params that resume a call, with the same answer to every request."""
    responses = dict.fromkeys(result["inputRequests"], answer)
    return {**params, "inputResponses": responses, "requestState": result["requestState"]}
