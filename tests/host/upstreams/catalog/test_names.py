"""Names: distinct, legal, stable whoever else is there, and reversible without cutting them."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from trunkline.host.upstreams.catalog.names import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    NamingScheme,
    inner_uri,
    item_id,
    outer_uri,
    server_name_problem,
    split_ambiguous,
    split_id,
    wire_name,
)
from trunkline.protocol.uri_template import UriTemplate

NAMINGS = {
    "anthropic": (ANTHROPIC, r"[a-zA-Z0-9_-]{1,64}"),
    "openai": (OPENAI, r"[a-zA-Z0-9_-]{1,64}"),
    "gemini": (GEMINI, r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}"),
}
HARD_NAMES = [
    *("", "a/b/c", "__proto__", "__class__", "constructor", "überprüfen", "検索", "7zip", "a b\n\x00"),
    *("\N{PILE OF POO}" * 3, "x" * 10_000, "_" * 200, "\ud800"),
]
# Texts near the rules: few characters, so that pairs come close to one another.
CLOSE = st.text(alphabet="ab_-.", max_size=6)
SERVERS = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=12)


# --- ids -------------------------------------------------------------------------------------------------------------


@given(SERVERS, st.text(min_size=1))
def test_an_id_is_cut_at_its_first_slash(server: str, name: str) -> None:
    assert split_id(item_id(server, name)) == (server, name)


@pytest.mark.parametrize("text", ["files", "", "/read", "files/"])
def test_a_text_without_both_halves_is_no_id(text: str) -> None:
    assert split_id(text) is None


@pytest.mark.parametrize(
    ("name", "word"),
    [("a/b", '"/"'), ("", "empty"), ("a\nb", "U+000A"), ("x" * 129, "128"), ("pay\u202epal", "U+202E")],
    ids=["slash", "empty", "newline", "long", "turned"],
)
def test_a_server_name_that_could_mislead_is_refused(name: str, word: str) -> None:
    assert word in (server_name_problem(name) or "")


@pytest.mark.parametrize("name", ["files", "My Server", "plugin:github:github", "größe", "検索"])
def test_a_server_may_have_an_ordinary_name(name: str) -> None:
    assert server_name_problem(name) is None


# --- wire names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", NAMINGS)
def test_every_name_gets_a_legal_wire_name(provider: str) -> None:
    naming, pattern = NAMINGS[provider]
    wires = [wire_name(*pair, naming) for name in HARD_NAMES for pair in (("files", name), (name, "read"))]
    assert [wire for wire in wires if not re.fullmatch(pattern, wire)] == []


@given(st.text(), st.text())
def test_any_pair_at_all_gets_a_legal_wire_name(server: str, name: str) -> None:
    assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,62}", wire_name(server, name, GEMINI))


@given(st.tuples(CLOSE, CLOSE), st.tuples(CLOSE, CLOSE))
@example(("a__b", "c"), ("a", "b__c"))
@example(("a_", "b"), ("a", "_b"))
@example(("a", "b"), ("a__b", ""))
@example(("", "a__b"), ("a", "b"))
def test_distinct_pairs_have_distinct_wire_names(one: tuple[str, str], other: tuple[str, str]) -> None:
    assume(one != other)
    assert wire_name(*one) != wire_name(*other)


@given(CLOSE, CLOSE, CLOSE)
def test_a_tool_named_like_a_wire_name_gets_another_wire_name(server: str, name: str, other: str) -> None:
    forged = wire_name(server, name)
    assert wire_name(other, forged) != forged


def test_a_long_name_keeps_what_people_can_read() -> None:
    wire = wire_name("very-long-company-name-of-a-server", "list_all_open_pull_requests_of_a_repository_by_label")
    assert re.fullmatch(r"very-long-_list_all_open_pull_req_[0-9a-f]{12}", wire)


#: What providers accept as the name of a tool, and what clients put in front of the gateway's names.
PROVIDERS = {
    "openai": r"[a-zA-Z0-9_-]{1,64}",
    "anthropic": r"[a-zA-Z0-9_-]{1,64}",
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_.-]{0,62}",
    "bedrock": r"[a-zA-Z0-9_-]{1,64}",
    "mistral": r"[a-zA-Z0-9_-]{1,64}",
    "mcp": r"[a-zA-Z0-9_.-]{1,128}",
}
PREFIXES = ["", "mcp__trunkline__", "mcp_trunkline_", "trunkline-"]
PAIRS = [
    ("1password", "get_item"),
    ("7", "7"),
    ("-dash", "x"),
    ("my.server", "files.read"),
    ("my server", "read file"),
    ("größe", "überblick"),
    ("天気", "予報"),
    ("😀", "😀"),
    ("io.github.acme/weather".replace("/", "."), "get_forecast"),
    ("s" * 48, "t"),
    ("s", "t" * 128),
    ("github", "list_pull_request_review_comments_of_a_repository"),
    ("a__b", "c"),
    ("__", "__"),
]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_wire_name_fits_every_provider_with_the_prefix_of_a_client(provider: str) -> None:
    wires = [prefix + wire_name(*pair) for pair in PAIRS for prefix in PREFIXES]
    assert [wire for wire in wires if not re.fullmatch(PROVIDERS[provider], wire)] == []


def test_names_that_must_be_rewritten_stay_apart() -> None:
    assert len({wire_name(*pair) for pair in PAIRS}) == len(PAIRS)
    # Without the digest each of these pairs would read the same.
    assert wire_name("1password", "get") != wire_name("n_1password", "get")
    assert wire_name("my.server", "read") != wire_name("my server", "read")
    assert wire_name("s", "t" * 60) != wire_name("s", "t" * 61)


def test_a_name_that_fits_is_kept_as_it_is_up_to_the_last_character() -> None:
    assert wire_name("s", "t" * 45) == "s__" + "t" * 45
    assert wire_name("s", "t" * 46) != "s__" + "t" * 46


def test_a_wire_name_never_changes_from_release_to_release() -> None:
    assert wire_name("größe", "a__b") == "gr_e_a_b_49ddd565bdda"


def test_all_that_share_a_name_are_given_apart() -> None:
    assert split_ambiguous([("n", 1), ("m", 2), ("n", 3), ("n", 4)]) == ({"m": 2}, [("n", 1), ("n", 3), ("n", 4)])


@pytest.mark.parametrize("joiner", ["", "a", "0", "!"])
def test_a_joiner_that_cannot_be_distinguished_from_names_is_rejected(joiner: str) -> None:
    with pytest.raises(ValueError, match="joiner"):
        NamingScheme(alphabet=ANTHROPIC.alphabet, max_length=64, joiner=joiner)


def test_a_naming_without_room_for_a_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="room"):
        NamingScheme(alphabet=ANTHROPIC.alphabet, max_length=16)


@given(st.tuples(CLOSE, CLOSE), st.tuples(CLOSE, CLOSE), st.sampled_from(["_", "-", ".", "_-_"]))
def test_any_joiner_keeps_pairs_apart(one: tuple[str, str], other: tuple[str, str], joiner: str) -> None:
    assume(one != other)
    naming = NamingScheme(alphabet=OPENAI.alphabet | {"."}, max_length=64, joiner=joiner)
    assert wire_name(*one, naming) != wire_name(*other, naming)


# --- URIs ------------------------------------------------------------------------------------------------------------

FORMS = [
    ("docs://guide/intro", "docs://files/guide/intro"),
    ("file:///home/x", "file://files//home/x"),
    ("urn:isbn:123", "urn:files/isbn:123"),
    ("mailto:a@b", "mailto:files/a@b"),
    ("notes/today", "mcp:/files/notes/today"),
    ("mcp:notes", "mcp:files/notes"),
    ("mcp:/files/notes", "mcp:files//files/notes"),
    ("", "mcp:/files/"),
    ("repo://{owner}/{+path}{?ref}", "repo://files/{owner}/{+path}{?ref}"),
    ("{scheme}://x/{y}", "mcp:/files/{scheme}://x/{y}"),
]


@pytest.mark.parametrize(("own", "outside"), FORMS)
def test_the_server_is_the_first_segment_of_an_outer_uri(own: str, outside: str) -> None:
    assert outer_uri("files", own) == outside


@given(SERVERS, st.text() | st.from_regex(r"[a-z]{1,3}:/{0,3}[a-z/:{}]{0,8}", fullmatch=True), st.sets(SERVERS))
def test_every_uri_comes_back(server: str, uri: str, others: set[str]) -> None:
    assert inner_uri(outer_uri(server, uri), others | {server}) == (server, uri)


PIECES = st.sampled_from(["a", "/", "//", ":", "x:", "://", "?", "#", "{v}", "{+v}", "{/v}", "{?v}", "%20", "é"])


@given(st.lists(PIECES, max_size=6).map("".join), st.text(alphabet="ab/:é .", max_size=5))
@example("x:{+v}", "//a/b")
@example("{v}:a", "x")
def test_what_an_outer_template_expands_to_is_the_servers_own_expansion(text: str, value: str) -> None:
    own = UriTemplate.parse(text).expand({"v": value})
    outside = UriTemplate.parse(outer_uri("my server", text)).expand({"v": value})
    assert inner_uri(outside, ["my server"]) == ("my server", own)


@pytest.mark.parametrize("server", ["a b", "größe", "a:b", "a?b#c", "{x}", "..", ".", "a%2Fb", "user@host"])
def test_a_server_with_any_name_makes_a_valid_uri(server: str) -> None:
    assert re.fullmatch(r"docs://[A-Za-z0-9%_.~\-]+/x", outer_uri(server, "docs://x"))


@pytest.mark.parametrize(
    "outer",
    ["docs://guide/intro", "docs://files", "docs:///files/x", "other:/files/x", "files/docs://x", "", "://files/x"],
)
def test_what_names_no_known_server_is_no_outer_uri(outer: str) -> None:
    assert inner_uri(outer, ["files"]) is None


def test_a_host_that_a_client_wrote_in_lower_case_is_still_known() -> None:
    assert inner_uri("http://github/x", ["GitHub", "files"]) == ("GitHub", "http://x")


def test_lower_case_that_could_be_two_servers_is_neither() -> None:
    assert inner_uri("http://github/x", ["GitHub", "GITHUB"]) is None
