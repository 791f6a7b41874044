"""Parsing of WWW-Authenticate headers, also of arbitrary ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.auth.www_authenticate import Challenge, TokenChallenge, parse_challenges, parse_token_challenge


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        ("Bearer", [("bearer", {})]),
        ('Bearer realm="a b"', [("bearer", {"realm": "a b"})]),
        ("BEARER Error=invalid_token", [("bearer", {"error": "invalid_token"})]),
        ('Bearer a="1", b="2"', [("bearer", {"a": "1", "b": "2"})]),
        ('Bearer a="1" , Basic realm="x"', [("bearer", {"a": "1"}), ("basic", {"realm": "x"})]),
        ('Basic realm="x", Bearer a = "1"', [("basic", {"realm": "x"}), ("bearer", {"a": "1"})]),
        ("Negotiate YWJj==, Bearer a=1", [("negotiate", {}), ("bearer", {"a": "1"})]),
        (r'Bearer a="say \"hi\", ok"', [("bearer", {"a": 'say "hi", ok'})]),
        ('Bearer a="https://h/x?y=z,w"', [("bearer", {"a": "https://h/x?y=z,w"})]),
        ("Bearer a=https://h/x", [("bearer", {"a": "https://h/x"})]),
        ('Bearer a="1", a="2"', [("bearer", {"a": ""})]),
        ('a="1", Bearer b="2"', [("bearer", {"b": "2"})]),
        ("", []),
        (",,, ,", []),
    ],
)
def test_challenges_are_parsed(header: str, challenges: list[tuple[str, dict[str, str]]]) -> None:
    assert parse_challenges(header) == [Challenge(scheme, params) for scheme, params in challenges]


def test_an_unterminated_string_is_ignored() -> None:
    assert "a" not in parse_challenges('Bearer a="open')[0].params


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [
        ([], TokenChallenge()),
        (['Basic realm="x"'], TokenChallenge()),
        (
            ['Bearer error="insufficient_scope", scope="a b a", resource_metadata="https://h/m"'],
            TokenChallenge("bearer", "insufficient_scope", ("a", "b"), "https://h/m"),
        ),
        (["Basic x", 'DPoP error="use_dpop_nonce"'], TokenChallenge("dpop", "use_dpop_nonce")),
        (['Bearer scope="ok bad\\"quote"'], TokenChallenge("bearer", None, ("ok",))),
    ],
    ids=["nothing", "another scheme", "scopes", "several headers", "no scope"],
)
def test_the_first_supported_challenge_is_used(headers: list[str], challenge: TokenChallenge) -> None:
    assert parse_token_challenge(headers) == challenge


def test_a_challenge_header_is_parsed_up_to_a_limit() -> None:
    assert len(parse_challenges("Bearer " + "a=1," * 100_000)[0].params) == 1


def test_the_number_of_scopes_is_limited() -> None:
    scopes = " ".join(f"s{number}" for number in range(1000))
    assert len(parse_token_challenge([f'Bearer scope="{scopes}"']).scopes) == 100


@given(st.text(max_size=400))
def test_arbitrary_text_is_parsed_without_an_exception(text: str) -> None:
    assert all(isinstance(challenge, Challenge) for challenge in parse_challenges(text))


@given(st.text(alphabet='Bearer DPoP,="\\ab ', max_size=300))
def test_arbitrary_challenge_headers_are_parsed_without_an_exception(text: str) -> None:
    assert isinstance(parse_token_challenge([text]), TokenChallenge)
