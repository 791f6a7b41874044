"""Discovery of the authorization server: where documents are fetched from, and which are trusted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.auth.client_web import ISSUER, PRM, SERVER, Web, answer, enter, html, metadata, resource
from trunkline.auth.discovery import resource_metadata_urls, server_metadata_urls
from trunkline.auth.oauth import OAuth, covers, is_openable, may_carry_secrets
from trunkline.auth.www_authenticate import TokenChallenge
from trunkline.errors import AuthError, FetchError

ROOT_PRM = "https://mcp.example.com/.well-known/oauth-protected-resource"
AS = f"{ISSUER}/.well-known/oauth-authorization-server"
OPENID = f"{ISSUER}/.well-known/openid-configuration"
CUSTOM = "https://mcp.example.com/custom.json"


@pytest.mark.parametrize(
    ("server", "urls"),
    [
        (
            "https://h/mcp",
            ["https://h/.well-known/oauth-protected-resource/mcp", "https://h/.well-known/oauth-protected-resource"],
        ),
        (
            "https://h/a/b/",
            ["https://h/.well-known/oauth-protected-resource/a/b", "https://h/.well-known/oauth-protected-resource"],
        ),
        ("https://H:443/?q=secret", ["https://h/.well-known/oauth-protected-resource"]),
        ("https://h:8443", ["https://h:8443/.well-known/oauth-protected-resource"]),
    ],
)
def test_a_servers_metadata_is_looked_for_at_its_path_and_then_at_the_root(server: str, urls: list[str]) -> None:
    assert resource_metadata_urls(server) == urls


@pytest.mark.parametrize(
    ("issuer", "paths"),
    [
        ("https://h", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        ("https://h/", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (
            "https://h/tenant1",
            [
                "/.well-known/oauth-authorization-server/tenant1",
                "/.well-known/openid-configuration/tenant1",
                "/tenant1/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_an_authorization_servers_metadata_is_looked_for_in_the_specified_order(issuer: str, paths: list[str]) -> None:
    assert server_metadata_urls(issuer) == [f"https://h{path}" for path in paths]


def test_the_metadata_url_of_the_header_is_the_only_one_fetched() -> None:
    web = Web({CUSTOM: resource()})
    enter(web, challenge=TokenChallenge(resource_metadata=CUSTOM))
    assert (web.urls[0], PRM in web.urls) == (CUSTOM, False)


def test_the_root_is_asked_when_the_path_has_nothing() -> None:
    web = Web({PRM: answer({}, 404), ROOT_PRM: resource(resource="https://mcp.example.com")})
    login, _ = enter(web)
    assert web.urls[:2] == [PRM, ROOT_PRM]
    assert (login.tokens.resource, web.visited[0]["resource"]) == ("https://mcp.example.com", "https://mcp.example.com")


def test_openid_discovery_is_tried_second() -> None:
    web = Web({AS: answer({}, 404), OPENID: metadata()})
    enter(web)
    assert web.urls[1:3] == [AS, OPENID]


def test_an_html_page_is_not_a_document() -> None:
    web = Web({PRM: html(), ROOT_PRM: html(), AS: html(), OPENID: metadata()})
    web.pages["https://mcp.example.com/.well-known/oauth-authorization-server"] = metadata("https://mcp.example.com")
    web.pages["https://mcp.example.com/register"] = answer({"client_id": "x"}, 201)
    web.pages["https://mcp.example.com/token"] = {"access_token": "t", "token_type": "Bearer"}
    login, _ = enter(web)
    assert login.tokens.issuer == "https://mcp.example.com"


def test_a_server_without_metadata_is_its_own_authorization_server() -> None:
    web = Web({PRM: answer({}, 404)})
    web.pages["https://mcp.example.com/register"] = answer({"client_id": "x"}, 201)
    web.pages["https://mcp.example.com/token"] = {"access_token": "t", "token_type": "bearer"}
    web.redirect = {"iss": None}
    login, _ = enter(web)
    assert web.visited[0][":page"] == "https://mcp.example.com/authorize"
    assert (login.tokens.resource, web.sent("/token")[0]["resource"]) == (SERVER, SERVER)


def test_the_authorization_server_of_our_credentials_is_chosen_among_several() -> None:
    web = Web({PRM: resource(authorization_servers=["https://other.example.com", ISSUER])})
    login, _ = enter(web, OAuth(client_id="me", issuer=ISSUER))
    assert login.tokens.issuer == ISSUER


# --- no secret is sent ------------------------------------------------------------------------------------------------

DOCUMENT: list[tuple[str, dict[str, Any], TokenChallenge, str]] = [
    ("another resource", {PRM: resource(resource="https://evil.example.com/mcp")}, TokenChallenge(), "describes"),
    ("a sibling", {PRM: resource(resource="https://mcp.example.com/other")}, TokenChallenge(), "describes"),
    (
        "a beginning that is no folder",
        {PRM: resource(resource="https://mcp.example.com/mc")},
        TokenChallenge(),
        "describes",
    ),
    ("another port", {PRM: resource(resource="https://mcp.example.com:444/mcp")}, TokenChallenge(), "describes"),
    ("plain http", {PRM: resource(resource="http://mcp.example.com/mcp")}, TokenChallenge(), "describes"),
    ("a fragment", {PRM: resource(resource=SERVER + "#x")}, TokenChallenge(), "describes"),
    ("no URL", {PRM: resource(resource="mcp")}, TokenChallenge(), "describes"),
    (
        "a folder above, said elsewhere",
        {CUSTOM: resource(resource="https://mcp.example.com")},
        TokenChallenge(resource_metadata=CUSTOM),
        "describes",
    ),
    (
        "a folder above, said by another host",
        {"https://x.example/.well-known/oauth-protected-resource": resource(resource="https://mcp.example.com")},
        TokenChallenge(resource_metadata="https://x.example/.well-known/oauth-protected-resource"),
        "describes",
    ),
    ("no resource", {PRM: resource(resource=None)}, TokenChallenge(), "malformed"),
    ("no servers", {PRM: resource(authorization_servers=None)}, TokenChallenge(), "names no authorization server"),
    ("an empty list", {PRM: resource(authorization_servers=[])}, TokenChallenge(), "names no authorization server"),
    ("a list of numbers", {PRM: resource(authorization_servers=[1])}, TokenChallenge(), "malformed"),
    ("no object", {PRM: answer([])}, TokenChallenge(), "malformed"),
    ("no JSON", {PRM: answer(b"{")}, TokenChallenge(), "malformed"),
    ("no text", {PRM: answer(b"\xff\xfe{}")}, TokenChallenge(), "malformed"),
    ("too deep", {PRM: answer(b"[" * 5000)}, TokenChallenge(), "malformed"),
    ("not there", {CUSTOM: answer({}, 404)}, TokenChallenge(resource_metadata=CUSTOM), "returned status 404"),
    ("a file", {}, TokenChallenge(resource_metadata="file:///etc/passwd"), "not an https URL"),
    (
        "plain http to another host",
        {},
        TokenChallenge(resource_metadata="http://169.254.169.254/x"),
        "not an https URL",
    ),
    ("a failing server", {PRM: answer({}, 503)}, TokenChallenge(), "status 503"),
    ("unreachable", {PRM: FetchError("h:443 took too long")}, TokenChallenge(), "took too long"),
    (
        "an issuer over http",
        {PRM: resource(authorization_servers=["http://auth.example.com"])},
        TokenChallenge(),
        "not an https URL",
    ),
    (
        "an issuer with a query",
        {PRM: resource(authorization_servers=[ISSUER + "?x"])},
        TokenChallenge(),
        "not an https URL",
    ),
    (
        "an issuer with a user",
        {PRM: resource(authorization_servers=["https://u:p@h"])},
        TokenChallenge(),
        "not an https URL",
    ),
    ("no metadata", {AS: answer({}, 404)}, TokenChallenge(), "has no metadata"),
    ("metadata is not given now", {AS: answer({}, 500)}, TokenChallenge(), "status 500"),
    ("asked too often", {AS: answer({}, 429)}, TokenChallenge(), "status 429"),
    ("another issuer", {AS: metadata("https://attacker.example.com")}, TokenChallenge(), "has the issuer"),
    ("an issuer with a slash", {AS: {**metadata(), "issuer": ISSUER + "/"}}, TokenChallenge(), "has the issuer"),
    ("an issuer in capitals", {AS: {**metadata(), "issuer": ISSUER.upper()}}, TokenChallenge(), "has the issuer"),
    ("no issuer", {AS: {}}, TokenChallenge(), "malformed"),
    (
        "a token endpoint over http",
        {AS: metadata(token_endpoint="http://auth.example.com/t")},
        TokenChallenge(),
        "token_endpoint",
    ),
    ("a token endpoint with a bracket", {AS: metadata(token_endpoint="https://[")}, TokenChallenge(), "token_endpoint"),
    ("a token endpoint here", {AS: metadata(token_endpoint="http://127.0.0.1/t")}, TokenChallenge(), "token_endpoint"),
    (
        "a page that is a script",
        {AS: metadata(authorization_endpoint="javascript:alert(1)")},
        TokenChallenge(),
        "authorization_",
    ),
    (
        "a page that is a file",
        {AS: metadata(authorization_endpoint="file:///x")},
        TokenChallenge(),
        "authorization_endpoint",
    ),
    (
        "a page with a command",
        {AS: metadata(authorization_endpoint=ISSUER + "/$(id)")},
        TokenChallenge(),
        "not safe to open",
    ),
    (
        "a page with a quote",
        {AS: metadata(authorization_endpoint=ISSUER + "/'x")},
        TokenChallenge(),
        "not safe to open",
    ),
    (
        "a page with more",
        {AS: metadata(authorization_endpoint=ISSUER + "/a&calc")},
        TokenChallenge(),
        "not safe to open",
    ),
    (
        "a page with a fragment",
        {AS: metadata(authorization_endpoint=ISSUER + "/a#b")},
        TokenChallenge(),
        "authorization_endpoint",
    ),
    (
        "the page of one and the token of another",
        {
            AS: metadata(
                authorization_endpoint="https://honest.example/authorize",
                authorization_response_iss_parameter_supported=None,
            )
        },
        TokenChallenge(),
        "wrong party",
    ),
    ("no page", {AS: metadata(authorization_endpoint=None)}, TokenChallenge(), "publishes no authorization_endpoint"),
    ("no token endpoint", {AS: metadata(token_endpoint=None)}, TokenChallenge(), "token_endpoint"),
    ("no PKCE", {AS: metadata(code_challenge_methods_supported=None)}, TokenChallenge(), "S256"),
    ("plain PKCE", {AS: metadata(code_challenge_methods_supported=["plain"])}, TokenChallenge(), "S256"),
]


@pytest.mark.parametrize(
    ("pages", "challenge", "words"), [row[1:] for row in DOCUMENT], ids=[row[0] for row in DOCUMENT]
)
def test_untrustworthy_metadata_ends_the_login_before_anything_is_sent(
    pages: dict[str, Any], challenge: TokenChallenge, words: str
) -> None:
    web = Web(pages)
    with pytest.raises(AuthError, match=words):
        enter(web, challenge=challenge)
    assert (web.visited, [step for step in web.fetched if step.method != "GET"]) == ([], [])


@pytest.mark.parametrize(
    "options",
    [
        OAuth(client_id="me", client_secret="s", issuer="https://mine.example.com"),
        OAuth(grant="client_credentials", client_id="me", client_secret="s", issuer="https://mine.example.com"),
        OAuth(grant="client_credentials", client_id="me", client_secret="s", issuer=lambda issuer: False),
        OAuth(grant="jwt_bearer", assertion="a.b.c", issuer="https://mine.example.com"),
    ],
    ids=["a client", "a program", "a function", "an assertion"],
)
@pytest.mark.parametrize("prm", [resource(), answer({}, 404)], ids=["named", "no metadata"])
def test_credentials_are_sent_only_to_their_issuer(options: OAuth, prm: Any) -> None:
    web = Web({PRM: prm})
    with pytest.raises(AuthError, match="No credentials were sent"):
        enter(web, options, secret="a.b.c")
    assert (web.visited, [step.method for step in web.fetched if step.method != "GET"]) == ([], [])


def test_a_login_page_on_another_host_is_allowed_if_redirects_name_the_issuer() -> None:
    web = Web({AS: metadata(authorization_endpoint="https://login.example.com/authorize")})
    web.redirect = {"iss": ISSUER}
    login, _ = enter(web)
    assert login.tokens.access_token == "token-1"


def test_a_server_with_undeclared_pkce_works_with_assume_pkce() -> None:
    web = Web({AS: metadata(code_challenge_methods_supported=None)})
    login, _ = enter(web, OAuth(assume_pkce=True))
    assert login.tokens.access_token == "token-1"


def test_assume_pkce_does_not_override_declared_methods() -> None:
    web = Web({AS: metadata(code_challenge_methods_supported=["plain"])})
    with pytest.raises(AuthError, match="S256"):
        enter(web, OAuth(assume_pkce=True))


# --- the shapes of two providers --------------------------------------------------------------------------------------

KEYCLOAK = "https://sso.example.com/realms/main"
KEYCLOAK_SAYS: dict[str, Any] = {
    "issuer": KEYCLOAK,
    "authorization_endpoint": f"{KEYCLOAK}/protocol/openid-connect/auth",
    "token_endpoint": f"{KEYCLOAK}/protocol/openid-connect/token",
    "introspection_endpoint": f"{KEYCLOAK}/protocol/openid-connect/token/introspect",
    "userinfo_endpoint": f"{KEYCLOAK}/protocol/openid-connect/userinfo",
    "end_session_endpoint": f"{KEYCLOAK}/protocol/openid-connect/logout",
    "jwks_uri": f"{KEYCLOAK}/protocol/openid-connect/certs",
    "registration_endpoint": f"{KEYCLOAK}/clients-registrations/openid-connect",
    "grant_types_supported": ["authorization_code", "client_credentials", "implicit", "password", "refresh_token"],
    "response_types_supported": ["code", "none", "id_token", "token", "id_token token", "code id_token"],
    "scopes_supported": ["openid", "profile", "email", "offline_access", "roles"],
    "code_challenge_methods_supported": ["plain", "S256"],
    "token_endpoint_auth_methods_supported": ["private_key_jwt", "client_secret_basic", "client_secret_post"],
    "authorization_response_iss_parameter_supported": True,
    "tls_client_certificate_bound_access_tokens": True,
    "mtls_endpoint_aliases": {"token_endpoint": f"{KEYCLOAK}/protocol/openid-connect/token"},
}
ENTRA = "https://login.microsoftonline.com/72f988bf-0000-0000-0000-2d7cd011db47/v2.0"
ENTRA_SAYS: dict[str, Any] = {
    "issuer": ENTRA,
    "authorization_endpoint": ENTRA.replace("/v2.0", "/oauth2/v2.0/authorize"),
    "token_endpoint": ENTRA.replace("/v2.0", "/oauth2/v2.0/token"),
    "device_authorization_endpoint": ENTRA.replace("/v2.0", "/oauth2/v2.0/devicecode"),
    "jwks_uri": ENTRA.replace("/v2.0", "/discovery/v2.0/keys"),
    "response_modes_supported": ["query", "fragment", "form_post"],
    "response_types_supported": ["code", "id_token", "code id_token", "id_token token"],
    "scopes_supported": ["openid", "profile", "email", "offline_access"],
    "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt", "client_secret_basic"],
    "request_uri_parameter_supported": False,
    "kerberos_endpoint": ENTRA.replace("/v2.0", "/kerberos"),
    "tenant_region_scope": "WW",
    "cloud_instance_name": "microsoftonline.com",
}


def keycloak() -> Web:
    return Web(
        {
            PRM: resource(authorization_servers=[KEYCLOAK], scopes_supported=["mcp:tools"]),
            f"{KEYCLOAK}/.well-known/openid-configuration": KEYCLOAK_SAYS,
            KEYCLOAK_SAYS["registration_endpoint"]: answer({"client_id": "k", "client_secret": "s"}, 201),
            KEYCLOAK_SAYS["token_endpoint"]: {"access_token": "kc", "token_type": "Bearer", "refresh_token": "r"},
        },
        redirect={"iss": KEYCLOAK},
    )


def test_a_login_at_a_server_shaped_like_keycloak_works() -> None:
    web = keycloak()
    login, _ = enter(web)
    assert (login.tokens.issuer, login.client.method) == (KEYCLOAK, "client_secret_basic")
    assert web.visited[0]["scope"] == "mcp:tools offline_access"


def entra(says: dict[str, Any]) -> Web:
    return Web(
        {
            PRM: resource(authorization_servers=[ENTRA], scopes_supported=["api://mcp/user_impersonation"]),
            f"{ENTRA}/.well-known/openid-configuration": says,
            ENTRA_SAYS["token_endpoint"]: {"access_token": "ms", "token_type": "Bearer", "expires_in": "3599"},
        },
        redirect={"iss": None},
    )


def test_a_server_shaped_like_entra_works_with_assume_pkce_and_a_configured_client() -> None:
    web = entra(ENTRA_SAYS)
    login, _ = enter(web, OAuth(client_id="app", issuer=ENTRA, assume_pkce=True))
    assert (login.tokens.issuer, login.tokens.expires_at) == (ENTRA, 1_700_003_599.0)


def test_a_server_shaped_like_entra_without_assume_pkce_is_refused_with_the_fix() -> None:
    with pytest.raises(AuthError, match="assume_pkce=True"):
        enter(entra(ENTRA_SAYS), OAuth(client_id="app", issuer=ENTRA))


def test_a_multi_tenant_issuer_is_refused() -> None:
    says = {**ENTRA_SAYS, "issuer": "https://login.microsoftonline.com/{tenantid}/v2.0"}
    with pytest.raises(AuthError, match="has the issuer"):
        enter(entra(says), OAuth(client_id="app", issuer=ENTRA, assume_pkce=True))


# --- URLs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("above", "below", "is_so"),
    [
        ("https://h/mcp", "https://h/mcp", True),
        ("https://h/mcp/", "https://h/mcp", True),
        ("https://H:443/mcp", "https://h/mcp", True),
        ("https://h", "https://h/mcp", True),
        ("https://h/a", "https://h/a/mcp", True),
        ("https://h/a", "https://h/ab", False),
        ("https://h/A", "https://h/a", False),
        ("https://h/a?b", "https://h/a", False),
        ("https://h.evil", "https://h/a", False),
        ("http://h/a", "https://h/a", False),
    ],
)
def test_a_resource_covers_itself_and_what_is_in_it(above: str, below: str, is_so: bool) -> None:
    assert covers(above, below) is is_so


@pytest.mark.parametrize(
    ("url", "is_so"),
    [
        ("https://h/x", True),
        ("http://localhost:1/x", True),
        ("http://127.0.0.1/x", True),
        ("http://[::1]:5/x", True),
        ("http://h/x", False),
        ("http://localhost.evil.com/x", False),
        ("http://127.0.0.1.evil.com/x", False),
        ("ftp://h/x", False),
        ("https://user@h/x", False),
        ("https://", False),
        ("https://h:0/", False),
        ("https://h:99999/", False),
        ("https://[/", False),
        ("https://h/a b", False),
        ("https://h/\u00e4", False),
    ],
)
def test_secrets_are_sent_only_over_https_or_to_this_machine(url: str, is_so: bool) -> None:
    assert may_carry_secrets(url) is is_so


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "vbscript:x",
        "https://h/`id`",
        'https://h/"x',
        "https://h/;calc",
        "https://h/x|y",
        "https://h/<x>",
        "https://h/x\\y",
        "https://h/%0a&calc",
        "https://h/x\n",
        "//h/x",
        "-https://h",
    ],
)
def test_a_url_with_shell_characters_is_not_opened(url: str) -> None:
    assert is_openable(url) is False
