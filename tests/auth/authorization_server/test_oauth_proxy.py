"""The OAuth proxy: every client needs its own consent, in one browser, and sees no token of the provider."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.auth.authorization_server.support import (
    CALLBACK,
    ISSUER,
    VERIFIER,
    Browser,
    Clock,
    Documents,
    Response,
    authorize_url,
    contents,
    exchange,
    in_turn,
    register,
)
from tests.support import run_async
from trunkline.auth.authorization_server.oauth_proxy import OAuthProxy
from trunkline.auth.authorization_server.server import AuthorizationServer
from trunkline.auth.verifiers import InvalidToken
from trunkline.errors import AuthError, ConfigError

AUTHORIZE = "https://login.provider.example/authorize"
TOKEN = "https://login.provider.example/token"
USERINFO = "https://api.provider.example/user"
UPSTREAM = {"access_token": "upstream-secret-token", "refresh_token": "upstream-refresh", "expires_in": 3600}


def id_token(**changes: Any) -> str:
    claims = {"iss": "https://login.provider.example", "aud": "our-id", "sub": "u-1", "exp": 1_700_003_600, **changes}
    return "e30." + base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode() + ".sig"


def make_proxy(provider: Documents, **options: Any) -> OAuthProxy:
    given: dict[str, Any] = {
        "issuer": ISSUER,
        "upstream_authorize": AUTHORIZE,
        "upstream_token": TOKEN,
        "client_id": "our-id",
        "client_secret": "our-secret",
        "store": ":memory:",
        "scopes": {"files:read": "Read your files", "files:write": "Change your files"},
        "upstream_fetcher": provider,
        "upstream_userinfo": USERINFO,
        **options,
    }
    return in_turn(OAuthProxy, given)


def a_provider(**answer: Any) -> Documents:
    return Documents({TOKEN: {**UPSTREAM, **answer}, USERINFO: {"id": 42, "login": "ada"}})


def run(work: Callable[[OAuthProxy], Awaitable[None]], provider: Documents | None = None, **options: Any) -> None:
    async def main() -> None:
        proxy = make_proxy(provider or a_provider(), **options)
        await work(proxy)
        await proxy.aclose()

    run_async(main())


def onward(page: Response) -> dict[str, str]:
    """Return the parameters of the URL that a page redirects to."""
    found = re.search(r'content="0; url=([^"]+)"', page.text)
    assert found is not None, page.text
    url = html.unescape(found[1])
    assert url.startswith(f"{AUTHORIZE}?")
    return dict(parse_qsl(urlsplit(url).query))


async def sent_on(browser: Browser, client_id: str, **changes: Any) -> dict[str, str]:
    """Allow a client, and give what goes to the provider."""
    page = await browser.get(authorize_url(client_id, **changes))
    assert page.status == 200, page.text
    return onward(await browser.post({"request": page.sealed, "decision": "allow"}))


async def come_back(browser: Browser, **answer: str) -> Response:
    return await browser.get(f"{ISSUER}/callback?{urlencode(answer)}")


async def tokens_of(proxy: OAuthProxy, browser: Browser, client_id: str) -> dict[str, Any]:
    sent = await sent_on(browser, client_id)
    back = await come_back(browser, code="upstream-code", state=sent["state"])
    form = {"grant_type": "authorization_code", "client_id": client_id, "code_verifier": VERIFIER}
    response = await exchange(proxy, code=back.answer["code"], **form)
    assert response.status == 200, response.text
    return response.json


# --- the redirect -----------------------------------------------------------------------------------------------------


def test_a_user_signs_in_at_the_provider_and_the_client_gets_our_token() -> None:
    provider = a_provider()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        answer = await tokens_of(proxy, browser, client["client_id"])
        principal = await proxy.verify({"authorization": f"Bearer {answer['access_token']}"})
        assert principal is not None
        assert (principal.subject, principal.issuer, principal.client) == ("42", ISSUER, client["client_id"])
        assert await proxy.upstream_token(principal) == "upstream-secret-token"

    run(story, provider)
    assert provider.sent[0] == {
        "grant_type": "authorization_code",
        "code": "upstream-code",
        "code_verifier": provider.sent[0]["code_verifier"],
        "redirect_uri": f"{ISSUER}/callback",
        "client_id": "our-id",
        "client_secret": "our-secret",
    }


def test_no_token_of_the_provider_reaches_a_client() -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        sent = await sent_on(browser, client["client_id"])
        back = await come_back(browser, code="upstream-code", state=sent["state"])
        form = {"grant_type": "authorization_code", "client_id": client["client_id"], "code_verifier": VERIFIER}
        response = await exchange(proxy, code=back.answer["code"], **form)
        seen = back.location + back.text + response.text
        assert "upstream" not in seen
        with pytest.raises(InvalidToken):
            await proxy.verify({"authorization": "Bearer upstream-secret-token"})

    run(story)


def test_pkce_is_used_with_separate_verifiers_for_client_and_provider() -> None:
    provider = a_provider()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        sent = await sent_on(browser, client["client_id"])
        assert (sent["code_challenge_method"], len(sent["code_challenge"])) == ("S256", 43)
        assert sent["code_challenge"] not in authorize_url(client["client_id"])
        await come_back(browser, code="c", state=sent["state"])
        assert provider.sent[0]["code_verifier"] not in (VERIFIER, sent["code_challenge"])

    run(story, provider)


def test_the_configured_parameters_are_sent_to_the_provider() -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        sent = await sent_on(Browser(proxy), client["client_id"])
        assert (sent["scope"], sent["access_type"]) == ("read:user repo", "offline")
        assert (sent["client_id"], sent["redirect_uri"]) == ("our-id", f"{ISSUER}/callback")
        assert sent["state"] != "st4te"

    run(story, upstream_scopes=["read:user", "repo"], upstream_parameters={"access_type": "offline"})


def test_the_proxy_can_authenticate_in_the_header() -> None:
    provider = a_provider()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        await tokens_of(proxy, Browser(proxy), client["client_id"])

    run(story, provider, upstream_basic=True)
    expected = base64.b64encode(b"our-id:our-secret").decode()
    assert provider.options[0]["headers"]["authorization"] == f"Basic {expected}"
    assert "client_secret" not in provider.sent[0]


# --- the user ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "options", "known"),
    [
        pytest.param({}, {}, True, id="by its ID token"),
        pytest.param({}, {"upstream_issuer": "https://login.provider.example"}, True, id="of the right issuer"),
        pytest.param(
            {"iss": "https://x.example"}, {"upstream_issuer": "https://y.example"}, False, id="another issuer"
        ),
        pytest.param({"aud": "other-id"}, {}, False, id="of another client"),
        pytest.param({"exp": 1_600_000_000}, {}, False, id="expired"),
        pytest.param({"sub": None}, {}, False, id="no subject"),
        pytest.param({"sub": "client:nightly"}, {}, False, id="in a client's name"),
    ],
)
def test_the_provider_determines_the_user(changes: dict[str, Any], options: dict[str, Any], known: bool) -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        sent = await sent_on(browser, client["client_id"])
        back = await come_back(browser, code="c", state=sent["state"])
        assert ("code" in back.answer) is known
        assert (back.answer.get("error") == "server_error") is not known

    provider = a_provider(id_token=id_token(**changes))
    run(story, provider, upstream_userinfo=None, clock=Clock(), **options)


def test_a_custom_function_can_determine_the_user() -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        answer = await tokens_of(proxy, Browser(proxy), client["client_id"])
        principal = await proxy.verify({"authorization": f"Bearer {answer['access_token']}"})
        assert principal is not None
        assert principal.subject == "of upstream-secret-token"

    run(story, identify=lambda answer: f"of {answer['access_token']}")


@pytest.mark.parametrize("found", [b"<html>", b"[]", {"error": "bad_verification_code"}, {"access_token": 7}], ids=repr)
def test_an_invalid_answer_of_the_provider_fails_the_sign_in(found: object) -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        sent = await sent_on(browser, client["client_id"])
        back = await come_back(browser, code="c", state=sent["state"])
        assert back.answer["error"] == "server_error"
        assert back.answer["state"] == "st4te"

    run(story, Documents({TOKEN: found}))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": "access_denied"}, "access_denied"),
        ({"error": "<script>", "error_description": "<script>"}, "server_error"),
        ({}, "server_error"),
    ],
)
def test_a_refusal_of_the_provider_reaches_the_client_in_our_words(answer: dict[str, str], error: str) -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        sent = await sent_on(browser, client["client_id"])
        back = await come_back(browser, state=sent["state"], **answer)
        assert (back.answer["error"], back.answer["iss"]) == (error, ISSUER)
        assert "%3Cscript" not in back.location

    run(story)


def test_an_answer_of_another_provider_is_refused() -> None:
    provider = a_provider()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        sent = await sent_on(browser, client["client_id"])
        back = await come_back(browser, code="c", state=sent["state"], iss="https://evil.example")
        assert back.status == 400

    run(story, provider, upstream_issuer="https://login.provider.example")
    assert provider.asked == ["closed"]


# --- FastMCP GHSA-c2jp-c369-7pvx: the confused deputy -----------------------------------------------------------------


def test_a_new_client_needs_consent_before_the_provider_is_involved() -> None:
    async def story(proxy: OAuthProxy) -> None:
        browser = Browser(proxy)
        known = await register(proxy)
        await tokens_of(proxy, browser, known["client_id"])
        stranger = await register(proxy, client_name="Stranger", redirect_uris=["https://evil.example/cb"])
        url = authorize_url(stranger["client_id"], redirect_uri="https://evil.example/cb")
        page = await browser.get(url, site="none")
        assert (page.status, "location" in page.headers) == (200, False)
        assert '<dd class="host">evil.example</dd>' in page.text
        assert "login.provider.example" in page.text
        assert "state=" not in page.text

    run(story)


def test_a_denied_consent_never_reaches_the_provider() -> None:
    provider = a_provider()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        page = await browser.get(authorize_url(client["client_id"]))
        response = await browser.post({"request": page.sealed, "decision": "deny"})
        assert response.answer["error"] == "access_denied"

    run(story, provider)
    assert provider.asked == ["closed"]


# --- FastMCP CVE-2026-27124, GHSA-rww4, GHSA-6x8h: consent and browser ------------------------------------------------


def test_a_login_cannot_be_finished_by_another_browser() -> None:
    provider = a_provider()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        one, other = Browser(proxy), Browser(proxy)
        sent = await sent_on(one, client["client_id"])
        await sent_on(other, client["client_id"])
        stolen = await come_back(other, code="c", state=sent["state"])
        assert (stolen.status, "location" in stolen.headers) == (403, False)
        assert provider.asked == []
        assert "code" in (await come_back(one, code="c", state=sent["state"])).answer

    run(story, provider)


def test_a_browser_without_cookies_cannot_finish() -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        sent = await sent_on(Browser(proxy), client["client_id"])
        assert (await come_back(Browser(proxy), code="c", state=sent["state"])).status == 403

    run(story)


@pytest.mark.parametrize("site", ["cross-site", "same-site", None])
def test_consent_is_always_asked_if_another_site_leads_to_the_page(site: str | None) -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        await sent_on(browser, client["client_id"])
        page = await browser.get(authorize_url(client["client_id"]), site=site)
        assert (page.status, "location" in page.headers) == (200, False)

    run(story)


def test_a_consent_is_remembered_for_the_same_browser_client_and_scopes() -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        await sent_on(browser, client["client_id"])
        again = await browser.get(authorize_url(client["client_id"]), site="none")
        assert again.status == 303
        assert again.location.startswith(f"{AUTHORIZE}?")
        more = await browser.get(authorize_url(client["client_id"], scope="files:read files:write"), site="none")
        assert more.status == 200
        assert (await Browser(proxy).get(authorize_url(client["client_id"]), site="none")).status == 200

    run(story)


def test_a_remembered_consent_expires() -> None:
    clock = Clock()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        await tokens_of(proxy, browser, client["client_id"])
        clock.now += 30 * 24 * 3600 + 1
        assert (await browser.get(authorize_url(client["client_id"]), site="none")).status == 200

    run(story, clock=clock)


# --- state ------------------------------------------------------------------------------------------------------------


def test_a_state_is_accepted_once() -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        sent = await sent_on(browser, client["client_id"])
        assert "code" in (await come_back(browser, code="c", state=sent["state"])).answer
        again = await come_back(browser, code="c", state=sent["state"])
        assert (again.status, "location" in again.headers) == (400, False)

    run(story)


def test_a_state_expires_after_ten_minutes() -> None:
    clock = Clock()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        sent = await sent_on(browser, client["client_id"])
        clock.now += 600
        assert (await come_back(browser, code="c", state=sent["state"])).status == 400

    run(story, clock=clock)


@pytest.mark.parametrize("state", ["", "st4te", "x" * 43, "<script>alert(1)</script>"])
def test_a_state_that_is_not_ours_is_refused(state: str) -> None:
    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        browser = Browser(proxy)
        await sent_on(browser, client["client_id"])
        response = await come_back(browser, code="<script>", state=state)
        assert response.status == 400
        assert "<script" not in response.text

    run(story)


# --- the provider's tokens --------------------------------------------------------------------------------------------


def test_a_token_of_the_provider_is_refreshed_when_it_is_about_to_end() -> None:
    provider, clock = a_provider(), Clock()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        answer = await tokens_of(proxy, Browser(proxy), client["client_id"])
        principal = await proxy.verify({"authorization": f"Bearer {answer['access_token']}"})
        assert principal is not None
        clock.now += 3590
        provider.found[TOKEN] = {"access_token": "upstream-second", "expires_in": 3600}
        assert await proxy.upstream_token(principal) == "upstream-second"
        clock.now += 3590
        provider.found[TOKEN] = {"access_token": "upstream-third", "expires_in": 3600}
        assert await proxy.upstream_token(principal) == "upstream-third"
        assert provider.sent[-1]["refresh_token"] == "upstream-refresh"

    run(story, provider, clock=clock)


def test_tokens_revoked_by_the_provider_are_revoked_here() -> None:
    provider, clock = a_provider(), Clock()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        answer = await tokens_of(proxy, Browser(proxy), client["client_id"])
        headers = {"authorization": f"Bearer {answer['access_token']}"}
        principal = await proxy.verify(headers)
        assert principal is not None
        clock.now += 3590
        provider.found[TOKEN] = {"error": "invalid_grant"}
        assert await proxy.upstream_token(principal) is None
        form = {"grant_type": "refresh_token", "client_id": client["client_id"]}
        refused = await exchange(proxy, refresh_token=answer["refresh_token"], **form)
        assert refused.json["error"] == "invalid_grant"

    run(story, provider, clock=clock)


def test_an_unreachable_provider_revokes_nothing() -> None:
    provider, clock = a_provider(), Clock()

    async def story(proxy: OAuthProxy) -> None:
        client = await register(proxy)
        answer = await tokens_of(proxy, Browser(proxy), client["client_id"])
        principal = await proxy.verify({"authorization": f"Bearer {answer['access_token']}"})
        assert principal is not None
        clock.now += 3590
        kept = provider.found.pop(TOKEN)
        with pytest.raises(AuthError, match="cannot be reached"):
            await proxy.upstream_token(principal)
        provider.found[TOKEN] = kept
        assert await proxy.upstream_token(principal) == "upstream-secret-token"

    run(story, provider, clock=clock)


async def test_the_store_holds_no_readable_token_of_the_provider(tmp_path: Path) -> None:
    path = str(tmp_path / "proxy.db")

    proxy = make_proxy(a_provider(), store=path)
    client = await register(proxy)
    answer = await tokens_of(proxy, Browser(proxy), client["client_id"])
    principal = await proxy.verify({"authorization": f"Bearer {answer['access_token']}"})
    assert principal is not None
    await proxy.aclose()
    kept = contents(tmp_path)
    assert [token for token in (b"upstream-secret-token", b"upstream-refresh") if token in kept] == []
    other = make_proxy(a_provider(), store=path, client_secret="another")
    assert await other.upstream_token(principal) is None
    await other.aclose()


# --- setting up -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["upstream_authorize", "upstream_token"])
def test_a_provider_url_must_be_https(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        make_proxy(a_provider(), **{name: "http://login.provider.example/x"})


def test_an_unknown_option_of_a_proxy_is_an_error() -> None:
    with pytest.raises(TypeError, match="users"):
        make_proxy(a_provider(), users={})


def test_a_proxy_is_an_authorization_server_to_others() -> None:
    proxy: AuthorizationServer = make_proxy(a_provider())
    assert proxy.metadata()["issuer"] == ISSUER
    assert "/callback" in proxy.routes()
    assert CALLBACK not in proxy.routes()
