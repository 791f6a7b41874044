"""The authorization server as a client sees it: metadata, codes, tokens, refresh and revocation."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.auth.authorization_server.support import (
    CALLBACK,
    ISSUER,
    RESOURCE,
    VERIFIER,
    Browser,
    Clock,
    Response,
    Start,
    ask,
    authorize_url,
    exchange,
    make_server,
    register,
)
from trunkline.auth.authorization_server.records import OAuthClient
from trunkline.auth.authorization_server.server import AuthorizationServer
from trunkline.auth.verifiers import InvalidToken
from trunkline.errors import ConfigError

OTHER_VERIFIER = "another-verifier-that-is-long-enough-0123456789012"


async def code_for(server: AuthorizationServer, client_id: str, **changes: Any) -> str:
    """Allow a client as ada, and return the code."""
    browser = Browser(server)
    page = await browser.get(authorize_url(client_id, **changes))
    assert page.status == 200, page.text
    return (await browser.allow(page)).answer["code"]


async def redeem(server: AuthorizationServer, client_id: str, code: str, /, **changes: Any) -> Response:
    given: dict[str, Any] = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": client_id,
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
        "resource": RESOURCE,
    }
    return await exchange(server, **{**given, **changes})


async def tokens_of(server: AuthorizationServer, client_id: str, **changes: Any) -> dict[str, Any]:
    response = await redeem(server, client_id, await code_for(server, client_id, **changes))
    assert response.status == 200, response.text
    return response.json


async def refresh(server: AuthorizationServer, client_id: str, token: str, **more: str) -> Response:
    return await exchange(server, grant_type="refresh_token", refresh_token=token, client_id=client_id, **more)


async def is_good(server: AuthorizationServer, token: str) -> bool:
    try:
        return await server.verify({"authorization": f"Bearer {token}"}) is not None
    except InvalidToken:
        return False


# --- metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("issuer", ["https://auth.example.com", "https://auth.example.com/", "https://a.example/t/1"])
def test_the_issuer_is_published_byte_for_byte(issuer: str) -> None:
    assert make_server(issuer=issuer).metadata()["issuer"] == issuer


@pytest.mark.parametrize(
    ("issuer", "path"),
    [
        ("https://auth.example.com", "/.well-known/oauth-authorization-server"),
        ("https://auth.example.com", "/.well-known/openid-configuration"),
        ("https://auth.example.com/t1", "/.well-known/oauth-authorization-server/t1"),
        ("https://auth.example.com/t1", "/.well-known/openid-configuration/t1"),
        ("https://auth.example.com/t1", "/t1/.well-known/openid-configuration"),
    ],
)
async def test_metadata_is_where_clients_look_for_it(issuer: str, path: str, start: Start) -> None:
    server = start(issuer=issuer)
    response = await ask(server, "GET", f"https://auth.example.com{path}")
    assert (response.status, response.json["issuer"]) == (200, issuer)
    assert response.headers["content-type"] == "application/json"


def test_metadata_has_the_fields_that_clients_need() -> None:
    published = make_server().metadata()
    assert published["code_challenge_methods_supported"] == ["S256"]
    assert published["client_id_metadata_document_supported"] is True
    assert published["authorization_response_iss_parameter_supported"] is True
    assert published["response_types_supported"] == ["code"]
    assert published["scopes_supported"] == ["files:read", "files:write"]
    assert published["registration_endpoint"] == "https://auth.example.com/register"


def test_every_published_address_is_served() -> None:
    server = make_server(issuer="https://auth.example.com/t1")
    published = [text for text in server.metadata().values() if isinstance(text, str) and text.startswith("https://")]
    served = set(server.routes())
    assert {urlsplit(url).path for url in published} - {"/t1"} <= served


def test_registration_can_be_switched_off() -> None:
    server = make_server(registration=False)
    assert "registration_endpoint" not in server.metadata()
    assert "/register" not in server.routes()


def test_client_credentials_are_advertised_only_if_a_client_may_use_them() -> None:
    machine = OAuthClient(client_id="nightly", client_secret="s" * 32, grant_types=("client_credentials",))
    assert "client_credentials" not in make_server().metadata()["grant_types_supported"]
    assert "client_credentials" in make_server(clients=[machine]).metadata()["grant_types_supported"]


# --- end to end -------------------------------------------------------------------------------------------------------


async def test_a_client_obtains_a_token_that_the_server_accepts(server: AuthorizationServer) -> None:
    client = await register(server)
    answer = await tokens_of(server, client["client_id"])
    assert (answer["token_type"], answer["expires_in"], answer["scope"]) == ("Bearer", 900, "files:read")
    principal = await server.verify({"authorization": f"Bearer {answer['access_token']}"})
    assert principal is not None
    assert (principal.subject, principal.issuer, principal.client) == ("ada", ISSUER, client["client_id"])
    assert principal.scopes == {"files:read"}
    assert (principal.claims or {})["aud"] == RESOURCE


async def test_the_redirect_to_a_client_has_code_state_and_issuer(server: AuthorizationServer) -> None:
    browser = Browser(server)
    response = await browser.allow(await browser.visit())
    assert response.status == 303
    assert response.location.startswith(f"{CALLBACK}?")
    assert set(response.answer) == {"code", "state", "iss"}
    assert (response.answer["state"], response.answer["iss"]) == ("st4te", ISSUER)


async def test_a_token_response_is_not_cached(server: AuthorizationServer) -> None:
    client = await register(server)
    response = await redeem(server, client["client_id"], await code_for(server, client["client_id"]))
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-type"] == "application/json"


async def test_a_denied_consent_is_reported_to_the_client(server: AuthorizationServer) -> None:
    browser = Browser(server)
    page = await browser.visit()
    response = await browser.post({"request": page.sealed, "decision": "deny"})
    assert response.answer["error"] == "access_denied"
    assert (response.answer["state"], response.answer["iss"]) == ("st4te", ISSUER)


async def test_the_published_keys_verify_the_tokens(server: AuthorizationServer) -> None:
    from joserfc import jwt
    from joserfc.jwk import KeySet

    client = await register(server)
    token = (await tokens_of(server, client["client_id"]))["access_token"]
    published = (await ask(server, "GET", f"{ISSUER}/jwks")).json
    assert "d" not in published["keys"][0]
    read = jwt.decode(token, KeySet.import_key_set(published), algorithms=["ES256"])  # type: ignore[arg-type]
    assert read.header["typ"] == "at+jwt"
    assert read.claims["sub"] == "ada"


# --- requests that are not allowed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"response_type": "token"}, "unsupported_response_type", id="implicit"),
        pytest.param({"response_type": None}, "unsupported_response_type", id="no response type"),
        pytest.param({"code_challenge": None}, "invalid_request", id="no PKCE"),
        pytest.param({"code_challenge_method": "plain"}, "invalid_request", id="plain PKCE"),
        pytest.param({"code_challenge_method": None}, "invalid_request", id="PKCE without a method"),
        pytest.param({"code_challenge": "short"}, "invalid_request", id="a challenge that is none"),
        pytest.param({"scope": "admin"}, "invalid_scope", id="an unknown scope"),
        pytest.param({"resource": "https://other.example.com/mcp"}, "invalid_target", id="another resource"),
        pytest.param({"resource": "https://auth.example.com/mcp/more"}, "invalid_target", id="a longer resource"),
        pytest.param({"response_mode": "fragment"}, "invalid_request", id="another response mode"),
        pytest.param({"request_uri": "https://x.example/r"}, "request_not_supported", id="a request object"),
        pytest.param({"prompt": "none"}, "interaction_required", id="in silence"),
    ],
)
async def test_an_invalid_request_is_reported_to_the_client(
    changes: dict[str, str | None], error: str, server: AuthorizationServer
) -> None:
    callback = "http://127.0.0.1:3000/callback"
    client = await register(server, redirect_uris=[callback])
    url = authorize_url(**{"client_id": client["client_id"], "redirect_uri": callback, **changes})
    response = await Browser(server).get(url)
    assert (response.status, response.answer["error"]) == (303, error)
    assert (response.answer["state"], response.answer["iss"]) == ("st4te", ISSUER)


async def test_the_resource_defaults_to_the_only_one(server: AuthorizationServer) -> None:
    client = await register(server)
    code = await code_for(server, client["client_id"], resource=None)
    response = await redeem(server, client["client_id"], code, resource=None)
    principal = await server.verify({"authorization": f"Bearer {response.json['access_token']}"})
    assert principal is not None
    assert (principal.claims or {})["aud"] == RESOURCE


async def test_one_of_several_resources_must_be_named(start: Start) -> None:
    server = start(resource=[RESOURCE, "https://auth.example.com/other"])
    callback = "http://localhost:1/cb"
    client = await register(server, redirect_uris=[callback])
    url = authorize_url(client["client_id"], redirect_uri=callback, resource=None)
    assert (await Browser(server).get(url)).answer["error"] == "invalid_target"


async def test_the_scope_has_a_default(start: Start) -> None:
    server = start(default_scopes=["files:read"])
    client = await register(server)
    assert (await tokens_of(server, client["client_id"], scope=None))["scope"] == "files:read"


async def test_a_client_may_request_more_scopes_than_it_registered(server: AuthorizationServer) -> None:
    client = await register(server, scope="files:read")
    answer = await tokens_of(server, client["client_id"], scope="files:read files:write")
    assert answer["scope"] == "files:read files:write"


async def test_a_scope_not_allowed_for_a_configured_client_is_omitted(start: Start) -> None:
    server = start(clients=[OAuthClient(client_id="known", redirect_uris=(CALLBACK,), scopes=("files:read",))])
    answer = await tokens_of(server, "known", scope="files:read files:write")
    assert answer["scope"] == "files:read"


# --- codes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"code_verifier": OTHER_VERIFIER}, "invalid_grant", id="another verifier"),
        pytest.param({"code_verifier": None}, "invalid_grant", id="no verifier"),
        pytest.param({"code": "x" * 43}, "invalid_grant", id="another code"),
        pytest.param({"code": None}, "invalid_grant", id="no code"),
        pytest.param({"redirect_uri": "https://app.example.net/other"}, "invalid_grant", id="another redirect URI"),
        pytest.param({"resource": "https://other.example.com/mcp"}, "invalid_target", id="another resource"),
        pytest.param({"grant_type": "password"}, "unsupported_grant_type", id="another grant"),
        pytest.param({"grant_type": "client_credentials"}, "unauthorized_client", id="a grant it may not use"),
    ],
)
async def test_a_code_is_not_accepted_as_anything_else(
    changes: dict[str, str | None], error: str, server: AuthorizationServer
) -> None:
    client = await register(server)
    code = await code_for(server, client["client_id"])
    response = await redeem(server, client["client_id"], code, **changes)
    assert (response.status, response.json["error"]) == (400, error)
    assert "access_token" not in response.json


async def test_a_reused_code_revokes_its_tokens(server: AuthorizationServer) -> None:
    id = (await register(server))["client_id"]
    code = await code_for(server, id)
    first = (await redeem(server, id, code)).json
    assert await is_good(server, first["access_token"])
    assert (await redeem(server, id, code)).json["error"] == "invalid_grant"
    assert not await is_good(server, first["access_token"])
    assert (await refresh(server, id, first["refresh_token"])).json["error"] == "invalid_grant"


async def test_a_code_of_another_client_is_unknown_and_stays_valid(server: AuthorizationServer) -> None:
    mine, theirs = (await register(server))["client_id"], (await register(server))["client_id"]
    code = await code_for(server, mine)
    assert (await redeem(server, theirs, code)).json["error"] == "invalid_grant"
    assert (await redeem(server, mine, code)).status == 200


async def test_a_code_expires_after_a_minute(start: Start) -> None:
    clock = Clock()
    server = start(clock=clock)
    client = await register(server)
    code = await code_for(server, client["client_id"])
    clock.now += 61
    assert (await redeem(server, client["client_id"], code)).json["error"] == "invalid_grant"


# --- refreshing -------------------------------------------------------------------------------------------------------


async def test_a_refresh_token_is_exchanged_for_new_tokens(server: AuthorizationServer) -> None:
    client = await register(server)
    first = await tokens_of(server, client["client_id"])
    second = await refresh(server, client["client_id"], first["refresh_token"], resource=RESOURCE)
    assert second.status == 200
    assert second.json["refresh_token"] != first["refresh_token"]
    assert await is_good(server, second.json["access_token"])


async def test_a_reused_refresh_token_revokes_its_family(server: AuthorizationServer) -> None:
    id = (await register(server))["client_id"]
    first = await tokens_of(server, id)
    second = (await refresh(server, id, first["refresh_token"])).json
    assert (await refresh(server, id, first["refresh_token"])).json["error"] == "invalid_grant"
    assert (await refresh(server, id, second["refresh_token"])).json["error"] == "invalid_grant"
    assert not await is_good(server, second["access_token"])


async def test_a_refresh_token_of_another_client_is_unknown_and_stays_valid(server: AuthorizationServer) -> None:
    mine, theirs = (await register(server))["client_id"], (await register(server))["client_id"]
    token = (await tokens_of(server, mine))["refresh_token"]
    assert (await refresh(server, theirs, token)).json["error"] == "invalid_grant"
    assert (await refresh(server, mine, token)).status == 200


async def test_a_refreshed_token_has_fewer_scopes_at_most(server: AuthorizationServer) -> None:
    id = (await register(server))["client_id"]
    first = await tokens_of(server, id, scope="files:read files:write")
    more = await refresh(server, id, first["refresh_token"], scope="files:read admin")
    assert more.json["error"] == "invalid_scope"
    assert (await refresh(server, id, first["refresh_token"], scope="files:read")).json["scope"] == "files:read"


async def test_a_client_without_the_refresh_grant_gets_no_refresh_token(server: AuthorizationServer) -> None:
    client = await register(server, grant_types=["authorization_code"])
    assert "refresh_token" not in await tokens_of(server, client["client_id"])


async def test_tokens_expire(start: Start) -> None:
    clock = Clock()
    server = start(clock=clock)
    client = await register(server)
    tokens = await tokens_of(server, client["client_id"])
    clock.now += 899
    assert await is_good(server, tokens["access_token"])
    clock.now += 1
    assert not await is_good(server, tokens["access_token"])
    clock.now += 30 * 24 * 3600
    response = await refresh(server, client["client_id"], tokens["refresh_token"])
    assert response.json["error"] in ("invalid_grant", "invalid_client")


async def test_tokens_stay_valid_after_a_key_rotation(start: Start) -> None:
    clock = Clock()
    server = start(clock=clock)
    client = await register(server)
    old = await tokens_of(server, client["client_id"])
    clock.now += 90 * 24 * 3600 - 60
    client = await register(server)
    before = await tokens_of(server, client["client_id"])
    clock.now += 120
    after = await tokens_of(server, client["client_id"])
    assert await is_good(server, before["access_token"])
    assert await is_good(server, after["access_token"])
    assert not await is_good(server, old["access_token"])
    assert len((await ask(server, "GET", f"{ISSUER}/jwks")).json["keys"]) == 2


# --- revoking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_revoked_token_ends_with_its_family(kind: str, server: AuthorizationServer) -> None:
    id = (await register(server))["client_id"]
    tokens = await tokens_of(server, id)
    assert (await exchange(server, path="revoke", client_id=id, token=tokens[kind])).status == 200
    assert not await is_good(server, tokens["access_token"])
    assert (await refresh(server, id, tokens["refresh_token"])).json["error"] == "invalid_grant"


async def test_a_client_cannot_revoke_tokens_of_another(server: AuthorizationServer) -> None:
    mine, theirs = (await register(server))["client_id"], (await register(server))["client_id"]
    tokens = await tokens_of(server, mine)
    assert (await exchange(server, path="revoke", client_id=theirs, token=tokens["access_token"])).status == 200
    assert await is_good(server, tokens["access_token"])


async def test_revoking_an_unknown_token_succeeds(server: AuthorizationServer) -> None:
    id = (await register(server))["client_id"]
    assert (await exchange(server, path="revoke", client_id=id, token="nothing")).status == 200


# --- client authentication --------------------------------------------------------------------------------------------


SECRET = "s3cret-s3cret-s3cret-s3cret"
MACHINE = OAuthClient(
    client_id="nightly", client_secret=SECRET, grant_types=("client_credentials",), scopes=("files:read",)
)


def basic(name: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


@pytest.mark.parametrize(
    "proof",
    [
        pytest.param({"auth": basic("nightly", SECRET)}, id="in the header"),
        pytest.param({"client_id": "nightly", "client_secret": SECRET}, id="in the body"),
    ],
)
async def test_a_client_gets_a_token_by_client_credentials(proof: dict[str, str], start: Start) -> None:
    server = start(clients=[MACHINE])
    response = await exchange(server, grant_type="client_credentials", resource=RESOURCE, **proof)
    assert response.json["scope"] == "files:read"
    assert "refresh_token" not in response.json
    principal = await server.verify({"authorization": f"Bearer {response.json['access_token']}"})
    assert principal is not None
    assert principal.subject == "client:nightly"


@pytest.mark.parametrize(
    "proof",
    [
        pytest.param({"client_id": "nightly"}, id="no secret"),
        pytest.param({"client_id": "nightly", "client_secret": "wrong"}, id="wrong secret"),
        pytest.param({"auth": basic("nightly", "wrong")}, id="wrong secret in the header"),
        pytest.param({"auth": "Bearer abc"}, id="another scheme"),
        pytest.param({"auth": "Basic ***"}, id="not base64"),
        pytest.param({"client_id": "nobody", "client_secret": SECRET}, id="nobody"),
        pytest.param({}, id="no client"),
    ],
)
async def test_an_unauthenticated_client_is_refused(proof: dict[str, str], start: Start) -> None:
    server = start(clients=[MACHINE])
    response = await exchange(server, grant_type="client_credentials", **proof)
    assert (response.status, response.json["error"]) == (401, "invalid_client")
    assert ("www-authenticate" in response.headers) == ("auth" in proof)


async def test_a_client_must_authenticate_in_exactly_one_way(start: Start) -> None:
    server = start(clients=[MACHINE])
    response = await exchange(
        server, auth=basic("nightly", SECRET), grant_type="client_credentials", client_secret=SECRET
    )
    assert response.json["error"] == "invalid_request"


async def test_a_registered_client_with_a_secret_needs_it(server: AuthorizationServer) -> None:
    client = await register(server, token_endpoint_auth_method="client_secret_post")
    code = await code_for(server, client["client_id"])
    assert (await redeem(server, client["client_id"], code)).json["error"] == "invalid_client"
    good = await redeem(server, client["client_id"], code, client_secret=client["client_secret"])
    assert good.status == 200


def _assertion(key: Any, **changes: Any) -> str:
    from joserfc import jwt

    claims = {"iss": "robot", "sub": "robot", "aud": ISSUER, "exp": 1_700_000_060, "jti": "one", **changes}
    return jwt.encode({"alg": "ES256"}, {name: value for name, value in claims.items() if value is not None}, key)


def _robot() -> tuple[Any, OAuthClient]:
    from joserfc.jwk import ECKey

    key = ECKey.generate_key("P-256")
    public: Any = {"keys": [key.as_dict(private=False)]}
    return key, OAuthClient(client_id="robot", jwks=public, grant_types=("client_credentials",))


ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


async def prove(server: AuthorizationServer, assertion: str) -> Response:
    """Ask for a token with a signature as the proof."""
    form = {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}
    return await exchange(server, grant_type="client_credentials", **form)


@pytest.mark.parametrize("audience", [ISSUER, f"{ISSUER}/token", [ISSUER]])
async def test_a_client_authenticates_by_a_signature_once(audience: object, start: Start) -> None:
    key, robot = _robot()
    server = start(clients=[robot], clock=Clock())
    assertion = _assertion(key, aud=audience)
    assert [(await prove(server, assertion)).status for _ in range(2)] == [200, 401]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"iss": "other"}, id="another issuer"),
        pytest.param({"sub": "nobody", "iss": "nobody"}, id="an unknown client"),
        pytest.param({"aud": "https://other.example.com"}, id="another audience"),
        pytest.param({"aud": [ISSUER, "https://other.example.com"]}, id="another audience beside us"),
        pytest.param({"aud": None}, id="no audience"),
        pytest.param({"exp": 1_699_999_000}, id="expired"),
        pytest.param({"exp": None}, id="no end"),
        pytest.param({"exp": 1_700_090_000}, id="too long a life"),
        pytest.param({"nbf": 1_700_000_500}, id="not yet"),
        pytest.param({"jti": None}, id="no name of its own"),
    ],
)
async def test_a_signature_with_wrong_claims_is_refused(changes: dict[str, Any], start: Start) -> None:
    key, robot = _robot()
    response = await prove(start(clients=[robot], clock=Clock()), _assertion(key, **changes))
    assert (response.status, response.json["error"]) == (401, "invalid_client")


async def test_neither_another_key_nor_a_secret_replaces_a_signature(start: Start) -> None:
    from joserfc import jwt
    from joserfc.jwk import OctKey

    key, robot = _robot()
    other, _ = _robot()
    server = start(clients=[robot], clock=Clock())
    public = json.dumps(key.as_dict(private=False)).encode()
    claims = {"iss": "robot", "sub": "robot", "aud": ISSUER, "exp": 1_700_000_060, "jti": "one"}
    forged = jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(public))
    assert [(await prove(server, assertion)).status for assertion in (_assertion(other), forged)] == [401, 401]


# --- tokens that are not ours -----------------------------------------------------------------------------------------


async def test_a_token_of_another_server_is_refused() -> None:
    ours, theirs = make_server(), make_server()
    client = await register(theirs)
    token = (await tokens_of(theirs, client["client_id"]))["access_token"]
    assert await is_good(theirs, token)
    assert not await is_good(ours, token)


async def test_an_invalid_token_is_refused_and_none_has_no_principal(server: AuthorizationServer) -> None:
    assert [await is_good(server, token) for token in ("x", "a.b.c", "..", "é", "a" * 20_000)] == [False] * 5
    assert await server.verify({}) is None


# --- setting up -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"issuer": "http://auth.example.com"}, "https", id="http in public"),
        pytest.param({"issuer": "https://auth.example.com?x=1"}, "without user name, query or fragment", id="a query"),
        pytest.param({"issuer": "https://a@auth.example.com"}, "issuer", id="a user"),
        pytest.param({"issuer": "auth.example.com"}, "issuer", id="no scheme"),
        pytest.param({"users": None}, "users=", id="no users on a public address"),
        pytest.param({"users": {"ada": "plain"}}, "hash_password", id="a plain password"),
        pytest.param({"auto_approve": "ada"}, "loopback", id="automatic approval on a public address"),
        pytest.param({"required_scopes": ["admin"]}, "admin", id="a scope that is not there"),
        pytest.param({"scopes": ["two words"]}, "word", id="a scope of two words"),
        pytest.param({"resource": "mcp"}, "resource", id="a resource that is none"),
        pytest.param(
            {"clients": [OAuthClient(client_id="x", redirect_uris=("http://evil.example",))]}, "http", id="a redirect"
        ),
        pytest.param(
            {"clients": [OAuthClient(client_id="x", grant_types=("client_credentials",))]}, "secret", id="no secret"
        ),
        pytest.param({"store": "/no/such/folder/x.db"}, "store", id="a store that cannot be"),
    ],
)
def test_impossible_settings_are_reported_at_setup(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_server(**options)


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        make_server(colour="red")
