"""A server for ``fastmcp`` behind tokens: written ones, or those of a login in memory, or of an identity provider."""

import os

from fastmcp import FastMCP
from fastmcp.server.auth import MultiAuth, OAuthProxy, StaticTokenVerifier, require_scopes
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from fastmcp.server.dependencies import get_access_token
from mcp.server.auth.settings import ClientRegistrationOptions

port = int(os.environ["PORT"])
url = f"http://127.0.0.1:{port}"
written = StaticTokenVerifier(
    {
        "reader": {"client_id": "ada", "scopes": ["read"], "sub": "ada"},
        "writer": {"client_id": "ben", "scopes": ["read", "write"], "sub": "ben"},
        "guest": {"client_id": "cy", "scopes": []},
    }
)
kind = os.environ["KIND"]
if kind == "written":
    auth = MultiAuth(verifiers={"written": written}, required_scopes=["read"])
elif kind == "memory":
    auth = InMemoryOAuthProvider(
        base_url=url,
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["read"], default_scopes=["read"]
        ),
        required_scopes=["read"],
    )
else:
    auth = OAuthProxy(
        upstream_authorization_endpoint=f"{os.environ['PROVIDER']}/authorize",
        upstream_token_endpoint=f"{os.environ['PROVIDER']}/token",
        upstream_client_id="ours",
        upstream_client_secret="a-secret-of-ours",
        token_verifier=StaticTokenVerifier(
            {"upstream": {"client_id": "eve", "scopes": ["read"]}, "renewed": {"client_id": "eve", "scopes": ["read"]}},
            required_scopes=["read"],
        ),
        base_url=url,
    )

mcp = FastMCP("protected", auth=auth)


@mcp.tool
def who() -> dict:
    """Return the caller."""
    token = get_access_token()
    return {"client": getattr(token, "original_client_id", None) or token.client_id, "scopes": token.scopes}


@mcp.tool(auth=require_scopes("write"))
def write() -> str:
    """Return a fixed text."""
    return "written"


if __name__ == "__main__":
    mcp.run(transport="http", port=port)
