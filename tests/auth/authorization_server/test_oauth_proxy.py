"""The OAuth proxy: every client needs its own consent, in one browser, and sees no token of the provider."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.auth.authorization_server.support import (
    ISSUER,
    VERIFIER,
    Browser,
    Clock,
    Documents,
    OpenFile,
    Response,
    authorize_url,
    exchange,
    in_turn,
    register,
    written,
)
from tests.support import run_async
from trunkline.auth.authorization_server.oauth_proxy import OAuthProxy
from trunkline.auth.authorization_server.upstream_tokens import UpstreamTokens
from trunkline.auth.verifiers import InvalidToken
from trunkline.errors import AuthError, ConfigError
from trunkline.protocol.caller import Principal
from trunkline.store.interface import Step

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
        "scopes": {"files:read": "Read your files", "files:write": "Change your files"},
        "upstream_fetcher": provider,
        "upstream_userinfo": USERINFO,
        **options,
    }
    return in_turn(OAuthProxy, given)


def a_provider(**answer: Any) -> Documents:
    return Documents({TOKEN: {**UPSTREAM, **answer}, USERINFO: {"id": 42, "login": "ada"}})


StartProxy = Callable[..., OAuthProxy]


@pytest.fixture
def start_proxy(records: None) -> Iterator[StartProxy]:
    """Make proxies of a provider, and close them after the test."""
    proxies: list[OAuthProxy] = []

    def make(provider: Documents | None = None, **options: Any) -> OAuthProxy:
        proxies.append(make_proxy(provider or a_provider(), **options))
        return proxies[-1]

    yield make
    for proxy in proxies:
        run_async(proxy.aclose())


@pytest.fixture
def proxy(start_proxy: StartProxy) -> OAuthProxy:
    """A proxy of the usual provider."""
    return start_proxy()


def onward(page: Response) -> dict[str, str]:
    """Return the parameters of the URL that a page redirects to."""
    found = re.search(r'content="0; url=([^"]+)"', page.text)
    assert found is not None, page.text
    url = html.unescape(found[1])
    assert url.startswith(f"{AUTHORIZE}?")
    return dict(parse_qsl(urlsplit(url).query))


async def sent_on(browser: Browser) -> dict[str, str]:
    """Allow a client, and give what goes to the provider."""
    page = await browser.visit()
    assert page.status == 200, page.text
    return onward(await browser.post({"request": page.sealed, "decision": "allow"}))


async def come_back(browser: Browser, **answer: str) -> Response:
    return await browser.get(f"{ISSUER}/callback?{urlencode(answer)}")


async def sign_in(browser: Browser, **answer: str) -> Response:
    """Allow a client, and come back from the provider with an answer."""
    return await come_back(browser, state=(await sent_on(browser))["state"], **(answer or {"code": "upstream-code"}))


async def redeemed(browser: Browser, back: Response) -> Response:
    """Redeem the code that a browser brought back."""
    form = {"grant_type": "authorization_code", "client_id": browser.client_id, "code_verifier": VERIFIER}
    return await exchange(browser.app, code=back.answer["code"], **form)


async def tokens_of(browser: Browser) -> dict[str, Any]:
    response = await redeemed(browser, await sign_in(browser))
    assert response.status == 200, response.text
    return response.json


async def principal_of(browser: Browser) -> Principal:
    """Sign a user in; return the principal of a call with the token."""
    token = (await tokens_of(browser))["access_token"]
    principal = await browser.app.verify({"authorization": f"Bearer {token}"})
    assert isinstance(principal, Principal)
    return principal


# --- the redirect -----------------------------------------------------------------------------------------------------


async def test_a_user_signs_in_at_the_provider_and_the_client_gets_our_token(start_proxy: StartProxy) -> None:
    provider = a_provider()
    browser = Browser(start_proxy(provider))
    principal = await principal_of(browser)
    assert (principal.subject, principal.issuer, principal.client) == ("42", ISSUER, browser.client_id)
    assert await browser.app.upstream_token(principal) == "upstream-secret-token"
    assert provider.sent[0] == {
        "grant_type": "authorization_code",
        "code": "upstream-code",
        "code_verifier": provider.sent[0]["code_verifier"],
        "redirect_uri": f"{ISSUER}/callback",
        "client_id": "our-id",
        "client_secret": "our-secret",
    }


async def test_no_token_of_the_provider_reaches_a_client(proxy: OAuthProxy) -> None:
    browser = Browser(proxy)
    back = await sign_in(browser)
    assert "upstream" not in back.location + back.text + (await redeemed(browser, back)).text
    with pytest.raises(InvalidToken):
        await proxy.verify({"authorization": "Bearer upstream-secret-token"})


async def test_pkce_is_used_with_separate_verifiers_for_client_and_provider(start_proxy: StartProxy) -> None:
    provider = a_provider()
    browser = Browser(start_proxy(provider))
    sent = await sent_on(browser)
    assert (sent["code_challenge_method"], len(sent["code_challenge"])) == ("S256", 43)
    assert sent["code_challenge"] not in authorize_url(browser.client_id)
    await come_back(browser, code="c", state=sent["state"])
    assert provider.sent[0]["code_verifier"] not in (VERIFIER, sent["code_challenge"])


async def test_the_configured_parameters_are_sent_to_the_provider(start_proxy: StartProxy) -> None:
    proxy = start_proxy(upstream_scopes=["read:user", "repo"], upstream_parameters={"access_type": "offline"})
    sent = await sent_on(Browser(proxy))
    assert (sent["scope"], sent["access_type"]) == ("read:user repo", "offline")
    assert (sent["client_id"], sent["redirect_uri"]) == ("our-id", f"{ISSUER}/callback")
    assert sent["state"] != "st4te"


async def test_the_proxy_can_authenticate_in_the_header(start_proxy: StartProxy) -> None:
    provider = a_provider()
    await tokens_of(Browser(start_proxy(provider, upstream_basic=True)))
    expected = base64.b64encode(b"our-id:our-secret").decode()
    assert provider.options[0]["headers"]["authorization"] == f"Basic {expected}"
    assert "client_secret" not in provider.sent[0]


async def test_the_provider_is_called_by_the_guarded_fetcher(start_proxy: StartProxy) -> None:
    proxy = start_proxy(upstream_token="http://127.0.0.1:1/token", upstream_fetcher=None)
    assert (await sign_in(Browser(proxy))).answer["error"] == "server_error"


# --- the user ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "issuer", "known"),
    [
        pytest.param({"id_token": id_token()}, None, True, id="by its ID token"),
        pytest.param({"id_token": id_token()}, "https://login.provider.example", True, id="of the right issuer"),
        pytest.param({"id_token": id_token()}, "https://y.example", False, id="another issuer"),
        pytest.param({"id_token": id_token(aud="other-id")}, None, False, id="of another client"),
        pytest.param({"id_token": id_token(exp=1_600_000_000)}, None, False, id="expired"),
        pytest.param({"id_token": id_token(sub=None)}, None, False, id="no subject"),
        pytest.param({"id_token": id_token(sub="client:nightly")}, None, False, id="in a client's name"),
        pytest.param({}, None, False, id="no ID token"),
        pytest.param({"id_token": "a.!.c"}, None, False, id="no readable ID token"),
        pytest.param({"id_token": "a.e30.c"}, None, False, id="an empty ID token"),
    ],
)
async def test_the_provider_determines_the_user(
    answer: dict[str, Any], issuer: str | None, known: bool, start_proxy: StartProxy
) -> None:
    proxy = start_proxy(a_provider(**answer), upstream_userinfo=None, clock=Clock(), upstream_issuer=issuer)
    back = await sign_in(Browser(proxy))
    assert ("code" in back.answer) is known
    assert (back.answer.get("error") == "server_error") is not known


async def test_a_custom_function_can_determine_the_user(start_proxy: StartProxy) -> None:
    proxy = start_proxy(identify=lambda answer: f"of {answer['access_token']}")
    assert (await principal_of(Browser(proxy))).subject == "of upstream-secret-token"


@pytest.mark.parametrize("found", [b"<html>", b"[]", {"error": "bad_verification_code"}, {"access_token": 7}], ids=repr)
async def test_an_invalid_answer_of_the_provider_fails_the_sign_in(found: object, start_proxy: StartProxy) -> None:
    back = await sign_in(Browser(start_proxy(Documents({TOKEN: found}))))
    assert (back.answer["error"], back.answer["state"]) == ("server_error", "st4te")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": "access_denied"}, "access_denied"),
        ({"error": "<script>", "error_description": "<script>"}, "server_error"),
        ({"code": ""}, "server_error"),
    ],
)
async def test_a_refusal_of_the_provider_reaches_the_client_in_our_words(
    answer: dict[str, str], error: str, proxy: OAuthProxy
) -> None:
    back = await sign_in(Browser(proxy), **answer)
    assert (back.answer["error"], back.answer["iss"]) == (error, ISSUER)
    assert "%3Cscript" not in back.location


async def test_an_answer_of_another_provider_is_refused(start_proxy: StartProxy) -> None:
    provider = a_provider()
    proxy = start_proxy(provider, upstream_issuer="https://login.provider.example")
    back = await sign_in(Browser(proxy), code="c", iss="https://evil.example")
    assert (back.status, provider.asked) == (400, [])


# --- FastMCP GHSA-c2jp-c369-7pvx: the confused deputy -----------------------------------------------------------------


async def test_a_new_client_needs_consent_before_the_provider_is_involved(proxy: OAuthProxy) -> None:
    browser = Browser(proxy)
    await tokens_of(browser)
    stranger = await register(proxy, client_name="Stranger", redirect_uris=["https://evil.example/cb"])
    url = authorize_url(stranger["client_id"], redirect_uri="https://evil.example/cb")
    page = await browser.get(url, site="none")
    assert (page.status, "location" in page.headers) == (200, False)
    assert '<dd class="host">evil.example</dd>' in page.text
    assert "login.provider.example" in page.text
    assert "state=" not in page.text


async def test_a_denied_consent_never_reaches_the_provider(start_proxy: StartProxy) -> None:
    provider = a_provider()
    browser = Browser(start_proxy(provider))
    page = await browser.visit()
    response = await browser.post({"request": page.sealed, "decision": "deny"})
    assert (response.answer["error"], provider.asked) == ("access_denied", [])


# --- FastMCP CVE-2026-27124, GHSA-rww4, GHSA-6x8h: consent and browser ------------------------------------------------


async def test_a_login_cannot_be_finished_by_another_browser(start_proxy: StartProxy) -> None:
    provider = a_provider()
    proxy = start_proxy(provider)
    one, other = Browser(proxy), Browser(proxy)
    state = (await sent_on(one))["state"]
    await sent_on(other)
    stolen = await come_back(other, code="c", state=state)
    assert (stolen.status, "location" in stolen.headers) == (403, False)
    assert (await come_back(Browser(proxy), code="c", state=state)).status == 403
    assert provider.asked == []
    assert "code" in (await come_back(one, code="c", state=state)).answer


@pytest.mark.parametrize("site", ["cross-site", "same-site", None])
async def test_consent_is_always_asked_if_another_site_leads_to_the_page(site: str | None, proxy: OAuthProxy) -> None:
    browser = Browser(proxy)
    await sent_on(browser)
    page = await browser.visit(site=site)
    assert (page.status, "location" in page.headers) == (200, False)


async def test_a_consent_is_remembered_for_a_month_for_the_same_browser_client_and_scopes(
    start_proxy: StartProxy,
) -> None:
    clock = Clock()
    proxy = start_proxy(clock=clock)
    browser = Browser(proxy)
    await tokens_of(browser)
    again = await browser.visit(site="none")
    assert again.status == 303
    assert again.location.startswith(f"{AUTHORIZE}?")
    assert (await browser.visit(scope="files:read files:write", site="none")).status == 200
    assert (await Browser(proxy).get(authorize_url(browser.client_id), site="none")).status == 200
    clock.now += 30 * 24 * 3600 + 1
    assert (await browser.visit(site="none")).status == 200


# --- state ------------------------------------------------------------------------------------------------------------


async def test_a_state_is_accepted_once(proxy: OAuthProxy) -> None:
    browser = Browser(proxy)
    sent = await sent_on(browser)
    assert "code" in (await come_back(browser, code="c", state=sent["state"])).answer
    again = await come_back(browser, code="c", state=sent["state"])
    assert (again.status, "location" in again.headers) == (400, False)


async def test_a_state_expires_after_ten_minutes(start_proxy: StartProxy) -> None:
    clock = Clock()
    browser = Browser(start_proxy(clock=clock))
    sent = await sent_on(browser)
    clock.now += 600
    assert (await come_back(browser, code="c", state=sent["state"])).status == 400


@pytest.mark.parametrize("state", ["", "st4te", "x" * 43, "<script>alert(1)</script>"])
async def test_a_state_that_is_not_ours_is_refused(state: str, proxy: OAuthProxy) -> None:
    browser = Browser(proxy)
    await sent_on(browser)
    response = await come_back(browser, code="<script>", state=state)
    assert response.status == 400
    assert "<script" not in response.text


async def test_an_invalid_callback_is_answered_with_a_page(proxy: OAuthProxy) -> None:
    assert (await Browser(proxy).get(f"{ISSUER}/callback?state=a&state=b")).status == 400


async def test_concurrent_sign_ins_are_bounded(proxy: OAuthProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.auth.authorization_server.oauth_proxy._STATES", 1)
    await sent_on(Browser(proxy))
    browser = Browser(proxy)
    page = await browser.visit()
    assert (await browser.post({"request": page.sealed, "decision": "allow"})).status == 503


# --- the provider's tokens --------------------------------------------------------------------------------------------


async def test_a_token_of_the_provider_is_refreshed_when_it_is_about_to_end(start_proxy: StartProxy) -> None:
    provider, clock = a_provider(), Clock()
    proxy = start_proxy(provider, clock=clock)
    principal = await principal_of(Browser(proxy))
    clock.now += 3590
    provider.found[TOKEN] = {"access_token": "upstream-second", "expires_in": 3600}
    assert await proxy.upstream_token(principal) == "upstream-second"
    clock.now += 3590
    provider.found[TOKEN] = {"access_token": "upstream-third", "expires_in": 3600}
    assert await proxy.upstream_token(principal) == "upstream-third"
    assert provider.sent[-1]["refresh_token"] == "upstream-refresh"


async def test_a_provider_token_without_an_expiry_is_not_refreshed(start_proxy: StartProxy) -> None:
    provider = Documents({TOKEN: {"access_token": "t"}})
    proxy = start_proxy(provider, identify=lambda answer: "ada", client_secret=None)
    assert await proxy.upstream_token(await principal_of(Browser(proxy))) == "t"
    assert provider.asked == [f"POST {TOKEN}"]
    assert "client_secret" not in provider.sent[0]


async def test_tokens_revoked_by_the_provider_are_revoked_here(start_proxy: StartProxy) -> None:
    provider, clock = a_provider(), Clock()
    browser = Browser(start_proxy(provider, clock=clock))
    answer = await tokens_of(browser)
    principal = await browser.app.verify({"authorization": f"Bearer {answer['access_token']}"})
    clock.now += 3590
    provider.found[TOKEN] = {"error": "invalid_grant"}
    assert await browser.app.upstream_token(principal) is None
    form = {"grant_type": "refresh_token", "client_id": browser.client_id, "refresh_token": answer["refresh_token"]}
    assert (await exchange(browser.app, **form)).json["error"] == "invalid_grant"


async def test_an_unreachable_provider_revokes_nothing(start_proxy: StartProxy) -> None:
    provider, clock = a_provider(), Clock()
    proxy = start_proxy(provider, clock=clock)
    principal = await principal_of(Browser(proxy))
    clock.now += 3590
    answer = provider.found.pop(TOKEN)
    with pytest.raises(AuthError, match="cannot be reached"):
        await proxy.upstream_token(principal)
    provider.found[TOKEN] = answer
    assert await proxy.upstream_token(principal) == "upstream-secret-token"


async def test_a_refresh_that_meets_a_change_of_the_grant_is_tried_again(proxy: OAuthProxy) -> None:
    browser = Browser(proxy)
    answer = await sign_in(browser, code="upstream-code")
    form = {"client_id": browser.client_id, "code": answer.answer["code"], "code_verifier": VERIFIER}
    issued = (await exchange(proxy, grant_type="authorization_code", **form)).json
    renewal, changes = proxy._upstream_tokens.renewal, iter([True])

    async def changed_meanwhile(grant_id: str) -> Sequence[Step]:
        steps = await renewal(grant_id)
        if next(changes, False):
            await proxy._upstream_tokens.replace(grant_id, UpstreamTokens("refreshed", 2.0**53))
        return steps

    proxy._upstream_tokens.renewal = changed_meanwhile  # type: ignore[method-assign]
    form = {"client_id": browser.client_id, "refresh_token": issued["refresh_token"]}
    refreshed = await exchange(proxy, grant_type="refresh_token", **form)
    assert refreshed.status == 200
    principal = await proxy.verify({"authorization": f"Bearer {refreshed.json['access_token']}"})
    assert principal is not None
    assert await proxy.upstream_token(principal) == "refreshed"


async def test_the_store_holds_no_readable_token_of_the_provider(
    start_proxy: StartProxy, tmp_path: Path, open_file: OpenFile
) -> None:
    path = tmp_path / "proxy.db"
    proxy = start_proxy(store=open_file(path))
    principal = await principal_of(Browser(proxy))
    await proxy.aclose()
    stored = written(tmp_path)
    assert [token for token in (b"upstream-secret-token", b"upstream-refresh") if token in stored] == []
    again = start_proxy(store=open_file(path), client_secret="another")
    assert await again.upstream_token(principal) is None


# --- setting up -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["upstream_authorize", "upstream_token"])
def test_a_provider_url_must_be_https(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        make_proxy(a_provider(), **{name: "http://login.provider.example/x"})


def test_an_unknown_option_of_a_proxy_is_an_error() -> None:
    with pytest.raises(TypeError, match="users"):
        make_proxy(a_provider(), users={})
