"""Servers of other frameworks behind tokens: challenges, logins, a proxy to an identity provider, checks."""

import asyncio
import re
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from trunkline import Client
from trunkline.auth import OAuth
from trunkline.errors import AuthRequired

PROGRAMS = Path(__file__).parent / "programs"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def running(program: str, tmp_path: Path, **variables: str) -> AsyncIterator[str]:
    """Run a program under compat and yield its address."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trunkline", "run", "--compat", str(PROGRAMS / program)),
        env={"PORT": str(port), "FASTMCP_HOME": str(tmp_path), "HOME": str(tmp_path), **variables},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    assert process.returncode is None
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    break
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*.db*"))


async def follow(url: str) -> str:
    """Open a page that redirects at once, as a browser would."""
    async with httpx2.AsyncClient() as browser:
        return str((await browser.get(url, follow_redirects=False)).headers["location"])


async def test_a_request_without_a_token_is_told_what_it_needs(tmp_path: Path) -> None:
    async with running("protected.py", tmp_path, KIND="written") as url, httpx2.AsyncClient() as http:
        missing = await http.post(f"{url}/mcp", json={})
        wrong = await http.post(f"{url}/mcp", json={}, headers={"authorization": "Bearer no"})
        narrow = await http.post(f"{url}/mcp", json={}, headers={"authorization": "Bearer guest"})

        assert (missing.status_code, missing.headers["www-authenticate"]) == (401, 'Bearer scope="read"')
        assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_token")
        assert (narrow.status_code, narrow.json()["error"]) == (403, "insufficient_scope")
        with pytest.raises(AuthRequired):
            async with Client(f"{url}/mcp"):
                pass


async def test_a_token_decides_what_a_caller_sees(tmp_path: Path) -> None:
    async with running("protected.py", tmp_path, KIND="written") as url:
        async with Client(f"{url}/mcp", auth="reader") as connected:
            reader: Any = connected
            assert [tool.name for tool in await reader.list_tools()] == ["who"]
            assert (await reader.call_tool("who")).data == {"client": "ada", "scopes": ["read"]}
            refused = await reader.call_tool("write", raise_on_error=False)
            assert refused.is_error
        async with Client(f"{url}/mcp", auth="writer") as connected:
            writer: Any = connected
            assert [tool.name for tool in await writer.list_tools()] == ["who", "write"]
            assert (await writer.call_tool("write")).text == "written"


async def test_a_client_logs_in_at_a_server_that_issues_tokens_itself(tmp_path: Path) -> None:
    login = OAuth(open_browser=follow, store="memory")
    async with (
        running("protected.py", tmp_path, KIND="memory") as url,
        Client(f"{url}/mcp", auth=login) as connected,
    ):
        client: Any = connected
        assert (await client.call_tool("who")).data["scopes"] == ["read"]


async def test_a_client_logs_in_at_a_server_for_the_official_sdk(tmp_path: Path) -> None:
    login = OAuth(open_browser=follow, store="memory")
    async with running("protected_official.py", tmp_path) as url, Client(f"{url}/mcp", auth=login) as connected:
        client: Any = connected
        assert (await client.call_tool("who")).text == "ada"


async def test_a_session_belongs_to_the_caller_who_opened_it(tmp_path: Path) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    accepts = {"accept": "application/json, text/event-stream"}
    async with running("protected.py", tmp_path, KIND="written") as url, httpx2.AsyncClient() as http:
        opened = await http.post(f"{url}/mcp", json=hello, headers={**accepts, "authorization": "Bearer reader"})
        session = {**accepts, "mcp-session-id": opened.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        same = await http.post(f"{url}/mcp", json=ping, headers={**session, "authorization": "Bearer reader"})
        other = await http.post(f"{url}/mcp", json=ping, headers={**session, "authorization": "Bearer writer"})

        assert (opened.status_code, same.status_code, other.status_code) == (200, 200, 404)


# --- parts, in a process of their own --------------------------------------------------------------------------------

INSTALL = "import trunkline.compat as c; c.install()\n"
PROVIDERS = """
from fastmcp.server.auth.providers.github import GitHubProvider
from fastmcp.server.auth.providers.google import GoogleProvider
from fastmcp.server.auth.providers.azure import AzureProvider
from fastmcp.server.auth.providers.workos import AuthKitProvider, WorkOSProvider
from fastmcp.server.auth.providers.discord import DiscordProvider
from fastmcp.server.auth.providers.clerk import ClerkProvider
from fastmcp.server.auth.providers.huggingface import HuggingFaceProvider
from fastmcp.server.auth.providers.supabase import SupabaseProvider
from fastmcp.server.auth.providers.scalekit import ScalekitProvider
from fastmcp.server.auth.providers.descope import DescopeProvider
from fastmcp.server.auth.providers.propelauth import PropelAuthProvider
from fastmcp.server.auth.providers.keycloak import KeycloakAuthProvider

