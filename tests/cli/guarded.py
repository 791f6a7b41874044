"""A server that asks who calls; it runs in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping

from trunkline import Context, Principal, Server, ToolError


def who(headers: Mapping[str, str]) -> Principal | None:
    """Know one token."""
    return Principal(subject="ada") if headers.get("authorization") == "Bearer right" else None


server = Server("guarded", auth=who, port=0, streamable_http_path="/own")


@server.tool
async def whoami(ctx: Context) -> str:
    """Say who calls."""
    if ctx.auth is None:
        raise ToolError("nobody")
    return ctx.auth.subject
