"""Whole logins over real sockets: a client, a browser, a protected server, an authorization server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.auth.client_site import Site, browse
from tests.support import run_async
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
from trunkline.auth.credential_store import MemoryStore
from trunkline.errors import AuthError, AuthRequired

HANDSHAKE: dict[str, Any] = {"revision": "2025-11-25"}


def login(**options: Any) -> OAuth:
    return OAuth(**{"store": "memory", "open_browser": browse, **options})


def call(site: HttpScript, *, times: int = 1, **options: Any) -> list[str]:
    """Call a tool some times and give the texts."""

    async def main() -> list[str]:
        async with site, Client(site.url, **options) as client:
            return [(await client.call_tool("add", {"a": 1})).text for _ in range(times)]

    return run_async(main())


@pytest.mark.parametrize("script", [stateless_script, handshake_script], ids=["stateless", "handshake"])
def test_a_client_logs_in_and_calls(script: Any) -> None:
    site = Site(script())
    assert call(site, auth=login()) == ["3"]
    assert (len(site.asked("/authorize")), site.refused) == (1, 1)


def test_the_word_oauth_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import webbrowser

    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", lambda: object())
    monkeypatch.setattr(webbrowser, "open", lambda url: asyncio.run(browse(url)) is None)
    site = Site(stateless_script())
    assert call(site, auth="oauth") == ["3"]
    assert (tmp_path / "logins").exists()


def test_opening_the_browser_does_not_block_the_loop() -> None:
    site = Site(stateless_script())
    assert call(site, auth=login(open_browser=lambda url: asyncio.run(browse(url)))) == ["3"]


def test_the_next_client_needs_no_login() -> None:
    store = MemoryStore()

    async def main() -> int:
        site = Site(stateless_script())
        async with site:
            async with Client(site.url, auth=login(store=store)) as client:
                await client.call_tool("add", {"a": 1})
            async with Client(site.url, auth=login(store=store, open_browser=False)) as client:
                await client.call_tool("add", {"a": 1})
        return len(site.asked("/authorize"))

    assert run_async(main()) == 1


def test_every_request_shows_the_token_and_no_url_holds_it() -> None:
    site = Site(handshake_script({"GET": LISTENING}))
    call(site, times=3, auth=login(), **HANDSHAKE)
    let_in = site.asked("/mcp")[1:]
    assert {got.headers.get("authorization") for got in let_in} == {"Bearer token-1"}
    assert {got.verb for got in let_in} == {"POST", "GET", "DELETE"}
    assert [got.path for got in site.requests if "token-1" in got.path] == []


def test_a_refused_token_is_refreshed_and_the_call_repeated() -> None:
    async def main() -> tuple[list[str], list[str]]:
        site = Site(stateless_script())
        async with site, Client(site.url, auth=login()) as client:
            first = await client.call_tool("add", {"a": 1})
            site.revoke()
            second = await client.call_tool("add", {"a": 1})
        forms = [got.body.decode().split("&")[0] for got in site.asked("/token")]
        return [first.text, second.text], forms

    texts, forms = run_async(main())
    assert texts == ["3", "3"]
    assert forms == ["grant_type=authorization_code", "grant_type=refresh_token"]


def test_calls_refused_together_share_one_refresh() -> None:
    async def main() -> int:
        site = Site(stateless_script())
        async with site, Client(site.url, auth=login()) as client:
            await client.call_tool("add", {"a": 1})
            site.revoke()
            await asyncio.gather(*(client.call_tool("add", {"a": 1}) for _ in range(10)))
        return len(site.given)

    assert run_async(main()) == 2


def test_an_expiring_token_is_refreshed_without_a_refusal() -> None:
    site = Site(stateless_script(), life=10)
    assert call(site, times=2, auth=login()) == ["3", "3"]
    assert (site.refused, len(site.asked("/authorize")), len(site.given) >= 2) == (1, 1, True)


def test_the_http_sse_transport_logs_in_too() -> None:
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

    async def main() -> str | None:
        async with site, Client({"url": site.url, "type": "sse"}, auth=login()) as client:
            return client.revision

    assert run_async(main()) == "2024-11-05"
    assert site.of("initialize")[-1].headers["authorization"] == "Bearer token-1"


# --- clocks -----------------------------------------------------------------------------------------------------------


def slowly(seconds: float) -> Any:
    async def browse_slowly(url: str) -> None:
        await asyncio.sleep(seconds)
        await browse(url)

    return browse_slowly


def test_connecting_does_not_time_out_during_a_login() -> None:
    site = Site(stateless_script())
    limits = Limits(connect_seconds=1.0, idle_seconds=5)
    assert call(site, auth=login(open_browser=slowly(1.2)), limits=limits) == ["3"]


def test_a_call_does_not_time_out_during_a_login() -> None:
    async def main() -> str:
        site = Site(stateless_script())
        async with site, Client(site.url, auth=login(open_browser=slowly(1.2)), timeout=1.0) as client:
            await client.call_tool("add", {"a": 1})
            site.revoke()
            site.token_answers = [Status(400, json.dumps({"error": "invalid_grant"}).encode())]
            return (await client.call_tool("add", {"a": 1})).text

    assert run_async(main()) == "3"


def test_an_unfinished_login_ends_the_connection() -> None:
    site = Site(stateless_script())
    with pytest.raises(AuthError, match="was not finished within"):
        call(site, auth=login(open_browser=lambda url: None, login_seconds=0.1))


def test_a_client_that_is_closed_during_a_login_leaves_nothing_open() -> None:
    async def main() -> int:
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
            await asyncio.sleep(0.05)
            return len([task for task in asyncio.all_tasks() if "wait" in repr(task.get_coro())])

    assert run_async(main()) == 0


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_retries_with_newly_issued_tokens_are_bounded() -> None:
    site = Site(stateless_script())
    site.valid = frozenset()  # type: ignore[assignment]
    site._page_token = lambda got: Status(  # type: ignore[method-assign]
        200, json.dumps({"access_token": "t", "token_type": "Bearer"}).encode()
    )
    with pytest.raises(AuthRequired, match="just issued"):
        call(site, auth=login())
    assert len(site.asked("/authorize")) == 1


def test_endless_requests_for_a_nonce_raise() -> None:
    site = Site(stateless_script())
    site.challenge = 'DPoP error="use_dpop_nonce"'
    with pytest.raises(AuthError):
        call(site, auth=login())
    assert site.refused <= 5


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_request_is_never_redirected(status: int) -> None:
    async def main() -> tuple[str, list[Got]]:
        canary = HttpScript({"POST": Status(200), "GET": Status(200)})
        site = Site(stateless_script())
        async with canary, site:
            site.token_answers = [Status(status, b"", {"Location": canary.url})]
            with pytest.raises(AuthError) as failure:
                async with Client(site.url, auth=login()):
                    pass
        return str(failure.value), canary.requests

    message, seen = run_async(main())
    assert ("redirect" in message, seen) == (True, [])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_does_not_follow_a_redirect_to_another_server(status: int) -> None:
    async def main() -> list[Got]:
        canary = HttpScript({"POST": Status(200), "GET": Status(200)})
        site = Site(stateless_script())
        async with canary, site:
            site.table["tools/call"] = Status(status, b"", {"Location": canary.url})
            async with Client(site.url, auth=login()) as client:
                with pytest.raises(Exception, match="not followed"):
                    await client.call_tool("add", {"a": 1})
        return canary.requests

    assert run_async(main()) == []


def test_metadata_that_never_ends_is_cut_off() -> None:
    async def endless(got: Got, writer: Writer) -> None:
        writer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{")
        for _ in range(64):
            writer.raw(b" " * 65536)
            await writer.flush()

    site = Site(stateless_script())
    site._page_well_known_oauth_protected_resource_mcp = lambda got: endless  # type: ignore
    with pytest.raises(AuthError, match="metadata could not be fetched"):
        call(site, auth=login())


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
def test_configured_credentials_are_sent_with_every_request(auth: Any, header: str, value: str) -> None:
    script = handshake_script({"GET": LISTENING})
    call(script, auth=auth, **HANDSHAKE)
    assert {got.headers.get(header) for got in script.requests} == {value}


def test_a_token_function_is_called_again_when_its_token_is_refused() -> None:
    site = Site(stateless_script())
    site.valid = {"b"}
    tokens = iter(["a", "b"])
    assert call(site, auth=BearerToken(lambda: next(tokens))) == ["3"]
    assert site.refused == 1


def test_a_refused_fixed_token_is_reported() -> None:
    with pytest.raises(AuthRequired):
        call(Site(stateless_script()), auth="wrong")
