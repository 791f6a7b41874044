"""Posting beside a conversation: single HTTP requests with headers as a test wants them, and their whole responses."""

from __future__ import annotations

import json
from typing import Any

from tests.interaction.web import Reply, Streamable
from tests.interaction.wire import Peer

__all__ = ["code_of", "post", "request", "until", "web"]


def web(peer: Peer) -> Streamable:
    """Return the HTTP carrier of a peer."""
    assert isinstance(peer.carrier, Streamable)
    return peer.carrier


def request(peer: Peer, method: str = "tools/list", params: Any = None, **setting: Any) -> dict[str, Any]:
    """Return a request in the form of the revision."""
    return peer.request_of(method, params, id=setting.pop("id", "r"), **setting)


async def post(peer: Peer, message: Any, *, without: str = "", **headers: str) -> Reply:
    """Post a message, with some headers changed or left out, and give the whole response."""
    sent = web(peer).headers(message) | {name.replace("_", "-"): value for name, value in headers.items()}
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    kept = {name: value for name, value in sent.items() if name.lower() != without.lower()}
    return await web(peer).exchange("POST", kept, data=body)


def code_of(reply: Reply) -> Any:
    """Return the status and JSON-RPC code of a response."""
    return reply.status, json.loads(reply.body)["error"]["code"]


async def until(peer: Peer, reply: Reply, count: int) -> None:
    """Wait until so many messages came on a response."""
    while len(reply.messages) < count:
        await peer.hear()
