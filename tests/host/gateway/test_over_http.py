"""The gateway over HTTP: who is let in, what belongs to whom, and profiles at paths of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import trunkline.types as t
from tests.auth.resource_support import AUDIENCE, ISSUER, NOW, ec_key, jwks, token
from tests.host.gateway.support import (
    CELLS,
    FRONTS,
    NEW,
    OLD,
    UPSTREAMS,
    Web,
    again,
    allow,
    asked,
    over_http,
    server,
    until,
)
from trunkline import Client, ConfigError, Context, JWTVerifier, Server, TrunklineError
from trunkline.auth.static_tokens import StaticTokens
from trunkline.errors import InvalidParams
from trunkline.host.authorization.policy.loader import parse_policy
from trunkline.host.config.model import Filters, ServerEntry, ServerSettings, Source
from trunkline.host.gateway.app import Profile
from trunkline.host.host import Host
from trunkline.protocol.revisions import NEWEST

ADA, BEA = "ada-" * 8, "bea-" * 8
USERS = StaticTokens({ADA: "ada", BEA: "bea"})


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


@asynccontextmanager
async def served(office: Office, folder: Path, **options: Any) -> AsyncIterator[Web]:
    """Serve a host of one server over HTTP."""
    policy = options.pop("policy", None) or allow("o")
    async with (
        Host.open({"o": office.server}, folder=folder, policy=policy, audit=options.pop("audit", False)) as host,
        over_http(host, **options) as web,
    ):
        yield web


def _never(question: t.ElicitRequestParams) -> Any:
    raise AssertionError("the test answers by hand")


# --- all pairs of eras over sockets ----------------------------------------------------------------------------------


@CELLS
async def test_calls_questions_and_progress_cross_sockets(channel: str, upstream: str, tmp_path: Path) -> None:
    async with (
        served(Office(upstream), tmp_path) as web,
        web.client(channel, elicitation=lambda _: "Ada") as client,
    ):
        results = await asyncio.gather(*(client.call_tool("o__ask") for _ in range(5)))
        assert (await client.call_tool("o__hi")).data == "hi"
    assert [result.data for result in results] == ["Ada"] * 5


@CELLS
async def test_a_client_that_hangs_up_cancels_its_call(channel: str, upstream: str, tmp_path: Path) -> None:
    office = Office(upstream)
    async with served(office, tmp_path) as web, web.client(channel) as client:
        call = asyncio.create_task(client.call_tool("o__wait"))
        await until(lambda: office.events)
        call.cancel()
        await until(lambda: office.events == ["began", "cancelled"])


async def test_a_caller_that_calls_too_often_is_refused(tmp_path: Path) -> None:
    async with served(Office(NEW), tmp_path, auth=USERS, rate_limit="3/h") as web, aiohttp.ClientSession() as http:
        statuses = []
        for who in (ADA, ADA, ADA, ADA, BEA):
            async with http.get(web.url, headers={"authorization": f"Bearer {who}"}) as response:
                statuses.append(response.status)
        # 406: admitted, and not a request that an endpoint answers.
        assert statuses == [406, 406, 406, 429, 406]


async def test_a_session_that_ends_takes_its_connections_with_it(tmp_path: Path) -> None:
    office = Office(OLD)
    async with (
        Host.open({"o": office.server}, folder=tmp_path, policy=allow("o"), audit=False) as host,
        over_http(host) as web,
    ):
        async with web.client(OLD, elicitation=lambda _: "Ada") as client:
            await client.call_tool("o__ask")
            before = len(host._open.core.sessions)
        await until(lambda: len(host._open.core.sessions) < before)


# --- who is let in ---------------------------------------------------------------------------------------------------

REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


async def _status(url: str, *, verb: str = "POST", **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as web,
        web.request(verb, url, data=json.dumps(REQUEST), headers={**HEADERS, **headers}) as response,
    ):
        return response.status


@pytest.mark.parametrize("path", ["", "/dev"], ids=["whole", "profile"])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no token"),
        pytest.param({"Authorization": "Bearer wrong"}, id="wrong token"),
        pytest.param({"Authorization": "Basic dXNlcjpwYXNz"}, id="other scheme"),
        pytest.param({"mcp-protocol-version": NEW}, id="stateless"),
        pytest.param({"mcp-session-id": "guess"}, id="session"),
    ],
)
async def test_a_request_without_the_token_is_rejected(
    path: str, verb: str, headers: dict[str, str], tmp_path: Path
) -> None:
    async with served(Office(NEW), tmp_path, profiles={"dev": Profile()}) as web:
        assert await _status(f"{web.url}{path}", verb=verb, **headers) == 401


async def test_a_token_is_made_up_for_each_gateway(tmp_path: Path) -> None:
    async with served(Office(NEW), tmp_path / "1") as one, served(Office(NEW), tmp_path / "2") as two:
        tokens = {one.token, two.token}
        assert await _status(one.url, Authorization=f"Bearer {two.token}") == 401
    assert len(tokens) == 2
    assert all(len(token or "") >= 32 for token in tokens)


@pytest.mark.parametrize("path", ["", "/dev"], ids=["whole", "profile"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Host": "evil.example"}, 421, id="host"),
        pytest.param({"Origin": "https://evil.example"}, 403, id="origin"),
    ],
)
async def test_a_request_from_a_foreign_origin_is_rejected_even_with_the_token(
    path: str, headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    async with served(Office(NEW), tmp_path, profiles={"dev": Profile()}) as web:
        refused = await _status(f"{web.url}{path}", Authorization=f"Bearer {web.token}", **headers)
    assert refused in {status, 403}


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


@FRONTS
async def test_a_loopback_gateway_may_use_mode_deny(channel: str, tmp_path: Path) -> None:
    async with served(Office(NEW), tmp_path, no_auth=True) as web, web.client(channel) as client:
        assert web.token is None
        assert (await client.call_tool("o__hi")).data == "hi"


# --- what belongs to whom --------------------------------------------------------------------------------------------


async def test_a_parked_call_is_its_principals_alone(tmp_path: Path) -> None:
    async with (
        served(Office(OLD), tmp_path, auth=USERS) as web,
        web.client(token=ADA, elicitation=_never) as ada,
        web.client(token=BEA, elicitation=_never) as bea,
    ):
        params, question = await asked(ada, "o__ask")
        with pytest.raises(InvalidParams):
            await bea.forward("tools/call", again(params, question, "Bea"))
        result, _ = await ada.forward("tools/call", again(params, question, "Ada"))
    assert result.content[0].text == "Ada"


@FRONTS
async def test_consent_for_a_session_is_not_another_principals(channel: str, tmp_path: Path) -> None:
    policy = parse_policy('[[rule]]\neffect = "ask"\nserver = "o"\ntool = "*"\n', file="policy.toml")
    office = Office(NEW)
    async with (
        served(office, tmp_path, auth=USERS, policy=policy) as web,
        web.client(channel, token=ADA, elicitation=lambda _: {"decision": "allow for this session"}) as ada,
        web.client(channel, token=BEA, elicitation=lambda _: {"decision": "do not allow"}) as bea,
    ):
        await ada.call_tool("o__risk")
        refused = await bea.call_tool("o__risk", raise_on_error=False)
    assert (refused.is_error, office.events) == (True, ["done"])


async def test_consent_for_a_session_holds_for_a_stateless_principal(tmp_path: Path) -> None:
    policy = parse_policy('[[rule]]\neffect = "ask"\nserver = "o"\ntool = "*"\n', file="policy.toml")
    office = Office(NEW)
    answers = ["allow for this session"]
    async with (
        served(office, tmp_path, auth=USERS, policy=policy) as web,
        web.client(token=ADA, elicitation=lambda _: {"decision": answers.pop()}) as ada,
    ):
        await ada.call_tool("o__risk")
        await ada.call_tool("o__risk")
    assert office.events == ["done", "done"]


@FRONTS
@pytest.mark.parametrize(
    ("options", "key", "covers"),
    [
        ({"auth": USERS}, ADA, "all clients with the same token or login"),
        ({"no_auth": True}, None, "all clients, since none has to authenticate"),
    ],
    ids=["token", "anonymous"],
)
async def test_a_stateless_client_is_told_what_consent_for_a_session_covers(
    channel: str, options: dict[str, Any], key: str | None, covers: str, tmp_path: Path
) -> None:
    policy = parse_policy('[[rule]]\neffect = "ask"\nserver = "o"\ntool = "*"\n', file="policy.toml")
    asked: list[str] = []

    def answer(params: Any) -> dict[str, str]:
        asked.append(params.message)
        return {"decision": "allow once"}

    async with (
        served(Office(NEW), tmp_path, policy=policy, **options) as web,
        web.client(channel, token=key, elicitation=answer) as client,
    ):
        await client.call_tool("o__risk")
        stateless = client.revision == NEWEST.name
    (question,) = asked
    assert (f'"For this session" covers {covers}, until the gateway stops.' in question) is stateless


@FRONTS
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
    channel: str, options: dict[str, Any], lasting: bool, tmp_path: Path
) -> None:
    seen: list[list[str]] = []

    def decline(question: t.ElicitRequestParams) -> Any:
        assert question.requested_schema is not None
        seen.append(question.requested_schema["properties"]["decision"]["enum"])
        return t.ElicitResult(action="decline")

    policy = parse_policy('[[rule]]\neffect = "ask"\nserver = "o"\ntool = "*"\n', file="policy.toml")
    async with (
        served(Office(NEW), tmp_path, policy=policy, **options) as web,
        web.client(channel, token=ADA if "auth" in options else None, elicitation=decline) as client,
    ):
        await client.call_tool("o__risk", raise_on_error=False)
    (choices,) = seen
    assert choices[:2] == ["allow once", "allow for this session"]
    assert ("always allow this tool" in choices) is lasting


@FRONTS
async def test_a_client_over_stdio_may_allow_for_longer_than_the_session(channel: str, tmp_path: Path) -> None:
    seen: list[str] = []

    def always(question: t.ElicitRequestParams) -> Any:
        seen.append(question.message)
        return {"decision": "always allow this tool"}

    command = [sys.executable, "-m", "tests.host.gateway.own_gateway", str(tmp_path)]
    for _ in range(2):
        async with Client(command, revision=channel, elicitation=always) as client:
            assert (await client.call_tool("s__look")).text == "seen"
    assert len(seen) == 1


@FRONTS
async def test_what_a_rule_denies_one_principal_another_has(channel: str, tmp_path: Path) -> None:
    policy = allow("o", more='[[rule]]\neffect = "deny"\nserver = "o"\ntool = "risk"\nprincipal = "bea"\n')
    async with (
        served(Office(NEW), tmp_path, auth=USERS, policy=policy) as web,
        web.client(channel, token=ADA) as ada,
        web.client(channel, token=BEA) as bea,
    ):
        assert (await ada.call_tool("o__risk")).data == "done"
        assert "o__risk" not in [tool.name for tool in await bea.list_tools()]
        with pytest.raises(InvalidParams, match="Unknown tool"):
            await bea.call_tool("o__risk")


@CELLS
async def test_two_users_never_share_a_connection_to_a_server_that_is_each_ones_own(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    office = Office(upstream)
    entry = ServerEntry(name="o", source=Source("given"), target=office.server, settings=ServerSettings(per_user=True))
    async with (
        Host.open({"o": entry}, folder=tmp_path, policy=allow("o"), audit=False) as host,
        over_http(host, auth=USERS) as web,
        web.client(channel, token=ADA) as ada,
        web.client(channel, token=BEA) as bea,
    ):
        await ada.call_tool("o__hi")
        await ada.call_tool("o__hi")
        one = len(office.connections)
        await bea.call_tool("o__hi")
        two = len(office.connections)
    assert (one, two) == (1, 2)


@FRONTS
async def test_the_subject_of_a_signed_token_is_in_the_trail(channel: str, tmp_path: Path) -> None:
    verifier = JWTVerifier(issuer=ISSUER, audience=AUDIENCE, keys=jwks(ec_key()), now=lambda: NOW)
    trail = tmp_path / "trail.jsonl"
    async with (
        served(Office(NEW), tmp_path, auth=verifier, audit=trail) as web,
        web.client(channel, token=token(sub="carol")) as client,
    ):
        await client.call_tool("o__hi")
    begun = [json.loads(line) for line in trail.read_text().splitlines()]
    assert [each["principal"] for each in begun if each["stage"] == "begun"] == ["carol"]


# --- profiles --------------------------------------------------------------------------------------------------------


@FRONTS
async def test_a_profile_has_its_own_servers_filters_and_rules(channel: str, tmp_path: Path) -> None:
    profiles = {
        "one": Profile(servers=("a",), tools=Filters(deny=("wait",))),
        "strict": Profile(policy=allow("a", more='[[rule]]\neffect = "deny"\nserver = "*"\ntool = "risk"\n')),
        "none": Profile(servers=()),
    }
    servers = {"a": Office(NEW).server, "b": Office(OLD).server}
    async with (
        Host.open(servers, folder=tmp_path, policy=allow("a", "b"), audit=False) as host,
        over_http(host, profiles=profiles) as web,
        web.client(channel) as whole,
        web.client(channel, path="/one") as one,
        web.client(channel, path="/strict") as strict,
        web.client(channel, path="/none") as none,
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


@FRONTS
async def test_a_path_that_is_no_profile_is_nothing(channel: str, tmp_path: Path) -> None:
    async with served(Office(NEW), tmp_path, profiles={"dev": Profile()}) as web:
        assert await _status(f"{web.url}/other", Authorization=f"Bearer {web.token}") == 404
        assert await _status(f"{web.url}x", Authorization=f"Bearer {web.token}") == 404
        assert await _status(web.url.replace("/mcp", "/x/mcp"), Authorization=f"Bearer {web.token}") == 404
        with pytest.raises(TrunklineError):
            await web.client(channel, path="/devx").__aenter__()


async def test_state_of_one_profile_is_nothing_in_another(tmp_path: Path) -> None:
    async with (
        served(Office(OLD), tmp_path, profiles={"dev": Profile()}) as web,
        web.client(elicitation=_never) as whole,
        web.client(path="/dev", elicitation=_never) as profile,
    ):
        params, question = await asked(whole, "o__ask")
        with pytest.raises(InvalidParams):
            await profile.forward("tools/call", again(params, question, "Ada"))


async def test_state_of_one_profile_is_nothing_in_another_under_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_STATE_KEY", "0123456789abcdef" * 4)
    async with (
        served(Office(OLD), tmp_path, profiles={"dev": Profile()}) as web,
        web.client(elicitation=_never) as whole,
        web.client(path="/dev", elicitation=_never) as profile,
    ):
        params, question = await asked(whole, "o__ask")
        with pytest.raises(InvalidParams):
            await profile.forward("tools/call", again(params, question, "Ada"))


async def test_a_session_of_one_profile_is_none_in_another(tmp_path: Path) -> None:
    async with served(Office(NEW), tmp_path, profiles={"dev": Profile()}) as web, aiohttp.ClientSession() as http:
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


@FRONTS
@UPSTREAMS
async def test_the_gateway_can_be_mounted_in_another_application(channel: str, upstream: str, tmp_path: Path) -> None:
    starlette = pytest.importorskip("starlette.applications", reason="Starlette is the user's")
    routing = pytest.importorskip("starlette.routing")
    from tests.transports.http.small_app import served as small
    from trunkline import Client

    async with Host.open({"o": Office(upstream).server}, folder=tmp_path, policy=allow("o"), audit=False) as host:
        gateway = host.asgi(no_auth=True, profiles={"dev": Profile(tools=Filters(allow=("hi",)))})
        app = starlette.Starlette(routes=[routing.Mount("/tools", app=gateway)])
        async with small(app=_drained(app)) as running:
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
