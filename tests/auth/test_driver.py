"""Driving a login: where the redirect is received, how the network is reached, and what is closed afterwards."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.auth.client_web import Web
from tests.auth.served import free_port
from trunkline.auth.client import guarded_fetch
from trunkline.auth.driver import FetchFunction, drive
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import Fetch, Flow, ListenForRedirect
from trunkline.errors import AuthError, FetchError
from trunkline.net import FetchResponse


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of this machine that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


async def received(preferred: str | None = None, **options: Any) -> str:
    """Return the URI at which a login would receive its redirect."""

    def flow() -> Flow[str]:
        answer = yield ListenForRedirect(preferred)
        assert isinstance(answer, str)
        return answer

    return await drive(flow(), fetch=Web().fetch_later, options=OAuth(**options))


async def test_the_redirect_uses_any_free_port() -> None:
    assert (await received()).startswith("http://127.0.0.1:")


async def test_the_redirect_uses_the_configured_port() -> None:
    port = free_port()
    assert await received(redirect_port=port) == f"http://127.0.0.1:{port}/callback"


async def test_the_redirect_uses_the_configured_loopback_uri() -> None:
    uri = f"http://localhost:{free_port()}/back/again"
    assert await received(redirect_uri=uri) == uri


async def test_the_redirect_uri_may_be_on_another_host() -> None:
    assert await received(redirect_uri="https://app.example.com/back") == "https://app.example.com/back"


async def test_the_redirect_of_an_earlier_registration_is_reused() -> None:
    uri = f"http://127.0.0.1:{free_port()}/callback"
    assert await received(uri) == uri


async def test_another_port_is_used_if_that_of_an_earlier_registration_is_in_use(taken: int) -> None:
    assert await received(f"http://127.0.0.1:{taken}/callback") != f"http://127.0.0.1:{taken}/callback"


async def test_a_configured_port_in_use_ends_the_login(taken: int) -> None:
    with pytest.raises(AuthError, match="another redirect_port="):
        (await received(redirect_port=taken))


async def test_the_port_is_free_again_after_the_login() -> None:
    port = free_port()
    assert [await received(redirect_port=port) for _ in range(2)] == [f"http://127.0.0.1:{port}/callback"] * 2


async def test_a_fetch_that_fails_is_an_answer_to_the_flow() -> None:
    def flow() -> Flow[str]:
        answer = yield Fetch("GET", "https://h/x")
        return str(answer)

    web = Web({"https://h/x": FetchError("h:443 took too long")})
    assert await drive(flow(), fetch=web.fetch_later, options=OAuth()) == "h:443 took too long"


async def fetched(fetch: FetchFunction, url: str) -> FetchResponse:
    return await fetch(Fetch("GET", url))


# --- the network ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/x",
        "https://localhost/x",
        "http://127.0.0.1/x",
        "http://example.com/x",
    ],
)
async def test_a_server_on_the_web_cannot_send_us_into_our_own_network(url: str) -> None:
    fetch = guarded_fetch("https://mcp.example.com/mcp", OAuth())
    with pytest.raises(FetchError):
        (await fetched(fetch, url))


async def test_a_server_on_this_machine_cannot_send_us_into_our_network() -> None:
    fetch = guarded_fetch("http://127.0.0.1:8000/mcp", OAuth())
    with pytest.raises(FetchError, match=r"10\.0\.0\.1"):
        (await fetched(fetch, "https://10.0.0.1/x"))


@pytest.mark.parametrize(
    ("server", "options"),
    [
        ("http://127.0.0.1:8000/mcp", OAuth()),
        ("http://localhost:8000/mcp", OAuth()),
        ("https://10.1.2.3/mcp", OAuth()),
        ("https://mcp.example.com/mcp", OAuth(allow_private=True)),
    ],
    ids=["this machine", "its name", "its network", "as was said"],
)
async def test_local_urls_may_be_fetched_for_a_local_server(server: str, options: OAuth) -> None:
    fetch = guarded_fetch(server, options)
    listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(FetchError) as failure:
            await fetch(Fetch("GET", f"http://127.0.0.1:{port}/x"))
    assert "closed" in str(failure.value)


@pytest.mark.parametrize(
    ("proxy", "environment", "words"),
    [
        (None, "http://127.0.0.1:1", "proxy"),
        ("http://127.0.0.1:1", "", "proxy"),
        ("", "http://127.0.0.1:1", "resolve"),
    ],
    ids=["of the environment", "given", "none"],
)
async def test_the_login_uses_the_proxy_of_the_connection(
    proxy: str | None, environment: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", environment)
    fetch = guarded_fetch("https://mcp.example.com/mcp", OAuth(), proxy=proxy)
    with pytest.raises(FetchError, match=words):
        (await fetched(fetch, "https://auth.invalid/x"))
