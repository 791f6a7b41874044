"""The keys of an issuer: discovered by its metadata, cached, rotated, and not fetched too often."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.auth.resource_support import (
    ISSUER,
    FakeFetcher,
    bearer,
    ec_key,
    jwks,
    public,
    reason,
    rsa_key,
    token,
    verifier,
)
from trunkline.auth import InvalidToken
from trunkline.auth.jose import IssuerKeys, document_fetcher

KEYS = "https://auth.example.com/keys"
METADATA = "https://auth.example.com/.well-known/oauth-authorization-server/tenant"
OPENID = "https://auth.example.com/.well-known/openid-configuration/tenant"
APPENDED = "https://auth.example.com/tenant/.well-known/openid-configuration"
SAID = {"issuer": ISSUER, "jwks_uri": KEYS}
AWAY = "The token cannot be checked: the keys of its issuer are not available; try again later"
UNKNOWN = "The token is signed with an unknown key"


class Issuer:
    """An issuer's keys behind a clock that the test sets."""

    def __init__(self, answers: dict[str, Any] | None = None, jwks_uri: str | None = KEYS) -> None:
        self.now = 1000.0
        self.web = FakeFetcher({KEYS: jwks(ec_key())} if answers is None else answers)
        self.keys = IssuerKeys(ISSUER, jwks_uri, fetch=document_fetcher(self.web), now=lambda: self.now)

    async def knows(self, kid: str | None = "first", algorithm: str = "ES256") -> bool:
        try:
            return bool(await self.keys.find(kid, algorithm))
        except InvalidToken:
            return False


# --- discovery -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        pytest.param({METADATA: SAID}, [METADATA, KEYS], id="OAuth"),
        pytest.param({OPENID: SAID}, [METADATA, OPENID, KEYS], id="OpenID, path inserted"),
        pytest.param({APPENDED: SAID}, [METADATA, OPENID, APPENDED, KEYS], id="OpenID, path appended"),
    ],
)
async def test_the_issuer_s_metadata_says_where_its_keys_are(answers: dict[str, Any], asked: list[str]) -> None:
    issuer = Issuer({**answers, KEYS: jwks(ec_key())}, jwks_uri=None)
    assert await issuer.knows()
    assert issuer.web.asked == asked


async def test_the_url_of_the_keys_is_discovered_once() -> None:
    issuer = Issuer({METADATA: SAID, KEYS: jwks(ec_key())}, jwks_uri=None)
    await issuer.knows()
    issuer.now += 60
    await issuer.knows("other")
    assert issuer.web.asked == [METADATA, KEYS, KEYS]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({}, id="no metadata"),
        pytest.param({METADATA: {**SAID, "issuer": ISSUER + "/"}}, id="of another issuer"),
        pytest.param({METADATA: {"issuer": ISSUER}}, id="without an address"),
        pytest.param({METADATA: {**SAID, "jwks_uri": 7}}, id="with a number for an address"),
        pytest.param({METADATA: b"<html>"}, id="metadata that is not JSON"),
        pytest.param({METADATA: b"[]"}, id="metadata that is a list"),
        pytest.param({METADATA: "refused: a private address"}, id="at a private address"),
        pytest.param({METADATA: SAID, KEYS: 500}, id="keys that fail"),
        pytest.param({METADATA: SAID, KEYS: b"\xff"}, id="keys that are not JSON"),
        pytest.param({METADATA: SAID, KEYS: {"keys": 7}}, id="keys that are a number"),
        pytest.param({METADATA: SAID, KEYS: {"keys": []}}, id="no keys"),
        pytest.param({METADATA: SAID, KEYS: {}}, id="an empty object"),
    ],
)
async def test_tokens_are_refused_if_the_keys_cannot_be_fetched(answers: dict[str, Any]) -> None:
    issuer = Issuer({KEYS: jwks(ec_key()), **answers}, jwks_uri=None)
    assert not await issuer.knows()


async def test_a_token_that_cannot_be_checked_is_refused_with_a_clear_message() -> None:
    checks = verifier(keys=None, jwks_uri=KEYS, fetcher=FakeFetcher({KEYS: 503}))
    assert await reason(checks, bearer(token())) == AWAY


