"""Our client logs in at a server of the official Python SDK, which is its own authorization server there."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from tests.interop.peers import NEWEST, NEWEST_HANDSHAKE
from tests.support import run_async
from trunkline import Client, OAuth

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning", "ignore::DeprecationWarning")
ERAS = pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE, NEWEST])


class Provider:
    """Gives tokens to whoever asks in the right way, and forgets them when told."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.renewals: dict[str, RefreshToken] = {}
        self.resources: list[str | None] = []

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        assert client.client_id is not None
        code = AuthorizationCode(
            code=secrets.token_urlsafe(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            **params.model_dump(
                include={"code_challenge", "redirect_uri", "redirect_uri_provided_explicitly", "resource"}
            ),
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        del self.codes[authorization_code.code]
        self.resources.append(authorization_code.resource)
        return self._give(authorization_code.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.renewals.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        del self.renewals[refresh_token.token]
        return self._give(refresh_token.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: Any) -> None: ...

    async def exchange_identity_assertion(self, client: Any, params: Any) -> OAuthToken:
        raise NotImplementedError

    def _give(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, renewal = secrets.token_urlsafe(), secrets.token_urlsafe()
        self.tokens[access] = AccessToken(token=access, client_id=client_id, scopes=scopes)
        self.renewals[renewal] = RefreshToken(token=renewal, client_id=client_id, scopes=scopes)
        return OAuthToken(access_token=access, expires_in=3600, refresh_token=renewal, scope=" ".join(scopes))


@asynccontextmanager
async def official(provider: Provider) -> AsyncIterator[str]:
    """Serve a protected server of the official SDK on a port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    origin = f"http://127.0.0.1:{port}"
    settings = {
        "issuer_url": origin,
        "resource_server_url": f"{origin}/mcp",
        "required_scopes": ["tools"],
        "client_registration_options": ClientRegistrationOptions(enabled=True, valid_scopes=["tools"]),
    }
    server = MCPServer("official", auth_server_provider=provider, auth=AuthSettings.model_validate(settings))

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    web = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), port=port, log_config=None, ws="none"))
    task = asyncio.ensure_future(web.serve())
    while not web.started:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)
    try:
        yield f"{origin}/mcp"
    finally:
        web.should_exit = True
        await task


async def approve(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as page:
        return page.headers["Location"]


@ERAS
def test_our_client_logs_in_calls_and_renews(revision: str) -> None:
    provider = Provider()

    async def main() -> tuple[list[Any], str]:
        async with official(provider) as url:
            auth = OAuth(store="memory", open_browser=approve)
            async with Client(url, auth=auth, revision=revision, timeout=10) as client:
                first = await client.call_tool("add", {"a": 1, "b": 2})
                provider.tokens.clear()
                second = await client.call_tool("add", {"a": 3, "b": 4})
            return [first.data, second.data], url

    sums, url = run_async(main())
    assert sums == [3, 7]
    assert (len(provider.clients), provider.resources) == (1, [url])
