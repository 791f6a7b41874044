"""Folders, hosts and URIs, however they are written."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.authorization.policy import PathContext
from trunkline.host.authorization.policy.locations import (
    InvalidFolder,
    InvalidHostPattern,
    PathReader,
    compile_hosts,
    compile_within,
    host_of,
    uri_forms,
    uri_matcher,
)
from trunkline.host.authorization.policy.patterns import is_glob

PLACES = PathContext(home="/home/me", folders={"files": "/home/me/work"})


def _within(value: str, *, folder: str = "~/work", lenient: bool = False, server: str = "files") -> bool | None:
    return compile_within([folder], paths=PathReader(PLACES), lenient=lenient)(value, server)


#: Paths by whether they lie in the folder ~/work: yes, no, or not to be known.
PATHS: dict[bool | None, tuple[str, ...]] = {
    True: (
        *("/home/me/work", "/home/me/work/", "/home/me/work/a/b", "/home/me/work/../work/a", "//home//me/./work/a"),
        *("a.txt", "./a", "../work/a"),
    ),
    False: (
        *("/home/me/worker", "/home/me/work/../other", "/home/me/work/../../../etc/passwd", "/etc/passwd", "/"),
        *("..", "../../me/other", "a/../../other"),
    ),
    None: (
        *("", "~/work/a", "~root/a", "file:///home/me/work/a", "C:\\work", "c:/work", "/home/me/work/\n"),
        *("/home/me/work/a\\..\\..\\b", "/home/me/work/a\x00/../../etc", "/home/me/work/%2e%2e/%2E%2E/etc"),
        *("/home/me/work/%252e%252e/x", "/home/me/work/..%2fx", "/home/me/work/\ud800", "/home/me/work/" + "a" * 9000),
    ),
}


@pytest.mark.parametrize("lenient", [False, True], ids=["opening", "closing"])
@pytest.mark.parametrize("inside", PATHS)
def test_a_path_is_read_as_it_would_be_opened(inside: bool | None, lenient: bool) -> None:
    assert [path for path in PATHS[inside] if _within(path, lenient=lenient) is not inside] == []


def test_a_relative_path_for_a_server_whose_folder_is_not_known_cannot_be_judged() -> None:
    assert _within("a", server="other") is None


def test_the_whole_file_system_holds_every_path() -> None:
    assert _within("/etc/passwd", folder="/") is True


@pytest.mark.parametrize(
    ("value", "opening", "closing"),
    [
        ("/home/me/WORK/a", False, True),
        ("/home/me/wor\u212a/a", False, True),
        ("/home/me/\uff57ork/a", False, True),
    ],
    ids=["capitals", "kelvin sign", "full width"],
)
def test_letters_that_some_systems_take_for_the_same_close_and_do_not_open(
    value: str, opening: bool, closing: bool
) -> None:
    assert (_within(value), _within(value, lenient=True)) == (opening, closing)


@pytest.mark.parametrize("folder", ["work", "./work", "~other/x", "file:///x", "", "/a\x00"])
def test_a_folder_that_is_not_absolute_is_refused(folder: str) -> None:
    with pytest.raises(InvalidFolder, match="begin it with '/' or '~/'"):
        _within("/x", folder=folder)


def test_a_tilde_without_a_known_home_is_rejected() -> None:
    with pytest.raises(InvalidFolder, match="write the whole path"):
        compile_within(["~/work"], paths=PathReader(PathContext()), lenient=False)


@given(st.lists(st.sampled_from(["..", ".", "a", "work", "home", "me", ""]), max_size=8))
def test_what_is_inside_is_inside_once_it_is_straightened(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    straight = os.path.normpath("/" + path)[1:]
    assert _within(path) is (straight + "/").startswith("/home/me/work/")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder ``work`` with a link out of it, and a link into it from outside."""
    root = tmp_path.resolve()
    (root / "work").mkdir()
    (root / "secret").mkdir()
    (root / "work" / "out").symlink_to(root / "secret")
    (root / "in").symlink_to(root / "work")
    return root