@pytest.mark.parametrize(
    "key",
    [
        pytest.param({**public(ec_key()), "use": "enc"}, id="for encryption"),
        pytest.param({**public(ec_key()), "key_ops": ["sign"]}, id="for signing only"),
        pytest.param({**public(ec_key()), "alg": "ES384"}, id="for another algorithm"),
        pytest.param({**public(ec_key()), "kid": 7}, id="with a number for a name"),
        pytest.param({**public(ec_key()), "kty": "oct"}, id="of no public kind"),
        pytest.param({**public(ec_key()), "x": "?"}, id="broken"),
        pytest.param({"kty": "EC", "kid": "first"}, id="empty"),
    ],
)
async def test_keys_that_are_not_for_signatures_are_ignored(key: dict[str, Any]) -> None:
    checks = verifier(keys=None, jwks_uri=KEYS, fetcher=FakeFetcher({KEYS: {"keys": [key, public(rsa_key())]}}))
    assert await reason(checks, bearer(token())) in (UNKNOWN, "The signature of the token is not valid")


async def test_short_rsa_keys_are_ignored() -> None:
    short = {"kty": "RSA", "kid": "rsa", "n": "x" * 171, "e": "AQAB"}
    issuer = Issuer({KEYS: {"keys": [short, public(ec_key())]}})
    assert not await issuer.knows("rsa", "RS256")


# --- rotation --------------------------------------------------------------------------------------------------------


async def test_keys_are_fetched_once_and_cached() -> None:
    issuer = Issuer()
    assert [await issuer.knows() for _ in range(5)] == [True] * 5
    assert issuer.web.asked == [KEYS]


async def test_a_new_key_is_found_when_a_token_names_it() -> None:
    issuer = Issuer()
    await issuer.knows()
    issuer.web.answers[KEYS] = jwks(ec_key("second"))
    issuer.now += 30
    assert await issuer.knows("second")
    assert not await issuer.knows("first")


async def test_a_thousand_unknown_keys_cost_two_fetches() -> None:
    issuer = Issuer()
    await issuer.knows()
    issuer.now += 30
    await asyncio.gather(*(issuer.knows(f"random {n}") for n in range(1000)))
    assert len(issuer.web.asked) == 2
    assert await issuer.knows()


async def test_no_fetch_happens_within_the_pause() -> None:
    issuer = Issuer()
    await issuer.knows()
    issuer.web.answers[KEYS] = jwks(ec_key("second"))
    issuer.now += 29.9
    assert not await issuer.knows("second")
    assert len(issuer.web.asked) == 1


async def test_concurrent_verifications_share_one_fetch() -> None:
    issuer = Issuer()
    issuer.web.proceed = asyncio.Event()
    asking = [asyncio.ensure_future(issuer.knows()) for _ in range(10)]
    await asyncio.sleep(0)
    issuer.web.proceed.set()
    assert await asyncio.gather(*asking) == [True] * 10
    assert issuer.web.asked == [KEYS]


async def test_a_cancelled_waiter_does_not_cancel_the_fetch_of_others() -> None:
    issuer = Issuer()
    issuer.web.proceed = asyncio.Event()
    first, second = (asyncio.ensure_future(issuer.knows()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    issuer.web.proceed.set()
    assert await second


async def test_old_keys_are_used_while_new_ones_are_fetched() -> None:
    issuer = Issuer()
    await issuer.knows()
    issuer.web.proceed = asyncio.Event()
    issuer.now += 600
    assert await issuer.knows()
    issuer.web.proceed.set()
    await issuer.keys._fetching  # type: ignore[misc]
    assert issuer.web.asked == [KEYS, KEYS]


@pytest.mark.parametrize(
    "failure", [503, "no route", b"not JSON", {"keys": []}], ids=["503", "away", "garbage", "none"]
)
async def test_the_last_keys_are_used_for_a_day_if_no_others_can_be_fetched(failure: Any) -> None:
    issuer = Issuer()
    await issuer.knows()
    issuer.web.answers[KEYS] = failure
    issuer.now += 86_399
    assert await issuer.knows()
    await issuer.keys._fetching  # type: ignore[misc]
    issuer.now += 31
    assert not await issuer.knows()


def test_a_verifier_serves_one_loop_after_another() -> None:
    issuer = Issuer({KEYS: 503})
    assert not asyncio.run(issuer.knows())
    issuer.now += 30
    issuer.web.answers[KEYS] = jwks(ec_key())
    assert asyncio.run(issuer.knows())
