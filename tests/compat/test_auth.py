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


# --- a proxy to an identity provider ---------------------------------------------------------------------------------


class IdentityProvider:
    """An identity provider that knows one client, signs everybody in, and issues tokens that expire soon."""

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
