"""A server with authentication as a program: its options as JSON, the URL on stdout."""

from __future__ import annotations

import json
import sys
from typing import Any

from trunkline import AuthorizationServer, Context, Handle, JWTVerifier, Server

options: dict[str, Any] = json.loads(sys.argv[1])
issuer: dict[str, Any] | None = options.pop("issuer", None)
verifier: dict[str, Any] | None = options.pop("verifier", None)
auth: Any = AuthorizationServer(**issuer) if issuer else JWTVerifier(**verifier) if verifier else None
server = Server("secured", version="1", auth=auth)


@server.tool
async def who(ctx: Context) -> str:
    """Return the caller."""
    return "" if ctx.auth is None else ctx.auth.subject


@server.tool(single_use=True)
async def buy(ctx: Context) -> str:
    """Ask, and buy once."""
    return f"bought {(await ctx.elicit('What?', str)).data}"


@server.tool
async def order(ctx: Context) -> str:
    """Keep more between the rounds than a client is sent."""
    kept = await ctx.once("kept", lambda: "x" * 100_000)
    return f"{len(kept)} {(await ctx.elicit('What?', str)).data}"


@server.tool
async def open_cart(ctx: Context) -> str:
    """Open a cart."""
    return (await ctx.handle(["first"])).id


@server.tool
async def fill(cart: Handle[list[str]], item: str) -> str:
    """Put something into a cart."""
    async with cart.edit() as items:
        items.append(item)
    return " ".join(items)


def say(url: str) -> None:
    """Write the URL for the test."""
    sys.stdout.write(f"{url}/mcp\n")
    sys.stdout.flush()


server.run("http", port=0, started=say, **options)
