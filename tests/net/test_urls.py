"""Untrusted URLs: what is rejected before anything is resolved, and how the rest is rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.net.origins import always
from trunkline.errors import FetchError
from trunkline.net import Fetcher

#: The hosts, or whole URLs, that are rejected with each reason.
REFUSED: Mapping[str, Sequence[str]] = {
    "plain http": ["http://stranger.example/", "http://10.0.0.1/", "http://localhost/", "http://127.0.0.1:8080/"],
    "https is needed": [
        *("ftp://stranger.example/", "file:///etc/passwd", "javascript:alert(1)", "//stranger.example/"),
        *("stranger.example", ""),
    ],
    "user or password": [
        *("https://me:secret@stranger.example/", "https://me@stranger.example/", "https://@stranger.example/"),
    ],
    "[Pp]ort": [f"https://stranger.example:{port}/" for port in ("0", "65536", "-1", "http", "80:90")],
    "not a host name": [
        *("https:///path", "https://stranger example/", "https://%31%32%37.0.0.1/", "https://-stranger.example/"),
        *("https://stranger..example/", "https://.stranger.example/", "https://*.example/"),
        *(f"https://{'a' * 64}.example/", f"https://{'a.' * 127}example/"),
    ],
    "backslash": ["https://stranger.example\\@127.0.0.1/"],
    "control characters": [
        *("https://stranger.example/\r\nHost: other", "https://str\tanger.example/", "https://stranger.example/\x00"),
    ],
    "under NFKC": ["https://stran\u2100er.example/"],
    # Spellings of an address that only some programs understand.
    "four decimal numbers": [
        *("https://2130706433/", "https://0x7f000001/", "https://017700000001/", "https://127.1/", "https://0x7f.1/"),
        *("https://0177.0.0.1/", "https://127.0.0.0x1/", "https://127.0.0.1.2/", "https://1.2.3.256/", "https://0/"),
        *("https://stranger.example.0x/", "https://127.0.0.1./"),
        "https://\uff12\uff11\uff13\uff10\uff17\uff10\uff16\uff14\uff13\uff13/",
    ],
    "a loopback address": [
        *("https://127.0.0.1/", "https://\u2460\u2461\u2466.0.0.1/", "https://127\u30020\u30020\u30021/"),
        *("https://[::1]/", "https://localhost/", "https://LOCALHOST./", "https://some.localhost/"),
    ],
    "a link-local address": ["https://169.254.169.254/latest/meta-data/"],
    "an unspecified address": ["https://[::]/"],
    "an IPv4 address in an IPv6 one": ["https://[::ffff:127.0.0.1]/"],
    "a 6to4 address": ["https://[2002:7f00:1::]/"],
    "NAT64": ["https://[64:ff9b::7f00:1]/"],
    "without a zone": ["https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/"],
    "Will not fetch": [
        *("https://\u200b\u00ad/", "https://[2600::1]stranger.example/", "https://stranger.example[2600::1]/"),
        *("https://[2600::1", "https://[v1.x]/", "https://[1.2.3.4]/"),
    ],
}


async def never(host: str, port: int) -> list[str]:
    """Fail the test: a rejected URL must not be resolved."""
    raise AssertionError(host)


@pytest.mark.parametrize("reason", REFUSED)
async def test_a_url_is_rejected_before_its_name_is_resolved(reason: str) -> None:
    for url in REFUSED[reason]:
        with pytest.raises(FetchError, match=reason):
            await Fetcher(resolve=never).fetch("GET", url)


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "[::1%25lo]"])
async def test_an_odd_spelling_of_an_address_is_rejected_even_where_private_ones_are_allowed(host: str) -> None:
    for scheme in ("http", "https"):
        with pytest.raises(FetchError, match="Will not fetch"):
            await Fetcher(allow_private=True, resolve=never).fetch("GET", f"{scheme}://{host}/")


@pytest.mark.parametrize("host", ["stranger.example", "10.0.0.1", "[::ffff:127.0.0.1]", "localhost.example"])
async def test_plain_http_leads_to_this_machine_only(host: str) -> None:
    for fetcher in (Fetcher(resolve=never, allow_private=True), Fetcher(resolve=never, allow_loopback=True)):
        with pytest.raises(FetchError, match="plain http"):
            await fetcher.fetch("GET", f"http://{host}/")


async def test_a_foreign_name_does_not_lead_to_this_machine_even_if_loopback_is_allowed() -> None:
    fetcher = Fetcher(allow_loopback=True, resolve=always("127.0.0.1"))
    with pytest.raises(FetchError, match="a loopback address"):
        await fetcher.fetch("GET", "https://stranger.example/")


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://Stranger.Example/", ("stranger.example", 443)),
        ("https://stranger.example.:8443/", ("stranger.example", 8443)),
        ("https://b\u00fccher.example/", ("xn--bcher-kva.example", 443)),
        ("https://\u4f8b\u3048\u3002example/", ("xn--r8jz45g.example", 443)),
        ("https://a_b.example:/", ("a_b.example", 443)),
    ],
    ids=["case", "port", "umlaut", "ideographic dot", "underscore"],
)
async def test_a_name_is_resolved_in_its_ascii_form(url: str, asked: tuple[str, int]) -> None:
    seen: list[tuple[str, int]] = []

    async def resolve(host: str, port: int) -> list[str]:
        seen.append((host, port))
        return ["10.0.0.1"]

    with pytest.raises(FetchError, match="a private address"):
        await Fetcher(resolve=resolve).fetch("GET", url)
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
async def test_an_error_shows_no_path_query_or_password(url: str) -> None:
    with pytest.raises(FetchError) as caught:
        await Fetcher(resolve=never).fetch("GET", url)
    assert "secret" not in str(caught.value)
