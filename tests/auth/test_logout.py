"""Logging out: tokens are revoked at their issuer, and the login is removed even if that fails."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tests.auth.client_site import browse
from tests.auth.client_web import ISSUER, SERVER, Web, answer, enter, metadata, play
from tests.auth.served import free_port, served
from trunkline import AuthorizationServer, Client, Context, OAuth, Server
from trunkline.auth import LoggedOut, log_out
from trunkline.auth.client import revoke
from trunkline.auth.credential_store import MemoryStore
from trunkline.auth.steps import ClockAndRandom, Fetch
from trunkline.auth.token_store import LoginStore, stored_logins
from trunkline.auth.tokens import Login
from trunkline.errors import AuthError, FetchError
from trunkline.net import FetchResponse

REVOKE = f"{ISSUER}/revoke"
WELL_KNOWN = f"{ISSUER}/.well-known/oauth-authorization-server"
TOKENS = {"access_token": "access", "token_type": "Bearer", "refresh_token": "refresh", "expires_in": 3600}


def web(*answers: Any, **changes: Any) -> Web:
    """An authorization server that can take tokens back, and what it answers when asked to."""
    said = metadata(**{"revocation_endpoint": REVOKE, **changes})
    return Web({WELL_KNOWN: said, f"{ISSUER}/token": TOKENS, REVOKE: list(answers) or answer({})})


def login(site: Web, options: OAuth | None = None) -> Login:
    """Log in there."""
    return enter(site, options)[0]


async def keeping(made: Login, url: str = SERVER) -> MemoryStore:
    """Return a store with a login."""
    store = MemoryStore()
    await LoginStore(store, url, OAuth()).save(made)
    return store


async def leave(site: Web, **options: Any) -> tuple[list[LoggedOut], list[str]]:
    """Log in and out again; give what came of it, and what is left in the store."""
    store = await keeping(login(site))
    gone = await log_out(SERVER, **{"store": store, "fetch": site.fetch_later, **options})
    return gone, await store.keys()


# --- what is sent -----------------------------------------------------------------------------------------------------


async def test_both_tokens_are_revoked_the_refresh_token_first() -> None:
    site = web()
    assert await leave(site) == ([LoggedOut(SERVER, ISSUER, revoked=True)], [])
    assert [(form["token"], form["token_type_hint"], form["client_id"]) for form in site.sent("/revoke")] == [
        ("refresh", "refresh_token", "registered"),
        ("access", "access_token", "registered"),
    ]


def test_a_client_with_a_secret_authenticates_with_it() -> None:
    options = OAuth(client_id="known", client_secret="hidden", issuer=ISSUER)
    site = web(token_endpoint_auth_methods_supported=["client_secret_basic"])
    play(revoke(login(site, options), options, sources=ClockAndRandom()), site)
    basic = f"Basic {base64.b64encode(b'known:hidden').decode()}"
    assert [head["Authorization"] for head in site.heads("/revoke")] == [basic, basic]


async def test_logging_out_without_a_refresh_token_revokes_one_token() -> None:
    site = web()
    site.pages[f"{ISSUER}/token"] = {"access_token": "access", "token_type": "Bearer"}
    await leave(site)
    assert [form["token"] for form in site.sent("/revoke")] == ["access"]


async def test_a_local_logout_sends_no_request() -> None:
    site = web()
    assert await leave(site, local=True) == ([LoggedOut(SERVER, ISSUER)], [])
    assert site.sent("/revoke") == []


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        pytest.param(
            [answer({"error": "invalid_client"}, 401), answer({})],
            "did not revoke the refresh token: 'invalid_client'.",
            id="one refused",
        ),
        pytest.param(
            [answer({}), answer({"error": "unsupported_token_type", "error_description": "no\nJWTs"}, 400)],
            "did not revoke the access token: 'unsupported_token_type' (\"no JWTs\").",
            id="the other refused",
        ),
        pytest.param([answer({}, 503), answer({}, 503)], "status 503 and no reason", id="unwell"),
        pytest.param([answer({}, 302), answer({}, 302)], "status 302 and no reason", id="sent elsewhere"),
        pytest.param([FetchError("refused")], "cannot be reached to revoke the tokens", id="away"),
    ],
)
async def test_a_failed_revocation_is_reported_and_the_login_removed_nevertheless(
    answers: list[Any], words: str
) -> None:
    gone, left = await leave(web(*answers))
    assert (gone[0].revoked, words in (gone[0].problem or ""), left) == (False, True, [])


async def test_a_server_without_a_revocation_endpoint_is_reported() -> None:
    site = web(revocation_endpoint=None)
    gone, left = await leave(site)
    assert ("has no revocation_endpoint" in (gone[0].problem or ""), left) == (True, [])
    assert site.sent("/revoke") == []


async def test_waiting_for_a_revocation_is_bounded() -> None:
    async def never(step: Fetch) -> FetchResponse:
        await asyncio.Event().wait()
        raise AssertionError

    gone, left = await leave(web(), fetch=never, seconds=0.01)
    assert ("did not answer within 0.01 s" in (gone[0].problem or ""), left) == (True, [])


async def test_a_cancelled_logout_has_removed_the_login() -> None:
    store, asked = await keeping(login(web())), asyncio.Event()

    async def never(step: Fetch) -> FetchResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(log_out(SERVER, store=store, fetch=never))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.keys() == []


async def test_the_secret_of_a_client_is_not_shown_to_another_authorization_server() -> None:
    options = OAuth(client_id="known", client_secret="hidden", issuer="https://other.example.com")
    site = web()
    gone, left = await leave(site, options=options)
    assert ("is not registered at" in (gone[0].problem or ""), left) == (True, [])
    assert site.sent("/revoke") == []


def test_no_message_has_a_token_in_it() -> None:
    site = web(answer({"error": "x"}, 400), answer({"error": "x"}, 400))
    with pytest.raises(AuthError) as failed:
        play(revoke(login(site), OAuth(), sources=ClockAndRandom()), site)
    told = str(failed.value).replace("refresh token", "").replace("access token", "")
    assert ("refresh" in told, "access" in told) == (False, False)


# --- which logins -----------------------------------------------------------------------------------------------------


async def test_logging_out_ends_only_the_named_login() -> None:
    other = "https://other.example.net/mcp"
    site = web()
    made = login(site)
    store = await keeping(made)
    theirs = replace(made, tokens=replace(made.tokens, resource=other, client_id="theirs"))
    await LoginStore(store, other, OAuth()).save(theirs)
    gone = await log_out(SERVER + "/", store=store, fetch=site.fetch_later)
    left = [kept.url for kept in await stored_logins(store)]
    assert ([each.url for each in gone], left) == ([SERVER], [other])


async def test_logging_out_ends_all_logins_and_removes_unreadable_ones() -> None:
    site = web()
    store = await keeping(login(site))
    await store.put("server|https://broken.example.com|0", "{")
    assert (len(await log_out(store=store, fetch=site.fetch_later)), await store.keys()) == (1, [])


async def test_an_unreadable_login_is_removed_by_its_server() -> None:
    store = MemoryStore()
    await store.put(f"server|{SERVER}|0", "{")
    assert (await log_out(SERVER, store=store), await store.keys()) == ([], [])


# --- at our own authorization server, over HTTP -----------------------------------------------------------------------


@asynccontextmanager
async def protected() -> AsyncIterator[tuple[str, AuthorizationServer]]:
    """Serve a server that issues its own tokens; give its URL and who issues them."""
    port = free_port()
    auth = AuthorizationServer(issuer=f"http://127.0.0.1:{port}", scopes={}, auto_approve="ada")
    server = Server("protected", auth=auth)

    @server.tool
    async def who(ctx: Context) -> str:
        return "" if ctx.auth is None else ctx.auth.subject

    async with served(server.asgi(), port):
        yield f"http://127.0.0.1:{port}/mcp", auth


async def _good(auth: AuthorizationServer, token: str) -> bool:
    try:
        return await auth.verify({"authorization": f"Bearer {token}"}) is not None
    except AuthError:
        return False


@pytest.mark.parametrize("local", [False, True], ids=["taken back", "forgotten only"])
async def test_logging_out_invalidates_tokens_of_our_own_authorization_server(local: bool) -> None:
    async with protected() as (url, auth):
        store = MemoryStore()
        async with Client(url, auth=OAuth(store=store, open_browser=browse)) as client:
            said = (await client.call_tool("who")).text
        made = await LoginStore(store, url, OAuth()).load()
        assert made is not None
        token = made.tokens.access_token
        before = await _good(auth, token)
        gone = await log_out(url, store=store, local=local)
        after, left = await _good(auth, token), await store.keys()
    assert (said, before, after, left) == ("ada", True, local, [])
    assert [(each.revoked, each.problem) for each in gone] == [(not local, None)]
