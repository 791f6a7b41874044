"""Tokens and keys from a list."""

from __future__ import annotations

from typing import Any

import pytest

from tests.auth.resource_support import bearer, reason
from trunkline import ApiKeys, Principal, StaticTokens
from trunkline.errors import ConfigError

ALICE = Principal(subject="alice", client="cli", scopes=frozenset({"a"}))


@pytest.mark.parametrize(
    ("who", "principal"),
    [
        pytest.param("alice", Principal(subject="alice"), id="a name"),
        pytest.param(ALICE, ALICE, id="a principal"),
        pytest.param({"subject": "alice", "client": "cli", "scopes": ["a"]}, ALICE, id="a mapping"),
        pytest.param({"subject": "alice", "client": "cli", "scopes": "a"}, ALICE, id="scopes as text"),
        pytest.param({"client_id": "cli"}, Principal(subject="cli", client="cli"), id="as others have it"),
    ],
)
async def test_a_listed_token_names_its_principal(who: Any, principal: Principal) -> None:
    assert await StaticTokens({"secret-1": who}).verify(bearer("secret-1")) == principal
    assert await ApiKeys({"secret-1": who}).verify({"x-api-key": "secret-1"}) == principal


@pytest.mark.parametrize("given", ["secret", "secret-12", "SECRET-1", "x" * 9000, "secret-1="])
async def test_an_unknown_token_is_refused(given: str) -> None:
    assert await reason(StaticTokens({"secret-1": "alice"}), bearer(given)) == "The token is not known here"
    assert await reason(ApiKeys({"secret-1": "alice"}), {"x-api-key": given}) == "The token is not known here"


async def test_a_request_without_a_token_has_no_principal() -> None:
    assert await StaticTokens({"secret-1": "alice"}).verify({"x-api-key": "secret-1"}) is None
    assert await ApiKeys({"secret-1": "alice"}).verify(bearer("secret-1")) is None


async def test_a_key_has_the_header_it_is_given() -> None:
    keys = ApiKeys({"secret-1": "alice"}, header="X-Acme-Key")
    assert await keys.verify({"x-acme-key": " secret-1 "}) == Principal(subject="alice")
    assert await keys.verify({"x-api-key": "secret-1"}) is None


def test_a_token_is_not_stored_in_plain_text() -> None:
    tokens = StaticTokens({"very-secret": "alice"})
    assert "very-secret" not in repr(vars(tokens)) + repr(vars(tokens._listed))


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param({}, id="none"),
        pytest.param({"": "alice"}, id="an empty token"),
        pytest.param({"two words": "alice"}, id="two words"),
        pytest.param({"tök": "alice"}, id="not ASCII"),
        pytest.param({7: "alice"}, id="a number"),
        pytest.param({"t": ""}, id="an empty name"),
        pytest.param({"t": None}, id="nobody"),
        pytest.param({"t": {"scopes": ["a"]}}, id="without a subject"),
        pytest.param({"t": {"subject": "a", "scope": "a"}}, id="a member that there is not"),
    ],
)
def test_an_invalid_list_of_tokens_is_refused(tokens: Any) -> None:
    with pytest.raises(ConfigError):
        StaticTokens(tokens)


@pytest.mark.parametrize("header", ["Authorization", "X Key", "", "a:b"])
def test_a_key_needs_a_header_of_its_own(header: str) -> None:
    with pytest.raises(ConfigError, match="header="):
        ApiKeys({"t": "alice"}, header=header)
