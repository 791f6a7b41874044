"""Extensions are declared by both sides, where the revision has them."""

from typing import Any

import pytest

from trunkline import Client, Context, Server


@pytest.mark.parametrize(("revision", "seen"), [("2026-07-28", {"com.example/x": {"on": True}}), ("2025-11-25", None)])
async def test_extensions_are_declared_where_the_revision_has_them(revision: str, seen: Any) -> None:
    server = Server("extended", extensions={"com.example/x": {"on": True}})

    @server.tool
    async def declared(ctx: Context) -> dict[str, Any]:
        return {"extensions": ctx.client.capabilities.get("extensions")}

    async with Client(server, revision=revision, extensions={"com.example/x": {"on": True}}) as client:
        assert client.server_capabilities.get("extensions") == seen
        assert (await client.call_tool("declared")).data == {"extensions": seen}