own = {"client_id": "us", "client_secret": "secret", "base_url": "https://we.example"}
remote = {"base_url": "https://we.example"}
made = [
    GitHubProvider(**own),
    GoogleProvider(**own),
    AzureProvider(**own, tenant_id="t", required_scopes=["read"]),
    WorkOSProvider(**own, authkit_domain="x.authkit.app"),
    DiscordProvider(**own),
    ClerkProvider(**own, domain="x.clerk.dev"),
    HuggingFaceProvider(**own),
    AuthKitProvider(**remote, authkit_domain="https://x.authkit.app"),
    SupabaseProvider(**remote, project_url="https://x.supabase.co"),
    ScalekitProvider(**remote, environment_url="https://x.scalekit.com", resource_id="r"),
    DescopeProvider(**remote, config_url="https://api.descope.com/v1/apps/P1"),
    PropelAuthProvider(
        **remote, auth_url="https://x.example", introspection_client_id="i", introspection_client_secret="s"
    ),
    KeycloakAuthProvider(**remote, realm_url="https://x.example/realms/r"),
]
for each in made:
    paths = {route.path for route in each.get_routes("/mcp")}
    assert "/.well-known/oauth-protected-resource/mcp" in paths, (each, paths)
    assert ("/consent" in paths) == hasattr(each, "_upstream_token_endpoint"), (each, paths)
print(len(made))
"""
TOKENS = """
import asyncio
from fastmcp.server.auth.providers.jwt import JWTVerifier, RSAKeyPair

keys, others = RSAKeyPair.generate(), RSAKeyPair.generate()
verifier = JWTVerifier(
    public_key=keys.public_key, issuer="https://i", audience="us", required_scopes=["read"], base_url="https://we"
)
good = {"subject": "ada", "issuer": "https://i", "audience": "us", "scopes": ["read"]}


def check(pair, **changes):
    found = asyncio.run(verifier.verify_token(pair.create_token(**{**good, **changes})))
    return found and found.subject


print(
    check(keys),
    check(others),
    check(keys, issuer="https://j"),
    check(keys, audience="them"),
    check(keys, scopes=[]),
    check(keys, expires_in_seconds=-1),
    check(keys, additional_claims={"nbf": 9e9}),
)
"""
REPLACED = """
from unittest.mock import patch
import fastmcp.server.auth.ssrf as theirs
from trunkline.compat.auth import ssrf as ours

before = ours.resolve_hostname
with patch("fastmcp.server.auth.ssrf.resolve_hostname", 1):
    assert ours.resolve_hostname == 1 and theirs.resolve_hostname == 1
assert ours.resolve_hostname is before
print("restored")
"""


@pytest.mark.parametrize(
    ("source", "printed"),
    [(PROVIDERS, "13"), (TOKENS, "ada None None None None None None"), (REPLACED, "restored")],
    ids=["providers", "tokens", "replaced-names"],
)
async def test_parts_work_without_a_network(source: str, printed: str, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", INSTALL + source),
        env={"FASTMCP_HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert output.decode().strip() == printed, errors.decode()


# --- a proxy to an identity provider ---------------------------------------------------------------------------------


class IdentityProvider:
    """An identity provider that knows one client, signs every user in, and issues tokens that expire soon."""

    def __init__(self, lifetime: int) -> None:
        self.lifetime = lifetime
        self.codes: set[str] = set()
        self.grants: list[str] = []

    async def authorize(self, request: Request) -> Response:
        code = secrets.token_hex(8)
        self.codes.add(code)
        assert request.query_params["client_id"] == "ours"
        assert request.query_params["code_challenge_method"] == "S256"
        target, state = request.query_params["redirect_uri"], request.query_params["state"]
        return RedirectResponse(f"{target}?code={code}&state={state}")

    async def token(self, request: Request) -> Response:
        form = await request.form()
        self.grants.append(str(form["grant_type"]))
        assert request.headers["authorization"].startswith("Basic ")
        if form["grant_type"] == "refresh_token":
            return JSONResponse({"access_token": "renewed", "token_type": "Bearer", "expires_in": 3600})
        self.codes.remove(str(form["code"]))
        return JSONResponse(
            {
                "access_token": "upstream",
                "refresh_token": "again",
                "token_type": "Bearer",
                "expires_in": self.lifetime,
                "scope": "read",
            }
        )


@asynccontextmanager
async def identity_provider(lifetime: int) -> AsyncIterator[tuple[str, IdentityProvider]]:
    provider, port = IdentityProvider(lifetime), free_port()
    routes = [Route("/authorize", provider.authorize), Route("/token", provider.token, methods=["POST"])]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=port, log_level="error"))
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{port}", provider
    finally:
        server.should_exit = True
        await task


class Person:
    """A person with a browser, who answers the consent page."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.seen = ""

    async def __call__(self, url: str) -> str:
        async with httpx2.AsyncClient() as browser:
            page = await browser.get(url, follow_redirects=True)
            self.seen = page.text
            form = dict(re.findall(r'name="(txn_id|csrf_token)"\s+value="([^"]+)"', page.text))
            response = await browser.post(page.url, data={**form, "action": self.answer}, follow_redirects=False)
            while urlsplit(response.headers["location"]).path != "/callback":
                response = await browser.get(response.headers["location"], follow_redirects=False)
            return str(response.headers["location"])


