"""A server that one has to log in at, and one where one may; both run in a process of their own, and ask nobody."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trunkline import AuthorizationServer, Context, Principal, Server, ToolError
from trunkline.auth import OAuthClient

PORT = int(os.environ["PROTECTED_PORT"])


class Welcoming(AuthorizationServer):
    """Lets everybody in, also those who have no token."""

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Say who sends a request."""
        return await super().verify(headers) or Principal(subject="guest", scopes=frozenset({"greet"}))


def make_server(kind: type[AuthorizationServer]) -> Server:
    """Make a server that issues its own tokens."""
    auth = kind(
        issuer=f"http://127.0.0.1:{PORT}",
        scopes={"greet": "Greet you by name", "count": "Count for you"},
        clients=[OAuthClient(client_id="known", redirect_uris=("http://127.0.0.1/callback",))],
        auto_approve="ada",
    )
    server = Server("protected", auth=auth, port=PORT)

    @server.tool(scopes=["greet"])
    async def whoami(ctx: Context) -> str:
        """Say who calls, and what they may do."""
        if ctx.auth is None:
            raise ToolError("nobody")
        return f"{ctx.auth.subject}: {' '.join(sorted(ctx.auth.scopes))}"

    @server.tool(scopes=["count"])
    async def count(to: int) -> int:
        """Count."""
        return to

    return server


server = make_server(AuthorizationServer)
welcoming = make_server(Welcoming)
