"""Redirects: which are followed, where they may lead, and what is never sent along."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.net.origins import always, answer, origin, redirect
from trunkline.errors import FetchError
from trunkline.net import Fetcher


@pytest.mark.parametrize(("method", "status"), [("GET", 301), ("GET", 302), ("HEAD", 303), ("GET", 307), ("HEAD", 308)])
async def test_a_redirect_on_the_same_origin_is_followed_with_its_headers(method: str, status: int) -> None:
    answers = {"/a/": redirect("../b?x=1#y", status), "/b": answer(b"")}
    async with origin(answers) as server:
        got = await Fetcher(allow_loopback=True).fetch(method, f"{server.url}/a/", headers={"Authorization": "t"})
    assert (got.status, got.url) == (200, f"{server.url}/b?x=1")
    assert [(each.method, each.headers["authorization"]) for each in server.got] == [(method, "t"), (method, "t")]


@pytest.mark.parametrize(("method", "status"), [("POST", 303), ("PUT", 301), ("DELETE", 308), ("GET", 302)])
async def test_what_has_a_body_or_another_method_follows_no_redirect(method: str, status: int) -> None:
    async with origin() as other, origin() as server:
        for target in ("/next", f"{other.url}/next"):
            server.answers["/"] = redirect(target, status)
            body = b"secret" if method == "GET" else None
            with pytest.raises(FetchError, match=f"answered {method} with a redirect"):
                await Fetcher(allow_loopback=True).fetch(method, server.url, body=body, cross_origin=True)
    assert (len(server.got), other.connections) == (2, 0)


async def test_a_redirect_to_another_origin_is_rejected() -> None:
    async with origin() as other, origin() as server:
        server.answers["/"] = redirect(other.url)
        with pytest.raises(FetchError, match="another origin"):
            await Fetcher(allow_loopback=True).fetch("GET", server.url, headers={"Authorization": "t"})
    assert other.connections == 0


async def test_another_origin_gets_none_of_the_headers_and_neither_does_the_way_back() -> None:
    secret = {"Authorization": "t", "Cookie": "a=b", "DPoP": "p", "X-Api-Key": "k", "User-Agent": "mine"}

    async with origin() as other, origin({"/end": answer(b"ok")}) as server:
        server.answers["/"] = redirect(f"{other.url}/turn")
        other.answers["/turn"] = redirect(f"{server.url}/end")
        fetcher = Fetcher(allow_loopback=True)
        got = await fetcher.fetch("GET", server.url, headers=secret, cross_origin=True)
    assert (got.body, got.url) == (b"ok", f"{server.url}/end")
    assert server.got[0].headers.items() >= {name.lower(): value for name, value in secret.items()}.items()
    plain = {"host", "user-agent", "accept", "accept-encoding", "connection"}
    assert (other.got[0].headers.keys() <= plain, server.got[1].headers.keys() <= plain) == (True, True)
    assert other.got[0].headers["user-agent"] == "trunkline"


LOCATIONS = [
    ("https://169.254.169.254/latest", "a link-local address"),
    ("https://[::ffff:10.0.0.1]/", "an IPv4 address in an IPv6 one"),
    ("https://2130706433/", "four decimal numbers"),
    ("https://inner.example/", "a private address"),
    ("http://inner.example/", "plain http"),
    ("https://me:pw@inner.example/", "user or password"),
    ("file:///etc/passwd", "https is needed"),
    ("javascript:alert(1)", "https is needed"),
    ("https://[", "redirects to a URL that is not allowed"),
    ("//[", "redirects to a URL that is not allowed"),
]


@pytest.mark.parametrize(("location", "reason"), LOCATIONS, ids=[location for location, _ in LOCATIONS])
async def test_a_redirect_is_checked_as_the_first_url_was(location: str, reason: str) -> None:
    async with origin({"/": redirect(location)}) as server:
        fetcher = Fetcher(allow_loopback=True, resolve=always("10.0.0.1"))
        with pytest.raises(FetchError, match=reason):
            await fetcher.fetch("GET", server.url, cross_origin=True)
    assert len(server.got) == 1


async def test_a_redirect_with_undecodable_bytes_is_rejected() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: /\xff\r\nContent-Length: 0\r\n\r\n"
    async with origin({"/": head}) as server:
        with pytest.raises(FetchError, match="redirects to a URL that is not allowed"):
            await Fetcher(allow_loopback=True).fetch("GET", server.url)


async def test_a_redirect_from_https_to_http_is_rejected(certificate: Path) -> None:
    async with origin() as plain, origin(certificate=certificate) as server:
        server.answers["/"] = redirect(plain.url)
        fetcher = Fetcher(allow_private=True, ca_file=str(certificate), resolve=always("127.0.0.1"))
        with pytest.raises(FetchError, match="from https to http"):
            await fetcher.fetch("GET", f"https://auth.example:{server.port}/", cross_origin=True)
    assert plain.connections == 0


@pytest.mark.parametrize(("redirects", "asked"), [(1, 2), (3, 4)])
async def test_the_number_of_redirects_is_limited(redirects: int, asked: int) -> None:
    async with origin({"/": redirect("/")}) as server:
        with pytest.raises(FetchError, match=f"redirects more than {redirects} times"):
            await Fetcher(allow_loopback=True).fetch("GET", server.url, redirects=redirects)
    assert len(server.got) == asked


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_with_redirects_0_a_redirect_is_returned(method: str) -> None:
    async with origin({"/": redirect("https://inner.example/?code=1")}) as server:
        got = await Fetcher(allow_loopback=True).fetch(method, server.url, redirects=0)
    assert (got.status, got.headers["location"], got.body) == (302, "https://inner.example/?code=1", b"elsewhere")


@pytest.mark.parametrize(
    "told",
    [answer(b"", status=304), answer(b"", "Location: /next", status=300), answer(b"", status=302)],
    ids=["304", "300", "302 without location"],
)
async def test_a_response_that_is_not_a_redirect_is_returned(told: bytes) -> None:
    async with origin({"/": told}) as server:
        got = await Fetcher(allow_loopback=True).fetch("GET", server.url)
    assert 300 <= got.status < 400
