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

MALFORMED = "malformed"
DESCRIBES = "describes"
NOT_HTTPS = "not an https URL"
UNSAFE = "not safe to open"
#: Documents that end a login, and what the error says.
DOCUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "another resource": ({PRM: resource(resource="https://evil.example.com/mcp")}, DESCRIBES),
    "a sibling": ({PRM: resource(resource="https://mcp.example.com/other")}, DESCRIBES),
    "a beginning that is no folder": ({PRM: resource(resource="https://mcp.example.com/mc")}, DESCRIBES),
    "another port": ({PRM: resource(resource="https://mcp.example.com:444/mcp")}, DESCRIBES),
    "plain http": ({PRM: resource(resource="http://mcp.example.com/mcp")}, DESCRIBES),
    "a fragment": ({PRM: resource(resource=SERVER + "#x")}, DESCRIBES),
    "no URL": ({PRM: resource(resource="mcp")}, DESCRIBES),
    "no resource": ({PRM: resource(resource=None)}, MALFORMED),
    "no servers": ({PRM: resource(authorization_servers=None)}, "names no authorization server"),
    "an empty list": ({PRM: resource(authorization_servers=[])}, "names no authorization server"),
    "a list of numbers": ({PRM: resource(authorization_servers=[1])}, MALFORMED),
    "no object": ({PRM: answer([])}, MALFORMED),
    "no JSON": ({PRM: answer(b"{")}, MALFORMED),
    "no text": ({PRM: answer(b"\xff\xfe{}")}, MALFORMED),
    "too deep": ({PRM: answer(b"[" * 5000)}, MALFORMED),
    "a failing server": ({PRM: answer({}, 503)}, "status 503"),
    "unreachable": ({PRM: FetchError("h:443 took too long")}, "took too long"),
    "an issuer over http": ({PRM: resource(authorization_servers=["http://auth.example.com"])}, NOT_HTTPS),
    "an issuer with a query": ({PRM: resource(authorization_servers=[ISSUER + "?x"])}, NOT_HTTPS),
    "an issuer with a user": ({PRM: resource(authorization_servers=["https://u:p@h"])}, NOT_HTTPS),
    "no metadata": ({AS: answer({}, 404)}, "has no metadata"),
    "metadata is not given now": ({AS: answer({}, 500)}, "status 500"),
    "asked too often": ({AS: answer({}, 429)}, "status 429"),
    "another issuer": ({AS: metadata("https://attacker.example.com")}, "has the issuer"),
    "an issuer with a slash": ({AS: {**metadata(), "issuer": ISSUER + "/"}}, "has the issuer"),
    "no issuer": ({AS: {}}, MALFORMED),
    "a token endpoint over http": ({AS: metadata(token_endpoint="http://auth.example.com/t")}, "token_endpoint"),
    "a token endpoint with a bracket": ({AS: metadata(token_endpoint="https://[")}, "token_endpoint"),
    "a token endpoint here": ({AS: metadata(token_endpoint="http://127.0.0.1/t")}, "token_endpoint"),
    "a page that is a script": ({AS: metadata(authorization_endpoint="javascript:alert(1)")}, "authorization_"),
    "a page with a command": ({AS: metadata(authorization_endpoint=ISSUER + "/$(id)")}, UNSAFE),
    "a page with more": ({AS: metadata(authorization_endpoint=ISSUER + "/a&calc")}, UNSAFE),
    "a page with a fragment": ({AS: metadata(authorization_endpoint=ISSUER + "/a#b")}, "authorization_endpoint"),
    "no page": ({AS: metadata(authorization_endpoint=None)}, "publishes no authorization_endpoint"),
    "no token endpoint": ({AS: metadata(token_endpoint=None)}, "token_endpoint"),
    "no PKCE": ({AS: metadata(code_challenge_methods_supported=None)}, "S256"),
    "plain PKCE": ({AS: metadata(code_challenge_methods_supported=["plain"])}, "S256"),
}
ELSEWHERE = "https://x.example/.well-known/oauth-protected-resource"
#: The same for documents whose URL the server says in a header.
SAID_DOCUMENTS: dict[str, tuple[str, Any, str]] = {
    "a folder above": (CUSTOM, resource(resource="https://mcp.example.com"), DESCRIBES),
    "a folder above, at another host": (ELSEWHERE, resource(resource="https://mcp.example.com"), DESCRIBES),
    "not there": (CUSTOM, answer({}, 404), "returned status 404"),
    "a file": ("file:///etc/passwd", None, NOT_HTTPS),
    "plain http to another host": ("http://169.254.169.254/x", None, NOT_HTTPS),
}


