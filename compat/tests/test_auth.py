"""Servers of other frameworks behind tokens: who is let in, what the others are told, and a proxy's logins."""

import asyncio
import base64
import hmac
import html
import json
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
import uvicorn
from joserfc.jwk import RSAKey
from joserfc.jws import JWSRegistry, serialize_compact
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from compat.tests.serving import Reply, browser, command, fetch, free_port, run_python, serving
from compat.tests.test_http import ACCEPT, HELLO
from trunkline import Client
from trunkline.auth import OAuth
from trunkline.errors import AuthError, RequestFailed


@asynccontextmanager
async def running(generation: str, program: str, **variables: str) -> AsyncIterator[str]:
    """Run a protected program and yield its address."""
    port = free_port()
    async with serving(port, command(generation, program), PORT=str(port), **variables) as url:
        yield url


async def ask(url: str, token: str | None, message: Any = HELLO, **headers: str) -> Reply:
    """Open a session with a token, or without one, or send another message."""
    authorization = {} if token is None else {"authorization": f"Bearer {token}"}
    async with browser() as http:
        return await fetch(http, f"{url}/mcp", "POST", json=message, headers={**ACCEPT, **authorization, **headers})


async def resource_metadata(url: str) -> Any:
    """Return the metadata that a request without a token is told to read."""
    challenge = (await ask(url, None)).headers["www-authenticate"]
    address = re.search(r'resource_metadata="([^"]+)"', challenge)
    assert address is not None, challenge
    async with browser() as http:
        return (await fetch(http, address[1])).json()


@pytest.mark.parametrize("generation", ["fastmcp2", "fastmcp3", "fastmcp4"])
async def test_tokens_of_a_table_decide_who_is_let_in_and_what_is_seen(generation: str) -> None:
    async with running(generation, "protected.py", KIND="table") as url:
        missing, wrong, late, narrow = [await ask(url, token) for token in (None, "no", "late", "guest")]
        assert missing.status == 401
        assert missing.headers["www-authenticate"].startswith("Bearer")
        assert (wrong.status, late.status) == (401, 401)
        assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
        assert (narrow.status, 'error="insufficient_scope"' in narrow.headers["www-authenticate"]) == (403, True)
        with pytest.raises(RequestFailed, match="Authorization required"):
            async with Client(f"{url}/mcp"):
                pass
        async with Client(f"{url}/mcp", auth="reader") as client:
            assert (await client.call_tool("who")).data == {"client": "ada", "subject": "ada", "scopes": ["read"]}
            with pytest.raises(Exception, match=r"write|scope"):
                await client.call_tool("write")
        async with Client(f"{url}/mcp", auth="writer") as client:
            assert (await client.call_tool("write")).text == "written"
            assert (await client.call_tool("who")).data["client"] == "ben"


async def test_a_session_belongs_to_the_caller_who_opened_it() -> None:
    async with running("fastmcp3", "protected.py", KIND="table") as url:
        opened = await ask(url, "reader")
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        statuses = [(await ask(url, token, ping, **session)).status for token in ("reader", "writer", None)]

        assert (opened.status, statuses) == (200, [200, 404, 401])


