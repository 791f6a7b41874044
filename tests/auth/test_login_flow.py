"""Logins as tables: what is requested, with which client, and which redirect is accepted."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from tests.auth.client_web import ISSUER, PRM, REDIRECT, SERVER, Web, answer, counted, enter, metadata, play, resource
from trunkline.auth.login_flow import refresh
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import ClockAndRandom
from trunkline.auth.tokens import Login, RegisteredClient, TokenEndpointError
from trunkline.auth.www_authenticate import TokenChallenge
from trunkline.errors import AuthError, FetchError

AS = f"{ISSUER}/.well-known/oauth-authorization-server"
TOKEN = f"{ISSUER}/token"
REGISTER = f"{ISSUER}/register"
DOCUMENT = "https://app.example.com/client.json"
KNOWN = RegisteredClient(issuer=ISSUER, client_id="before", dynamic=True, redirect_uri="http://127.0.0.1:9/callback")


def test_an_authorization_request_has_pkce_state_and_resource() -> None:
    web = Web()
    enter(web)
    query, form = web.visited[0], web.sent("/token")[0]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
    assert query == {
        ":page": f"{ISSUER}/authorize",
        "response_type": "code",
        "client_id": "registered",
        "redirect_uri": REDIRECT,
        "state": query["state"],
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": SERVER,
    }
    assert (form["grant_type"], form["code"], form["resource"]) == ("authorization_code", "code-1", SERVER)
    assert (form["redirect_uri"], form["client_id"]) == (REDIRECT, "registered")


def test_state_and_verifier_use_separate_random_values() -> None:
    web = Web()
    enter(web)
    form = web.sent("/token")[0]
    assert web.visited[0]["state"] not in form["code_verifier"]
    assert 43 <= len(form["code_verifier"]) <= 128


def test_the_query_of_a_login_page_is_kept() -> None:
    web = Web({AS: metadata(authorization_endpoint=f"{ISSUER}/authorize?policy=p1&x=y")})
    enter(web)
    assert (web.visited[0]["policy"], web.visited[0]["x"], web.visited[0]["client_id"]) == ("p1", "y", "registered")


def test_a_login_is_stored_with_what_a_refresh_needs() -> None:
    web = Web(
        {TOKEN: {"access_token": "a", "token_type": "bearer", "expires_in": 60, "refresh_token": "r", "scope": "x"}}
    )
    login, key = enter(web)
    tokens = login.tokens
    assert (tokens.access_token, tokens.token_type, tokens.refresh_token, tokens.scope) == ("a", "Bearer", "r", "x")
    assert (tokens.expires_at, tokens.issuer, tokens.resource) == (1_700_000_060.0, ISSUER, SERVER)
    assert (login.client.client_id, login.server.token_endpoint, key) == ("registered", TOKEN, None)


# --- the redirect -----------------------------------------------------------------------------------------------------

REDIRECTS: list[tuple[str, dict[str, Any], bool, str]] = [
    ("no state", {"state": None}, True, "state does not match"),
    ("another state", {"state": "x"}, True, "state does not match"),
    ("a state beyond ASCII", {"state": "\u00e4"}, True, "state does not match"),
    ("no issuer though it was announced", {"iss": None}, True, "its redirect has none"),
    ("another issuer", {"iss": "https://evil.example.com"}, True, "redirect that is not from"),
    ("another issuer, unannounced", {"iss": "https://evil.example.com"}, False, "redirect that is not from"),
    ("an issuer with a slash", {"iss": ISSUER + "/"}, True, "redirect that is not from"),
    ("an issuer in capitals", {"iss": ISSUER.replace("auth", "AUTH")}, True, "redirect that is not from"),
    ("an issuer with the usual port", {"iss": ISSUER + ":443"}, True, "redirect that is not from"),
    ("an issuer that is empty", {"iss": ""}, True, "redirect that is not from"),
    ("no code", {"code": None}, True, "without a code"),
    ("an empty code", {"code": ""}, True, "without a code"),
    (
        "the user's no",
        {"code": None, "error": "access_denied", "error_description": "no \x1b[31m"},
        True,
        "access_denied no",
    ),
]


@pytest.mark.parametrize(
    ("redirect", "announced", "words"), [row[1:] for row in REDIRECTS], ids=[row[0] for row in REDIRECTS]
)
def test_an_invalid_redirect_ends_the_login_before_the_code_is_used(
    redirect: dict[str, Any], announced: bool, words: str
) -> None:
    web = Web({AS: metadata(authorization_response_iss_parameter_supported=announced)}, redirect=redirect)
    with pytest.raises(AuthError, match=words) as failure:
        enter(web)
    assert web.sent("/token") == []
    assert "\x1b" not in str(failure.value)


@pytest.mark.parametrize("redirect", [{"iss": "https://evil.example.com"}, {"state": "x"}], ids=["issuer", "state"])
def test_an_error_of_another_party_is_not_shown(redirect: dict[str, str]) -> None:
    web = Web(redirect={**redirect, "error": "call", "error_description": "+1 555 0100"})
    with pytest.raises(AuthError) as failure:
        enter(web)
    assert "555" not in str(failure.value)


@pytest.mark.parametrize("redirect", [{}, {"iss": None}], ids=["named", "not named"])
def test_an_unannounced_iss_parameter_may_be_missing_or_correct(redirect: dict[str, Any]) -> None:
    web = Web({AS: metadata(authorization_response_iss_parameter_supported=None)}, redirect=redirect)
    assert enter(web)[0].tokens.access_token == "token-1"


# --- scopes -----------------------------------------------------------------------------------------------------------

STEP = TokenChallenge(error="insufficient_scope", scopes=("write",))
SCOPES: list[tuple[str, OAuth, TokenChallenge, tuple[str, ...], Any, Any, str | None]] = [
    ("the header's", OAuth(), TokenChallenge(scopes=("a", "b")), (), ["x"], None, "a b"),
    ("the metadata's", OAuth(), TokenChallenge(), (), ["x", "y"], None, "x y"),
    ("none", OAuth(), TokenChallenge(), (), None, None, None),
    ("an empty list", OAuth(), TokenChallenge(), (), [], None, None),
    ("none, though tokens that last are offered", OAuth(), TokenChallenge(), (), None, ["offline_access"], None),
    ("tokens that last", OAuth(), TokenChallenge(), (), ["x"], ["offline_access"], "x offline_access"),
    ("tokens that last are not offered", OAuth(), TokenChallenge(), (), ["x"], ["y"], "x"),
    ("the user's", OAuth(scopes=["mine"]), TokenChallenge(scopes=("a",)), (), ["x"], ["offline_access"], "mine"),
    ("the user's none", OAuth(scopes=[]), TokenChallenge(), (), ["x"], None, None),
    ("more", OAuth(), STEP, ("read",), ["x"], None, "read write"),
    ("more than the user's", OAuth(scopes=["mine"]), STEP, ("mine",), ["x"], None, "mine write"),
    ("the same again", OAuth(), TokenChallenge(), ("read",), ["x"], None, "read"),
]


@pytest.mark.parametrize(
    ("options", "challenge", "before", "basic", "offered", "scope"),
    [row[1:] for row in SCOPES],
    ids=[row[0] for row in SCOPES],
)
def test_the_requested_scopes_are_chosen(
    options: OAuth, challenge: TokenChallenge, before: tuple[str, ...], basic: Any, offered: Any, scope: str | None
) -> None:
    web = Web({PRM: resource(scopes_supported=basic), AS: metadata(scopes_supported=offered)})
    login, _ = enter(web, options, challenge=challenge, before=before)
    assert web.visited[0].get("scope") == scope
    assert " ".join(login.tokens.requested) == (scope or "")


# --- the client -------------------------------------------------------------------------------------------------------


def test_a_configured_client_is_never_registered() -> None:
    web = Web({AS: metadata(client_id_metadata_document_supported=True)})
    enter(web, OAuth(client_id="mine", client_metadata_url=DOCUMENT), known=(KNOWN,))
    assert (web.visited[0]["client_id"], web.registrations()) == ("mine", [])


def test_a_client_id_document_is_preferred_to_registration() -> None:
    web = Web({AS: metadata(client_id_metadata_document_supported=True)})
    enter(web, OAuth(client_metadata_url=DOCUMENT), known=(KNOWN,))
    assert (web.visited[0]["client_id"], web.registrations()) == (DOCUMENT, [])


def test_no_document_is_sent_to_a_server_without_support_for_them() -> None:
    web = Web()
    enter(web, OAuth(client_metadata_url=DOCUMENT))
    assert (web.visited[0]["client_id"], len(web.registrations())) == ("registered", 1)


def test_a_registration_contains_our_client_metadata() -> None:
    web = Web({PRM: resource(scopes_supported=["x", "y"])})
    enter(
        web,
        OAuth(client_name="My program", client_uri="https://my.example.com"),
        challenge=TokenChallenge(scopes=("x",)),
    )
    assert web.registrations() == [
        {
            "client_name": "My program",
            "client_uri": "https://my.example.com",
            "redirect_uris": [REDIRECT],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
            "scope": "x y",
        }
    ]


def test_a_redirect_to_another_host_registers_a_web_application() -> None:
    web = Web()
    enter(web, OAuth(redirect_uri="https://app.example.com/back"))
    assert web.registrations()[0]["application_type"] == "web"
    assert web.visited[0]["redirect_uri"] == "https://app.example.com/back"


def test_an_earlier_registration_is_reused_with_its_redirect() -> None:
    web = Web()
    enter(web, known=(KNOWN,))
    assert (web.visited[0]["client_id"], web.visited[0]["redirect_uri"]) == ("before", KNOWN.redirect_uri)
    assert web.registrations() == []


@pytest.mark.parametrize(
    "known",
    [
        RegisteredClient(issuer="https://old.example.com", client_id="before", dynamic=True, redirect_uri=REDIRECT),
        RegisteredClient(issuer=ISSUER, client_id="before", dynamic=False, redirect_uri=REDIRECT),
        RegisteredClient(issuer=ISSUER, client_id="before", dynamic=True, redirect_uri=REDIRECT, scopes=("other",)),
    ],
    ids=["of another issuer", "given before", "for other scopes"],
)
def test_an_unsuitable_registration_is_repeated(known: RegisteredClient) -> None:
    web = Web()
    enter(web, known=(known,), challenge=TokenChallenge(scopes=("x",)))
    assert (web.visited[0]["client_id"], web.sent("/token")[0]["client_id"]) == ("registered", "registered")


METHODS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("none", ["none"], {}, "none"),
    ("none, with a secret that is not needed", ["none"], {"client_secret": "s"}, "none"),
    ("basic", ["client_secret_basic"], {"client_secret": "s"}, "client_secret_basic"),
    ("post", ["client_secret_post"], {"client_secret": "s"}, "client_secret_post"),
    (
        "as the answer says",
        None,
        {"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"},
        "client_secret_post",
    ),
    ("none where nothing is said", None, {}, "none"),
]


@pytest.mark.parametrize(("offered", "said", "method"), [row[1:] for row in METHODS], ids=[row[0] for row in METHODS])
def test_a_registered_client_authenticates_with_the_registered_method(
    offered: Any, said: dict[str, Any], method: str
) -> None:
    pages = {
        AS: metadata(token_endpoint_auth_methods_supported=offered),
        REGISTER: answer({"client_id": "c", **said}, 201),
    }
    login, _ = enter(Web(pages))
    assert login.client.method == method


REGISTRATIONS: list[tuple[str, dict[str, Any], str]] = [
    ("no registration", {AS: metadata(registration_endpoint=None)}, "client_id="),
    (
        "a refusal",
        {REGISTER: answer({"error": "invalid_redirect_uri", "error_description": "no\nlocalhost"}, 400)},
        "invalid_redirect_uri: no localhost",
    ),
    ("a refusal without a reason", {REGISTER: answer(b"", 403)}, "status 403"),
    ("a page", {REGISTER: answer(b"<html>", 200)}, "without a client_id"),
    ("no client", {REGISTER: answer({"client_secret": "s"}, 201)}, "without a client_id"),
    (
        "a method we do not have",
        {REGISTER: answer({"client_id": "c", "token_endpoint_auth_method": "tls_client_auth"}, 201)},
        "tls_client_auth",
    ),
    (
        "a method without its secret",
        {REGISTER: answer({"client_id": "c", "token_endpoint_auth_method": "client_secret_basic"}, 201)},
        "client_secret_basic",
    ),
    ("only keys", {AS: metadata(token_endpoint_auth_methods_supported=["private_key_jwt"])}, "private_key="),
    ("unreachable", {REGISTER: FetchError("h:443 refused")}, "h:443 refused"),
]


@pytest.mark.parametrize(("pages", "words"), [row[1:] for row in REGISTRATIONS], ids=[row[0] for row in REGISTRATIONS])
def test_without_a_client_no_login_page_is_opened(pages: dict[str, Any], words: str) -> None:
    web = Web(pages)
    with pytest.raises(AuthError, match=words):
        enter(web)
    assert web.visited == []


# --- token answers ----------------------------------------------------------------------------------------------------

ANSWERS: list[tuple[str, Any, str]] = [
    ("an error", answer({"error": "invalid_grant", "error_description": "code was used"}, 400), "code was used"),
    ("an error with control characters", answer({"error": "e", "error_description": "a\x1b[1mb"}, 400), r"a \[1mb"),
    ("a status alone", answer(b"", 500), "status 500"),
    ("no JSON", answer(b"secret-token"), "malformed response"),
    ("no token", answer({"token_type": "Bearer"}), "malformed response"),
    ("a token that is a number", answer({"access_token": {"a": 1}}), "malformed response"),
    ("an empty token", answer({"access_token": "", "token_type": "Bearer"}), "cannot be sent"),
    ("a token with a line break", answer({"access_token": "a\r\nX: y", "token_type": "Bearer"}), "cannot be sent"),
    ("a refresh token with a space", answer({"access_token": "a", "refresh_token": "b c"}), "cannot be sent"),
    ("another type", answer({"access_token": "a", "token_type": "mac"}), "unknown type"),
    ("a bound token that was not asked for", answer({"access_token": "a", "token_type": "DPoP"}), "DPoP"),
    ("unreachable", FetchError("auth.example.com:443 redirects"), "redirects"),
    ("too deep", answer(b"[" * 5000), "malformed response"),
]


@pytest.mark.parametrize(("said", "words"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
def test_an_invalid_token_response_ends_the_login_and_is_not_quoted(said: Any, words: str) -> None:
    with pytest.raises(AuthError, match=words) as failure:
        enter(Web({TOKEN: said}))
    assert "secret-token" not in str(failure.value)
    assert ISSUER in str(failure.value)


# --- renewing ---------------------------------------------------------------------------------------------------------


def renewed(web: Web, login: Login, options: OAuth | None = None) -> Login:
    return play(
        refresh(login, options or OAuth(), key=None, sources=ClockAndRandom(lambda: 2_000_000_000.0, counted())), web
    )


def kept(**answer: Any) -> Login:
    web = Web({TOKEN: {"access_token": "old", "token_type": "Bearer", "refresh_token": "r1", **answer}})
    return enter(web, challenge=TokenChallenge(scopes=("x",)))[0]


def test_a_refresh_names_the_resource_and_keeps_the_old_refresh_token_by_default() -> None:
    web = Web({TOKEN: {"access_token": "new", "token_type": "Bearer", "expires_in": 10}})
    login = renewed(web, kept(scope="x y"))
    assert web.sent("/token") == [
        {"grant_type": "refresh_token", "refresh_token": "r1", "resource": SERVER, "client_id": "registered"}
    ]
    tokens = login.tokens
    assert (tokens.access_token, tokens.refresh_token, tokens.scope) == ("new", "r1", "x y")
    assert (tokens.requested, tokens.expires_at) == (("x",), 2_000_000_010.0)


def test_a_new_refresh_token_replaces_the_old_one() -> None:
    web = Web({TOKEN: {"access_token": "new", "token_type": "Bearer", "refresh_token": "r2"}})
    assert renewed(web, kept()).tokens.refresh_token == "r2"


def test_a_refresh_token_is_sent_only_to_the_server_that_issued_it() -> None:
    web = Web({PRM: resource(authorization_servers=["https://evil.example.com"])})
    renewed(web, kept())
    assert web.urls == [TOKEN]


def test_a_refused_refresh_is_an_error() -> None:
    with pytest.raises(TokenEndpointError) as failure:
        renewed(Web({TOKEN: answer({"error": "invalid_grant"}, 400)}), kept())
    assert failure.value.code == "invalid_grant"


def test_a_configured_secret_is_not_stored() -> None:
    options = OAuth(client_id="me", client_secret="s3cret", issuer=ISSUER)
    pages = {AS: metadata(token_endpoint_auth_methods_supported=["client_secret_post"])}
    web = Web({**pages, TOKEN: {"access_token": "a", "token_type": "Bearer", "refresh_token": "r"}})
    login = enter(web, options)[0]
    renewed(web, login, options)
    assert login.client.client_secret is None
    assert [form["client_secret"] for form in web.sent("/token")] == ["s3cret", "s3cret"]


@pytest.mark.parametrize("shown", [repr, str])
def test_nothing_secret_is_shown_of_a_login(shown: Any) -> None:
    login = kept()
    texts = [shown(each) for each in (login, login.tokens, login.client)]
    assert [text for text in texts if "old" in text or "r1" in text] == []