@pytest.mark.parametrize(
    ("path", "opening", "closing"),
    [
        ("work/a", True, True),
        ("work/out/a", False, True),
        ("work/out/../a", False, True),
        ("in/a", False, True),
        ("secret/a", False, False),
    ],
)
def test_a_link_out_of_a_folder_does_not_open_and_one_into_it_closes(
    tree: Path, path: str, opening: bool, closing: bool
) -> None:
    paths = PathReader(PathContext(resolve=os.path.realpath))
    judges = [compile_within([str(tree / "work")], paths=paths, lenient=lenient) for lenient in (False, True)]
    assert [judge(f"{tree}/{path}", "files") for judge in judges] == [opening, closing]


def test_a_folder_that_is_a_link_itself_holds_what_is_in_it_by_either_name(tree: Path) -> None:
    judge = compile_within([str(tree / "in")], paths=PathReader(PathContext(resolve=os.path.realpath)), lenient=False)
    assert judge(f"{tree}/in/a", "files") is True
    assert judge(f"{tree}/work/a", "files") is True


@pytest.mark.parametrize("error", [OSError("loop"), ValueError("odd")])
def test_a_link_that_cannot_be_followed_leaves_it_open(error: Exception) -> None:
    def fail(path: str) -> str:
        if path.endswith("/x"):
            raise error
        return path

    judge = compile_within(["/work"], paths=PathReader(PathContext(resolve=fail)), lenient=False)
    assert judge("/work/x", "files") is None


def test_links_are_followed_once_for_an_act_and_again_for_the_next() -> None:
    asked: list[str] = []

    def resolve(path: str) -> str:
        asked.append(path)
        return path

    paths = PathReader(PathContext(resolve=resolve))
    judges = [compile_within(["/work"], paths=paths, lenient=False) for _ in range(3)]
    asked.clear()
    assert [judge("/work/x", "files") for judge in judges] == [True] * 3
    assert asked == ["/work/x"]
    paths.forget()
    assert judges[0]("/work/x", "files") is True
    assert asked == ["/work/x"] * 2


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


#: URLs that some programs read differently from others, or that lead elsewhere.
AMBIGUOUS = (
    *("", "example.com", "//example.com/x", "http:example.com", "http:/example.com", "http:///example.com"),
    *("http:\\\\example.com", "https://example.com\\@evil.com", "https://example.com\\.evil.com/"),
    *("https://example.com@evil.com/", "https://example.com:80@evil.com/", "https://user:pw@example.com/"),
    *("https://example.com#@evil.com/", "https://example.com?@evil.com/", "https://example.com?\\evil.com"),
    *("https://evil.com%2eexample.com/", "https://example.com%00.evil.com/", "https://example.com\t.evil.com/"),
    *("https://exam\nple.com/", " https://example.com/", "https://example.com /", "https://example.com/\x00"),
    *("https://example.com..", "https://.example.com/", "https://a..example.com/", "https://-a.example.com/"),
    *("https://b\u00fccher.example/", "https://example\u3002com/", "https://\uff45xample.com/"),
    *("https://example.com:99999/", "https://example.com:80:80/", "https://example.com:a/"),
    *("http://127.1/", "http://0x7f.1/", "http://0x7f000001/", "http://2130706433/", "http://0177.0.0.1/"),
    *("http://127.0.0.1.1/", "http://[::ffff:127.0.0.1]/", "http://[::1/", "http://[::1]evil.com/"),
    *("http://[fe80::1%25eth0]/", "http://[1.2.3.4]/", "javascript://example.com/%0aalert(1)"),
    *("file://example.com/x", "ftp://example.com/x", "https://" + "a" * 64 + ".example/"),
    *("https://" + "a." * 127 + "com/", "https://example.com/" + "x" * 9000),
)


