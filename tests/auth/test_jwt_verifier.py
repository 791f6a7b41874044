"""Verification of JWTs: the claims of a valid token, and every way in which one is invalid."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.auth.resource_support import (
    AUDIENCE,
    ISSUER,
    NOW,
    bearer,
    claims,
    ec_key,
    encoded,
    public,
    reason,
    rsa_key,
    sign,
    sign_hs,
    token,
    verifier,
)
from trunkline.auth import JWTVerifier
from trunkline.errors import ConfigError

# --- good tokens -----------------------------------------------------------------------------------------------------


async def test_a_token_with_certificates_in_its_header_is_accepted() -> None:
    given = token(header={"x5c": ["M" * 3000]})
    assert (await reason(verifier(), bearer(given))).startswith("taken: Principal")


async def test_a_valid_token_names_the_principal() -> None:
    found = await verifier().verify(bearer(token()))
    assert found is not None
    assert (found.subject, found.issuer, found.client) == ("ada", ISSUER, "notebook")
    assert found.scopes == {"files:read", "files:write"}
    assert found.claims == claims()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"aud": [AUDIENCE, "https://other.example"]}, id="one of several audiences"),
        pytest.param({"header": {"typ": "JWT"}}, id="the older type"),
        pytest.param({"header": {"typ": "application/AT+JWT"}}, id="the type in full, in capitals"),
        pytest.param({"header": {"typ": None}}, id="no type"),
        pytest.param({"header": {"x5t": "abc", "nonce": "n"}}, id="headers of a provider's own"),
        pytest.param({"exp": NOW - 29}, id="expired within the leeway"),
        pytest.param({"nbf": NOW + 29, "iat": NOW + 29}, id="made by a clock that is ahead within the leeway"),
        pytest.param({"iat": None}, id="no time of making"),
        pytest.param({"header": {"alg": "RS256", "kid": "rsa"}, "key": rsa_key()}, id="RSA"),
        pytest.param({"header": {"alg": "PS256", "kid": "rsa"}, "key": rsa_key()}, id="RSA-PSS"),
    ],
)
async def test_irrelevant_differences_of_a_token_are_accepted(changes: dict[str, Any]) -> None:
    found = await verifier().verify(bearer(token(**changes)))
    assert found is not None
    assert found.subject == "ada"


@pytest.mark.parametrize(
    ("changes", "scopes"),
    [
        pytest.param({"scope": "a b"}, {"a", "b"}, id="text"),
        pytest.param({"scope": ["a", "b"]}, {"a", "b"}, id="list"),
        pytest.param({"scope": None, "scp": "a b"}, {"a", "b"}, id="Entra"),
        pytest.param({"scope": None, "scp": ["a", "b"]}, {"a", "b"}, id="Okta"),
        pytest.param({"scope": None}, set(), id="none"),
        pytest.param({"scope": {"a": True}}, set(), id="neither text nor list"),
        pytest.param({"scope": ["a", 1, ""]}, {"a"}, id="list with other things"),
    ],
)
async def test_scopes_are_read_where_providers_put_them(changes: dict[str, Any], scopes: set[str]) -> None:
    found = await verifier().verify(bearer(token(**changes)))
    assert found is not None
    assert found.scopes == scopes


@pytest.mark.parametrize("name", ["client_id", "azp", "cid", "appid"])
async def test_the_client_is_read_where_providers_put_it(name: str) -> None:
    changes: dict[str, Any] = {"client_id": None, name: "robot"}
    found = await verifier().verify(bearer(token(**changes)))
    assert found is not None
    assert found.client == "robot"


async def test_the_subject_of_client_credentials_is_the_client() -> None:
    found = await verifier().verify(bearer(token(sub=None)))
    assert found is not None
    assert found.subject == "notebook"


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no header"),
        pytest.param({"authorization": "Basic YTpi"}, id="another scheme"),
        pytest.param({"authorization": "DPoP abc"}, id="a scheme that is not taken"),
        pytest.param({"x-access-token": "abc"}, id="another header"),
    ],
)
async def test_a_request_without_a_token_has_no_principal(headers: dict[str, str]) -> None:
    assert await verifier().verify(headers) is None


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer", "Bearer  "])
async def test_the_scheme_is_case_insensitive(scheme: str) -> None:
    assert await verifier().verify({"authorization": f"{scheme} {token()} "}) is not None


# --- invalid tokens --------------------------------------------------------------------------------------------------

NOT_A_JWT = "The token is not a JWT"
OTHER_WAY = "The token's signature algorithm is not accepted here"
BROKEN = "The signature of the token is not valid"
UNKNOWN = "The token is signed with an unknown key"
ELSEWHERE = "The token was issued for another audience"
NOT_ACCESS = "The token is not an access token"
MALFORMED = "The claims of the token are malformed"
NO_BEARER = "The Authorization header does not contain a valid bearer token"
BOUND = "The token is bound to a key, and this server accepts only unbound tokens"
CRITICAL = "The token has critical header parameters that are not supported here"
BODY = encoded(claims())


def tampered(**changes: Any) -> str:
    """A good token with other claims behind its header and signature."""
    head, _, signature = token().split(".")
    return f"{head}.{encoded(claims(**changes))}.{signature}"


def unsigned(algorithm: str, signature: str = "") -> str:
    return f"{encoded({'alg': algorithm, 'kid': 'first', 'typ': 'at+jwt'})}.{BODY}.{signature}"


def with_payload(payload: bytes) -> str:
    return sign(payload, {"alg": "ES256", "kid": "first"}, ec_key())


def pem() -> bytes:
    return bytes(rsa_key().as_pem(private=False))


REFUSED = [
    # --- time
    pytest.param(lambda: token(exp=NOW - 30), "The token has expired", id="expired"),
    pytest.param(lambda: token(exp=0), "The token has expired", id="expired in 1970"),
    pytest.param(lambda: token(nbf=NOW + 31), "The token is not valid yet", id="not yet valid"),
    pytest.param(lambda: token(iat=NOW + 31), "The token is not valid yet", id="made in the future"),
    pytest.param(lambda: token(exp=None), "The token does not say when it expires", id="for ever"),
    pytest.param(lambda: token(exp="tomorrow"), "The token's exp is not a time", id="exp is text"),
    pytest.param(lambda: token(exp=True), "The token's exp is not a time", id="exp is true"),
    pytest.param(lambda: token(exp=10**400), "The token's exp is not a time", id="exp is beyond all numbers"),
    pytest.param(lambda: token(nbf=[NOW]), "The token's nbf is not a time", id="nbf is a list"),
    # --- from whom, for whom
    pytest.param(lambda: token(iss="https://evil.example"), "The token is from another issuer", id="wrong iss"),
    pytest.param(lambda: token(iss=ISSUER + "/"), "The token is from another issuer", id="iss with a slash more"),
    pytest.param(lambda: token(iss=ISSUER.upper()), "The token is from another issuer", id="iss in capitals"),
    pytest.param(lambda: token(iss=[ISSUER]), "The token is from another issuer", id="iss in a list"),
    pytest.param(lambda: token(iss=None), "The token is from another issuer", id="no iss"),
    pytest.param(lambda: token(aud="https://api.example.com"), ELSEWHERE, id="of a sibling service"),
    pytest.param(lambda: token(aud=AUDIENCE + "/admin"), ELSEWHERE, id="aud contains ours"),
    pytest.param(lambda: token(aud="https://mcp.example.com"), ELSEWHERE, id="aud is the beginning of ours"),
    pytest.param(lambda: token(aud=AUDIENCE + "/"), ELSEWHERE, id="aud with a slash more"),
    pytest.param(lambda: token(aud=["a", "b"]), ELSEWHERE, id="aud without us"),
    pytest.param(lambda: token(aud=[]), ELSEWHERE, id="aud is empty"),
    pytest.param(lambda: token(aud=None), ELSEWHERE, id="no aud"),
    pytest.param(lambda: token(aud={AUDIENCE: True}), ELSEWHERE, id="aud is an object"),
    pytest.param(lambda: token(aud=[[AUDIENCE]]), ELSEWHERE, id="aud in a list in a list"),
    # --- who
    pytest.param(lambda: token(sub=None, client_id=None), "The token has no subject", id="nobody"),
    pytest.param(lambda: token(sub=""), "The token has no subject", id="sub is empty"),
    pytest.param(lambda: token(sub=7), "The token has no subject", id="sub is a number"),
    pytest.param(lambda: token(cnf={"jkt": "x"}), BOUND, id="bound to a key"),
    # --- signatures
    pytest.param(lambda: unsigned("none"), OTHER_WAY, id="alg none"),
    pytest.param(lambda: unsigned("None"), OTHER_WAY, id="alg None"),
    pytest.param(lambda: unsigned("nOnE", "AA"), OTHER_WAY, id="alg nOnE with a signature"),
    pytest.param(lambda: unsigned("ES256"), BROKEN, id="no signature"),
    pytest.param(lambda: unsigned("ES256", "A" * 86), BROKEN, id="zeros for a signature"),
    pytest.param(lambda: sign_hs(pem(), kid="rsa"), OTHER_WAY, id="HS256 with the public key as secret"),
    pytest.param(lambda: sign_hs(b"secret" * 8), OTHER_WAY, id="HS256"),
    pytest.param(lambda: tampered(sub="root"), BROKEN, id="changed claims"),
    pytest.param(lambda: token(key=ec_key("other")), BROKEN, id="signed by another under a known name"),
    pytest.param(lambda: token(header={"alg": "RS256"}, key=rsa_key()), UNKNOWN, id="a key of another kind"),
    pytest.param(lambda: token(header={"alg": "ES512"}, key=_p521()), OTHER_WAY, id="an algorithm that is not pinned"),
    # --- names of keys
    pytest.param(lambda: token(header={"kid": "unheard"}), UNKNOWN, id="unknown kid"),
    pytest.param(lambda: token(header={"kid": "../../../../dev/null"}), UNKNOWN, id="kid is a path"),
    pytest.param(lambda: token(header={"kid": "' UNION SELECT 'x"}), UNKNOWN, id="kid is SQL"),
    pytest.param(lambda: token(header={"kid": "first "}), UNKNOWN, id="kid with a space"),
    pytest.param(lambda: f"{encoded({'alg': 'ES256', 'kid': 7})}.{BODY}.AA", NOT_A_JWT, id="kid is a number"),
    # --- what a token says of its own key
    pytest.param(lambda: _mine(kid="mine", jwk=public(ec_key("mine"))), UNKNOWN, id="brings its key"),
    pytest.param(lambda: _mine(kid="mine", jku="https://evil.example/keys"), UNKNOWN, id="says where its key is"),
    pytest.param(lambda: _mine(kid="mine", x5u="https://evil.example/x"), UNKNOWN, id="says where its certificate is"),
    pytest.param(lambda: _mine(jku="https://evil.example/keys"), BROKEN, id="a known name, and says where its key is"),
    # --- other kinds of tokens
    pytest.param(lambda: token(header={"typ": "dpop+jwt"}), NOT_ACCESS, id="a proof"),
    pytest.param(lambda: token(header={"typ": "logout+jwt"}), NOT_ACCESS, id="a logout token"),
    pytest.param(lambda: f"{encoded({'alg': 'ES256', 'crit': ['exp']})}.{BODY}.AA", CRITICAL, id="critical headers"),
    # --- what is no token at all
    pytest.param(lambda: "opaque", NOT_A_JWT, id="opaque"),
    pytest.param(lambda: "a.b.c", NOT_A_JWT, id="three letters"),
    pytest.param(lambda: "..", NOT_A_JWT, id="dots"),
    pytest.param(lambda: token() + ".x", NOT_A_JWT, id="four parts"),
    pytest.param(lambda: token() + ".x.y", NOT_A_JWT, id="five parts, as if encrypted"),
    pytest.param(lambda: f"{encoded([])}.{BODY}.AA", NOT_A_JWT, id="a header that is a list"),
    pytest.param(lambda: f"{encoded(b'{' * 400)}.{BODY}.AA", NOT_A_JWT, id="a header that is not JSON"),
    pytest.param(lambda: f"{encoded(bytes([255, 254]))}.{BODY}.AA", NOT_A_JWT, id="a header that is not UTF-8"),
    pytest.param(lambda: with_payload(b"[]"), MALFORMED, id="claims in a list"),
    pytest.param(lambda: with_payload(b"\xff"), MALFORMED, id="claims not in UTF-8"),
    pytest.param(lambda: with_payload(b'{"exp":NaN}'), MALFORMED, id="claims with a NaN"),
    pytest.param(lambda: with_payload(b"[" * 5000 + b"]" * 5000), MALFORMED, id="deep claims"),
    pytest.param(lambda: "A" * 16_385, "The token is too long", id="too long"),
    pytest.param(lambda: "tök", NO_BEARER, id="not ASCII"),
    pytest.param(lambda: "a b", NO_BEARER, id="two words"),
    pytest.param(lambda: "", NO_BEARER, id="nothing"),
    pytest.param(lambda: f"{token()},x", NO_BEARER, id="a list"),
    pytest.param(lambda: f"{token()}\x00", NO_BEARER, id="a NUL"),
]


def _mine(**header: Any) -> str:
    """A token that another key signed."""
    return token(header=header, key=ec_key("mine"))


def _p521() -> Any:
    from joserfc.jwk import ECKey

    return ECKey.generate_key("P-521", {"kid": "first"}, private=True)


@pytest.mark.parametrize(("make", "why"), REFUSED)
async def test_an_invalid_token_is_refused_with_the_reason(make: Any, why: str) -> None:
    assert await reason(verifier(), bearer(make())) == why


# --- repeated checks -------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


async def test_a_verified_token_is_cached() -> None:
    checks, good = verifier(), bearer(token())
    assert await checks.verify(good) is await checks.verify(good)


async def test_a_cached_token_expires_on_time() -> None:
    clock = Clock()
    checks, short = verifier(now=clock, leeway=0), bearer(token(exp=NOW + 10))
    assert await checks.verify(short) is not None
    clock.now = NOW + 10
    assert await reason(checks, short) == "The token has expired"


async def test_a_cached_token_is_verified_again_after_a_minute() -> None:
    clock = Clock()
    checks, good = verifier(now=clock), bearer(token(exp=NOW + 3600))
    first = await checks.verify(good)
    clock.now = NOW + 59
    assert await checks.verify(good) is first
    clock.now = NOW + 60
    again = await checks.verify(good)
    assert again == first
    assert again is not first


async def test_the_cache_is_bounded() -> None:
    checks = verifier()
    first = bearer(token(jti="first"))
    found = await checks.verify(first)
    for number in range(4096):
        checks._remembered.keep(f"token {number}", found, until=NOW + 60)  # type: ignore[arg-type]
    assert len(checks._remembered._found) == 4096
    assert await checks.verify(first) is not found


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"algorithms": ["HS256"]}, "algorithms=['HS256']", id="a shared secret"),
        pytest.param({"algorithms": ["RS256", "none"]}, "algorithms=", id="none"),
        pytest.param({"algorithms": []}, "algorithms=[]", id="no algorithm"),
        pytest.param({"leeway": 61}, "leeway=61", id="a long leeway"),
        pytest.param({"leeway": -1}, "leeway=-1", id="a negative leeway"),
        pytest.param({"issuer": "auth.example.com"}, "issuer='auth.example.com'", id="an issuer that is no URL"),
        pytest.param({"audience": ""}, "audience=", id="no audience"),
        pytest.param({"audience": []}, "audience=", id="no audiences"),
        pytest.param({"audience": [AUDIENCE, ""]}, "audience=", id="an empty audience"),
        pytest.param({"keys": {"keys": []}}, "keys= has no usable public key", id="no keys"),
        pytest.param({"keys": {"kty": "oct", "k": "c2VjcmV0"}}, "keys= has no usable public key", id="a secret"),
        pytest.param({"keys": "-----BEGIN"}, "not a public key in PEM", id="a broken PEM"),
        pytest.param({"keys": {"a": 1}}, "a JWK Set needs a list", id="an object that is no key"),
        pytest.param({"keys": 7}, "not int", id="a number"),
    ],
)
def test_unsafe_options_are_a_config_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        verifier(**options)


def test_an_audience_is_required() -> None:
    with pytest.raises(TypeError, match="audience"):
        JWTVerifier(issuer=ISSUER)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "resource"),
    [
        pytest.param({}, AUDIENCE, id="the audience"),
        pytest.param({"audience": ["api://1234", AUDIENCE]}, AUDIENCE, id="the first audience that is a URL"),
        pytest.param({"audience": "api://1234"}, None, id="no audience is a URL"),
        pytest.param({"audience": "api://1234", "resource": "https://a.example"}, "https://a.example", id="as said"),
    ],
)
def test_the_resource_is_the_audience_that_is_a_url(options: dict[str, Any], resource: str | None) -> None:
    assert verifier(**options).resource == resource


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda: ec_key().as_pem(private=False), id="PEM"),
        pytest.param(lambda: ec_key().as_pem(private=False).decode(), id="PEM as text"),
        pytest.param(lambda: public(ec_key()), id="JWK"),
        pytest.param(lambda: [public(rsa_key()), public(ec_key())], id="list of JWKs"),
        pytest.param(lambda: json.loads(json.dumps({"keys": [public(ec_key()), "x"]})), id="JWK Set"),
    ],
)
async def test_keys_are_given_in_any_form(given: Any) -> None:
    assert await verifier(keys=given()).verify(bearer(token())) is not None


async def test_a_token_without_kid_is_checked_with_the_only_suitable_key() -> None:
    nameless = bearer(token(header={"kid": None}))
    assert await verifier().verify(nameless) is not None
    two = verifier(keys=[public(ec_key()), public(ec_key("other"))])
    assert await reason(two, nameless) == UNKNOWN