def confused(secret: str, claims: Any) -> str:
    """Return a token that is signed with a public key as if it were a shared secret."""
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "HS256"}, claims)
    )
    signature = hmac.digest(secret.encode(), head + b"." + body, "sha256")
    return b".".join((head, body, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


async def test_signed_tokens_are_verified_for_issuer_audience_time_and_scope() -> None:
    key, stranger = RSAKey.generate_key(2048, {"kid": "k"}), RSAKey.generate_key(2048, {"kid": "k"})
    public = key.as_pem(private=False).decode()
    async with running("fastmcp3", "protected.py", KIND="signed", PUBLIC_KEY=public) as url:
        good = {
            "iss": "https://issuer.example",
            "aud": f"{url}/mcp",
            "sub": "ada",
            "client_id": "notebook",
            "scope": "read",
            "exp": int(time.time()) + 300,
        }

        def token(signer: Any = key, **changes: Any) -> str:
            claims = {name: value for name, value in {**good, **changes}.items() if value is not None}
            registry = JWSRegistry(algorithms=["RS256"])
            return serialize_compact(
                {"alg": "RS256", "kid": "k"}, json.dumps(claims).encode(), signer, registry=registry
            )

        async with Client(f"{url}/mcp", auth=token()) as client:
            assert (await client.call_tool("who")).data == {"client": "notebook", "subject": "ada", "scopes": ["read"]}
        bad = [
            token(stranger),
            token(iss="https://other.example"),
            token(aud="https://other.example/mcp"),
            token(exp=int(time.time()) - 300),
            token(exp=None),
            token(nbf=int(time.time()) + 9000),
            confused(public, good),
            token()[:-4] + "AAAA",
            "not.a.token",
        ]
        assert [(await ask(url, each)).status for each in bad] == [401] * len(bad)
        assert (await ask(url, token(scope=None))).status == 403


async def test_a_verifier_that_would_accept_tokens_for_others_is_refused() -> None:
    source = (
        "from trunkline_compat.imports import install; install(mcp='1.30.0', fastmcp='3.4.10')\n"
        "from fastmcp.server.auth import JWTVerifier\n"
        "JWTVerifier(jwks_uri='https://issuer.example/keys', issuer='https://issuer.example')"
    )
    run = await asyncio.to_thread(run_python, "-c", source)
    assert "ConfigError: JWTVerifier needs one issuer= and an audience=" in run.stderr


PROTECTED_OR_NOT = """
import asyncio, sys
from trunkline_compat.imports import install
install(mcp="2.3.0", fastmcp="4.1.2")
import json
from mcp.server import Server
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp.server.sse import SseServerTransport
from fastmcp import Context, FastMCP
from fastmcp.server.auth import AccessToken, StaticTokenVerifier, TokenVerifier, require_scopes
from starlette.requests import Request

class Verifier(TokenVerifier):
    async def verify_token(self, token):
        return AccessToken(token=token, client_id="ada", scopes=["read"]) if token == "good" else None
settings = AuthSettings(issuer_url="https://issuer.example", resource_server_url="http://127.0.0.1/mcp")

async def post(app, method, params, **headers):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    given = {"host": "127.0.0.1", "accept": "application/json, text/event-stream", "content-type": "application/json"}
    pairs = [(name.encode(), value.encode()) for name, value in {**given, **headers}.items()]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/mcp", "raw_path": b"/mcp", "query_string": b"", "root_path": "", "headers": pairs,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
    sent = []
    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}
    async def send(message):
        sent.append(message)
    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app(scope, receive, send), 120)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]).decode()

def outcome(make):
    try:
        return asyncio.run(post(make(), "tools/list", {}))[0]
    except Exception as error:
        return f"{type(error).__name__}: {error}"

print(outcome(lambda: MCPServer("x", auth=settings).streamable_http_app(json_response=True)))
print(outcome(lambda: MCPServer("x", token_verifier=Verifier()).streamable_http_app(json_response=True)))
print(outcome(lambda: Server("x").streamable_http_app(auth=settings, token_verifier=Verifier())))

class Overriding(FastMCP):
    async def call_tool(self, name, arguments=None, **options):
        return await super().call_tool(name, arguments, **options)

guarded = Overriding("x", auth=StaticTokenVerifier({"good": {"client_id": "ada", "scopes": ["read"]}}))
@guarded.tool(auth=require_scopes("admin"))
def erase() -> str:
    return "erased"
app = guarded.http_app(json_response=True, stateless_http=True)
call = post(app, "tools/call", {"name": "erase", "arguments": {}}, authorization="Bearer good")
print("erased" in asyncio.run(call)[1])

named = FastMCP("x")
named.tool(lambda: 1, name="config")
named.prompt(lambda: "hidden", name="config")
named.disable(names={"config"}, components={"prompt"})
from trunkline import Client as Direct
async def lists():
    async with Direct(named.server) as client:
        return len(await client.list_tools()), len(await client.list_prompts())
print(asyncio.run(lists()))

strict = TransportSecuritySettings(allowed_hosts=["good.example:*"], allowed_origins=["https://good.example"])
def headers(**values):
    pairs = [(name.encode(), value.encode()) for name, value in values.items()]
    return Request({"type": "http", "headers": pairs})
cases = ({"host": "good.example:80"}, {"host": "evil.example"}, {"host": "good.example:1", "origin": "https://evil.example"})
print([strict.refusal(headers(**case)) for case in cases])
print(repr(AccessToken(token="s3cret", client_id="a")).count("s3cret"))
"""


async def test_what_its_author_meant_to_protect_is_never_open() -> None:
    """Each line was open once, or showed what it should not."""
    run = await asyncio.to_thread(run_python, "-c", PROTECTED_OR_NOT)
    unprotected, verifier_alone, low_level, erased, lists, refusals, shown = run.stdout.splitlines() or [run.stderr] * 7
    assert unprotected.startswith("ConfigError: auth=AuthSettings(…) needs token_verifier="), run.stderr
    assert (verifier_alone, low_level, erased) == ("401", "401", "False")
    assert (lists, refusals, shown) == ("(1, 0)", "[None, 421, 403]", "0")


CALL_WITH_TOKENS = """
import asyncio, sys
from trunkline_compat.imports import install
install(mcp="2.3.0", fastmcp="4.1.2")
from fastmcp import Client
from fastmcp.client.auth import BearerAuth

async def main():
    for auth in ("reader", BearerAuth("writer"), "wrong"):
        try:
            async with Client(sys.argv[1], auth=auth) as client:
                print((await client.call_tool("subject")).data)
        except Exception:
            print("refused")

asyncio.run(main())
"""


async def test_a_remote_issuer_is_named_to_those_without_a_token() -> None:
    async with running("fastmcp4", "protected.py", KIND="remote") as url:
        metadata = await resource_metadata(url)
        assert metadata["resource"] == f"{url}/mcp"
        assert [each.rstrip("/") for each in metadata["authorization_servers"]] == ["https://issuer.example"]
        run = await asyncio.to_thread(run_python, "-c", CALL_WITH_TOKENS, f"{url}/mcp")
        assert run.stdout.split("\n")[:3] == ["ada ada", "ben ben", "refused"], run.stderr


@pytest.mark.parametrize("generation", ["sdk1", "sdk2"])
async def test_a_verifier_of_the_official_sdk(generation: str) -> None:
    async with running(generation, "protected_official.py") as url:
        answers = [await ask(url, token) for token in (None, "wrong", "late", "narrow", "good")]
        assert [answer.status for answer in answers] == [401, 401, 401, 403, 200]
        assert "resource_metadata=" in answers[0].headers["www-authenticate"]
        async with Client(f"{url}/mcp", auth="good") as client:
            assert (await client.call_tool("who")).text == "ada"


# --- a proxy to an identity provider ---------------------------------------------------------------------------------


class IdentityProvider:
    """An identity provider that knows one client and signs every user in."""

    def __init__(self) -> None:
        self.codes: set[str] = set()
        self.grants: list[str] = []

    async def authorize(self, request: Request) -> Response:
        code = secrets.token_hex(8)
        self.codes.add(code)
        assert request.query_params["client_id"] == "ours"
        target, state = request.query_params["redirect_uri"], request.query_params["state"]
        return RedirectResponse(f"{target}?code={code}&state={state}")

    async def token(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode())
        self.grants += form["grant_type"]
        self.codes.remove(form["code"][0])
        return JSONResponse({"access_token": "upstream", "token_type": "Bearer", "expires_in": 3600, "scope": "read"})


@asynccontextmanager
async def identity_provider() -> AsyncIterator[tuple[str, IdentityProvider]]:
    provider, port = IdentityProvider(), free_port()
    routes = [Route("/authorize", provider.authorize), Route("/token", provider.token, methods=["POST"])]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=port, log_level="error"))
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{port}", provider
    finally:
        server.should_exit = True
        await task


