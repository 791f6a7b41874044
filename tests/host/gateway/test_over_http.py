"""The gateway over HTTP: who is let in, what belongs to whom, and profiles at paths of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import trunkline.types as t
from tests.auth.resource_support import AUDIENCE, ISSUER, NOW, ec_key, jwks, token
from tests.host.gateway.support import (
    NEW,
    OLD,
    PAIRS,
    Web,
    again,
    allow,
    asked,
    served,
    server,
    until,
)
from tests.host.supervised import scripted
from tests.transports.http import small_app
from trunkline import Client, ConfigError, Context, JWTVerifier, Server, TrunklineError
from trunkline.auth.static_tokens import StaticTokens
from trunkline.errors import InvalidParams
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.config.model import Filters
from trunkline.host.gateway.app import Profile
from trunkline.host.host import Host

ADA, BEA = "ada-" * 8, "bea-" * 8
USERS = StaticTokens({ADA: "ada", BEA: "bea"})
ASK = parse_policy('[[rule]]\neffect = "ask"\nserver = "o"\ntool = "*"\n', file="policy.toml")


class Office:
    """A server that asks, waits and counts its connections."""

    def __init__(self, revision: str) -> None:
        self.events: list[str] = []
        self.connections: set[int] = set()
        self.server: Server = server("office", revision)
        self.server.add_tool(self.hi)
        self.server.add_tool(self.ask)
        self.server.add_tool(self.wait)
        self.server.add_tool(self.risk)

    async def hi(self, ctx: Context) -> str:
        """Greet."""
        self.connections.add(id(ctx._exchange.connection))
        return "hi"

    async def ask(self, ctx: Context) -> str:
        """Ask."""
        return str((await ctx.elicit("Name?", str)).data)

    async def wait(self) -> str:
        """Wait."""
        self.events.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        return "never"

    async def risk(self) -> str:
        """Do something that is asked about."""
        self.events.append("done")
        return "done"


def serving(office: Office, folder: Path, **options: Any) -> AbstractAsyncContextManager[Web]:
    """Serve a host of one server over HTTP."""
    return served({"o": office.server}, folder, **options)


def _never(question: t.ElicitRequestParams) -> Any:
    raise AssertionError("the test answers by hand")


# --- all pairs of eras over sockets ----------------------------------------------------------------------------------


@PAIRS
async def test_a_client_that_hangs_up_cancels_its_call(channel: str, upstream: str, tmp_path: Path) -> None:
    office = Office(upstream)
    async with serving(office, tmp_path) as web, web.client(channel) as client:
        call = asyncio.create_task(client.call_tool("o__wait"))
        await until(lambda: office.events)
        call.cancel()
        await until(lambda: office.events == ["began", "cancelled"])


async def test_a_caller_that_calls_too_often_is_refused(tmp_path: Path) -> None:
    async with serving(Office(NEW), tmp_path, auth=USERS, rate_limit="3/h") as web, aiohttp.ClientSession() as http:
        statuses = []
        for who in (ADA, ADA, ADA, ADA, BEA):
            async with http.get(web.url, headers={"authorization": f"Bearer {who}"}) as response:
                statuses.append(response.status)
        # 406: admitted, and not a request that an endpoint answers.
        assert statuses == [406, 406, 406, 429, 406]


# --- who is let in ---------------------------------------------------------------------------------------------------

REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


async def _status(url: str, *, verb: str = "POST", **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as web,
        web.request(verb, url, data=json.dumps(REQUEST), headers={**HEADERS, **headers}) as response,
    ):
        return response.status


UNAUTHORIZED: dict[str, dict[str, str]] = {
    "no token": {},
    "wrong token": {"Authorization": "Bearer wrong"},
    "other scheme": {"Authorization": "Basic dXNlcjpwYXNz"},
    "stateless": {"mcp-protocol-version": NEW},
    "session": {"mcp-session-id": "guess"},
}


@pytest.mark.parametrize("path", ["", "/dev"], ids=["whole", "profile"])
async def test_a_request_without_the_token_is_rejected(path: str, tmp_path: Path) -> None:
    async with serving(Office(NEW), tmp_path, profiles={"dev": Profile()}) as web:
        statuses = {
            (verb, name): await _status(f"{web.url}{path}", verb=verb, **headers)
            for verb in ("POST", "GET", "DELETE")
            for name, headers in UNAUTHORIZED.items()
        }
    assert {request: status for request, status in statuses.items() if status != 401} == {}


async def test_a_token_is_made_up_for_each_gateway(tmp_path: Path) -> None:
    async with serving(Office(NEW), tmp_path / "1") as one, serving(Office(NEW), tmp_path / "2") as two:
        tokens = {one.token, two.token}
        assert await _status(one.url, Authorization=f"Bearer {two.token}") == 401
    assert len(tokens) == 2
    assert all(len(token or "") >= 32 for token in tokens)


async def test_a_request_from_a_foreign_origin_is_rejected_even_with_the_token(tmp_path: Path) -> None:
    async with serving(Office(NEW), tmp_path, profiles={"dev": Profile()}) as web:
        authorization = {"Authorization": f"Bearer {web.token}"}
        for path in ("", "/dev"):
            assert await _status(f"{web.url}{path}", **authorization, Host="evil.example") in {421, 403}
            assert await _status(f"{web.url}{path}", **authorization, Origin="https://evil.example") == 403


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"no_auth": True, "token": "x"}, "no_auth", id="token and none"),
        pytest.param({"auth": USERS, "token": "x"}, "one of them", id="two ways"),
        pytest.param({"http": "0.0.0.0:0", "no_auth": True}, "can be reached by others", id="open to the world"),
        pytest.param({"http": "localhost:port"}, "is not an address", id="no port"),
        pytest.param({"http": "127.0.0.1:70000"}, "is not an address", id="large port"),
    ],
)
async def test_a_gateway_that_would_not_be_safe_is_not_served(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    async with Host.open({}, folder=tmp_path, audit=False) as host:
        with pytest.raises(ConfigError, match=words):
            await host.serve(**{"http": 0, **options})


# --- what belongs to whom --------------------------------------------------------------------------------------------


async def test_a_parked_call_is_its_principals_alone(tmp_path: Path) -> None:
    async with (
        serving(Office(OLD), tmp_path, auth=USERS) as web,
        web.client(token=ADA, elicitation=_never) as ada,
        web.client(token=BEA, elicitation=_never) as bea,
    ):
        params, question = await asked(ada, "o__ask")
        with pytest.raises(InvalidParams):
            await bea.forward("tools/call", again(params, question, "Bea"))
        result, _ = await ada.forward("tools/call", again(params, question, "Ada"))
    assert result.content[0].text == "Ada"


async def test_consent_for_a_session_is_not_another_principals(tmp_path: Path) -> None:
    office = Office(NEW)
    async with (
        serving(office, tmp_path, auth=USERS, policy=ASK) as web,
        web.client(OLD, token=ADA, elicitation=lambda _: {"decision": "allow for this session"}) as ada,
        web.client(OLD, token=BEA, elicitation=lambda _: {"decision": "do not allow"}) as bea,
    ):
        await ada.call_tool("o__risk")
        refused = await bea.call_tool("o__risk", raise_on_error=False)
    assert (refused.is_error, office.events) == (True, ["done"])


async def test_consent_for_a_session_holds_for_a_stateless_principal(tmp_path: Path) -> None:
    office = Office(NEW)
    answers = ["allow for this session"]
    async with (
        serving(office, tmp_path, auth=USERS, policy=ASK) as web,
        web.client(token=ADA, elicitation=lambda _: {"decision": answers.pop()}) as ada,
    ):
        await ada.call_tool("o__risk")
        await ada.call_tool("o__risk")
    assert office.events == ["done", "done"]


@pytest.mark.parametrize(
    ("channel", "options", "key", "covers"),
    [
        (NEW, {"auth": USERS}, ADA, "all clients with the same token or login"),
        (NEW, {"no_auth": True}, None, "all clients, since none has to authenticate"),
        (OLD, {"auth": USERS}, ADA, "all clients with the same token or login"),
    ],
    ids=["token", "anonymous", "handshake"],
)
async def test_a_stateless_client_is_told_what_consent_for_a_session_covers(
    channel: str, options: dict[str, Any], key: str | None, covers: str, tmp_path: Path
) -> None:
    asked: list[str] = []

    def answer(params: Any) -> dict[str, str]:
        asked.append(params.message)
        return {"decision": "allow once"}

    async with (
        serving(Office(NEW), tmp_path, policy=ASK, **options) as web,
        web.client(channel, token=key, elicitation=answer) as client,
    ):
        await client.call_tool("o__risk")
    (question,) = asked
    assert (f'"For this session" covers {covers}, until the gateway stops.' in question) is (channel == NEW)


@pytest.mark.parametrize(
    ("options", "lasting"),
    [
        ({}, True),
        ({"token": ADA}, True),
        ({"auth": USERS}, False),
        ({"no_auth": True}, False),
        ({"allowed_hosts": ["gateway.example"]}, False),
        ({"allowed_origins": ["https://app.example"]}, False),
    ],
    ids=["own token", "given token", "users", "no token", "other hosts", "browsers"],
)
async def test_answers_that_last_are_offered_to_the_users_own_client_alone(
    options: dict[str, Any], lasting: bool, tmp_path: Path
) -> None:
    seen: list[list[str]] = []

    def decline(question: t.ElicitRequestParams) -> Any:
        assert question.requested_schema is not None
        seen.append(question.requested_schema["properties"]["decision"]["enum"])
        return t.ElicitResult(action="decline")

    async with (
        serving(Office(NEW), tmp_path, policy=ASK, **options) as web,
        web.client(token=ADA if "auth" in options else None, elicitation=decline) as client,
    ):
        await client.call_tool("o__risk", raise_on_error=False)
    (choices,) = seen
    assert choices[:2] == ["allow once", "allow for this session"]
    assert ("always allow this tool" in choices) is lasting


async def test_a_client_over_stdio_may_allow_for_longer_than_the_session(tmp_path: Path) -> None:
    seen: list[str] = []

    def always(question: t.ElicitRequestParams) -> Any:
        seen.append(question.message)
        return {"decision": "always allow this tool"}

    command = [sys.executable, "-m", "tests.host.gateway.own_gateway", str(tmp_path)]
    for _ in range(2):
        async with Client(command, revision=NEW, elicitation=always) as client:
            assert (await client.call_tool("s__look")).text == "seen"
    assert len(seen) == 1


async def test_what_a_rule_denies_one_principal_another_has(tmp_path: Path) -> None:
    policy = allow("o", more='[[rule]]\neffect = "deny"\nserver = "o"\ntool = "risk"\nprincipal = "bea"\n')
    async with (
        serving(Office(NEW), tmp_path, auth=USERS, policy=policy) as web,
        web.client(NEW, token=ADA) as ada,
        web.client(NEW, token=BEA) as bea,
    ):
        assert (await ada.call_tool("o__risk")).data == "done"
        assert "o__risk" not in [tool.name for tool in await bea.list_tools()]
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await bea.call_tool("o__risk")


@PAIRS
async def test_two_users_never_share_a_connection_to_a_server_that_is_each_ones_own(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    office = Office(upstream)
    entry = scripted("o", office.server, per_user=True)
    async with (
        served({"o": entry}, tmp_path, auth=USERS) as web,
        web.client(channel, token=ADA) as ada,
        web.client(channel, token=BEA) as bea,
    ):
        await ada.call_tool("o__hi")
        await ada.call_tool("o__hi")
        one = len(office.connections)
        await bea.call_tool("o__hi")
        two = len(office.connections)
    assert (one, two) == (1, 2)


async def test_the_subject_of_a_signed_token_is_in_the_trail(tmp_path: Path) -> None:
    verifier = JWTVerifier(issuer=ISSUER, audience=AUDIENCE, keys=jwks(ec_key()), now=lambda: NOW)
    trail = tmp_path / "trail.jsonl"
    async with (
        serving(Office(NEW), tmp_path, auth=verifier, audit=trail) as web,
        web.client(NEW, token=token(sub="carol")) as client,
    ):
        await client.call_tool("o__hi")
    begun = [json.loads(line) for line in trail.read_text().splitlines()]
    assert [each["principal"] for each in begun if each["stage"] == "begun"] == ["carol"]


# --- profiles --------------------------------------------------------------------------------------------------------


async def test_a_profile_has_its_own_servers_filters_and_rules(tmp_path: Path) -> None:
    profiles = {
        "one": Profile(servers=("a",), tools=Filters(deny=("wait",))),
        "strict": Profile(policy=allow("a", more='[[rule]]\neffect = "deny"\nserver = "*"\ntool = "risk"\n')),
        "none": Profile(servers=()),
    }
    servers = {"a": Office(NEW).server, "b": Office(OLD).server}
    async with (
        served(servers, tmp_path, profiles=profiles) as web,
        web.client(OLD) as whole,
        web.client(OLD, path="/one") as one,
        web.client(OLD, path="/strict") as strict,
        web.client(OLD, path="/none") as none,
    ):
        lists = [[tool.name for tool in await each.list_tools()] for each in (whole, one, strict, none)]
        with pytest.raises(InvalidParams, match="Unknown tool: b__hi"):
            await one.call_tool("b__hi")
        with pytest.raises(InvalidParams, match="Unknown tool: a__wait"):
            await one.call_tool("a__wait")
        assert (await one.call_tool("a__hi")).data == "hi"
    assert lists == [
        [f"{name}__{tool}" for name in "ab" for tool in ("ask", "hi", "risk", "wait")],
        ["a__ask", "a__hi", "a__risk"],
        [f"{name}__{tool}" for name in "ab" for tool in ("ask", "hi", "wait")],
        [],
    ]


async def test_a_path_that_is_no_profile_is_nothing(tmp_path: Path) -> None:
    async with serving(Office(NEW), tmp_path, profiles={"dev": Profile()}) as web:
        assert await _status(f"{web.url}/other", Authorization=f"Bearer {web.token}") == 404
        assert await _status(f"{web.url}x", Authorization=f"Bearer {web.token}") == 404
        assert await _status(web.url.replace("/mcp", "/x/mcp"), Authorization=f"Bearer {web.token}") == 404
        with pytest.raises(TrunklineError):
            await web.client(NEW, path="/devx").__aenter__()


async def test_state_of_one_profile_is_nothing_in_another_even_under_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_STATE_KEY", "0123456789abcdef" * 4)
    async with (
        serving(Office(OLD), tmp_path, profiles={"dev": Profile()}) as web,
        web.client(elicitation=_never) as whole,
        web.client(path="/dev", elicitation=_never) as profile,
    ):
        params, question = await asked(whole, "o__ask")
        with pytest.raises(InvalidParams):
            await profile.forward("tools/call", again(params, question, "Ada"))


async def test_a_session_of_one_profile_is_none_in_another(tmp_path: Path) -> None:
    async with serving(Office(NEW), tmp_path, profiles={"dev": Profile()}) as web, aiohttp.ClientSession() as http:
        headers = {**HEADERS, "Authorization": f"Bearer {web.token}"}
        hello = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
        }
        async with http.post(web.url, json=hello, headers=headers) as opened:
            session = opened.headers["mcp-session-id"]
        async with http.post(f"{web.url}/dev", json=REQUEST, headers={**headers, "mcp-session-id": session}) as refused:
            assert refused.status == 404


# --- mounted elsewhere -----------------------------------------------------------------------------------------------


@PAIRS
async def test_the_gateway_can_be_mounted_in_another_application(channel: str, upstream: str, tmp_path: Path) -> None:
    starlette = pytest.importorskip("starlette.applications", reason="Starlette is the user's")
    routing = pytest.importorskip("starlette.routing")
    async with Host.open({"o": Office(upstream).server}, folder=tmp_path, policy=allow("o"), audit=False) as host:
        gateway = host.asgi(no_auth=True, profiles={"dev": Profile(tools=Filters(allow=("hi",)))})
        app = starlette.Starlette(routes=[routing.Mount("/tools", app=gateway)])
        async with small_app.served(app=_drained(app)) as running:
            async with Client(f"{running.url}/tools/mcp", revision=channel, elicitation=lambda _: "Ada") as client:
                assert (await client.call_tool("o__ask")).data == "Ada"
            async with Client(f"{running.url}/tools/mcp/dev", revision=channel) as client:
                assert [tool.name for tool in await client.list_tools()] == ["o__hi"]
        await gateway.aclose()


def _drained(app: Any) -> Any:
    """Give an application what a server of ours asks of one."""

    class Drained:
        release = asyncio.Event()

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)

        async def drain(self, seconds: float) -> None:
            return

    return Drained()


async def test_an_application_without_authentication_needs_no_auth_in_writing(tmp_path: Path) -> None:
    async with Host.open({}, folder=tmp_path, audit=False) as host:
        with pytest.raises(ConfigError, match="no_auth=True"):
            host.asgi()
