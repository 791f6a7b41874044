"""A server for the official SDK behind tokens that its own class verifies, of either version."""

import os
from importlib import metadata

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

port = int(os.environ["PORT"])
TOKENS = {
    "good": AccessToken(token="good", client_id="ada", scopes=["read"], expires_at=None),
    "late": AccessToken(token="late", client_id="ada", scopes=["read"], expires_at=1),
    "narrow": AccessToken(token="narrow", client_id="ada", scopes=[]),
}


class Verifier(TokenVerifier):
    async def verify_token(self, token: str) -> AccessToken | None:
        return TOKENS.get(token)


options = {
    "token_verifier": Verifier(),
    "auth": AuthSettings(
        issuer_url=AnyHttpUrl("https://issuer.example"),
        resource_server_url=AnyHttpUrl(f"http://127.0.0.1:{port}/mcp"),
        required_scopes=["read"],
    ),
}
if metadata.version("mcp").startswith("1."):
    from mcp.server.fastmcp import FastMCP

    mcp, run_options = FastMCP("official", port=port, **options), {}
else:
    from mcp.server.mcpserver import MCPServer

    mcp, run_options = MCPServer("official", **options), {"port": port}


@mcp.tool()
def who() -> str:
    """Return the caller."""
    return get_access_token().client_id


mcp.run("streamable-http", **run_options)