class Person:
    """A person with a browser, who answers the consent page."""

    def __init__(self, decision: str) -> None:
        self.decision = decision
        self.landed = ""

    async def __call__(self, url: str) -> str:
        async with browser() as http:
            self.landed = await self.decide(http, url)
            while urlsplit(self.landed).path != "/callback":  # the client's; the proxy's is /auth/callback
                self.landed = onward(await fetch(http, self.landed))
        return self.landed

    async def decide(self, http: aiohttp.ClientSession, url: str) -> str:
        """Answer the consent page at a URL, and return where that leads."""
        page = await fetch(http, url)
        sealed = re.search(r'name="request" value="([^"]+)"', page.text)
        assert sealed is not None, page.text
        headers = {"origin": "{0.scheme}://{0.netloc}".format(urlsplit(url)), "sec-fetch-site": "same-origin"}
        form = {"request": sealed[1], "decision": self.decision}
        return onward(await fetch(http, url.partition("?")[0], "POST", data=form, headers=headers))


def onward(reply: Reply) -> str:
    """Return where a response leads: by a redirect, or by a page that leads on at once."""
    page = re.search(r'content="0; url=([^"]+)"', reply.text)
    assert page or "location" in reply.headers, reply.text
    return html.unescape(page[1]) if page else reply.headers["location"]


