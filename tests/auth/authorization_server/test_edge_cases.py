"""Edge cases of the authorization server: slow and broken requests, unavailable keys, its lifespan."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from tests.auth.authorization_server.support import (
    CALLBACK,
    ISSUER,
    RESOURCE,
    VERIFIER,
    Browser,
    Clock,
    Documents,
    ask,
    authorize_url,
    exchange,
    make_server,
    register,
)
from tests.support import run_async
from trunkline.auth.authorization_server import web
from trunkline.auth.authorization_server.oauth_proxy import OAuthProxy
from trunkline.auth.authorization_server.server import AuthorizationServer
from trunkline.auth.authorization_server.storage import OAuthClient
from trunkline.auth.authorization_server.web import RateLimiter
from trunkline.errors import AuthError, ConfigError

ASSERTED = {"client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}
Message = MutableMapping[str, Any]


def run(work: Callable[[AuthorizationServer], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        server = make_server(**options)
        await work(server)
        await server.aclose()

    run_async(main())


async def answered(server: AuthorizationServer, messages: list[Message], **head: str) -> int:
    """Send a body in pieces, and then nothing more; give the status."""
    headers = {"content-type": "application/json", "host": "auth.example.com", **head}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/register",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await server(scope, receive, send)
    status: int = sent[0]["status"]
    return status


# --- bodies and queries -----------------------------------------------------------------------------------------------


def test_a_body_may_arrive_in_pieces() -> None:
    async def story(server: AuthorizationServer) -> None:
        body = json.dumps({"redirect_uris": [CALLBACK]}).encode()
        pieces: list[Message] = [
            {"type": "http.request", "body": body[:5], "more_body": True},
            {"type": "http.request", "body": body[5:]},
        ]
        assert await answered(server, pieces) == 201

    run(story)


def test_a_body_that_ends_early_is_refused() -> None:
    async def story(server: AuthorizationServer) -> None:
        assert await answered(server, [{"type": "http.disconnect"}]) == 400

    run(story)


def test_a_body_that_never_arrives_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "BODY_SECONDS", 0.01)

    async def story(server: AuthorizationServer) -> None:
        assert await answered(server, []) == 408

    run(story)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param("client_id=a&client_id=b", 400, id="twice"),
        pytest.param("client_id=%ff", 400, id="no UTF-8"),
        pytest.param("&".join(f"p{n}=1" for n in range(100)), 400, id="too many"),
        pytest.param("client_id=" + "x" * 20_000, 414, id="too long"),
    ],
)
def test_an_invalid_link_is_answered_with_a_page(query: str, status: int) -> None:
    async def story(server: AuthorizationServer) -> None:
        response = await Browser(server).get(f"{ISSUER}/authorize?{query}")
        assert response.status == status
        assert response.headers["content-type"].startswith("text/html")

    run(story)


def test_each_cookie_may_have_its_own_header() -> None:
    async def story(server: AuthorizationServer) -> None:
        client = await register(server)
        browser = Browser(server)
        await browser.allow(await browser.get(authorize_url(client["client_id"])))
        lines = [("cookie", f"{name}={value}") for name, value in {"a": "1", **browser.jar, "z": "2"}.items()]
        page = await ask(server, "GET", authorize_url(client["client_id"]), lines=lines)
        assert "Signed in as" in page.text

    run(story)


# --- requests ---------------------------------------------------------------------------------------------------------


def test_auto_approve_needs_no_consent() -> None:
    issuer = "http://127.0.0.1:8123"

    async def story(server: AuthorizationServer) -> None:
        client = await register(server, issuer)
        response = await Browser(server, issuer).get(authorize_url(client["client_id"], issuer, resource=None))
        assert (response.status, response.answer["iss"]) == (303, issuer)

    run(story, issuer=issuer, users=None, auto_approve="ada")


def test_the_only_redirect_uri_may_be_omitted() -> None:
    async def story(server: AuthorizationServer) -> None:
        client = await register(server)
        assert (await Browser(server).get(authorize_url(client["client_id"], redirect_uri=None))).status == 200

    run(story)


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"state": "x" * 5000}, "invalid_request"), ({"client_id": "nightly"}, "unauthorized_client")],
)
def test_more_invalid_requests_are_reported_to_a_configured_client(changes: dict[str, str], error: str) -> None:
    clients = [
        OAuthClient(client_id="known", redirect_uris=(CALLBACK,)),
        OAuthClient(
            client_id="nightly",
            client_secret="s" * 32,
            redirect_uris=(CALLBACK,),
            grant_types=("client_credentials",),
        ),
    ]

    async def story(server: AuthorizationServer) -> None:
        response = await Browser(server).get(authorize_url(**{"client_id": "known", **changes}))
        assert response.answer["error"] == error

    run(story, clients=clients)


def test_an_application_without_name_and_scopes_has_a_page_too() -> None:
    async def story(server: AuthorizationServer) -> None:
        client = await register(server, client_name="")
        page = await Browser(server).get(authorize_url(client["client_id"], scope="anything"))
        assert "An unnamed application" in page.text
        assert "scopes_supported" not in server.metadata()

    run(story, scopes=())


def test_a_scope_without_a_description_is_shown_as_it_is() -> None:
    async def story(server: AuthorizationServer) -> None:
        client = await register(server)
        page = await Browser(server).get(authorize_url(client["client_id"]))
        assert "<li><code>files:read</code></li>" in page.text
        assert server.required_scopes == ("files:read",)

    run(story, scopes=["files:read"], required_scopes=["files:read"])


# --- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"client_assertion": "x"}, "invalid_client"),
        ({"client_assertion": "a.b.c"}, "invalid_client"),
        ({"client_assertion": "e30.e30.e30"}, "invalid_client"),
        ({"client_assertion": "e30.!!!.e30", "client_id": "nightly"}, "invalid_client"),
        ({"client_assertion": "e30.e30.e30", "client_id": "nightly"}, "invalid_request"),
        ({"client_assertion": "e30.e30.e30", "client_id": "nightly", **ASSERTED}, "invalid_client"),
    ],
)
def test_an_invalid_assertion_is_refused(form: dict[str, str], error: str) -> None:
    machine = OAuthClient(client_id="nightly", client_secret="s" * 32, grant_types=("client_credentials",))

    async def story(server: AuthorizationServer) -> None:
        response = await exchange(server, grant_type="client_credentials", **form)
        assert response.json["error"] == error

    run(story, clients=[machine])


def test_the_client_id_must_match_the_credentials() -> None:
    machine = OAuthClient(client_id="nightly", client_secret="s" * 32, grant_types=("client_credentials",))
    auth = "Basic " + base64.b64encode(b"nightly:" + b"s" * 32).decode()

    async def story(server: AuthorizationServer) -> None:
        response = await exchange(server, auth=auth, grant_type="client_credentials", client_id="daily")
        assert response.json["error"] == "invalid_request"

    run(story, clients=[machine])


@pytest.mark.parametrize("found", [None, b"<html>"], ids=["nothing", "a page"])
def test_a_signature_is_refused_if_the_keys_cannot_be_fetched(found: object) -> None:
    keys = "https://robots.example/keys.json"
    robot = OAuthClient(client_id="robot", jwks_uri=keys, grant_types=("client_credentials",))

    async def story(server: AuthorizationServer) -> None:
        form = {"client_id": "robot", "client_assertion": "e30.e30.e30", **ASSERTED}
        response = await exchange(server, grant_type="client_credentials", **form)
        assert (response.status, response.json["error"]) == (401, "invalid_client")

    run(story, clients=[robot], fetcher=Documents({} if found is None else {keys: found}))


def test_a_client_may_register_its_keys() -> None:
    from joserfc.jwk import ECKey

    public = {"keys": [ECKey.generate_key("P-256").as_dict(private=False)]}

    async def story(server: AuthorizationServer) -> None:
        inline = await register(server, token_endpoint_auth_method="private_key_jwt", jwks=public, scope="files:read")
        assert (inline["jwks"], inline["scope"]) == (public, "files:read")
        address = "https://app.example.net/keys.json"
        linked = await register(server, token_endpoint_auth_method="private_key_jwt", jwks_uri=address)
        assert linked["jwks_uri"] == address

    run(story)


def test_client_credentials_need_a_resource_of_this_server() -> None:
    machine = OAuthClient(client_id="nightly", client_secret="s" * 32, grant_types=("client_credentials",))

    async def story(server: AuthorizationServer) -> None:
        proof = {"client_id": "nightly", "client_secret": "s" * 32, "grant_type": "client_credentials"}
        response = await exchange(server, resource="https://other.example.com/mcp", **proof)
        assert response.json["error"] == "invalid_target"

    run(story, clients=[machine])


def test_a_revocation_needs_a_token() -> None:
    async def story(server: AuthorizationServer) -> None:
        client = await register(server)
        response = await exchange(server, path="revoke", client_id=client["client_id"])
        assert response.json["error"] == "invalid_request"

    run(story)


def test_a_client_removed_before_the_decision_gets_nothing() -> None:
    clock = Clock()

    async def story(server: AuthorizationServer) -> None:
        client = await register(server)
        browser = Browser(server)
        clock.now += 3500
        page = await browser.get(authorize_url(client["client_id"]))
        clock.now += 200
        assert (await browser.allow(page)).status == 400

    run(story, clock=clock)


def test_a_function_that_returns_no_subject_is_an_error() -> None:
    async def story(server: AuthorizationServer) -> None:
        client = await register(server)
        browser = Browser(server)
        page = await browser.get(authorize_url(client["client_id"]))
        with pytest.raises(ConfigError, match="subject"):
            await browser.allow(page)

    run(story, users=lambda name, password: "client:nightly")


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_the_cache_of_verified_tokens_is_bounded_and_checks_every_new_token() -> None:
    machine = OAuthClient(client_id="nightly", client_secret="s" * 32, grant_types=("client_credentials",))

    async def story(server: AuthorizationServer) -> None:
        proof = {"client_id": "nightly", "client_secret": "s" * 32, "grant_type": "client_credentials"}
        token = (await exchange(server, resource=RESOURCE, **proof)).json["access_token"]
        headers = {"authorization": f"Bearer {token}"}
        first, second = await server.verify(headers), await server.verify(headers)
        assert first is second
        assert first is not None
        assert (
            await exchange(server, path="revoke", token=token, client_id="nightly", client_secret="s" * 32)
        ).status == 200
        with pytest.raises(AuthError):
            await server.verify(headers)

    run(story, clients=[machine])


# --- its lifespan -----------------------------------------------------------------------------------------------------


def test_the_authorization_server_is_an_asgi_application_with_a_lifespan() -> None:
    async def main() -> list[str]:
        server = make_server()
        coming: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        said: list[str] = []

        async def receive() -> Message:
            return coming.pop(0)

        async def send(message: Message) -> None:
            said.append(message["type"])

        await server({"type": "lifespan"}, receive, send)
        with pytest.raises(ConfigError):
            await server({"type": "websocket"}, receive, send)
        return said

    assert run_async(main()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:8123", 200), ("[::1]:8123", 200), ("evil.example", 403), ("[", 403), ("[::1", 403), ("", 403)],
)
def test_any_loopback_name_is_accepted_on_loopback(host: str, status: int) -> None:
    async def story(server: AuthorizationServer) -> None:
        response = await ask(server, "GET", "http://127.0.0.1:8123/jwks", headers={"host": host})
        assert response.status == status

    run(story, issuer="http://127.0.0.1:8123")


def test_a_head_request_is_answered_without_a_body() -> None:
    async def story(server: AuthorizationServer) -> None:
        response = await ask(server, "HEAD", f"{ISSUER}/jwks")
        assert (response.status, response.body) == (200, b"")
        assert int(response.headers["content-length"]) > 0

    run(story)


async def test_the_counters_of_the_rate_limiter_are_bounded() -> None:
    clock = Clock()
    throttle = RateLimiter("tests", 1, 60, clock=clock)
    assert [await throttle.count(f"{n}") for n in range(4096)] == [0] * 4096
    assert await throttle.count("one more") > 0
    clock.now += 60
    assert await throttle.count("one more") == 0


# --- the proxy --------------------------------------------------------------------------------------------------------


def make_proxy(fetcher: Any, **options: Any) -> OAuthProxy:
    return OAuthProxy(
        issuer=ISSUER,
        upstream_authorize="https://p.example/authorize",
        upstream_token="https://p.example/token",
        client_id="our-id",
        client_secret=None,
        store=":memory:",
        upstream_fetcher=fetcher,
        **options,
    )


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"access_token": "t"}, id="no ID token"),
        pytest.param({"access_token": "t", "id_token": "a.!.c"}, id="no readable ID token"),
        pytest.param({"access_token": "t", "id_token": "a.e30.c"}, id="an empty ID token"),
    ],
)
async def test_a_sign_in_without_a_subject_of_the_provider_fails(answer: dict[str, str]) -> None:
    proxy = make_proxy(Documents({"https://p.example/token": answer}))
    client = await register(proxy)
    browser = Browser(proxy)
    page = await browser.get(authorize_url(client["client_id"]))
    sent = await browser.post({"request": page.sealed, "decision": "allow"})
    state = sent.text.partition("state=")[2].partition("&amp;")[0]
    back = await browser.get(f"{ISSUER}/callback?code=c&state={state}")
    assert back.answer["error"] == "server_error"
    await proxy.aclose()


async def test_an_invalid_callback_is_answered_with_a_page() -> None:
    proxy = make_proxy(Documents())
    assert (await Browser(proxy).get(f"{ISSUER}/callback?state=a&state=b")).status == 400


async def test_concurrent_sign_ins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.auth.authorization_server.oauth_proxy._STATES", 1)

    proxy = make_proxy(Documents())
    client = await register(proxy)

    async def sign_in() -> int:
        browser = Browser(proxy)
        page = await browser.get(authorize_url(client["client_id"]))
        return (await browser.post({"request": page.sealed, "decision": "allow"})).status

    assert [await sign_in(), await sign_in()] == [200, 503]


async def test_a_provider_token_without_an_expiry_is_not_refreshed() -> None:
    provider = Documents({"https://p.example/token": {"access_token": "t"}})

    proxy = make_proxy(provider, identify=lambda answer: "ada")
    client = await register(proxy)
    browser = Browser(proxy)
    page = await browser.get(authorize_url(client["client_id"]))
    sent = await browser.post({"request": page.sealed, "decision": "allow"})
    state = sent.text.partition("state=")[2].partition("&amp;")[0]
    code = (await browser.get(f"{ISSUER}/callback?code=c&state={state}")).answer["code"]
    form = {"grant_type": "authorization_code", "client_id": client["client_id"], "code_verifier": VERIFIER}
    token = (await exchange(proxy, code=code, **form)).json["access_token"]
    principal = await proxy.verify({"authorization": f"Bearer {token}"})
    assert principal is not None
    assert await proxy.upstream_token(principal) == "t"
    assert provider.asked == ["POST https://p.example/token"]
    assert "client_secret" not in provider.sent[0]
    await proxy.aclose()


async def test_the_provider_is_called_by_the_guarded_fetcher() -> None:
    proxy = OAuthProxy(
        issuer=ISSUER,
        upstream_authorize="https://p.example/authorize",
        upstream_token="http://127.0.0.1:1/token",
        client_id="our-id",
        client_secret="s",
        store=":memory:",
    )
    client = await register(proxy)
    browser = Browser(proxy)
    page = await browser.get(authorize_url(client["client_id"]))
    sent = await browser.post({"request": page.sealed, "decision": "allow"})
    state = sent.text.partition("state=")[2].partition("&amp;")[0]
    back = await browser.get(f"{ISSUER}/callback?code=c&state={state}")
    assert back.answer["error"] == "server_error"
    await proxy.aclose()
