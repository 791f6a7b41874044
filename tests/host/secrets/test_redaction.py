"""What is taken out of arguments before they are kept."""

from __future__ import annotations

import copy
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.host.secrets.registry import HIDDEN, Redaction, redact

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----"


# --- by name ---------------------------------------------------------------------------------------------------------


def test_a_member_that_is_called_like_a_credential_is_hidden_and_one_that_only_sounds_alike_is_not() -> None:
    value = {"userPassword": "x7", "X-Api-Key": "x7", "monkey": "x7", "key": "x7"}
    assert redact(value) == {"userPassword": HIDDEN, "X-Api-Key": HIDDEN, "monkey": "x7", "key": "x7"}


@pytest.mark.parametrize("value", [["a", "b"], {"inner": "a"}, 1234, 1.5], ids=str)
def test_all_that_is_in_a_hidden_member_is_hidden(value: Any) -> None:
    assert redact({"password": value}) == {"password": HIDDEN}


@pytest.mark.parametrize("value", [None, True, False])
def test_whether_there_is_a_credential_is_no_secret(value: bool | None) -> None:
    assert redact({"password": value}) == {"password": value}


def test_names_can_be_others() -> None:
    assert redact({"iban": "DE1", "password": "x"}, names=frozenset({"iban"})) == {"iban": HIDDEN, "password": "x"}


def test_a_member_of_an_endless_name_is_hidden() -> None:
    assert list(redact({"x" * 300: "value"}).values()) == [HIDDEN]


def test_any_number_of_names_is_judged() -> None:
    value = {f"password_{number}": "a" for number in range(3000)} | {"z": "kept"}
    redacted = Redaction(members=5000).apply(value)
    assert set(redacted.values()) == {HIDDEN, "kept"}


# --- by place --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointer", "redacted"),
    [
        ("/a", {"a": HIDDEN, "b": [{"c": 3}, {"c": 4}], "d/e": 5}),
        ("/b/0/c", {"a": 1, "b": [{"c": HIDDEN}, {"c": 4}], "d/e": 5}),
        ("/b/*/c", {"a": 1, "b": [{"c": HIDDEN}, {"c": HIDDEN}], "d/e": 5}),
        ("/b", {"a": 1, "b": HIDDEN, "d/e": 5}),
        ("/d~1e", {"a": 1, "b": [{"c": 3}, {"c": 4}], "d/e": HIDDEN}),
        ("/*", {"a": HIDDEN, "b": HIDDEN, "d/e": HIDDEN}),
        ("/nowhere/at/all", {"a": 1, "b": [{"c": 3}, {"c": 4}], "d/e": 5}),
        ("", HIDDEN),
    ],
)
def test_what_a_pointer_leads_to_is_hidden(pointer: str, redacted: Any) -> None:
    assert redact({"a": 1, "b": [{"c": 3}, {"c": 4}], "d/e": 5}, pointers=[pointer]) == redacted


# --- by what it holds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("use hunter2 now", "use *** now"),
        ("hunter2hunter2", "******"),
        ("hunter2-and-more", "***"),
        ("ab", "***"),
        ("about", "about"),
    ],
    ids=["inside", "twice", "the longer first", "a short one alone", "a short one inside"],
)
def test_known_secrets_are_hidden_wherever_they_stand(text: str, redacted: str) -> None:
    secrets = frozenset({"hunter2", "hunter2-and-more", "ab", ""})
    assert redact({"x": [text]}, secrets=secrets) == {"x": [redacted]}


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("token ghp_abcdefghijklmnopqrst1234 here", "token *** here"),
        (f"before {PEM} after", "before *** after"),
        (PEM[:40], "***"),
        ("https://example.com/x?a=1&access_token=abcd&b=2", "https://example.com/x?a=1&access_token***&b=2"),
        ("PASSWORD=abcd run", "PASSWORD*** run"),
        ('{"password": "abcd"}', '{"password***"}'),
    ],
)
def test_what_looks_like_a_credential_is_hidden(text: str, redacted: str) -> None:
    assert redact(text) == redacted


