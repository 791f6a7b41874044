"""Registration of clients, and clients identified by a document at their own URL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.auth.authorization_server.support import (
    CALLBACK,
    ISSUER,
    VERIFIER,
    Browser,
    Clock,
    Documents,
    Response,
    Start,
    ask,
    authorize_url,
    exchange,
    register,
)
from trunkline.auth.authorization_server.clients import is_registered, redirect_uri_problem
from trunkline.auth.authorization_server.server import AuthorizationServer

DOCUMENT = "https://app.example.net/client.json"


def document(**changes: Any) -> dict[str, Any]:
    given = {"client_id": DOCUMENT, "client_name": "Notes", "redirect_uris": [CALLBACK], **changes}
    return {name: value for name, value in given.items() if value is not None}


async def post_json(
    server: AuthorizationServer, body: bytes, *, address: str = "192.0.2.1", kind: str = "application/json"
) -> Response:
    return await ask(server, "POST", f"{ISSUER}/register", headers={"content-type": kind}, body=body, address=address)


# --- redirect addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "https://app.example.net/callback",
        "https://app.example.net:8443/cb?x=1",
        "http://127.0.0.1/callback",
        "http://127.0.0.1:3000/callback",
        "http://localhost:3000/callback",
        "http://[::1]:3000/callback",
    ],
)
def test_a_redirect_uri_on_https_or_loopback_is_accepted(uri: str) -> None:
    assert redirect_uri_problem(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        "http://app.example.net/callback",
        "http://localhost.example.net/cb",
        "http://2130706433/cb",
        "https://app.example.net/cb#fragment",
        "https://user@app.example.net/cb",
        "https://app.example.net\\@evil.example/cb",
        "https:///cb",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "myapp://callback",
        "//evil.example/cb",
        "https://app.example.net/c b",
        "https://app.example.net/\r\nSet-Cookie: a=b",
        "https://bücher.example/cb",
        "https://app.example.net:99999/cb",
        "https://app.example.net/cb#",
        "http://127.0.0.1/c\tb",
        " http://127.0.0.1/cb",
        "\x00http://127.0.0.1/cb",
        "http://127.0.0.1/cb\x7f",
        "http://127.0.0.1/cb\u2028",
        "https://app.example.net/" + "x" * 2000,
        "",
        7,
        None,
    ],
    ids=repr,
)
def test_any_other_redirect_uri_is_refused(uri: object) -> None:
    assert redirect_uri_problem(uri) is not None


@pytest.mark.parametrize(
    ("asked", "known", "good"),
    [
        ("https://a.example/cb", "https://a.example/cb", True),
        ("https://a.example/cb/", "https://a.example/cb", False),
        ("https://a.example/cb?x=1", "https://a.example/cb", False),
        ("https://A.example/cb", "https://a.example/cb", False),
        ("https://a.example:444/cb", "https://a.example/cb", False),
        ("http://127.0.0.1:51000/cb", "http://127.0.0.1/cb", True),
        ("http://127.0.0.1:51000/cb", "http://127.0.0.1:3000/cb", True),
        ("http://[::1]:51000/cb", "http://[::1]/cb", True),
        ("http://localhost:51000/cb", "http://localhost/cb", True),
        ("http://localhost:51000/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:51000/other", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:51000/cb?x=1", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:51000@evil.example/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:x/cb", "http://127.0.0.1/cb", False),
        ("https://127.0.0.1:51000/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:51000/cb#fragment", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:51000/cb?", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:51000/c\tb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:51000/cb\n", "http://127.0.0.1/cb", False),
        ("ht\ntp://127.0.0.1:51000/cb", "http://127.0.0.1/cb", False),
        ("\x00http://127.0.0.1:51000/cb", "http://127.0.0.1/cb", False),
        ("HTTP://127.0.0.1:51000/cb", "http://127.0.0.1/cb", False),
        ("http://LOCALHOST:51000/cb", "http://localhost/cb", False),
        ("http:/127.0.0.1:51000/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:00051000/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:99999/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:\u0661\u0662/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:51000cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1:51000", "http://127.0.0.1", True),
        ("http://127.0.0.1:51000?x=1", "http://127.0.0.1:1?x=1", True),
        ("http://127.0.0.1:51000", "http://127.0.0.1/", False),
    ],
    ids=repr,
)
def test_redirect_uris_are_compared_exactly_but_for_the_port_of_loopback(asked: str, known: str, good: bool) -> None:
    assert is_registered(asked, [known]) is good


def test_a_private_scheme_is_accepted_if_allowed() -> None:
    assert redirect_uri_problem("cursor://oauth/callback", schemes=["cursor"]) is None
    assert redirect_uri_problem("javascript:alert(1)", schemes=["javascript"]) is not None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"redirect_uri": "https://evil.example/callback"}, id="another"),
        pytest.param({"redirect_uri": f"{CALLBACK}/../x"}, id="a longer one"),
        pytest.param({"client_id": "nobody"}, id="an unknown client"),
        pytest.param({"client_id": None}, id="of no client"),
    ],
)
async def test_an_unregistered_redirect_uri_is_not_redirected_to(
    changes: dict[str, str | None], server: AuthorizationServer
) -> None:
    client = await register(server)
    url = authorize_url(**{"client_id": client["client_id"], **changes})
    response = await Browser(server).get(url)
    assert response.status == 400
    assert "location" not in response.headers
    assert "evil.example" not in response.text


async def test_a_loopback_redirect_may_differ_in_its_port_only(server: AuthorizationServer) -> None:
    client_id = (await register(server, redirect_uris=["http://127.0.0.1/callback"]))["client_id"]
    uris = ("http://127.0.0.1/callback", "http://127.0.0.1:51000/callback", "http://127.0.0.1:51000/callback#top")
    responses = [await Browser(server).get(authorize_url(client_id, redirect_uri=uri)) for uri in uris]
    assert [response.status for response in responses] == [200, 200, 400]
    assert "location" not in responses[2].headers


# --- registering ------------------------------------------------------------------------------------------------------


async def test_a_registration_is_answered_with_the_stored_metadata(server: AuthorizationServer) -> None:
    client = await register(server, application_type="native", logo_uri="https://x.example/l.png")
    assert client["client_name"] == "Notes"
    assert client["redirect_uris"] == [CALLBACK]
    assert client["token_endpoint_auth_method"] == "none"
    assert client["application_type"] == "native"
    assert client["client_id_issued_at"] > 0
    assert "client_secret" not in client
    assert "logo_uri" not in client


async def test_a_client_without_an_auth_method_gets_a_secret(server: AuthorizationServer) -> None:
    body = json.dumps({"redirect_uris": [CALLBACK]}).encode()
    client = (await post_json(server, body)).json
    assert client["token_endpoint_auth_method"] == "client_secret_basic"
    assert len(client["client_secret"]) >= 43
    assert client["client_secret_expires_at"] == 0


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"redirect_uris": []}, "invalid_redirect_uri", id="nowhere"),
        pytest.param({"redirect_uris": None}, "invalid_redirect_uri", id="not said"),
        pytest.param({"redirect_uris": ["http://evil.example/"]}, "invalid_redirect_uri", id="http"),
        pytest.param({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri", id="a script"),
        pytest.param({"redirect_uris": [CALLBACK] * 17}, "invalid_redirect_uri", id="too many"),
        pytest.param({"redirect_uris": CALLBACK}, "invalid_client_metadata", id="no list"),
        pytest.param({"redirect_uris": [1]}, "invalid_client_metadata", id="numbers"),
        pytest.param({"grant_types": ["client_credentials"]}, "invalid_client_metadata", id="acting for itself"),
        pytest.param({"response_types": ["token"]}, "invalid_client_metadata", id="implicit"),
        pytest.param({"token_endpoint_auth_method": "tls"}, "invalid_client_metadata", id="another proof"),
        pytest.param({"token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata", id="no keys"),
        pytest.param(
            {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [{"kty": "oct", "k": "x"}]}},
            "invalid_client_metadata",
            id="a shared key",
        ),
        pytest.param(
            {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "http://169.254.169.254/"},
            "invalid_client_metadata",
            id="keys over http",
        ),
    ],
)
async def test_an_invalid_client_is_not_registered(
    changes: dict[str, Any], error: str, server: AuthorizationServer
) -> None:
    given = {"client_name": "Notes", "redirect_uris": [CALLBACK], **changes}
    response = await post_json(server, json.dumps(given).encode())
    assert (response.status, response.json["error"]) == (400, error)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"\xff", b"[" * 50_000], ids=lambda body: repr(body[:8]))
async def test_a_registration_that_is_not_an_object_is_refused(body: bytes, server: AuthorizationServer) -> None:
    assert (await post_json(server, body)).status == 400


async def test_a_client_cannot_register_for_client_credentials(server: AuthorizationServer) -> None:
    client = await register(
        server,
        grant_types=["authorization_code", "client_credentials"],
        token_endpoint_auth_method="client_secret_post",
    )
    assert "client_credentials" not in client["grant_types"]
    proof = {"client_id": client["client_id"], "client_secret": client["client_secret"]}
    response = await exchange(server, grant_type="client_credentials", **proof)
    assert response.json["error"] == "unauthorized_client"


# n8n CVE-2026-42236: unauthenticated registration without bound.


async def test_registrations_are_rate_limited_by_address(start: Start) -> None:
    server = start(clock=Clock())
    body = json.dumps({"redirect_uris": [CALLBACK]}).encode()
    statuses = [(await post_json(server, body)).status for _ in range(25)]
    assert statuses == [201] * 20 + [429] * 5
    assert (await post_json(server, body, address="192.0.2.2")).status == 201


async def test_the_number_of_registered_clients_is_bounded_and_they_expire(start: Start) -> None:
    clock = Clock()
    server = start(clock=clock, registered_clients=5)
    body = json.dumps({"redirect_uris": [CALLBACK]}).encode()
    statuses = [(await post_json(server, body, address=f"192.0.2.{n}")).status for n in range(7)]
    assert statuses == [201] * 5 + [429] * 2
    clock.now += 3601
    assert (await post_json(server, body)).status == 201


async def test_a_client_in_use_does_not_expire(start: Start) -> None:
    clock = Clock()
    server = start(clock=clock)
    id = (await register(server))["client_id"]
    browser = Browser(server)
    code = (await browser.allow(await browser.get(authorize_url(id)))).answer["code"]
    form = {"grant_type": "authorization_code", "code": code, "client_id": id, "code_verifier": VERIFIER}
    assert (await exchange(server, **form)).status == 200
    clock.now += 30 * 24 * 3600
    assert (await Browser(server).get(authorize_url(id))).status == 200


@pytest.mark.parametrize("path", ["register", "token", "revoke", "authorize"])
async def test_a_huge_body_is_cut_on_every_route(path: str, server: AuthorizationServer) -> None:
    kind = "application/json" if path == "register" else "application/x-www-form-urlencoded"
    headers = {"content-type": kind, "sec-fetch-site": "same-origin"}
    declared = {**headers, "content-length": str(64 * 1024 * 1024)}
    assert (await ask(server, "POST", f"{ISSUER}/{path}", headers=declared)).status == 413
    lied = {**headers, "content-length": "10"}
    body = b"x" * (64 * 1024 + 1)
    assert (await ask(server, "POST", f"{ISSUER}/{path}", headers=lied, body=body)).status == 413


@pytest.mark.parametrize(
    ("path", "kind"),
    [("register", "text/plain"), ("token", "application/json"), ("revoke", "text/plain"), ("token", "")],
)
async def test_a_body_of_another_type_is_refused(path: str, kind: str, server: AuthorizationServer) -> None:
    response = await ask(server, "POST", f"{ISSUER}/{path}", headers={"content-type": kind}, body=b"{}")
    assert response.status == 415


async def test_a_parameter_given_twice_is_refused(server: AuthorizationServer) -> None:
    body = b"grant_type=authorization_code&grant_type=refresh_token"
    headers = {"content-type": "application/x-www-form-urlencoded"}
    response = await ask(server, "POST", f"{ISSUER}/token", headers=headers, body=body)
    assert (response.status, response.json["error"]) == (400, "invalid_request")


# --- documents --------------------------------------------------------------------------------------------------------


async def test_a_client_is_named_by_its_document(start: Start) -> None:
    documents = Documents({DOCUMENT: document()})
    server = start(fetcher=documents)
    browser = Browser(server)
    page = await browser.get(authorize_url(DOCUMENT))
    assert "Notes" in page.text
    assert "Published by" in page.text
    code = (await browser.allow(page)).answer["code"]
    form = {"grant_type": "authorization_code", "code": code, "client_id": DOCUMENT, "code_verifier": VERIFIER}
    assert (await exchange(server, **form)).status == 200
    assert documents.asked == [f"GET {DOCUMENT}"]
    assert documents.options[0]["redirects"] == 0
    assert documents.options[0]["max_bytes"] <= 16 * 1024


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(document(client_id="https://app.example.net/other.json"), id="another client_id"),
        pytest.param(document(client_id=DOCUMENT + "/"), id="almost the client_id"),
        pytest.param(document(client_id=None), id="no client_id"),
        pytest.param(document(client_name=None), id="no name"),
        pytest.param(document(redirect_uris=None), id="no redirect URIs"),
        pytest.param(document(redirect_uris=["https://app.example.net/other"]), id="other redirect URIs"),
        pytest.param(document(redirect_uris=["http://app.example.net/cb"]), id="an http redirect URI"),
        pytest.param(document(client_secret="x"), id="a secret in public"),
        pytest.param(document(token_endpoint_auth_method="client_secret_post"), id="a secret to prove itself by"),
        pytest.param([document()], id="a list"),
        pytest.param(b"<html>", id="a page"),
        pytest.param(b"\xff\xfe", id="no text"),
    ],
)
async def test_a_document_that_is_not_the_clients_is_refused(found: object, start: Start) -> None:
    server = start(fetcher=Documents({DOCUMENT: found}))
    response = await Browser(server).get(authorize_url(DOCUMENT))
    assert response.status == 400
    assert "location" not in response.headers


@pytest.mark.parametrize(
    "client_id",
    [
        "https://app.example.net",
        "https://app.example.net/",
        "https://app.example.net/a/../client.json",
        "https://app.example.net/%2e%2e/client.json",
        "https://user@app.example.net/client.json",
        "https://app.example.net/client.json#x",
        "https://app.example.net:99999/client.json",
        "https://app.example.net/" + "x" * 600,
        "http://app.example.net/client.json",
        "file:///etc/passwd",
    ],
)
async def test_a_client_id_that_is_not_a_document_url_is_not_fetched(client_id: str, start: Start) -> None:
    documents = Documents()
    server = start(fetcher=documents)
    assert (await Browser(server).get(authorize_url(client_id))).status == 400
    assert documents.asked == []


@pytest.mark.parametrize(
    ("said", "again_after"), [("", 3601.0), ("max-age=120", 121.0), ("no-store", 61.0), ("max-age=99999999", 86401.0)]
)
async def test_a_document_is_cached_as_long_as_it_says_within_bounds(
    said: str, again_after: float, start: Start
) -> None:
    documents, clock = Documents({DOCUMENT: document()}), Clock()
    documents.headers["cache-control"] = said
    server = start(fetcher=documents, clock=clock)
    await Browser(server).get(authorize_url(DOCUMENT))
    clock.now += again_after - 2
    await Browser(server).get(authorize_url(DOCUMENT))
    assert len(documents.asked) == 1
    clock.now += 2
    await Browser(server).get(authorize_url(DOCUMENT))
    assert len(documents.asked) == 2


async def test_a_missing_document_is_not_fetched_again_at_once(start: Start) -> None:
    documents = Documents()
    server = start(fetcher=documents, clock=Clock())
    assert (await Browser(server).get(authorize_url(DOCUMENT))).status == 400
    assert (await Browser(server).get(authorize_url(DOCUMENT))).status == 400
    assert documents.asked == [f"GET {DOCUMENT}"]


async def test_fetches_of_client_documents_are_rate_limited(start: Start) -> None:
    documents = Documents()
    server = start(fetcher=documents, clock=Clock())
    urls = [authorize_url(f"https://app.example.net/{n}.json") for n in range(25)]
    statuses = [(await Browser(server).get(url)).status for url in urls]
    assert statuses == [400] * 20 + [429] * 5
    assert len(documents.asked) == 20


async def test_the_guarded_fetcher_is_used(server: AuthorizationServer) -> None:
    response = await Browser(server).get(authorize_url("https://127.0.0.1:1/client.json"))
    assert response.status == 400
    assert "could not be fetched" in response.text


async def test_documents_can_be_switched_off(start: Start) -> None:
    documents = Documents({DOCUMENT: document()})
    server = start(fetcher=documents, client_id_documents=False)
    assert server.metadata()["client_id_metadata_document_supported"] is False
    assert (await Browser(server).get(authorize_url(DOCUMENT))).status == 400
    assert documents.asked == []


async def test_a_document_may_contain_keys(start: Start) -> None:
    from joserfc import jwt
    from joserfc.jwk import ECKey

    key = ECKey.generate_key("P-256")
    keys = "https://app.example.net/keys.json"
    described = document(token_endpoint_auth_method="private_key_jwt", jwks_uri=keys)
    documents = Documents({DOCUMENT: described, keys: {"keys": [key.as_dict(private=False)]}})
    claims = {"iss": DOCUMENT, "sub": DOCUMENT, "aud": ISSUER, "exp": 1_700_000_060, "jti": "one"}
    proof = {
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": jwt.encode({"alg": "ES256"}, claims, key),
    }
    server = start(fetcher=documents, clock=Clock())
    browser = Browser(server)
    code = (await browser.allow(await browser.get(authorize_url(DOCUMENT)))).answer["code"]
    form = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER}
    assert (await exchange(server, client_id=DOCUMENT, **form)).json["error"] == "invalid_client"
    assert (await exchange(server, **form, **proof)).status == 200
