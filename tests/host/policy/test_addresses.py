"""Hosts of URLs, where programs agree about them, and the spellings of a URI."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.policy.addresses import HostError, compile_hosts, host_of, uri_forms


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com", "example.com"),
        ("HTTPS://Example.COM/x", "example.com"),
        ("http://example.com:8080/x?y#z", "example.com"),
        ("http://example.com:/x", "example.com"),
        ("ws://example.com/x", "example.com"),
        ("https://example.com./x", "example.com"),
        ("https://example.com?q=1", "example.com"),
        ("https://example.com/user@evil.com", "example.com"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        ("https://a_b.example/", "a_b.example"),
        ("http://127.0.0.1/", "127.0.0.1"),
        ("http://[::1]:80/", "::1"),
        ("http://[0:0:0:0:0:0:0:1]/", "::1"),
    ],
)
def test_the_host_of_a_plain_url_is_told(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/x",
        "http:example.com",
        "http:/example.com",
        "http:///example.com",
        "http:\\\\example.com",
        "https://example.com\\@evil.com",
        "https://example.com\\.evil.com/",
        "https://example.com@evil.com/",
        "https://example.com:80@evil.com/",
        "https://user:pw@example.com/",
        "https://example.com#@evil.com/",
        "https://example.com?@evil.com/",
        "https://example.com?\\evil.com",
        "https://evil.com%2eexample.com/",
        "https://example.com%00.evil.com/",
        "https://example.com\t.evil.com/",
        "https://exam\nple.com/",
        " https://example.com/",
        "https://example.com /",
        "https://example.com/\x00",
        "https://example.com..",
        "https://.example.com/",
        "https://a..example.com/",
        "https://-a.example.com/",
        "https://b\u00fccher.example/",
        "https://example\u3002com/",
        "https://ex\u00e4mple.com/",
        "https://\uff45xample.com/",
        "https://example.com:99999/",
        "https://example.com:80:80/",
        "https://example.com:a/",
        "http://127.1/",
        "http://0x7f.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://127.0.0.1.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::1/",
        "http://[::1]evil.com/",
        "http://[fe80::1%25eth0]/",
        "http://[1.2.3.4]/",
        "javascript://example.com/%0aalert(1)",
        "file://example.com/x",
        "ftp://example.com/x",
        "https://" + "a" * 64 + ".example/",
        "https://" + "a." * 127 + "com/",
        "https://example.com/" + "x" * 9000,
    ],
)
def test_a_url_that_programs_may_read_differently_has_no_host(url: str) -> None:
    assert host_of(url) is None


@given(st.text("ab.:/@\\#?%[] \t", max_size=30))
def test_where_a_host_is_told_the_standard_library_agrees(rest: str) -> None:
    host = host_of(f"http://{rest}")
    assert host is None or urlsplit(f"http://{rest}").hostname in (host, f"{host}.")


@given(st.text(max_size=40))
def test_no_text_makes_it_fail(text: str) -> None:
    host_of(text)
    host_of(f"http://{text}")
    uri_forms(text)


@pytest.mark.parametrize(
    ("patterns", "host", "fits"),
    [
        (["example.com"], "example.com", True),
        (["Example.com."], "example.com", True),
        (["example.com"], "www.example.com", False),
        (["*.example.com"], "www.example.com", True),
        (["*.example.com"], "a.b.example.com", True),
        (["*.example.com"], "example.com", False),
        (["*.example.com"], "evilexample.com", False),
        (["a.com", "*.b.com"], "x.b.com", True),
        (["::1"], "::1", True),
        (["[::1]"], "::1", True),
        (["127.0.0.1"], "127.0.0.1", True),
        (["example.com"], "example.com.evil.com", False),
    ],
)
def test_hosts_are_compared_whole_or_below_a_star(patterns: list[str], host: str, fits: bool) -> None:
    assert compile_hosts(patterns)(host) is fits


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("https://example.com", "without scheme"),
        ("example.com:80", "without scheme, port"),
        ("example.com/x", "and path"),
        ("b\u00fccher.example", "xn--"),
        ("*", "'\\*.' and a name"),
        ("a.*.com", "is no host"),
        ("*.127.0.0.1", "is no host"),
        ("127.1", "is no host"),
        ("", "is no host"),
    ],
)
def test_a_pattern_that_names_no_host_is_refused_with_the_fix(pattern: str, said: str) -> None:
    with pytest.raises(HostError, match=said):
        compile_hosts([pattern])


@pytest.mark.parametrize(
    ("uri", "straight"),
    [
        ("file:///a/b", None),
        ("file:///", None),
        ("file:///a/", None),
        ("file:///a/../b", "file:///b"),
        ("file:///a/%2e%2E/b", "file:///b"),
        ("file:///a/..%2fb", "file:///b"),
        ("file:///a\\..\\b", "file:///b"),
        ("file:///a/%5c../b", "file:///b"),
        ("file:////a//b/", "file:///a/b/"),
        ("FILE://localhost/a", "file:///a"),
        ("file:///%65tc", "file:///etc"),
        ("file:///my%20files", None),
        ("HTTP://Example.com/A", "http://example.com/A"),
        ("db://Tables/X", None),
        ("http://a/b?x=../y", None),
        ("memo:today", None),
        ("mem/../o", None),
    ],
)
def test_a_uri_has_the_forms_that_it_may_be_read_as(uri: str, straight: str | None) -> None:
    assert uri_forms(uri) == ((uri,) if straight is None else (uri, straight))