def test_plain_text_is_kept() -> None:
    assert redact("the token is there: é 世界") == "the token is there: é 世界"


def test_the_name_of_a_member_may_hold_a_secret_too() -> None:
    assert redact({"hunter2": 1, "hunter2 ": 2}, secrets=frozenset({"hunter2"})) == {"***": 1, "*** ": 2}


def test_members_whose_names_are_hidden_are_distinguished() -> None:
    secrets = frozenset({"first", "second"})
    assert redact({"first": 1, "second": 2}, secrets=secrets) == {"***": 1, "*** (2)": 2}


# --- by size ---------------------------------------------------------------------------------------------------------


def test_a_long_text_is_cut_with_its_length_and_digest() -> None:
    text = "é" * 3000
    digest = sha256(text.encode()).hexdigest()
    assert redact(text) == f"{'é' * 1024}... (3000 characters, sha256:{digest})"


def test_a_long_text_with_a_secret_has_no_digest_to_guess_it_by() -> None:
    text = "password=abcd " + "x" * 3000
    assert redact(text) == f"password*** {'x' * 1010}... (3014 characters)"


def test_a_secret_far_behind_the_cut_prevents_the_digest_too() -> None:
    text = "x" * 9000 + " password=abcd"
    assert redact(text) == f"{'x' * 1024}... ({len(text)} characters)"


def test_a_text_too_long_to_be_searched_has_no_digest() -> None:
    assert redact("x" * 1_000_000) == f"{'x' * 1024}... (1000000 characters)"


@pytest.mark.parametrize("before", [1010, 1023, 1024])
def test_a_secret_at_the_cut_does_not_survive_in_part(before: int) -> None:
    redacted = redact(
        "-" * before + "hunter2-hunter2-hunter2" + "-" * 500, secrets=frozenset({"hunter2-hunter2-hunter2"})
    )
    assert "hun" not in redacted


def test_a_long_key_at_the_cut_does_not_survive_in_part() -> None:
    text = "a" * 1000 + "-----BEGIN PRIVATE KEY-----" + "M" * 5000 + "-----END PRIVATE KEY-----"
    assert "MM" not in redact(text)


def test_a_deep_value_is_cut() -> None:
    value: Any = {"a": {"b": {"c": [1, 2]}}}
    assert Redaction(depth=2).apply(value) == {"a": {"b": "(1 members)"}}
    assert Redaction(depth=3).apply(value) == {"a": {"b": {"c": "(2 items)"}}}


def test_a_value_of_many_members_is_cut() -> None:
    rules = Redaction(members=4)
    assert rules.apply([1, 2, 3, 4, 5, 6]) == [1, 2, 3, 4, "(2 more items)"]
    assert rules.apply({"a": [1, 2], "b": 3, "c": 4}) == {"a": [1, 2], "b": 3, "...": "(1 more members)"}


@pytest.mark.parametrize("value", [b"abc", object(), 2**70], ids=["bytes", "object", "large"])
def test_what_json_cannot_say_becomes_a_text(value: Any) -> None:
    assert isinstance(redact([value])[0], str)


# --- always ----------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(JSON)
def test_the_value_itself_is_never_changed_nor_shared(value: Any) -> None:
    before = copy.deepcopy(value)
    redacted = redact([value])
    redacted.append(1)
    assert value == before
    assert redacted[0] is not value or not isinstance(value, dict | list)


@given(JSON, st.text(min_size=4, max_size=10).filter(lambda text: text not in HIDDEN * 5))
def test_no_known_secret_is_left(value: Any, secret: str) -> None:
    redacted = Redaction(secrets=frozenset({secret})).text(f"{value} {secret} {value}")
    assert secret not in redacted.replace(HIDDEN, "\0")


def test_what_is_redacted_can_be_written() -> None:
    value = redact({"a": [1, 2.5, None, True, "x", 2**70, b"x"]})
    assert msgspec.json.decode(msgspec.json.encode(value)) == value
