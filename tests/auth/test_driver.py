"""Driving a login: where the redirect is received, how the network is reached, and what is closed afterwards."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.auth.client_web import Web
from tests.auth.served import free_port
from tests.support import run_async
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


def received(preferred: str | None = None, **options: Any) -> str:
    """Return the URI at which a login would receive its redirect."""

    def flow() -> Flow[str]:
        answer = yield ListenForRedirect(preferred)
        assert isinstance(answer, str)
        return answer

    return run_async(drive(flow(), fetch=Web().fetch_later, options=OAuth(**options)))


def test_the_redirect_uses_any_free_port() -> None:
    assert received().startswith("http://127.0.0.1:")


def test_the_redirect_uses_the_configured_port() -> None:
    port = free_port()
    assert received(redirect_port=port) == f"http://127.0.0.1:{port}/callback"


def test_the_redirect_uses_the_configured_loopback_uri() -> None:
    uri = f"http://localhost:{free_port()}/back/again"
    assert received(redirect_uri=uri) == uri


def test_the_redirect_uri_may_be_on_another_host() -> None:
    assert received(redirect_uri="https://app.example.com/back") == "https://app.example.com/back"


def test_the_redirect_of_an_earlier_registration_is_reused() -> None:
    uri = f"http://127.0.0.1:{free_port()}/callback"
    assert received(uri) == uri


def test_another_port_is_used_if_that_of_an_earlier_registration_is_in_use(taken: int) -> None:
    assert received(f"http://127.0.0.1:{taken}/callback") != f"http://127.0.0.1:{taken}/callback"


def test_a_configured_port_in_use_ends_the_login(taken: int) -> None:
    with pytest.raises(AuthError, match="another redirect_port="):
        received(redirect_port=taken)


def test_the_port_is_free_again_after_the_login() -> None:
    port = free_port()
    assert [received(redirect_port=port), received(redirect_port=port)] == [f"http://127.0.0.1:{port}/callback"] * 2


def test_a_fetch_that_fails_is_an_answer_to_the_flow() -> None:
    def flow() -> Flow[str]:
        answer = yield Fetch("GET", "https://h/x")
        return str(answer)

    web = Web({"https://h/x": FetchError("h:443 took too long")})
    assert run_async(drive(flow(), fetch=web.fetch_later, options=OAuth())) == "h:443 took too long"


def fetched(fetch: FetchFunction, url: str) -> FetchResponse:
    async def main() -> FetchResponse:
        return await fetch(Fetch("GET", url))

    return run_async(main())


# --- the network ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/x",
        "https://[::1]/x",
        "https://[::ffff:169.254.169.254]/x",
        "https://[2002:a9fe:a9fe::]/x",
        "https://[64:ff9b::a9fe:a9fe]/x",
        "https://localhost/x",
        "https://127.0.0.1/x",
        "http://127.0.0.1/x",
        "https://2130706433/x",
        "http://example.com/x",
    ],
)
def test_a_server_on_the_web_cannot_send_us_into_our_own_network(url: str) -> None:
    fetch = guarded_fetch("https://mcp.example.com/mcp", OAuth())
    with pytest.raises(FetchError):
        fetched(fetch, url)


def test_a_server_on_this_machine_cannot_send_us_into_our_network() -> None:
    fetch = guarded_fetch("http://127.0.0.1:8000/mcp", OAuth())
    with pytest.raises(FetchError, match=r"10\.0\.0\.1"):
        fetched(fetch, "https://10.0.0.1/x")


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
def test_local_urls_may_be_fetched_for_a_local_server(server: str, options: OAuth) -> None:
    fetch = guarded_fetch(server, options)

    async def main() -> str:
        listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        async with listening:
            port = listening.sockets[0].getsockname()[1]
            with pytest.raises(FetchError) as failure:
                await fetch(Fetch("GET", f"http://127.0.0.1:{port}/x"))
        return str(failure.value)

    assert "closed" in run_async(main())


@pytest.mark.parametrize(
    ("proxy", "environment", "words"),
    [
        (None, "http://127.0.0.1:1", "proxy"),
        ("http://127.0.0.1:1", "", "proxy"),
        ("", "http://127.0.0.1:1", "resolve"),
    ],
    ids=["of the environment", "given", "none"],
)
def test_the_login_uses_the_proxy_of_the_connection(
    proxy: str | None, environment: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", environment)
    fetch = guarded_fetch("https://mcp.example.com/mcp", OAuth(), proxy=proxy)
    with pytest.raises(FetchError, match=words):
        fetched(fetch, "https://auth.invalid/x")
