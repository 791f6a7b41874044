"""Hosts of URLs, where programs agree about them, and the spellings of a URI."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.authorization.policy.locations import (
    InvalidHostPattern,
    compile_hosts,
    host_of,
    uri_forms,
    uri_matcher,
)
from trunkline.host.authorization.policy.patterns import is_glob


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
def test_the_host_of_a_plain_url_is_found(url: str, host: str) -> None:
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
def test_where_a_host_is_found_the_standard_library_agrees(rest: str) -> None:
    host = host_of(f"http://{rest}")
    assert host is None or urlsplit(f"http://{rest}").hostname in (host, f"{host}.")


@given(st.text(max_size=40))
def test_no_text_makes_it_fail(text: str) -> None:
    host_of(text)
    host_of(f"http://{text}")
    uri_forms(text)
    uri_matcher([f"file:{text}"] if not is_glob(text) else [], for_allow=True)(f"file:{text}")
    uri_matcher(["*"], for_allow=False)(f"file:{text}")


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
        ("a.*.com", "is not a host"),
        ("*.127.0.0.1", "is not a host"),
        ("127.1", "is not a host"),
        ("", "is not a host"),
    ],
)
def test_a_pattern_that_names_no_host_is_refused_with_the_fix(pattern: str, said: str) -> None:
    with pytest.raises(InvalidHostPattern, match=said):
        compile_hosts([pattern])


@pytest.mark.parametrize(
    ("uri", "straight"),
    [
        ("HTTP://Example.com/A", "http://example.com/A"),
        ("http://a/x/../b", "http://a/b"),
        (" http://a/b\n", "http://a/b"),
        ("db://Tables/X", None),
        ("http://a/b?x=../y", None),
        ("memo:today", None),
        ("mem/../o", None),
    ],
)
def test_a_uri_has_the_forms_that_it_may_be_read_as(uri: str, straight: str | None) -> None:
    assert uri_forms(uri) == ((uri,) if straight is None else (uri, straight))


#: Ways to write one file: each is read as that file by some program that takes ``file:`` URIs.
SPELLINGS = [
    "file:///home/me/.ssh/id",
    "file:/home/me/.ssh/id",
    "file:home/me/.ssh/id",
    "file:////home/me/.ssh/id",
    "file:///home//me/.ssh/id",
    "FILE:///home/me/.ssh/id",
    "File:/home/me/.ssh/id",
    "file://localhost/home/me/.ssh/id",
    "file://LOCALHOST./home/me/.ssh/id",
    "file://127.0.0.1/home/me/.ssh/id",
    "file://127.8.9.1/home/me/.ssh/id",
    "file://[::1]/home/me/.ssh/id",
    "file://127.1/home/me/.ssh/id",
    "file://localhost:80/home/me/.ssh/id",
    "file://you@localhost/home/me/.ssh/id",
    "file://%6cocalhost/home/me/.ssh/id",
    "file://elsewhere/home/me/.ssh/id",
    "file:///home/me/%2essh/id",
    "file:///home/me/%2Essh%2fid",
    "file:///h%6fme/me/.ssh/%69%64",
    "file:///home/me/%252essh/id",
    "file:///home/me/work/../.ssh/id",
    "file:///home/me/work/%2e%2e/.ssh/id",
    "file:///home/me/work/..%2f.ssh/id",
    "file:///home/me/work/./../.ssh/id",
    "file:///home/me/work/..\\.ssh/id",
    "file:\\\\\\home\\me\\.ssh\\id",
    "file:///home/me/work/?/../../.ssh/id",
    "file:///home/me/work/#/../../.ssh/id",
    "file:///home/me/work/%3f/../../.ssh/id",
    "file:///home/me/.ssh/id?version=1",
    "file:///home/me/.ssh/id#top",
    "file:///home/me/.ssh/id/",
    " file:///home/me/.ssh/id",
    "\tfile:///home/me/.ssh/id\n",
    "fi\nle:///home/me/.s\tsh/id",
]


@pytest.mark.parametrize("uri", SPELLINGS)
@pytest.mark.parametrize(
    "pattern",
    [
        "file:///home/me/.ssh/id",
        "file:///home/me/.ssh/*",
        "file:/home/*/.ssh/id*",
        "file://localhost/home/me/.ssh/*",
        "FILE://127.0.0.1/home/me/.ssh/*",
        "file:///home/me/%2Essh/*",
        "*/.ssh/*",
    ],
)
def test_no_spelling_of_a_file_is_hidden_from_a_rule_that_closes(uri: str, pattern: str) -> None:
    assert uri_matcher([pattern], for_allow=False)(uri)


@pytest.mark.parametrize("uri", SPELLINGS)
def test_no_spelling_of_a_file_gets_past_a_rule_that_opens_something_else(uri: str) -> None:
    assert not uri_matcher(["file:///home/me/work/*", "file://elsewhere/share/*"], for_allow=True)(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///srv/a b/c",
        "file:/srv/a b/c",
        "file://localhost/srv/a b/c",
        "file://127.0.0.1/srv/a b/c",
        "file://[::1]/srv/a b/c",
        "FILE:///srv/a b/c",
        "file:///srv/a%20b/c",
        "file:///srv/a%20b/%63?x=1",
    ],
)
@pytest.mark.parametrize(
    "pattern", ["file:///srv/*", "file:/srv/*", "file://localhost/srv/*", "file://127.0.0.1/srv/*"]
)
def test_spellings_that_mean_one_file_beyond_doubt_are_opened_alike(uri: str, pattern: str) -> None:
    assert uri_matcher([pattern], for_allow=True)(uri)


def test_escapes_in_a_pattern_are_no_globs() -> None:
    fits = uri_matcher(["file:///srv/%2A", "file:///srv/%5Ba%5D/*"], for_allow=False)
    assert fits("file:///srv/*")
    assert fits("file:/srv/%2a")
    assert fits("file:///srv/[a]/x")
    assert not fits("file:///srv/other")
    assert not fits("file:///srv/a/x")


def test_letters_beyond_ascii_are_one_with_their_escapes() -> None:
    fits = uri_matcher(["file:///srv/b\u00fccher/*"], for_allow=False)
    assert fits("file:///srv/b%C3%BCcher/x")
    assert uri_matcher(["file:///srv/b%c3%bccher/*"], for_allow=False)("file:///srv/b\u00fccher/x")


def test_a_file_of_another_machine_is_opened_by_a_rule_for_both_readings() -> None:
    # Many servers take no notice of the host, so it has to fit without it as well.
    assert not uri_matcher(["file://nas/share/*"], for_allow=True)("file://nas/share/a")
    assert uri_matcher(["file://nas/share/*", "file:///share/*"], for_allow=True)("file://nas/share/a")
    assert uri_matcher(["file://nas/share/*"], for_allow=False)("file://NAS/share/x/../a")