async def test_a_proxy_asks_for_consent_and_keeps_the_providers_tokens_to_itself() -> None:
    async with (
        identity_provider() as (address, provider),
        running("fastmcp3", "protected.py", KIND="proxy", PROVIDER=address) as url,
    ):
        assert (await ask(url, "upstream")).status == 401
        login = OAuth(open_browser=Person("allow"), store="memory")
        async with Client(f"{url}/mcp", auth=login) as client:
            assert (await client.call_tool("who")).data["subject"] == "eve"
        assert provider.grants == ["authorization_code"]
        denying = Person("deny")
        with pytest.raises(AuthError):
            async with Client(f"{url}/mcp", auth=OAuth(open_browser=denying, store="memory")):
                pass
        assert parse_qs(urlsplit(denying.landed).query)["error"] == ["access_denied"]
        assert provider.grants == ["authorization_code"]


async def endpoints_of(http: aiohttp.ClientSession, url: str) -> Any:
    """Return the metadata of the authorization server that a protected server names."""
    issuer = (await resource_metadata(url))["authorization_servers"][0]
    path = urlsplit(issuer).path.rstrip("/")
    return (await fetch(http, f"{url}/.well-known/oauth-authorization-server{path}")).json()


async def register(http: aiohttp.ClientSession, endpoints: Any, uri: str) -> Reply:
    return await fetch(http, endpoints["registration_endpoint"], "POST", json={"redirect_uris": [uri]})


async def test_a_proxy_registers_no_redirect_that_leads_elsewhere() -> None:
    async with (
        running("fastmcp3", "protected.py", KIND="proxy", PROVIDER="https://provider.example") as url,
        browser() as http,
    ):
        endpoints = await endpoints_of(http, url)
        for uri in ("http://127.0.0.1:1234/callback", "http://localhost/callback", "https://app.example/cb"):
            assert (await register(http, endpoints, uri)).status == 201, uri
        for uri in (
            "http://app.example/cb",
            "http://localhost.evil.example/cb",
            "http://127.0.0.1@evil.example/cb",
            "https://app.example/cb#fragment",
            "https://*/cb",
            "https://*.example/cb",
            "javascript:alert(1)",
            "data:text/html,x",
            "//evil.example/cb",
        ):
            assert (await register(http, endpoints, uri)).status == 400, uri


@pytest.mark.parametrize(
    ("kind", "authorize"),
    [
        ("github", "https://github.com/login/oauth/authorize?"),
        ("azure", "https://login.microsoftonline.com/a-tenant/oauth2/v2.0/authorize?"),
    ],
)
async def test_a_provider_of_the_table_leads_to_its_vendor_and_only_registered_clients_there(
    kind: str, authorize: str
) -> None:
    async with running("fastmcp4", "protected.py", KIND=kind) as url, browser() as http:
        endpoints = await endpoints_of(http, url)
        client = (await register(http, endpoints, "https://app.example/cb")).json()

        def page(**changes: str) -> str:
            params = {
                "client_id": client["client_id"],
                "response_type": "code",
                "code_challenge": "a" * 43,
                "code_challenge_method": "S256",
                "redirect_uri": "https://app.example/cb",
                "resource": f"{url}/mcp",
                **changes,
            }
            return f"{endpoints['authorization_endpoint']}?{urlencode(params)}"

        for changes in (
            {"redirect_uri": "https://evil.example/cb"},
            {"redirect_uri": "https://app.example/cb/../evil"},
            {"redirect_uri": "https://app.example/cb#x"},
            {"client_id": "guessed"},
        ):
            refused = await fetch(http, page(**changes))
            assert (refused.status >= 400, refused.headers.get("location")) == (True, None), changes
        target = await Person("allow").decide(http, page())
        assert target.startswith(authorize)
        query = parse_qs(urlsplit(target).query)
        assert (query["client_id"], query["redirect_uri"]) == (["ours"], [f"{url}/auth/callback"])
