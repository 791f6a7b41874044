"""Token requests of every kind: client authentication, grants without a user, bound tokens."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from joserfc import jwk, jwt

from tests.auth.client_web import ISSUER, NOW, PRM, SERVER, Web, answer, enter, metadata, resource
from trunkline.auth.jose import ProofKey, client_assertion, digest
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import ClockAndRandom
from trunkline.auth.www_authenticate import TokenChallenge
from trunkline.errors import AuthError, ConfigError, FetchError

AS = f"{ISSUER}/.well-known/oauth-authorization-server"
TOKEN = f"{ISSUER}/token"
IDP = "https://idp.example.com"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
BOUND = {"access_token": "bound", "token_type": "DPoP"}


def offers(*methods: str) -> dict[str, Any]:
    return {AS: metadata(token_endpoint_auth_methods_supported=list(methods))}


# --- the client -------------------------------------------------------------------------------------------------------


def program(**more: Any) -> OAuth:
    return OAuth(grant="client_credentials", client_id="my id", issuer=ISSUER, **more)


def test_client_credentials_are_sent_in_a_header() -> None:
    web = Web(offers("client_secret_basic", "client_secret_post"))
    enter(web, program(client_secret="p&q:r"), challenge=TokenChallenge(scopes=("a", "b")))
    assert web.sent("/token") == [
        {"grant_type": "client_credentials", "scope": "a b", "resource": SERVER, "client_id": "my id"}
    ]
    shown = web.heads("/token")[0]["Authorization"].removeprefix("Basic ")
    assert base64.b64decode(shown) == b"my+id:p%26q%3Ar"


def test_client_credentials_are_sent_in_the_form_where_headers_are_not_supported() -> None:
    web = Web(offers("client_secret_post"))
    enter(web, program(client_secret="s"))
    assert (web.sent("/token")[0]["client_id"], web.sent("/token")[0]["client_secret"]) == ("my id", "s")
    assert "Authorization" not in web.heads("/token")[0]


def test_a_secret_is_not_sent_to_a_server_that_accepts_none() -> None:
    web = Web(offers("private_key_jwt"))
    with pytest.raises(AuthError, match="accepts no client secret"):
        enter(web, program(client_secret="s"))
    assert web.sent("/token") == []


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("ES256", jwk.ECKey.generate_key("P-256")),
        ("RS256", jwk.RSAKey.generate_key(2048)),
        ("PS256", jwk.RSAKey.generate_key(2048)),
        ("Ed25519", jwk.OKPKey.generate_key("Ed25519")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_client_assertion_is_for_one_server_and_one_minute(algorithm: str, key: Any) -> None:
    web = Web(offers("private_key_jwt"))
    pem = key.as_pem(private=True).decode()
    enter(web, program(private_key=pem, signing_algorithm=algorithm))
    form = web.sent("/token")[0]
    said = jwt.decode(form["client_assertion"], key, algorithms=[algorithm])
    claims = said.claims
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("my id", "my id", ISSUER)
    assert (claims["iat"], claims["exp"], bool(claims["jti"])) == (int(NOW), int(NOW) + 60, True)


@pytest.mark.parametrize(
    ("key", "algorithm", "words"),
    [
        ("no key", "ES256", "cannot sign"),
        (jwk.RSAKey.generate_key(2048).as_pem(private=True).decode(), "ES256", "cannot sign"),
        ("key", "HS256", "must be one of"),
        ("key", "none", "must be one of"),
    ],
    ids=["no key", "of another kind", "a shared secret", "nothing"],
)
def test_a_key_that_cannot_sign_is_a_config_error_that_does_not_show_it(key: str, algorithm: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as failure:
        client_assertion("me", ISSUER, key=key, algorithm=algorithm, sources=ClockAndRandom())
    assert "PRIVATE KEY" not in str(failure.value)


# --- without a user ---------------------------------------------------------------------------------------------------


def test_a_platform_assertion_is_sent_once_without_alternatives() -> None:
    web = Web({**offers("none"), TOKEN: [answer({"error": "invalid_grant"}, 400)]})
    options = OAuth(grant="jwt_bearer", client_id="me", issuer=ISSUER, assertion="a.b.c")
    with pytest.raises(AuthError, match="invalid_grant"):
        enter(web, options, secret="a.b.c")
    assert web.sent("/token") == [
        {"grant_type": JWT_BEARER, "assertion": "a.b.c", "client_id": "me", "resource": SERVER}
    ]


def test_an_assertion_may_replace_the_client_id() -> None:
    web = Web()
    enter(web, OAuth(grant="jwt_bearer", issuer=ISSUER, assertion="a.b.c"), secret="a.b.c")
    assert "client_id" not in web.sent("/token")[0]


def enterprise(**more: Any) -> OAuth:
    given = {"idp_token_endpoint": f"{IDP}/exchange", "idp_client_id": "at-idp", **more}
    return OAuth(grant="enterprise", client_id="me", client_secret="s", issuer=ISSUER, id_token="id.token.x", **given)


ID_JAG = {"access_token": "jag", "token_type": "N_A", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}


def test_the_identity_provider_exchanges_the_users_token_for_a_grant() -> None:
    web = Web({**offers("client_secret_basic"), f"{IDP}/exchange": ID_JAG})
    enter(web, enterprise(), secret="id.token.x")
    assert web.sent("/exchange") == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "audience": ISSUER,
            "resource": SERVER,
            "subject_token": "id.token.x",
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "client_id": "at-idp",
        }
    ]
    assert web.sent("/token") == [{"grant_type": JWT_BEARER, "assertion": "jag", "resource": SERVER, "client_id": "me"}]
    assert web.heads("/token")[0]["Authorization"].startswith("Basic ")
    assert [step.url for step in web.fetched if b"id.token.x" in (step.body or b"")] == [f"{IDP}/exchange"]


def test_an_identity_provider_is_found_by_its_issuer() -> None:
    pages = {f"{IDP}/.well-known/oauth-authorization-server": metadata(IDP), f"{IDP}/token": ID_JAG}
    web = Web({**offers("client_secret_basic"), **pages})
    enter(web, enterprise(idp_token_endpoint=None, idp_issuer=IDP), secret="id.token.x")
    assert [step.url for step in web.fetched if b"id.token.x" in (step.body or b"")] == [f"{IDP}/token"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (answer({"error": "invalid_grant", "error_description": "expired"}, 400), "expired"),
        ({"access_token": "x", "token_type": "Bearer"}, "another kind"),
    ],
    ids=["refused", "another kind"],
)
def test_without_the_grant_the_authorization_server_is_not_asked(said: Any, words: str) -> None:
    web = Web({**offers("client_secret_basic"), f"{IDP}/exchange": said})
    with pytest.raises(AuthError, match=words):
        enter(web, enterprise(), secret="id.token.x")
    assert web.sent("/token") == []


# --- tokens that are bound to a key -----------------------------------------------------------------------------------

DPOP = TokenChallenge(scheme="dpop")


def bound(*answers: Any, **changes: Any) -> Web:
    said = metadata(dpop_signing_alg_values_supported=["ES256"], **changes)
    return Web({AS: said, TOKEN: list(answers) or BOUND})


def read_proof(proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
    head = json.loads(base64.urlsafe_b64decode(proof.split(".")[0] + "=="))
    said = jwt.decode(proof, jwk.ECKey.import_key(head["jwk"]), algorithms=["ES256"])
    return dict(said.header), dict(said.claims)


def test_a_token_request_proves_that_we_hold_the_key() -> None:
    web = bound()
    _, key = enter(web, challenge=DPOP)
    head, claims = read_proof(web.heads("/token")[0]["DPoP"])
    assert (head["typ"], head["alg"], sorted(head["jwk"])) == ("dpop+jwt", "ES256", ["crv", "kty", "x", "y"])
    assert (claims["htm"], claims["htu"], claims["iat"], "nonce" in claims) == ("POST", TOKEN, int(NOW), False)
    assert key is not None
    assert web.visited[0]["dpop_jkt"] == key.thumbprint


def test_a_nonce_required_by_the_server_is_in_a_new_proof() -> None:
    refusal = answer({"error": "use_dpop_nonce"}, 400, **{"dpop-nonce": "n1"})
    web = bound(refusal, BOUND)
    enter(web, challenge=DPOP)
    first, second = (read_proof(head["DPoP"])[1] for head in web.heads("/token"))
    assert ("nonce" in first, second["nonce"], first["jti"] == second["jti"]) == (False, "n1", False)


def test_requests_for_one_nonce_after_another_raise() -> None:
    refusal = answer({"error": "use_dpop_nonce"}, 400, **{"dpop-nonce": "n"})
    web = bound(refusal, refusal, refusal)
    with pytest.raises(AuthError, match="use_dpop_nonce"):
        enter(web, challenge=DPOP)
    assert len(web.sent("/token")) == 2


def test_metadata_may_require_bound_tokens() -> None:
    web = bound()
    web.pages[PRM] = resource(dpop_bound_access_tokens_required=True)
    assert enter(web)[0].tokens.token_type == "DPoP"


@pytest.mark.parametrize("offered", [None, [], ["RS256"]], ids=["nothing", "none", "another"])
def test_a_server_without_our_dpop_algorithms_is_refused(offered: Any) -> None:
    web = Web({AS: metadata(dpop_signing_alg_values_supported=offered)})
    with pytest.raises(AuthError, match="DPoP"):
        enter(web, challenge=DPOP)
    assert web.visited == []


def test_an_unbound_token_is_not_used_if_a_bound_one_was_requested() -> None:
    with pytest.raises(AuthError, match="not bound"):
        enter(bound({"access_token": "x", "token_type": "Bearer"}), challenge=DPOP)


def test_a_client_that_disables_dpop_gets_no_bound_token() -> None:
    web = Web()
    login, key = enter(web, OAuth(dpop=False), challenge=DPOP)
    assert (login.tokens.token_type, key, "DPoP" in web.heads("/token")[0]) == ("Bearer", None, False)


def test_a_client_that_requires_dpop_gets_a_bound_token() -> None:
    assert enter(bound(), OAuth(dpop=True))[0].tokens.token_type == "DPoP"


def test_a_proof_for_a_server_names_the_token_and_no_query() -> None:
    key = ProofKey(sources=ClockAndRandom())
    _, claims = read_proof(key.proof("GET", "https://h/mcp?secret=1#x", token="t0k"))
    assert (claims["htu"], claims["ath"]) == ("https://h/mcp", digest("t0k"))


def test_a_stored_key_can_be_loaded_again_and_is_not_shown() -> None:
    key = ProofKey(sources=ClockAndRandom())
    assert repr(key) == "ProofKey(…)"
    assert ProofKey(key.stored, sources=ClockAndRandom()).thumbprint == key.thumbprint


def test_without_the_extra_signing_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'trunkline\[auth\]'"):
        ProofKey(sources=ClockAndRandom())


def test_an_identity_provider_without_a_token_endpoint_is_named() -> None:
    pages = {f"{IDP}/.well-known/oauth-authorization-server": metadata(IDP, token_endpoint=None)}
    web = Web({**offers("client_secret_basic"), **pages})
    with pytest.raises(AuthError, match=r"idp\.example\.com publishes no token_endpoint"):
        enter(web, enterprise(idp_token_endpoint=None, idp_issuer=IDP), secret="id.token.x")


def test_a_server_without_a_token_endpoint_is_an_error() -> None:
    said = metadata(token_endpoint=None, token_endpoint_auth_methods_supported=["client_secret_basic"])
    with pytest.raises(AuthError, match=r"auth\.example\.com publishes no token_endpoint"):
        enter(Web({AS: said}), program(client_secret="s"))


def test_an_identity_provider_that_cannot_be_reached_is_named() -> None:
    web = Web({**offers("client_secret_basic"), f"{IDP}/exchange": FetchError("idp.example.com:443 took too long")})
    with pytest.raises(AuthError, match=r"identity provider.*took too long"):
        enter(web, enterprise(), secret="id.token.x")


def test_a_refusal_that_is_not_json_requests_no_nonce() -> None:
    web = bound(answer(b"<html>", 400, **{"dpop-nonce": "n"}))
    with pytest.raises(AuthError, match="status 400"):
        enter(web, challenge=DPOP)
