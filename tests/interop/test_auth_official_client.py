"""The official Python client logs in at our servers: discovery, registration, consent, tokens, and a step up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import httpx2
import mcp
import pytest
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

from tests.interop.peers import NEWEST, NEWEST_HANDSHAKE, is_handshake
from tests.support import run_async
from trunkline import AuthorizationServer, Context, JWTVerifier, Server, StaticTokens
from trunkline.auth.authorization_server.records import OAuthClient
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.serve import serve

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

ERAS = pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE, NEWEST])
CALLBACK = "http://127.0.0.1:9/callback"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def served(server: Server, port: int, **options: Any) -> AsyncIterator[None]:
    """Serve a server on a port of this machine."""
    stopping, started = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(
        serve(
            server.asgi(**options),
            limits=Limits(drain_seconds=1),
            port=port,
            started=lambda url: started.set(),
            stopping=stopping,
        )
    )
    await started.wait()
    try:
        yield
    finally:
        stopping.set()
        await task


class Memory:
    """Keeps the official client's tokens."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None
        self.granted: list[str | None] = []

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens
        self.granted.append(tokens.scope)

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


class Person:
    """Opens the page that the client is sent to; the server allows everything at once."""

    def __init__(self) -> None:
        self.visited: list[dict[str, list[str]]] = []
        self.answer = ""

    async def open(self, url: str) -> None:
        self.visited.append(parse_qs(urlsplit(url).query))
        async with aiohttp.ClientSession() as web, web.get(url, allow_redirects=False) as response:
            assert response.status in (302, 303), await response.text()
            self.answer = response.headers["location"]

    async def come_back(self) -> AuthorizationCodeResult:
        given = parse_qs(urlsplit(self.answer).query)
        return AuthorizationCodeResult(code=given["code"][0], state=given["state"][0], iss=given.get("iss", [None])[0])


@asynccontextmanager
async def logged_in(url: str, revision: str, memory: Memory, person: Person) -> AsyncIterator[mcp.Client]:
    provider = OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(redirect_uris=[CALLBACK], client_name="Official"),  # type: ignore[list-item]
        storage=memory,
        redirect_handler=person.open,
        callback_handler=person.come_back,
    )
    async with httpx2.AsyncClient(auth=provider, timeout=10) as web, connected(url, revision, web) as client:
        yield client


@asynccontextmanager
async def connected(url: str, revision: str, web: httpx2.AsyncClient) -> AsyncIterator[mcp.Client]:
    target: Any = streamable_http_client(url, http_client=web)
    mode = "legacy" if is_handshake(revision) else "auto"
    async with mcp.Client(target, mode=mode, read_timeout_seconds=10) as client:
        yield client


def books(auth: Any) -> Server:
    server = Server("books", auth=auth)

    @server.tool
    async def who(ctx: Context) -> str:
        assert ctx.auth is not None
        return f"{ctx.auth.subject} {' '.join(sorted(ctx.auth.scopes))}"

    @server.tool(scopes=["books:write"])
    async def write() -> str:
        return "written"

    return server


def text(result: Any) -> str:
    return str(result.content[0].text)


@ERAS
def test_the_official_client_logs_in_at_our_authorization_server(revision: str) -> None:
    async def main() -> tuple[str, str, list[str | None]]:
        port, memory = free_port(), Memory()
        base = f"http://127.0.0.1:{port}"
        scopes = {"books:read": "Read books", "books:write": "Write books"}
        auth = AuthorizationServer(issuer=base, scopes=scopes, auto_approve="ada")
        async with (
            served(books(auth), port),
            logged_in(f"{base}/mcp", revision, memory, Person()) as client,
        ):
            said, wrote = await client.call_tool("who", {}), await client.call_tool("write", {})
        return text(said), text(wrote), memory.granted

    said, wrote, granted = run_async(main())
    assert (said, wrote) == ("ada books:read books:write", "written")
    assert [sorted((scope or "").split()) for scope in granted] == [["books:read", "books:write"]]


@ERAS
async def test_tokens_of_another_server_are_verified_by_the_keys_it_publishes(revision: str) -> None:
    issuing, port, person = free_port(), free_port(), Person()
    issuer, url = f"http://127.0.0.1:{issuing}", f"http://127.0.0.1:{port}/mcp"
    issues = AuthorizationServer(issuer=issuer, scopes=["books:read", "books:write"], resource=url, auto_approve="ada")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(served(Server("issuer", auth=issues), issuing))
        await stack.enter_async_context(served(books(JWTVerifier(issuer=issuer, audience=url)), port))
        client = await stack.enter_async_context(logged_in(url, revision, Memory(), person))
        said = text(await client.call_tool("who", {}))
    assert person.visited[0]["resource"] == [url]
    assert said == "ada books:write"


@ERAS
def test_the_official_client_steps_up_when_a_tool_needs_more(revision: str) -> None:
    async def main() -> tuple[str, list[list[str]]]:
        issuing, port, person = free_port(), free_port(), Person()
        issuer, url = f"http://127.0.0.1:{issuing}", f"http://127.0.0.1:{port}/mcp"
        known = OAuthClient(client_id="official", redirect_uris=(CALLBACK,))
        issues = AuthorizationServer(
            issuer=issuer,
            scopes=["books:read", "books:write"],
            resource=url,
            clients=[known],
            auto_approve="ada",
        )
        memory = Memory()
        memory.client = OAuthClientInformationFull(
            client_id="official",
            redirect_uris=[CALLBACK],  # type: ignore[list-item]
            token_endpoint_auth_method="none",
            issuer=issuer,
        )
        # Clients are told of the least; the rest is asked for when it is needed.
        checks = JWTVerifier(issuer=issuer, audience=url, scopes_supported=["books:read"])
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(served(Server("issuer", auth=issues), issuing))
            await stack.enter_async_context(served(books(checks), port))
            client = await stack.enter_async_context(logged_in(url, revision, memory, person))
            wrote = text(await client.call_tool("write", {}))
        return wrote, [sorted(each["scope"][0].split()) for each in person.visited]

    wrote, asked = run_async(main())
    assert wrote == "written"
    assert asked[0] == ["books:read"]
    assert "books:write" in asked[-1]


@ERAS
async def test_the_official_client_comes_in_with_a_token_from_a_list(revision: str) -> None:
    port = free_port()
    headers = {"Authorization": "Bearer listed-token"}
    auth = StaticTokens({"listed-token": {"subject": "eve", "scopes": "books:write"}})
    async with (
        served(books(auth), port),
        httpx2.AsyncClient(headers=headers, timeout=10) as web,
        connected(f"http://127.0.0.1:{port}/mcp", revision, web) as client,
    ):
        assert text(await client.call_tool("who", {})) == "eve books:write"
