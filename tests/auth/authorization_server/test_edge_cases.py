"""Edge cases of the authorization server: slow and broken requests, unavailable keys, its lifespan."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from tests.auth.authorization_server.support import (
    CALLBACK,
    ISSUER,
    OWN_RECORDS,
    RESOURCE,
    Browser,
    Clock,
    Documents,
    Start,
    ask,
    authorize_url,
    exchange,
    make_server,
    register,
)
from trunkline.auth.authorization_server import web
from trunkline.auth.authorization_server.records import OAuthClient
from trunkline.auth.authorization_server.server import AuthorizationServer
from trunkline.errors import AuthError, ConfigError

ASSERTED = {"client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}
Message = MutableMapping[str, Any]

pytestmark = OWN_RECORDS


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


async def test_a_body_may_arrive_in_pieces(server: AuthorizationServer) -> None:
    body = json.dumps({"redirect_uris": [CALLBACK]}).encode()
    pieces: list[Message] = [
        {"type": "http.request", "body": body[:5], "more_body": True},
        {"type": "http.request", "body": body[5:]},
    ]
    assert await answered(server, pieces) == 201


async def test_a_body_that_ends_early_is_refused(server: AuthorizationServer) -> None:
    assert await answered(server, [{"type": "http.disconnect"}]) == 400


async def test_a_body_that_never_arrives_times_out(
    monkeypatch: pytest.MonkeyPatch, server: AuthorizationServer
) -> None:
    monkeypatch.setattr(web, "BODY_SECONDS", 0.01)
    assert await answered(server, []) == 408


@pytest.mark.parametrize(
    ("query", "status"),
    [
        pytest.param("client_id=a&client_id=b", 400, id="twice"),
        pytest.param("client_id=%ff", 400, id="no UTF-8"),
        pytest.param("&".join(f"p{n}=1" for n in range(100)), 400, id="too many"),
        pytest.param("client_id=" + "x" * 20_000, 414, id="too long"),
    ],
)
async def test_an_invalid_link_is_answered_with_a_page(query: str, status: int, server: AuthorizationServer) -> None:
    response = await Browser(server).get(f"{ISSUER}/authorize?{query}")
    assert response.status == status
    assert response.headers["content-type"].startswith("text/html")


async def test_each_cookie_may_have_its_own_header(server: AuthorizationServer) -> None:
    client = await register(server)
    browser = Browser(server)
    await browser.allow(await browser.get(authorize_url(client["client_id"])))
    lines = [("cookie", f"{name}={value}") for name, value in {"a": "1", **browser.jar, "z": "2"}.items()]
    page = await ask(server, "GET", authorize_url(client["client_id"]), lines=lines)
    assert "Signed in as" in page.text


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_auto_approve_needs_no_consent(start: Start) -> None:
    issuer = "http://127.0.0.1:8123"
    server = start(issuer=issuer, users=None, auto_approve="ada")
    client = await register(server, issuer)
    response = await Browser(server, issuer).get(authorize_url(client["client_id"], issuer, resource=None))
    assert (response.status, response.answer["iss"]) == (303, issuer)


async def test_the_only_redirect_uri_may_be_omitted(server: AuthorizationServer) -> None:
    assert (await Browser(server).visit(redirect_uri=None)).status == 200


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"state": "x" * 5000}, "invalid_request"), ({"client_id": "nightly"}, "unauthorized_client")],
)
async def test_more_invalid_requests_are_reported_to_a_configured_client(
    changes: dict[str, str], error: str, start: Start
) -> None:
    clients = [
        OAuthClient(client_id="known", redirect_uris=(CALLBACK,)),
        OAuthClient(
            client_id="nightly",
            client_secret="s" * 32,
            redirect_uris=(CALLBACK,),
            grant_types=("client_credentials",),
        ),
    ]
    server = start(clients=clients)
    response = await Browser(server).get(authorize_url(**{"client_id": "known", **changes}))
    assert response.answer["error"] == error


async def test_an_application_without_name_and_scopes_has_a_page_too(start: Start) -> None:
    server = start(scopes=())
    client = await register(server, client_name="")
    page = await Browser(server).get(authorize_url(client["client_id"], scope="anything"))
    assert "An unnamed application" in page.text
    assert "scopes_supported" not in server.metadata()


async def test_a_scope_without_a_description_is_shown_as_it_is(start: Start) -> None:
    server = start(scopes=["files:read"], required_scopes=["files:read"])
    page = await Browser(server).visit()
    assert "<li><code>files:read</code></li>" in page.text
    assert server.required_scopes == ("files:read",)


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
async def test_an_invalid_assertion_is_refused(form: dict[str, str], error: str, start: Start) -> None:
    machine = OAuthClient(client_id="nightly", client_secret="s" * 32, grant_types=("client_credentials",))
    server = start(clients=[machine])
    response = await exchange(server, grant_type="client_credentials", **form)
    assert response.json["error"] == error


async def test_the_client_id_must_match_the_credentials(start: Start) -> None:
    machine = OAuthClient(client_id="nightly", client_secret="s" * 32, grant_types=("client_credentials",))
    auth = "Basic " + base64.b64encode(b"nightly:" + b"s" * 32).decode()
    server = start(clients=[machine])
    response = await exchange(server, auth=auth, grant_type="client_credentials", client_id="daily")
    assert response.json["error"] == "invalid_request"


@pytest.mark.parametrize("found", [None, b"<html>"], ids=["nothing", "a page"])
async def test_a_signature_is_refused_if_the_keys_cannot_be_fetched(found: object, start: Start) -> None:
    keys = "https://robots.example/keys.json"
    robot = OAuthClient(client_id="robot", jwks_uri=keys, grant_types=("client_credentials",))
    server = start(clients=[robot], fetcher=Documents({} if found is None else {keys: found}))
    form = {"client_id": "robot", "client_assertion": "e30.e30.e30", **ASSERTED}
    response = await exchange(server, grant_type="client_credentials", **form)
    assert (response.status, response.json["error"]) == (401, "invalid_client")


async def test_a_client_may_register_its_keys(server: AuthorizationServer) -> None:
    from joserfc.jwk import ECKey

    public = {"keys": [ECKey.generate_key("P-256").as_dict(private=False)]}
    inline = await register(server, token_endpoint_auth_method="private_key_jwt", jwks=public, scope="files:read")
    assert (inline["jwks"], inline["scope"]) == (public, "files:read")
    address = "https://app.example.net/keys.json"
    linked = await register(server, token_endpoint_auth_method="private_key_jwt", jwks_uri=address)
    assert linked["jwks_uri"] == address


async def test_client_credentials_need_a_resource_of_this_server(start: Start) -> None:
    machine = OAuthClient(client_id="nightly", client_secret="s" * 32, grant_types=("client_credentials",))
    server = start(clients=[machine])
    proof = {"client_id": "nightly", "client_secret": "s" * 32, "grant_type": "client_credentials"}
    response = await exchange(server, resource="https://other.example.com/mcp", **proof)
    assert response.json["error"] == "invalid_target"


async def test_a_revocation_needs_a_token(server: AuthorizationServer) -> None:
    client = await register(server)
    response = await exchange(server, path="revoke", client_id=client["client_id"])
    assert response.json["error"] == "invalid_request"


async def test_a_client_removed_before_the_decision_gets_nothing(start: Start) -> None:
    clock = Clock()
    browser = Browser(start(clock=clock))
    await browser.visit()
    clock.now += 3500
    page = await browser.visit()
    clock.now += 200
    assert (await browser.allow(page)).status == 400


async def test_a_function_that_returns_no_subject_is_an_error(start: Start) -> None:
    browser = Browser(start(users=lambda name, password: "client:nightly"))
    page = await browser.visit()
    with pytest.raises(ConfigError, match="subject"):
        await browser.allow(page)


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_the_cache_of_verified_tokens_is_bounded_and_checks_every_new_token(start: Start) -> None:
    machine = OAuthClient(client_id="nightly", client_secret="s" * 32, grant_types=("client_credentials",))
    server = start(clients=[machine])
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


# --- its lifespan -----------------------------------------------------------------------------------------------------


async def test_the_authorization_server_is_an_asgi_application_with_a_lifespan() -> None:
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
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_head_request_is_answered_without_a_body(server: AuthorizationServer) -> None:
    response = await ask(server, "HEAD", f"{ISSUER}/jwks")
    assert (response.status, response.body) == (200, b"")
    assert int(response.headers["content-length"]) > 0
