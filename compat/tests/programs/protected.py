"""A server for ``fastmcp`` behind tokens: of a table, signed ones, of an issuer elsewhere, or of an OAuth proxy."""

import os

from fastmcp import FastMCP
from fastmcp.server.auth import JWTVerifier, OAuthProxy, RemoteAuthProvider, StaticTokenVerifier, require_scopes
from fastmcp.server.dependencies import get_access_token

port = int(os.environ["PORT"])
url = f"http://127.0.0.1:{port}"
table = StaticTokenVerifier(
    {
        "reader": {"client_id": "ada", "scopes": ["read"], "sub": "ada"},
        "writer": {"client_id": "ben", "scopes": ["read", "write"], "sub": "ben"},
        "guest": {"client_id": "cy", "scopes": []},
        "late": {"client_id": "dan", "scopes": ["read"], "expires_at": 1},
    },
    required_scopes=["read"],
)


def make_auth(kind):
    if kind == "table":
        return table
    if kind == "signed":
        return JWTVerifier(
            public_key=os.environ["PUBLIC_KEY"],
            issuer="https://issuer.example",
            audience=f"{url}/mcp",
            required_scopes=["read"],
        )
    if kind == "remote":
        return RemoteAuthProvider(token_verifier=table, authorization_servers=["https://issuer.example"], base_url=url)
    if kind in ("github", "azure"):
        from fastmcp.server.auth.providers.azure import AzureProvider
        from fastmcp.server.auth.providers.github import GitHubProvider

        ours = {"client_id": "ours", "client_secret": "a-secret-of-ours", "base_url": url}
        if kind == "github":
            return GitHubProvider(**ours)
        return AzureProvider(**ours, tenant_id="a-tenant", required_scopes=["read"])
    return OAuthProxy(
        upstream_authorization_endpoint=f"{os.environ['PROVIDER']}/authorize",
        upstream_token_endpoint=f"{os.environ['PROVIDER']}/token",
        upstream_client_id="ours",
        upstream_client_secret="a-secret-of-ours",
        token_verifier=StaticTokenVerifier(
            {"upstream": {"client_id": "eve", "sub": "eve", "scopes": ["read"]}}, required_scopes=["read"]
        ),
        base_url=url,
    )


mcp = FastMCP("protected", auth=make_auth(os.environ["KIND"]))


@mcp.tool
def who() -> dict:
    """Return the caller."""
    token = get_access_token()
    return {"client": token.client_id, "subject": token.claims.get("sub"), "scopes": sorted(token.scopes)}


@mcp.tool(auth=require_scopes("write"))
def write() -> str:
    """Return a fixed text."""
    return "written"


if os.environ["KIND"] == "remote":
    from fastmcp.server.dependencies import CurrentAccessToken, TokenClaim

    @mcp.tool
    def subject(sub: str = TokenClaim("sub"), token=CurrentAccessToken()) -> str:  # noqa: B008 - as it is written there
        """Return who signed in, and with which client."""
        return f"{sub} {token.client_id}"


if __name__ == "__main__":
    mcp.run(transport="http", port=port)