async def test_a_proxy_asks_for_consent_and_keeps_the_providers_tokens_to_itself(tmp_path: Path) -> None:
    async with identity_provider(3600) as (address, provider):
        async with running("protected.py", tmp_path, KIND="proxy", PROVIDER=address) as url:
            person = Person("approve")
            async with Client(f"{url}/mcp", auth=OAuth(open_browser=person, store="memory")) as connected:
                client: Any = connected
                assert (await client.call_tool("who")).data == {"client": "eve", "scopes": ["read"]}
        assert "wants to access" in person.seen
        assert provider.grants == ["authorization_code"]
    kept = stored(tmp_path)
    assert b"mcp-upstream-tokens" in kept
    assert b"access_token" not in kept


async def test_a_proxy_renews_the_providers_token_when_it_expires(tmp_path: Path) -> None:
    async with identity_provider(1) as (address, provider):
        async with running("protected.py", tmp_path, KIND="proxy", PROVIDER=address) as url:
            auth = OAuth(open_browser=Person("approve"), store="memory")
            async with Client(f"{url}/mcp", auth=auth) as connected:
                client: Any = connected
                await asyncio.sleep(1.2)
                assert (await client.call_tool("who")).data == {"client": "eve", "scopes": ["read"]}
        assert "refresh_token" in provider.grants


async def test_a_proxy_tells_the_client_that_the_user_denied(tmp_path: Path) -> None:
    async with identity_provider(3600) as (address, provider):
        async with running("protected.py", tmp_path, KIND="proxy", PROVIDER=address) as url:
            person = Person("deny")
            answers: list[str] = []

            async def browse(page: str) -> str:
                answers.append(await person(page))
                return answers[-1]

            with pytest.raises(Exception, match="denied"):
                async with Client(f"{url}/mcp", auth=OAuth(open_browser=browse, store="memory")):
                    pass
        query = parse_qs(urlsplit(answers[0]).query)
        assert query["error"] == ["access_denied"]
        assert query["iss"] == [f"{url}/"]
        assert provider.grants == []


async def test_consent_in_one_browser_is_of_no_use_in_another(tmp_path: Path) -> None:
    async with (
        identity_provider(3600) as (address, _),
        running("protected.py", tmp_path, KIND="proxy", PROVIDER=address) as url,
        httpx2.AsyncClient(base_url=url) as first,
        httpx2.AsyncClient(base_url=url) as second,
    ):
        registered = await first.post("/register", json={"redirect_uris": ["http://localhost/callback"]})
        asked = {
            "client_id": registered.json()["client_id"],
            "response_type": "code",
            "code_challenge": "a" * 43,
            "redirect_uri": "http://localhost/callback",
        }
        page = await first.get("/authorize", params=asked, follow_redirects=True)
        form = dict(re.findall(r'name="(txn_id|csrf_token)"\s+value="([^"]+)"', page.text))
        stolen = await second.post("/consent", data={**form, "action": "approve"})
        allowed = await first.post("/consent", data={**form, "action": "approve"})
        signed_in = await second.get(allowed.headers["location"])
        elsewhere = await second.get(signed_in.headers["location"])
        here = await first.get(signed_in.headers["location"])

        assert stolen.status_code == 403
        assert elsewhere.status_code == 403
        assert here.headers["location"].startswith("http://localhost/callback?code=")