def refused(web: Web, challenge: TokenChallenge, words: str) -> None:
    """Check that a login ends with these words before anything is sent."""
    with pytest.raises(AuthError, match=words):
        enter(web, challenge=challenge)
    assert (web.visited, [step for step in web.fetched if step.method != "GET"]) == ([], [])


@pytest.mark.parametrize(("pages", "words"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_untrustworthy_metadata_ends_the_login_before_anything_is_sent(pages: dict[str, Any], words: str) -> None:
    refused(Web(pages), TokenChallenge(), words)


@pytest.mark.parametrize(("url", "page", "words"), SAID_DOCUMENTS.values(), ids=SAID_DOCUMENTS)
def test_untrustworthy_metadata_that_a_header_names_ends_the_login(url: str, page: Any, words: str) -> None:
    refused(Web({url: page}), TokenChallenge(resource_metadata=url), words)


def test_the_page_of_one_and_the_token_endpoint_of_another_end_the_login() -> None:
    page = "https://honest.example/authorize"
    said = metadata(authorization_endpoint=page, authorization_response_iss_parameter_supported=None)
    refused(Web({AS: said}), TokenChallenge(), "wrong party")


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
    with pytest.raises(AuthError, match="S256"):
        enter(Web({AS: metadata(code_challenge_methods_supported=["plain"])}), OAuth(assume_pkce=True))


# --- the shapes of two providers --------------------------------------------------------------------------------------

KEYCLOAK = "https://sso.example.com/realms/main"
KEYCLOAK_SAYS: dict[str, Any] = {
    "issuer": KEYCLOAK,
    "authorization_endpoint": f"{KEYCLOAK}/protocol/openid-connect/auth",
    "token_endpoint": f"{KEYCLOAK}/protocol/openid-connect/token",
    "registration_endpoint": f"{KEYCLOAK}/clients-registrations/openid-connect",
    "scopes_supported": ["openid", "profile", "email", "offline_access", "roles"],
    "code_challenge_methods_supported": ["plain", "S256"],
    "token_endpoint_auth_methods_supported": ["private_key_jwt", "client_secret_basic", "client_secret_post"],
    "authorization_response_iss_parameter_supported": True,
    "mtls_endpoint_aliases": {"token_endpoint": f"{KEYCLOAK}/protocol/openid-connect/token"},
}
ENTRA = "https://login.microsoftonline.com/72f988bf-0000-0000-0000-2d7cd011db47/v2.0"
ENTRA_SAYS: dict[str, Any] = {
    "issuer": ENTRA,
    "authorization_endpoint": ENTRA.replace("/v2.0", "/oauth2/v2.0/authorize"),
    "token_endpoint": ENTRA.replace("/v2.0", "/oauth2/v2.0/token"),
    "scopes_supported": ["openid", "profile", "email", "offline_access"],
    "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt", "client_secret_basic"],
    "request_uri_parameter_supported": False,
    "tenant_region_scope": "WW",
}


def test_a_login_at_a_server_shaped_like_keycloak_works() -> None:
    web = Web(
        {
            PRM: resource(authorization_servers=[KEYCLOAK], scopes_supported=["mcp:tools"]),
            f"{KEYCLOAK}/.well-known/openid-configuration": KEYCLOAK_SAYS,
            KEYCLOAK_SAYS["registration_endpoint"]: answer({"client_id": "k", "client_secret": "s"}, 201),
            KEYCLOAK_SAYS["token_endpoint"]: {"access_token": "kc", "token_type": "Bearer", "refresh_token": "r"},
        },
        redirect={"iss": KEYCLOAK},
    )
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