def test_a_url_that_programs_may_read_differently_has_no_host() -> None:
    assert {url: host_of(url) for url in AMBIGUOUS if host_of(url) is not None} == {}


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
    ("patterns", "fits", "others"),
    [
        (["example.com"], ["example.com"], ["www.example.com", "example.com.evil.com"]),
        (["Example.com."], ["example.com"], []),
        (["*.example.com"], ["www.example.com", "a.b.example.com"], ["example.com", "evilexample.com"]),
        (["a.com", "*.b.com"], ["a.com", "x.b.com"], ["x.a.com"]),
        (["[::1]", "127.0.0.1"], ["::1", "127.0.0.1"], ["::2"]),
    ],
    ids=str,
)
def test_hosts_are_compared_whole_or_below_a_star(patterns: list[str], fits: list[str], others: list[str]) -> None:
    matches = compile_hosts(patterns)
    assert [host for host in (*fits, *others) if matches(host)] == fits


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
SPELLINGS = (
    *("file:///home/me/.ssh/id", "file:/home/me/.ssh/id", "file:home/me/.ssh/id", "file:////home/me/.ssh/id"),
    *("file:///home//me/.ssh/id", "FILE:///home/me/.ssh/id", "File:/home/me/.ssh/id", "file:///home/me/.ssh/id/"),
    *("file://localhost/home/me/.ssh/id", "file://LOCALHOST./home/me/.ssh/id", "file://127.0.0.1/home/me/.ssh/id"),
    *("file://127.8.9.1/home/me/.ssh/id", "file://[::1]/home/me/.ssh/id", "file://127.1/home/me/.ssh/id"),
    *("file://localhost:80/home/me/.ssh/id", "file://you@localhost/home/me/.ssh/id"),
    *("file://%6cocalhost/home/me/.ssh/id", "file://elsewhere/home/me/.ssh/id", "file:///home/me/%2essh/id"),
    *("file:///home/me/%2Essh%2fid", "file:///h%6fme/me/.ssh/%69%64", "file:///home/me/%252essh/id"),
    *("file:///home/me/work/../.ssh/id", "file:///home/me/work/%2e%2e/.ssh/id", "file:///home/me/work/..%2f.ssh/id"),
    *("file:///home/me/work/./../.ssh/id", "file:///home/me/work/..\\.ssh/id", "file:\\\\\\home\\me\\.ssh\\id"),
    *("file:///home/me/work/?/../../.ssh/id", "file:///home/me/work/#/../../.ssh/id"),
    *("file:///home/me/work/%3f/../../.ssh/id", "file:///home/me/.ssh/id?version=1", "file:///home/me/.ssh/id#top"),
    *(" file:///home/me/.ssh/id", "\tfile:///home/me/.ssh/id\n", "fi\nle:///home/me/.s\tsh/id"),
)


@pytest.mark.parametrize(
    "pattern",
    [
        "file:///home/me/.ssh/id",
        "file:/home/*/.ssh/id*",
        "file://localhost/home/me/.ssh/*",
        "FILE://127.0.0.1/home/me/.ssh/*",
        "file:///home/me/%2Essh/*",
        "*/.ssh/*",
    ],
)
def test_no_spelling_of_a_file_is_hidden_from_a_rule_that_closes(pattern: str) -> None:
    closes = uri_matcher([pattern], for_allow=False)
    assert [uri for uri in SPELLINGS if not closes(uri)] == []


def test_no_spelling_of_a_file_gets_past_a_rule_that_opens_something_else() -> None:
    opens = uri_matcher(["file:///home/me/work/*", "file://elsewhere/share/*"], for_allow=True)
    assert [uri for uri in SPELLINGS if opens(uri)] == []


@pytest.mark.parametrize(
    "pattern", ["file:///srv/*", "file:/srv/*", "file://localhost/srv/*", "file://127.0.0.1/srv/*"]
)
def test_spellings_that_mean_one_file_beyond_doubt_are_opened_alike(pattern: str) -> None:
    opens = uri_matcher([pattern], for_allow=True)
    spellings = [
        "file:///srv/a b/c",
        "file:/srv/a b/c",
        "file://localhost/srv/a b/c",
        "file://127.0.0.1/srv/a b/c",
        "file://[::1]/srv/a b/c",
        "FILE:///srv/a b/c",
        "file:///srv/a%20b/c",
        "file:///srv/a%20b/%63?x=1",
    ]
    assert [uri for uri in spellings if not opens(uri)] == []


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
