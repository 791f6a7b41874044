"""Extensions are declared by both sides, in every revision."""

import json
from typing import Any

import pytest

from trunkline import Client, Context, Server


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_extensions_are_declared_in_every_revision(revision: str) -> None:
    server = Server("extended", extensions={"com.example/x": {"on": True}})

    @server.tool
    async def declared(ctx: Context) -> dict[str, Any]:
        return {"extensions": ctx.client.capabilities.get("extensions")}

    async with Client(server, revision=revision, extensions={"com.example/x": {"on": True}}) as client:
        assert client.server_capabilities["extensions"] == {"com.example/x": {"on": True}}
        seen = json.loads((await client.call_tool("declared")).text)["extensions"]
        assert seen["com.example/x"] == {"on": True}
