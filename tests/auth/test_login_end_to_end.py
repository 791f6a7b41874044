"""Whole logins over real sockets: a client, a browser, a protected server, an authorization server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.auth.client_site import Site, browse
from tests.host.gateway.support import until
from tests.transports.http.scripted_http import (
    LISTENING,
    Got,
    HttpScript,
    Status,
    Writer,
    handshake_script,
    old_script,
    stateless_script,
)
from trunkline import ApiKey, BearerToken, Client, Limits, OAuth
from trunkline.errors import AuthError, AuthRequired

HANDSHAKE: dict[str, Any] = {"revision": "2025-11-25"}


def login(**options: Any) -> OAuth:
    return OAuth(**{"store": "memory", "open_browser": browse, **options})


async def call(site: HttpScript, *, times: int = 1, **options: Any) -> list[str]:
    """Call a tool some times and give the texts."""
    async with site, Client(site.url, **options) as client:
        return [(await client.call_tool("add", {"a": 1})).text for _ in range(times)]


@pytest.mark.parametrize("script", [stateless_script, handshake_script], ids=["stateless", "handshake"])
async def test_a_client_logs_in_and_calls(script: Any) -> None:
    site = Site(script())
    assert await call(site, auth=login()) == ["3"]
    assert (len(site.asked("/authorize")), site.refused) == (1, 1)


async def test_the_word_oauth_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import webbrowser

    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", lambda: object())
    monkeypatch.setattr(webbrowser, "open", lambda url: asyncio.run(browse(url)) is None)
    site = Site(stateless_script())
    assert await call(site, auth="oauth") == ["3"]
    assert (tmp_path / "logins").exists()


async def test_every_request_shows_the_token_and_no_url_holds_it() -> None:
    site = Site(handshake_script({"GET": LISTENING}))
    await call(site, times=3, auth=login(), **HANDSHAKE)
    let_in = site.asked("/mcp")[1:]
    assert {got.headers.get("authorization") for got in let_in} == {"Bearer token-1"}
    assert {got.verb for got in let_in} == {"POST", "GET", "DELETE"}
    assert [got.path for got in site.requests if "token-1" in got.path] == []


async def test_a_refused_token_is_refreshed_and_the_call_repeated() -> None:
    site = Site(stateless_script())
    async with site, Client(site.url, auth=login()) as client:
        first = await client.call_tool("add", {"a": 1})
        site.revoke()
        second = await client.call_tool("add", {"a": 1})
    forms = [got.body.decode().split("&")[0] for got in site.asked("/token")]
    assert [first.text, second.text] == ["3", "3"]
    assert forms == ["grant_type=authorization_code", "grant_type=refresh_token"]


async def test_an_expiring_token_is_refreshed_without_a_refusal() -> None:
    site = Site(stateless_script(), life=10)
    assert await call(site, times=2, auth=login()) == ["3", "3"]
    assert (site.refused, len(site.asked("/authorize")), len(site.given) >= 2) == (1, 1, True)


async def test_the_http_sse_transport_logs_in_too() -> None:
    async def stream(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.raw(b"event: endpoint\ndata: /mcp\n\n")
        await site.until(lambda: site.of("initialize"))
        answer = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "serverInfo": {"name": "old", "version": "1"},
        }
        writer.event({"jsonrpc": "2.0", "id": site.of("initialize")[-1].id, "result": answer})
        await writer.until_left()

    site = Site(old_script({"GET": stream, "POST": Status(202)}))
    async with site, Client({"url": site.url, "type": "sse"}, auth=login()) as client:
        assert client.revision == "2024-11-05"
    assert site.of("initialize")[-1].headers["authorization"] == "Bearer token-1"


# --- clocks -----------------------------------------------------------------------------------------------------------


def slowly(seconds: float) -> Any:
    async def browse_slowly(url: str) -> None:
        await asyncio.sleep(seconds)
        await browse(url)

    return browse_slowly


async def test_connecting_does_not_time_out_during_a_login() -> None:
    site = Site(stateless_script())
    limits = Limits(connect_seconds=1.0, idle_seconds=5)
    assert await call(site, auth=login(open_browser=slowly(1.2)), limits=limits) == ["3"]


async def test_a_call_does_not_time_out_during_a_login() -> None:
    site = Site(stateless_script())
    async with site, Client(site.url, auth=login(open_browser=slowly(1.2)), timeout=1.0) as client:
        await client.call_tool("add", {"a": 1})
        site.revoke()
        site.token_answers = [Status(400, json.dumps({"error": "invalid_grant"}).encode())]
        assert (await client.call_tool("add", {"a": 1})).text == "3"


async def test_a_client_that_is_closed_during_a_login_leaves_nothing_open() -> None:
    began = asyncio.Event()

    async def wait(url: str) -> None:
        began.set()
        await asyncio.sleep(60)

    site = Site(stateless_script())
    async with site:
        client = Client(site.url, auth=login(open_browser=wait))
        opening = asyncio.ensure_future(client.__aenter__())
        await began.wait()
        opening.cancel()
        await asyncio.wait([opening])
        await until(lambda: not [task for task in asyncio.all_tasks() if "wait" in repr(task.get_coro())])


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_retries_with_newly_issued_tokens_are_bounded() -> None:
    site = Site(stateless_script())
    site.valid = frozenset()  # type: ignore[assignment]
    site._page_token = lambda got: Status(  # type: ignore[method-assign]
        200, json.dumps({"access_token": "t", "token_type": "Bearer"}).encode()
    )
    with pytest.raises(AuthRequired, match="just issued"):
        await call(site, auth=login())
    assert len(site.asked("/authorize")) == 1


async def test_endless_requests_for_a_nonce_raise() -> None:
    site = Site(stateless_script())
    site.challenge = 'DPoP error="use_dpop_nonce"'
    with pytest.raises(AuthError):
        await call(site, auth=login())
    assert site.refused <= 5


@pytest.mark.parametrize("status", [302, 307])
async def test_a_token_request_is_never_redirected(status: int) -> None:
    canary = HttpScript({"POST": Status(200), "GET": Status(200)})
    site = Site(stateless_script())
    async with canary, site:
        site.token_answers = [Status(status, b"", {"Location": canary.url})]
        with pytest.raises(AuthError) as failure:
            async with Client(site.url, auth=login()):
                pass
    assert ("redirect" in str(failure.value), canary.requests) == (True, [])


@pytest.mark.parametrize("status", [302, 307])
async def test_a_token_does_not_follow_a_redirect_to_another_server(status: int) -> None:
    canary = HttpScript({"POST": Status(200), "GET": Status(200)})
    site = Site(stateless_script())
    async with canary, site:
        site.table["tools/call"] = Status(status, b"", {"Location": canary.url})
        async with Client(site.url, auth=login()) as client:
            with pytest.raises(Exception, match="not followed"):
                await client.call_tool("add", {"a": 1})
    assert canary.requests == []


async def test_metadata_that_never_ends_is_cut_off() -> None:
    async def endless(got: Got, writer: Writer) -> None:
        writer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{")
        for _ in range(64):
            writer.raw(b" " * 65536)
            await writer.flush()

    site = Site(stateless_script())
    site._page_well_known_oauth_protected_resource_mcp = lambda got: endless  # type: ignore
    with pytest.raises(AuthError, match="metadata could not be fetched"):
        (await call(site, auth=login()))


# --- fixed credentials ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ("secret", "authorization", "Bearer secret"),
        (BearerToken("secret"), "authorization", "Bearer secret"),
        (BearerToken(lambda: "secret"), "authorization", "Bearer secret"),
        (ApiKey("X-API-Key", "secret"), "x-api-key", "secret"),
    ],
    ids=["text", "token", "function", "key"],
)
async def test_configured_credentials_are_sent_with_every_request(auth: Any, header: str, value: str) -> None:
    script = handshake_script({"GET": LISTENING})
    await call(script, auth=auth, **HANDSHAKE)
    assert {got.headers.get(header) for got in script.requests} == {value}


async def test_a_refused_fixed_token_is_reported() -> None:
    with pytest.raises(AuthRequired):
        (await call(Site(stateless_script()), auth="wrong"))
