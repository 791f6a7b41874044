"""Untrusted URLs: what is rejected before anything is resolved, and how the rest is rebuilt."""

from __future__ import annotations

import pytest

from tests.support import run_async
from trunkline.errors import FetchError
from trunkline.net import Fetcher

REFUSED = [
    ("http://stranger.example/", "plain http"),
    ("http://10.0.0.1/", "plain http"),
    ("http://localhost/", "plain http"),
    ("http://127.0.0.1:8080/", "plain http"),
    ("ftp://stranger.example/", "https is needed"),
    ("file:///etc/passwd", "https is needed"),
    ("javascript:alert(1)", "https is needed"),
    ("//stranger.example/", "https is needed"),
    ("stranger.example", "https is needed"),
    ("", "https is needed"),
    ("https://me:secret@stranger.example/", "user or password"),
    ("https://me@stranger.example/", "user or password"),
    ("https://@stranger.example/", "user or password"),
    ("https://stranger.example:0/", "port must not be 0"),
    ("https://stranger.example:65536/", "[Pp]ort"),
    ("https://stranger.example:-1/", "[Pp]ort"),
    ("https://stranger.example:http/", "[Pp]ort"),
    ("https://stranger.example:80:90/", "[Pp]ort"),
    ("https:///path", "not a host name"),
    ("https://stranger example/", "not a host name"),
    ("https://%31%32%37.0.0.1/", "not a host name"),
    ("https://-stranger.example/", "not a host name"),
    ("https://stranger..example/", "not a host name"),
    ("https://.stranger.example/", "not a host name"),
    (f"https://{'a' * 64}.example/", "not a host name"),
    (f"https://{'a.' * 127}example/", "not a host name"),
    ("https://*.example/", "not a host name"),
    ("https://stranger.example\\@127.0.0.1/", "backslash"),
    ("https://stranger.example/\r\nHost: other", "control characters"),
    ("https://str\tanger.example/", "control characters"),
    ("https://stranger.example/\x00", "control characters"),
    ("https://stran\u2100er.example/", "under NFKC"),
    ("https://\u200b\u00ad/", "Will not fetch"),
    ("https://2130706433/", "four decimal numbers"),
    ("https://0x7f000001/", "four decimal numbers"),
    ("https://017700000001/", "four decimal numbers"),
    ("https://127.1/", "four decimal numbers"),
    ("https://0x7f.1/", "four decimal numbers"),
    ("https://0177.0.0.1/", "four decimal numbers"),
    ("https://127.0.0.0x1/", "four decimal numbers"),
    ("https://127.0.0.1.2/", "four decimal numbers"),
    ("https://1.2.3.256/", "four decimal numbers"),
    ("https://stranger.example.0x/", "four decimal numbers"),
    ("https://0/", "four decimal numbers"),
    ("https://\uff12\uff11\uff13\uff10\uff17\uff10\uff16\uff14\uff13\uff13/", "four decimal numbers"),
    ("https://127.0.0.1/", "a loopback address"),
    ("https://127.0.0.1./", "four decimal numbers"),
    ("https://\u2460\u2461\u2466.0.0.1/", "a loopback address"),
    ("https://127\u30020\u30020\u30021/", "a loopback address"),
    ("https://169.254.169.254/latest/meta-data/", "a link-local address"),
    ("https://[::1]/", "a loopback address"),
    ("https://[::]/", "an unspecified address"),
    ("https://[::ffff:127.0.0.1]/", "an IPv4 address in an IPv6 one"),
    ("https://[2002:7f00:1::]/", "a 6to4 address"),
    ("https://[64:ff9b::7f00:1]/", "NAT64"),
    ("https://[fe80::1%25eth0]/", "without a zone"),
    ("https://[fe80::1%eth0]/", "without a zone"),
    ("https://[2600::1]stranger.example/", "Will not fetch"),
    ("https://stranger.example[2600::1]/", "Will not fetch"),
    ("https://[2600::1", "Will not fetch"),
    ("https://[v1.x]/", "Will not fetch"),
    ("https://[1.2.3.4]/", "Will not fetch"),
    ("https://localhost/", "a loopback address"),
    ("https://LOCALHOST./", "a loopback address"),
    ("https://some.localhost/", "a loopback address"),
]


async def never(host: str, port: int) -> list[str]:
    """Fail the test: a rejected URL must not be resolved."""
    raise AssertionError(host)


@pytest.mark.parametrize(("url", "reason"), REFUSED, ids=[ascii(url) for url, _ in REFUSED])
def test_a_url_is_rejected_before_its_name_is_resolved(url: str, reason: str) -> None:
    with pytest.raises(FetchError, match=reason):
        run_async(Fetcher(resolve=never).fetch("GET", url))


SPELLINGS = ["2130706433", "0x7f000001", "017700000001", "127.1", "0x7f.1", "0177.0.0.1", "[::1%25lo]"]


@pytest.mark.parametrize("host", SPELLINGS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_odd_spelling_of_an_address_is_rejected_even_where_private_ones_are_allowed(scheme: str, host: str) -> None:
    with pytest.raises(FetchError, match="Will not fetch"):
        run_async(Fetcher(allow_private=True, resolve=never).fetch("GET", f"{scheme}://{host}/"))


@pytest.mark.parametrize("host", ["stranger.example", "10.0.0.1", "[::ffff:127.0.0.1]", "localhost.example"])
@pytest.mark.parametrize("allowed", ["allow_private", "allow_loopback"])
def test_plain_http_leads_to_this_machine_only(allowed: str, host: str) -> None:
    fetcher = Fetcher(resolve=never, **{allowed: True})  # type: ignore[arg-type]
    with pytest.raises(FetchError, match="plain http"):
        run_async(fetcher.fetch("GET", f"http://{host}/"))


def test_a_foreign_name_does_not_lead_to_this_machine_even_if_loopback_is_allowed() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    with pytest.raises(FetchError, match="a loopback address"):
        run_async(Fetcher(allow_loopback=True, resolve=resolve).fetch("GET", "https://stranger.example/"))


NAMES = [
    ("https://Stranger.Example/", ("stranger.example", 443)),
    ("https://stranger.example.:8443/", ("stranger.example", 8443)),
    ("https://b\u00fccher.example/", ("xn--bcher-kva.example", 443)),
    ("https://xn--bcher-kva.example/", ("xn--bcher-kva.example", 443)),
    ("https://\u4f8b\u3048\u3002example/", ("xn--r8jz45g.example", 443)),
    ("https://a_b.example:/", ("a_b.example", 443)),
]


@pytest.mark.parametrize(("url", "asked"), NAMES, ids=[ascii(url) for url, _ in NAMES])
def test_a_name_is_resolved_in_its_ascii_form(url: str, asked: tuple[str, int]) -> None:
    seen: list[tuple[str, int]] = []

    async def resolve(host: str, port: int) -> list[str]:
        seen.append((host, port))
        return ["10.0.0.1"]

    with pytest.raises(FetchError, match="a private address"):
        run_async(Fetcher(resolve=resolve).fetch("GET", url))
    assert seen == [asked]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://me:secret@stranger.example/secret?token=secret#secret",
        "https://me:secret@stranger.example/secret?token=secret",
        "http://stranger.example/secret?token=secret",
        "https://127.1/secret?token=secret",
        "https://127.0.0.1/secret?token=secret",
    ],
)
def test_an_error_shows_no_path_query_or_password(url: str) -> None:
    with pytest.raises(FetchError) as caught:
        run_async(Fetcher(resolve=never).fetch("GET", url))
    assert "secret" not in str(caught.value)
