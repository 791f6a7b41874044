"""Opening the login page and receiving the redirect: the receiver on this machine, browsers, terminals, attackers."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from trunkline.auth.browser import RedirectReceiver, redirect_params, visit_page
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import VisitPage
from trunkline.errors import AuthError

PAGE = "https://auth.example.com/authorize"


async def ask(uri: str, request: bytes | None = None) -> str:
    """Send a request to the receiver as a browser would, and read the whole answer."""
    parts = urlsplit(uri)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    writer.write(request or f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()


@asynccontextmanager
async def receiving(**options: Any) -> AsyncIterator[RedirectReceiver]:
    """Open a receiver that waits for a redirect with the state ``s1``."""
    receiver = await RedirectReceiver.open(**options)
    receiver.expect("s1")
    try:
        yield receiver
    finally:
        await receiver.aclose()


async def redirected(receiver: RedirectReceiver, query: str = "code=c&state=s1", *, worked: bool = True) -> Any:
    """Redirect a browser to the receiver; return the parameters and the page it shows."""
    browser = asyncio.ensure_future(ask(f"{receiver.redirect_uri}?{query}"))
    params = await receiver.wait()
    await receiver.aclose(worked=worked)
    return params, await browser


@pytest.mark.parametrize(
    ("worked", "words"), [(True, "You are logged in"), (False, "The login failed")], ids=["worked", "failed"]
)
async def test_the_redirect_is_received_and_answered_once_the_login_ended(worked: bool, words: str) -> None:
    async with receiving() as receiver:
        params, page = await redirected(receiver, worked=worked)
    assert params == {"code": "c", "state": "s1"}
    assert (page.startswith("HTTP/1.1 200 OK"), words in page) == (True, True)


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /callback?code=c&state=other HTTP/1.1\r\n\r\n",
        b"GET /callback?code=c HTTP/1.1\r\n\r\n",
        b"GET /callback HTTP/1.1\r\n\r\n",
        b"GET /callback?state=s1&state=s1&code=c HTTP/1.1\r\n\r\n",
        b"GET /favicon.ico?state=s1 HTTP/1.1\r\n\r\n",
        b"GET /callback/x?state=s1 HTTP/1.1\r\n\r\n",
        b"POST /callback?state=s1 HTTP/1.1\r\n\r\n",
        b"\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /callback?state=s1\xe4 HTTP/1.1\r\n\r\n",
    ],
)
async def test_requests_other_than_the_redirect_change_nothing(request_head: bytes) -> None:
    async with receiving() as receiver:
        other = await ask(receiver.redirect_uri, request_head)
        params, _ = await redirected(receiver)
    assert (other.startswith("HTTP/1.1 404"), params["code"]) == (True, "c")


async def test_endless_headers_are_cut_off() -> None:
    async with receiving() as receiver:
        try:
            answer = await ask(receiver.redirect_uri, b"GET /" + b"x" * 100_000)
        except ConnectionError:
            answer = ""
    assert answer == ""


async def test_a_second_redirect_is_ignored() -> None:
    async with receiving() as receiver:
        first = asyncio.ensure_future(ask(f"{receiver.redirect_uri}?code=c&state=s1"))
        await receiver.wait()
        second = await ask(f"{receiver.redirect_uri}?code=evil&state=s1")
        await receiver.aclose(worked=True)
        await first
    assert second.startswith("HTTP/1.1 404")


async def test_the_page_has_no_scripts_and_escapes_the_name() -> None:
    async with receiving(name="<script>alert(1)</script>") as receiver:
        _, page = await redirected(receiver, "code=%3Cscript%3E&state=s1")
        assert urlsplit(receiver.redirect_uri).hostname == "127.0.0.1"
    assert ("<script" in page, "&lt;script&gt;" in page) == (False, True)
    assert ("default-src 'none'" in page, "X-Frame-Options: DENY" in page, "no-store" in page) == (True, True, True)


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("http://127.0.0.1:1/callback?code=a%20b&state=s", {"code": "a b", "state": "s"}),
        ("  code=a&state=s\n", {"code": "a", "state": "s"}),
        ("http://h/?code=a&code=b&state=s", {"state": "s"}),
        ("http://h/?iss=https%3A%2F%2Fh%2F", {"iss": "https://h/"}),
        ("?" + "&".join(f"a{n}=1" for n in range(100)), {}),
        ("", {}),
    ],
    ids=["url", "query", "twice", "issuer", "too many", "nothing"],
)
def test_a_redirect_is_read(text: str, params: dict[str, str]) -> None:
    assert redirect_params(text) == params


# --- opening the browser ----------------------------------------------------------------------------------------------


async def visited(options: OAuth, *, page: str = PAGE, receives: bool = True) -> Any:
    receiver = await RedirectReceiver.open() if receives else None
    query = urlencode({"state": "s1", "redirect_uri": receiver.redirect_uri if receiver else ""})
    try:
        return await visit_page(VisitPage(f"{page}?{query}", "s1"), options, receiver)
    finally:
        if receiver is not None:
            await receiver.aclose(worked=True)


def pasted(url: str) -> str:
    return "http://127.0.0.1/callback?code=c&state=s1"


async def pasted_later(url: str) -> str:
    return pasted(url)


@pytest.mark.parametrize("opener", [pasted, pasted_later, lambda url: pasted_later(url)], ids=["sync", "async", "both"])
@pytest.mark.parametrize("receives", [True, False])
async def test_a_browser_function_may_return_the_redirect(opener: Any, receives: bool) -> None:
    assert await visited(OAuth(open_browser=opener), receives=receives) == {"code": "c", "state": "s1"}


async def test_a_browser_function_may_leave_the_redirect_to_the_receiver() -> None:
    tasks: list[asyncio.Task[str]] = []

    async def browse(url: str) -> None:
        query = redirect_params(url)
        tasks.append(asyncio.ensure_future(ask(f"{query['redirect_uri']}?code=c&state=s1")))

    assert await visited(OAuth(open_browser=browse)) == {"code": "c", "state": "s1"}


async def test_an_unfinished_login_times_out() -> None:
    with pytest.raises(AuthError, match="was not finished within"):
        (await visited(OAuth(open_browser=lambda url: None, login_seconds=0.05)))


async def test_a_function_that_fails_ends_the_login() -> None:
    def fail(url: str) -> None:
        raise RuntimeError("no screen")

    with pytest.raises(RuntimeError, match="no screen"):
        (await visited(OAuth(open_browser=fail)))


async def test_without_a_receiver_the_browser_function_must_return_the_redirect() -> None:
    with pytest.raises(AuthError, match="must return the URL"):
        (await visited(OAuth(open_browser=lambda url: None), receives=False))


@pytest.mark.parametrize("page", ["javascript:alert(1)", "https://h/$(id)", "http://h/x", "file:///x"])
async def test_an_invalid_login_page_url_is_not_opened(page: str) -> None:
    seen: list[str] = []
    with pytest.raises(AuthError, match="browser"):
        await visited(OAuth(open_browser=seen.append), page=page)
    assert seen == []


async def test_the_system_browser_gets_the_url_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def opened(url: str) -> bool:
        seen.append(url)
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", lambda: object())
    monkeypatch.setattr(webbrowser, "open", opened)
    with pytest.raises(AuthError, match="was not finished within"):
        await visited(OAuth(login_seconds=0.2))
    assert [url.partition("?")[0] for url in seen] == [PAGE]


def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")


class Terminal:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.said = ""

    def isatty(self) -> bool:
        return self.descriptor >= 0

    def fileno(self) -> int:
        return self.descriptor

    def write(self, text: str) -> None:
        self.said += text

    def flush(self) -> None: ...


async def test_without_a_browser_and_a_terminal_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    no_browser(monkeypatch)
    monkeypatch.setattr(sys, "stdin", Terminal(-1))
    with pytest.raises(AuthError, match="neither a browser nor a terminal"):
        (await visited(OAuth()))


async def test_without_a_browser_the_url_is_shown_and_the_answer_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    no_browser(monkeypatch)
    reading, writing = os.pipe()
    os.write(writing, b"http://127.0.0.1/callback?code=c&state=s1\n")
    screen = Terminal(reading)
    monkeypatch.setattr(sys, "stdin", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    try:
        assert await visited(OAuth()) == {"code": "c", "state": "s1"}
    finally:
        os.close(reading)
        os.close(writing)
    assert f"{PAGE}?state=s1" in screen.said
