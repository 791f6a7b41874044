"""What a server says about itself."""

from __future__ import annotations

from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import ERAS, HANDSHAKE, reach
from trunkline import Context, Server

LISTS = {"listChanged": True}


async def unused(ctx: Context, params: Any) -> None:
    """Stand for a handler that is never called."""


async def met(server: Server, revision: str) -> Any:
    async with reach(server, revision) as peer:
        return await peer.met()


@ERAS
@pytest.mark.parametrize(
    ("register", "declared"),
    [
        pytest.param(lambda s: s.add_tool(lambda: 1, name="t"), {"tools": LISTS}, id="tools"),
        pytest.param(lambda s: s.add_prompt(lambda: "x", name="p"), {"prompts": LISTS}, id="prompts"),
        pytest.param(
            lambda s: s.add_resource("x://y", "x"), {"resources": {"subscribe": True, **LISTS}}, id="resources"
        ),
        pytest.param(
            lambda s: s.add_resource("x://{y}", lambda y: y),
            {"resources": {"subscribe": True, **LISTS}},
            id="templates",
        ),
        pytest.param(lambda s: s.completion(lambda ref, argument, context: []), {"completions": {}}, id="completions"),
        pytest.param(lambda s: s.answer("tools/call", unused), {"tools": LISTS}, id="answered tools"),
        pytest.param(lambda s: s.answer("prompts/get", unused), {"prompts": LISTS}, id="answered prompts"),
        pytest.param(lambda s: s.answer("completion/complete", unused), {"completions": {}}, id="answered completions"),
        pytest.param(
            lambda s: [s.answer(f"resources/{name}", unused) for name in ("read", "subscribe")],
            {"resources": {"subscribe": True, **LISTS}},
            id="answered subscriptions",
        ),
    ],
)
async def test_registered_kinds_are_declared(revision: str, register: Any, declared: dict[str, Any]) -> None:
    server = Server("s")
    register(server)
    assert (await met(server, revision))["capabilities"] == {"logging": {}, **declared}


@ERAS
async def test_capabilities_can_be_announced_before_registration(revision: str) -> None:
    server = Server("s", capabilities=["tools", "prompts", "resources"])
    assert set((await met(server, revision))["capabilities"]) == {"logging", "tools", "prompts", "resources"}


@ERAS
@pytest.mark.parametrize("option", ["experimental", "experimental_capabilities"])
async def test_experimental_capabilities_are_readable(revision: str, option: Any) -> None:
    given: dict[str, Any] = {option: {"acme/x": {"on": True}}}
    found = await met(Server("s", **given), revision)
    assert found["capabilities"]["experimental"] == {"acme/x": {"on": True}}


async def test_initialize_returns_the_server_info() -> None:
    icons = [t.Icon(src="data:,")]
    server = Server(
        "s", "Ask.", version="2", title="T", description="D", website_url="https://example.com", icons=icons
    )
    found = await met(server, HANDSHAKE)
    assert (found["protocolVersion"], found["instructions"], server.version) == (HANDSHAKE, "Ask.", "2")
    assert found["serverInfo"] == {
        "name": "s",
        "version": "2",
        "title": "T",
        "description": "D",
        "websiteUrl": "https://example.com",
        "icons": [{"src": "data:,"}],
    }
