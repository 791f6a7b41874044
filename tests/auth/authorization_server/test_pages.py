"""The consent page: what it shows, whose decision counts, and attacks on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.auth.authorization_server.support import (
    CALLBACK,
    ISSUER,
    OWN_RECORDS,
    PASSWORD,
    Browser,
    Clock,
    Documents,
    OpenFile,
    Start,
    ask,
    authorize_url,
    make_server,
    register,
    written,
)
from trunkline.auth.authorization_server.records import OAuthClient
from trunkline.auth.authorization_server.server import AuthorizationServer
from trunkline.auth.authorization_server.settings import hash_password

pytestmark = OWN_RECORDS

LOCAL = "http://127.0.0.1:8123"
HOSTILE = "\"><script>alert('x')</script>"


# --- what is shown ----------------------------------------------------------------------------------------------------


async def test_the_page_shows_client_scopes_and_redirect(server: AuthorizationServer) -> None:
    client = await register(server, client_name="Notes for Cats")
    page = await Browser(server).get(authorize_url(client["client_id"], scope="files:read files:write"))
    assert "Notes for Cats" in page.text
    assert '<dd class="host">app.example.net</dd>' in page.text
    assert "Read your files" in page.text
    assert "Change your files" in page.text
    assert "https://auth.example.com/mcp" in page.text
    assert "it has not been verified" in page.text


@pytest.mark.parametrize(
    ("callback", "warned"), [("http://127.0.0.1:3000/cb", True), ("http://localhost/cb", True), (CALLBACK, False)]
)
async def test_the_page_warns_of_a_client_on_the_users_own_machine(
    callback: str, warned: bool, server: AuthorizationServer
) -> None:
    client = await register(server, redirect_uris=[callback])
    page = await Browser(server).get(authorize_url(client["client_id"], redirect_uri=callback))
    assert ("where any program can" in page.text) is warned


async def test_control_characters_in_a_name_are_not_shown(server: AuthorizationServer) -> None:
    client = await register(server, client_name="Safe\u202egnp.exe\u200b\n\x07 App" + "x" * 200)
    page = await Browser(server).get(authorize_url(client["client_id"]))
    assert not re.search("[\u202e\u200b\x07]", page.text)
    assert "Safegnp.exe" in page.text
    assert "x" * 101 not in page.text


async def test_a_page_has_no_script_cannot_be_framed_and_is_not_cached(server: AuthorizationServer) -> None:
    page = await Browser(server).visit()
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "base-uri 'none'" in policy
    assert "form-action 'self' https://app.example.net" in policy
    assert "script" not in policy
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "same-origin"
    assert "<script" not in page.text


# FastMCP CVE-2025-62800: a script in what the page shows.


@pytest.mark.parametrize("field", ["client_name", "state", "scope", "resource", "client_id", "redirect_uri", "prompt"])
async def test_client_supplied_values_are_escaped_everywhere(field: str, server: AuthorizationServer) -> None:
    name = HOSTILE if field == "client_name" else "Notes"
    client = await register(server, client_name=name)
    changes = {} if field == "client_name" else {field: HOSTILE}
    url = authorize_url(**{"client_id": client["client_id"], **changes})
    page = await Browser(server).get(url)
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_values_of_a_document_are_escaped_too(start: Start) -> None:
    url = "https://app.example.net/'%3Cscript%3E.json"
    documents = Documents({url: {"client_id": url, "client_name": HOSTILE, "redirect_uris": [CALLBACK]}})
    server = start(fetcher=documents)
    page = await Browser(server).get(authorize_url(url))
    assert page.status == 200
    assert "<script" not in page.text


# --- the cookie -------------------------------------------------------------------------------------------------------


async def test_the_cookie_is_bound_to_the_host(server: AuthorizationServer) -> None:
    page = await Browser(server).visit()
    (cookie,) = page.cookies
    parts = cookie.split("; ")
    assert parts[0].startswith("__Host-")
    assert {"Path=/", "HttpOnly", "SameSite=Lax", "Secure"} <= set(parts)
    assert "Domain" not in cookie


async def test_on_loopback_without_tls_the_cookie_has_the_port_in_its_name(start: Start) -> None:
    server = start(issuer=LOCAL)
    client = await register(server, LOCAL)
    url = authorize_url(client["client_id"], LOCAL, resource=None)
    (cookie,) = (await Browser(server, LOCAL).get(url)).cookies
    assert cookie.startswith("trunkline-auth-8123=")
    assert "Secure" not in cookie
    assert "HttpOnly; SameSite=Lax" in cookie


async def test_signing_in_changes_the_cookie(server: AuthorizationServer) -> None:
    browser = Browser(server)
    page = await browser.visit()
    before = dict(browser.jar)
    await browser.allow(page)
    assert browser.jar != before


async def test_a_repeated_cookie_is_ignored(server: AuthorizationServer) -> None:
    client = await register(server)
    browser = Browser(server)
    await browser.allow(await browser.get(authorize_url(client["client_id"])))
    twice = "; ".join(f"__Host-trunkline-auth={value}" for value in ("planted", *browser.jar.values()))
    page = await ask(server, "GET", authorize_url(client["client_id"]), headers={"cookie": twice})
    assert "Signed in as" not in page.text


# --- signing in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "password"), [("ada", "wrong"), ("ada", ""), ("eve", PASSWORD), ("", ""), ("ada", "x" * 2000)]
)
async def test_a_wrong_password_is_reported_on_the_page_and_gives_no_code(
    name: str, password: str, server: AuthorizationServer
) -> None:
    browser = Browser(server)
    page = await browser.visit()
    response = await browser.allow(page, name=name, password=password)
    assert response.status == 403
    assert "Wrong name or password" in response.text
    assert "location" not in response.headers
    assert (await browser.allow(response)).status == 303


async def test_sign_ins_are_rate_limited_by_name_and_address(start: Start) -> None:
    clock = Clock()
    browser = Browser(start(clock=clock))
    page = await browser.visit()
    tries = [(await browser.allow(page, password="wrong")).status for _ in range(6)]
    assert tries == [403] * 5 + [429]
    assert (await browser.allow(page)).status == 429
    clock.now += 60
    assert (await browser.allow(page)).status == 303


async def test_a_signed_in_user_is_asked_for_consent_only(server: AuthorizationServer) -> None:
    browser = Browser(server)
    await browser.allow(await browser.visit())
    page = await browser.visit()
    assert "Signed in as <strong>ada</strong>" in page.text
    assert 'type="password"' not in page.text
    assert (await browser.post({"request": page.sealed, "decision": "allow"})).status == 303


async def test_signing_out_requires_a_new_sign_in(server: AuthorizationServer) -> None:
    browser = Browser(server)
    await browser.allow(await browser.visit())
    page = await browser.visit()
    again = await browser.post({"request": page.sealed, "decision": "sign_out"})
    assert 'type="password"' in again.text
    assert (await browser.post({"request": again.sealed, "decision": "allow"})).status == 403


async def test_a_session_ends(start: Start) -> None:
    clock = Clock()
    server = start(clock=clock)
    client = await register(server)
    browser = Browser(server)
    await browser.allow(await browser.get(authorize_url(client["client_id"])))
    clock.now += 12 * 3600
    client = await register(server)
    assert "Signed in as" not in (await browser.get(authorize_url(client["client_id"]))).text


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_custom_function_decides_who_may_sign_in(asynchronous: bool, start: Start) -> None:
    def plain(name: str, password: str) -> str | None:
        return f"id-of-{name}" if password == "magic" else None

    async def waiting(name: str, password: str) -> str | None:
        return plain(name, password)

    browser = Browser(start(users=waiting if asynchronous else plain))
    page = await browser.visit()
    assert (await browser.allow(page, password="wrong")).status == 403
    assert (await browser.allow(page, password="magic")).status == 303
    assert "id-of-ada" in (await browser.visit()).text


async def test_the_password_of_the_development_user_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    monkeypatch.delenv("TRUNKLINE_DEV_PASSWORD", raising=False)
    server = start(issuer=LOCAL, users=None)
    server.routes()
    server.routes()
    told = capsys.readouterr().err
    assert told.count("Development login") == 1
    found = re.search(r"name (\S+), password (\S+)", told)
    assert found is not None
    client = await register(server, LOCAL)
    browser = Browser(server, LOCAL)
    page = await browser.get(authorize_url(client["client_id"], LOCAL, resource=None))
    assert (await browser.allow(page, name=found[1], password=found[2])).status == 303


async def test_the_password_of_the_development_user_can_be_chosen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    monkeypatch.setenv("TRUNKLINE_DEV_PASSWORD", "chosen")
    server = start(issuer=LOCAL, users=None)
    client = await register(server, LOCAL)
    browser = Browser(server, LOCAL)
    page = await browser.get(authorize_url(client["client_id"], LOCAL, resource=None))
    assert (await browser.allow(page, name="developer", password="chosen")).status == 303
    assert capsys.readouterr().err == ""


def test_two_hashes_of_one_password_differ() -> None:
    assert hash_password("x") != hash_password("x")


# --- whose decision counts --------------------------------------------------------------------------------------------


async def test_a_decision_from_another_browser_is_rejected(server: AuthorizationServer) -> None:
    client = await register(server)
    one, other = Browser(server), Browser(server)
    page = await one.get(authorize_url(client["client_id"]))
    await other.get(authorize_url(client["client_id"]))
    response = await other.allow(page)
    assert (response.status, "location" in response.headers) == (403, False)
    assert (await Browser(server).allow(page)).status == 403


@pytest.mark.parametrize(
    ("origin", "site"),
    [
        pytest.param("https://evil.example", "cross-site", id="another site"),
        pytest.param("https://evil.example", None, id="another origin"),
        pytest.param("null", None, id="no origin"),
        pytest.param(ISSUER, "cross-site", id="another site by its own word"),
        pytest.param("https://sub.auth.example.com", None, id="a sibling"),
        pytest.param(ISSUER, "same-site", id="a sibling by its own word"),
    ],
)
async def test_a_decision_sent_by_another_site_is_rejected(
    origin: str, site: str | None, server: AuthorizationServer
) -> None:
    browser = Browser(server)
    page = await browser.visit()
    fields = {"request": page.sealed, "decision": "allow", "name": "ada", "password": PASSWORD}
    response = await browser.post(fields, origin=origin, site=site)
    assert (response.status, "location" in response.headers) == (403, False)


@pytest.mark.parametrize("forged", ["", "x", "eyJ9.AAAA", "é", "a" * 20_000])
async def test_a_decision_without_the_token_of_the_page_is_rejected(forged: str, server: AuthorizationServer) -> None:
    browser = Browser(server)
    await browser.visit()
    fields = {"request": forged, "decision": "allow", "name": "ada", "password": PASSWORD}
    assert (await browser.post(fields)).status == 403


async def test_encrypted_values_cannot_be_modified(server: AuthorizationServer) -> None:
    browser = Browser(server)
    mine = await browser.visit()
    more = await browser.visit(scope="files:write")
    mixed = more.sealed.partition(".")[0] + "." + mine.sealed.partition(".")[2]
    fields = {"request": mixed, "decision": "allow", "name": "ada", "password": PASSWORD}
    assert (await browser.post(fields)).status == 403


async def test_a_page_can_be_decided_only_once(server: AuthorizationServer) -> None:
    browser = Browser(server)
    await browser.allow(await browser.visit())
    page = await browser.visit()
    fields = {"request": page.sealed, "decision": "allow"}
    assert (await browser.post(fields)).status == 303
    again = await browser.post(fields)
    assert (again.status, "location" in again.headers) == (403, False)


async def test_a_page_expires(start: Start) -> None:
    clock = Clock()
    browser = Browser(start(clock=clock))
    page = await browser.visit()
    clock.now += 601
    assert (await browser.allow(page)).status == 403


async def test_a_form_without_a_decision_decides_nothing(server: AuthorizationServer) -> None:
    browser = Browser(server)
    page = await browser.visit()
    assert (await browser.post({"request": page.sealed})).status == 400


async def test_a_consent_is_not_remembered_by_default(server: AuthorizationServer) -> None:
    browser = Browser(server)
    await browser.allow(await browser.visit())
    assert (await browser.visit(site="none")).status == 200


# --- open redirects ---------------------------------------------------------------------------------------------------


async def test_an_error_does_not_redirect_to_a_registered_client(server: AuthorizationServer) -> None:
    response = await Browser(server).visit(scope="admin")
    assert (response.status, "location" in response.headers) == (400, False)
    assert "Continue to app.example.net" in response.text


async def test_an_error_redirects_to_a_configured_client(start: Start) -> None:
    server = start(clients=[OAuthClient(client_id="known", redirect_uris=(CALLBACK,))])
    response = await Browser(server).get(authorize_url("known", scope="admin"))
    assert (response.status, response.answer["error"]) == (303, "invalid_scope")


# --- the application by itself ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("issuer", "host", "status"),
    [
        (ISSUER, "AUTH.example.com", 200),
        (ISSUER, "auth.example.com:443", 200),
        (ISSUER, "evil.example", 403),
        # Clients leave the default port out.
        (f"{ISSUER}:443", "auth.example.com", 200),
        (f"{ISSUER}:443", "auth.example.com:443", 200),
        (f"{ISSUER}:8443", "auth.example.com:8443", 200),
        (f"{ISSUER}:8443", "auth.example.com", 403),
        (LOCAL, "localhost:8123", 200),
        (LOCAL, "[::1]:8123", 200),
        (LOCAL, "evil.example", 403),
        (LOCAL, "[", 403),
        (LOCAL, "", 403),
    ],
)
async def test_a_standalone_server_checks_the_host_header(issuer: str, host: str, status: int, start: Start) -> None:
    assert (await ask(start(issuer=issuer), "GET", f"{issuer}/jwks", headers={"host": host})).status == status


async def test_an_unknown_path_is_not_found(server: AuthorizationServer) -> None:
    assert (await ask(server, "GET", f"{ISSUER}/nowhere")).status == 404


@pytest.mark.parametrize(("method", "path"), [("GET", "token"), ("GET", "register"), ("DELETE", "authorize")])
async def test_a_verb_that_is_not_used_is_refused(method: str, path: str, server: AuthorizationServer) -> None:
    response = await ask(server, method, f"{ISSUER}/{path}")
    assert response.status == 405
    assert "POST" in response.headers["allow"]


# --- the store --------------------------------------------------------------------------------------------------------


async def test_issued_tokens_survive_a_restart_and_no_secret_is_in_the_file(
    tmp_path: Path, open_file: OpenFile
) -> None:
    path = tmp_path / "auth.db"
    first = make_server(store=open_file(path))
    client = await register(first, token_endpoint_auth_method="client_secret_post")
    browser = Browser(first)
    code = (await browser.allow(await browser.get(authorize_url(client["client_id"])))).answer["code"]
    await first.aclose()
    stored = written(tmp_path)
    assert client["client_id"].encode() in stored
    assert code.encode() not in stored
    assert client["client_secret"].encode() not in stored
    assert next(iter(browser.jar.values())).encode() not in stored
    second = make_server(store=open_file(path))
    browser.app = second
    assert "Signed in as" in (await browser.get(authorize_url(client["client_id"]))).text
    await second.aclose()


async def test_a_page_survives_a_restart(tmp_path: Path, open_file: OpenFile) -> None:
    path = tmp_path / "auth.db"
    first = make_server(store=open_file(path))
    browser = Browser(first)
    page = await browser.visit()
    await first.aclose()
    browser.app = make_server(store=open_file(path))
    assert (await browser.allow(page)).status == 303
    await browser.app.aclose()
