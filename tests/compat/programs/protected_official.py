"""A server for the official SDK with an authorization server inside it."""

import os
import secrets
import time

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

port = int(os.environ["PORT"])
url = f"http://127.0.0.1:{port}"


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    def __init__(self):
        self.clients, self.codes, self.tokens = {}, {}, {}

    async def get_client(self, client_id: str):
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            client_id=client.client_id,
            scopes=params.scopes or ["read"],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client, authorization_code: str):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        token = secrets.token_hex(16)
        self.tokens[token] = AccessToken(
            token=token, client_id=client.client_id, scopes=authorization_code.scopes, subject="ada"
        )
        return OAuthToken(access_token=token, expires_in=60, scope=" ".join(authorization_code.scopes))

    async def load_refresh_token(self, client, refresh_token: str):
        return None

    async def load_access_token(self, token: str):
        return self.tokens.get(token)


mcp = MCPServer(
    "official",
    auth_server_provider=Provider(),
    auth=AuthSettings(
        issuer_url=AnyHttpUrl(url),
        resource_server_url=AnyHttpUrl(f"{url}/mcp"),
        required_scopes=["read"],
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["read"], default_scopes=["read"]
        ),
        validate_token_resource=False,
    ),
)


@mcp.tool()
def who() -> str:
    """Return the caller."""
    return get_access_token().subject


if __name__ == "__main__":
    mcp.run("streamable-http", port=port)
