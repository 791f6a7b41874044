"""The resource server: which requests are accepted, the challenges of the others, and the metadata."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.auth.resource_support import AUDIENCE, ISSUER, FakeFetcher, token, verifier
from tests.transports.http.serving_support import (
    Call,
    SessionClient,
    Workshop,
    ask,
    initialize,
    modern,
    notification,
    request,
    tool,
)
from trunkline import ApiKeys, ConfigError, Context, IntrospectionVerifier, Server, StaticTokens

METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
TOKENS = StaticTokens({"ada-token": {"subject": "ada", "scopes": "a b"}, "bob-token": "bob"})
SSE = {"accept": "text/event-stream", "content-type": None}


def entra(**options: Any) -> Any:
    """A verifier whose audience is no URL, as with some providers."""
    return verifier(audience="api://1234", **options)


# --- accepted requests -----------------------------------------------------------------------------------------------


async def test_a_valid_token_reaches_the_handler_as_a_principal() -> None:
    server = Server("s", auth=verifier())

    @server.tool
    async def who(ctx: Context) -> dict[str, Any]:
        assert ctx.auth is not None
        return {"claims": ctx.auth.claims, "scopes": sorted(ctx.auth.scopes), "client": ctx.client_id}

    call = await modern(server.asgi(), tool("who"), authorization=f"Bearer {token()}").whole()
    found = call.json["result"]["structuredContent"]
    assert (call.status, found["scopes"], found["client"]) == (200, ["files:read", "files:write"], "notebook")
    assert found["claims"]["sub"] == "ada"


async def test_a_handler_cannot_read_the_token() -> None:
    server, seen = Server("s", auth=verifier()), []

    @server.tool
    async def look(ctx: Context) -> str:
        headers = ctx._exchange.admitted.caller.origin.headers or {}
        seen.append((headers.get("authorization"), dict(headers), repr(ctx.auth)))
        return "looked"

    given = token()
    await modern(server.asgi(), tool("look"), authorization=f"Bearer {given}").whole()
    assert seen[0][0] is None
    assert given not in repr(seen)


def everything() -> list[Any]:
    """Every route and verb of an endpoint, as a caller without a session may call it."""
    call = json.dumps(tool("add")).encode()
    routes: list[tuple[str, str, str, dict[str, Any], bytes]] = [
        ("post a stateless request", "POST", "/mcp", {"mcp-protocol-version": "2026-07-28"}, call),
        ("post initialize", "POST", "/mcp", {}, json.dumps(initialize()).encode()),
        ("post to a session", "POST", "/mcp", {"mcp-session-id": "x"}, call),
        ("post a notification", "POST", "/mcp", {}, json.dumps(notification("notifications/initialized")).encode()),
        ("post to the path with a slash", "POST", "/mcp/", {}, call),
        ("post nothing", "POST", "/mcp", {}, b""),
        ("get a session's stream", "GET", "/mcp", {**SSE, "mcp-session-id": "x"}, b""),
        ("get the old stream", "GET", "/mcp", SSE, b""),
        ("get in a stateless revision", "GET", "/mcp", {**SSE, "mcp-protocol-version": "2026-07-28"}, b""),
        ("get as a browser", "GET", "/mcp", {"accept": "text/html"}, b""),
        ("delete a session", "DELETE", "/mcp", {"mcp-session-id": "x"}, b""),
        ("delete nothing", "DELETE", "/mcp", {}, b""),
        ("get the old pair's stream", "GET", "/mcp/sse", SSE, b""),
        ("post to the old pair", "POST", "/mcp/messages", {}, call),
        ("post to the old pair's stream", "POST", "/mcp/sse", {}, call),
    ]
    return [pytest.param(*row, id=name) for name, *row in routes]


@pytest.mark.parametrize(("verb", "path", "headers", "body"), everything())
async def test_every_route_refuses_an_unauthenticated_caller(
    verb: str, path: str, headers: Mapping[str, str | None], body: bytes
) -> None:
    workshop = Workshop(auth=TOKENS)
    app = workshop.asgi()
    for given in (None, "Bearer random", "Bearer", "Basic YTpi", "random", "Bearer ada-token x"):
        call = await ask(app, verb, path, body=body, headers={**headers, "authorization": given}).whole()
        assert (call.status, call.headers["www-authenticate"].split()[0], workshop.count) == (401, "Bearer", 0), given
        assert call.json["error"]["code"] == -32600


@pytest.mark.parametrize("query", [b"access_token=ada-token", b"token=ada-token"])
async def test_a_token_in_the_query_is_not_read(query: bytes) -> None:
    body = json.dumps(tool("add")).encode()
    call = await ask(Workshop(auth=TOKENS).asgi(), body=body, query=query).whole()
    assert call.status == 401


async def test_a_token_in_the_body_is_not_read() -> None:
    call = await modern(Workshop(auth=TOKENS).asgi(), tool("add", access_token="ada-token")).whole()
    assert call.status == 401


@pytest.mark.parametrize("second", [b"Bearer ada-token", b"Bearer bob-token", b""])
async def test_a_repeated_authorization_header_is_refused(second: bytes) -> None:
    headers = {"authorization": "Bearer ada-token"}
    twice = [(b"authorization", second)]
    call = await ask(Workshop(auth=TOKENS).asgi(), headers=headers, twice=twice).whole()
    assert (call.status, call.json["error"]["message"]) == (400, "Header given more than once: authorization")


async def test_a_repeated_api_key_header_is_refused() -> None:
    app = Workshop(auth=ApiKeys({"k1": "ada", "k2": "bob"})).asgi()
    call = await ask(app, headers={"x-api-key": "k1"}, twice=[(b"x-api-key", b"k2")]).whole()
    assert (call.status, call.json["error"]["message"]) == (400, "Header given more than once: x-api-key")


async def test_a_preflight_needs_no_token() -> None:
    app = Workshop(auth=TOKENS).asgi(cors_origins=["https://app.example.com"])
    asks = {"origin": "https://app.example.com", "access-control-request-method": "POST"}
    assert (await ask(app, "OPTIONS", headers=asks).whole()).status == 204


@pytest.mark.parametrize("verb", ["post", "get", "delete"])
async def test_a_session_id_does_not_replace_a_token(verb: str) -> None:
    client = await SessionClient.open(Workshop(auth=TOKENS).asgi(), token="ada-token")
    others = {"bob": "Bearer bob-token", "nobody": None}
    arguments = (tool("add"),) if verb == "post" else ()
    found = {
        who: (await getattr(client, verb)(*arguments, authorization=given).whole()).status
        for who, given in others.items()
    }
    assert found == {"bob": 404, "nobody": 401}


# --- a failing verifier accepts no request ---------------------------------------------------------------------------


class Broken:
    authorization_servers = ("https://auth.example.com",)
    scopes_supported = ()

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    async def verify(self, headers: Mapping[str, str]) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    "outcome",
    [ValueError("boom"), OSError("disk"), KeyError("x"), True, "ada", {"subject": "ada"}, None],
    ids=["ValueError", "OSError", "KeyError", "true", "a name", "a mapping", "nobody"],
)
async def test_a_failing_verifier_rejects_the_request(outcome: Any) -> None:
    workshop = Workshop(auth=Broken(outcome))
    call = await modern(workshop.asgi(), tool("add"), authorization="Bearer x").whole()
    assert (call.status, workshop.count) == (401, 0)
    assert b"boom" not in call.body


async def test_neither_token_nor_claims_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    checks = IntrospectionVerifier(
        "https://auth.example.com/introspect",
        issuer=ISSUER,
        audience=AUDIENCE,
        client_id="server",
        client_secret="very-secret",
        fetcher=FakeFetcher({"https://auth.example.com/introspect": "no route"}),  # type: ignore[arg-type]
    )
    call = await modern(Workshop(auth=checks).asgi(), tool("add"), authorization="Bearer opaque-token").whole()
    assert call.status == 401
    assert "no route" in caplog.text
    assert "opaque-token" not in caplog.text + call.body.decode()
    assert "very-secret" not in caplog.text


# --- challenges ------------------------------------------------------------------------------------------------------


async def challenge(auth: Any, given: str | None = None, **options: Any) -> str:
    call = await modern(Workshop(auth=auth).asgi(**options), tool("add"), authorization=given).whole()
    return call.headers["www-authenticate"]


async def test_a_request_without_a_token_is_told_where_to_get_one() -> None:
    assert await challenge(verifier()) == f'Bearer resource_metadata="{METADATA}"'


async def test_an_invalid_token_is_answered_with_the_reason() -> None:
    assert await challenge(verifier(), "Bearer x.y.z") == (
        f'Bearer error="invalid_token", error_description="The token is not a JWT", resource_metadata="{METADATA}"'
    )


@pytest.mark.parametrize(
    ("options", "scope"),
    [
        pytest.param({"required_scopes": ["a", "b"]}, "a b", id="those that are always required"),
        pytest.param({"required_scopes": ["a"], "scopes_supported": "a c"}, "a c", id="those that it says"),
        pytest.param({"scopes_supported": ["a", "offline_access"]}, "a", id="never offline_access"),
    ],
)
async def test_a_challenge_names_the_scopes_to_request(options: dict[str, Any], scope: str) -> None:
    assert f'scope="{scope}"' in await challenge(verifier(**options))


async def test_tokens_from_a_list_have_no_metadata() -> None:
    assert await challenge(TOKENS) == "Bearer"
    assert (await ask(Workshop(auth=TOKENS).asgi(), "GET", WELL_KNOWN).whole()).status == 404


async def test_an_api_key_challenge_names_its_header() -> None:
    assert await challenge(ApiKeys({"k1": "ada"})) == 'ApiKey header="x-api-key"'


async def test_a_token_without_the_required_scopes_is_answered_403_with_all_scopes() -> None:
    workshop = Workshop(auth=verifier(required_scopes=["files:read", "mail:read", "mail:send"]))
    call = await modern(workshop.asgi(), tool("add"), authorization=f"Bearer {token()}").whole()
    assert (call.status, workshop.count) == (403, 0)
    said = call.headers["www-authenticate"]
    assert said.startswith('Bearer error="insufficient_scope", error_description="')
    assert 'scope="files:read mail:read mail:send"' in said
    assert f'resource_metadata="{METADATA}"' in said


async def test_a_scope_that_implies_the_required_one_is_enough() -> None:
    auth = verifier(required_scopes=["files"])
    app = Workshop(auth=auth, implied_scopes={"files:write": ["files"]}).asgi()
    assert (await modern(app, tool("add"), authorization=f"Bearer {token()}").whole()).status == 200


async def test_a_message_of_a_verifier_cannot_break_out_of_its_quotes() -> None:
    from trunkline.auth import InvalidToken

    said = await challenge(Broken(InvalidToken('no", scope="admin\r\nx: y \\ ü' + "z" * 1000)), "Bearer x")
    assert said.count('"') == 6
    assert said.isascii()
    assert "\n" not in said


# --- metadata --------------------------------------------------------------------------------------------------------


async def metadata(app: Any, path: str = WELL_KNOWN, **options: Any) -> Call:
    return await ask(app, "GET", path, headers={"content-type": None, **options}).whole()


@pytest.mark.parametrize("path", [WELL_KNOWN, f"{WELL_KNOWN}/mcp", f"{WELL_KNOWN}/mcp/"])
async def test_metadata_is_at_the_root_and_at_the_path(path: str) -> None:
    call = await metadata(Server("notes", auth=verifier(required_scopes=["a"])).asgi(), path)
    assert (call.status, call.headers["content-type"]) == (200, "application/json")
    assert call.json == {
        "resource": AUDIENCE,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["a"],
        "bearer_methods_supported": ["header"],
        "resource_name": "notes",
    }


async def test_metadata_lists_every_scope_that_something_needs() -> None:
    server = Server("s", auth=verifier(required_scopes=["a"]))
    server.add_tool(lambda: "", name="t", scopes=["b", "offline_access"])
    server.add_prompt(lambda: "", name="p", scopes=["c"])
    server.add_resource("x://one", "one", scopes=["d"])
    server.add_resource("x://{y}", lambda y: y, name="y", scopes=["e", "a"])
    assert (await metadata(server.asgi())).json["scopes_supported"] == ["a", "b", "c", "d", "e"]


async def test_without_scopes_metadata_has_no_list_of_them() -> None:
    assert "scopes_supported" not in (await metadata(Server("s", auth=verifier()).asgi())).json


async def test_the_title_is_the_name_that_people_see() -> None:
    assert (await metadata(Server("s", title="Notes", auth=verifier()).asgi())).json["resource_name"] == "Notes"


@pytest.mark.parametrize(
    ("options", "resource", "pointer"),
    [
        pytest.param(
            {"resource": "https://public.example.com/tools/mcp"},
            "https://public.example.com/tools/mcp",
            "https://public.example.com/.well-known/oauth-protected-resource/tools/mcp",
            id="as said",
        ),
        pytest.param(
            {"resource": "https://public.example.com"},
            "https://public.example.com",
            "https://public.example.com/.well-known/oauth-protected-resource",
            id="a whole host",
        ),
        pytest.param(
            {},
            "http://127.0.0.1:8000/mcp",
            "http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp",
            id="as called",
        ),
    ],
)
async def test_the_resource_is_the_url_that_clients_use(options: dict[str, Any], resource: str, pointer: str) -> None:
    server = Server("s", auth=entra())
    assert (await metadata(server.asgi(**options))).json["resource"] == resource
    assert await challenge(entra(), **options) == f'Bearer resource_metadata="{pointer}"'


async def test_metadata_is_served_where_the_pointer_leads_behind_a_proxy_that_adds_a_path() -> None:
    app = Server("s", auth=entra(), resource="https://public.example.com/tools/mcp").asgi()
    assert (await metadata(app, f"{WELL_KNOWN}/tools/mcp")).status == 200


@pytest.mark.parametrize("path", [f"{WELL_KNOWN}/other", f"{WELL_KNOWN}x", f"{WELL_KNOWN}/mcp/sse", "/.well-known/x"])
async def test_other_paths_have_no_metadata(path: str) -> None:
    assert (await metadata(Server("s", auth=verifier()).asgi(), path)).status == 404


@pytest.mark.parametrize(("verb", "status"), [("HEAD", 200), ("POST", 405), ("DELETE", 405), ("OPTIONS", 405)])
async def test_metadata_accepts_only_get(verb: str, status: int) -> None:
    call = await ask(Server("s", auth=verifier()).asgi(), verb, WELL_KNOWN).whole()
    assert (call.status, b"resource_name" in call.body) == (status, False)


async def test_the_origin_policy_applies_to_metadata_too() -> None:
    app = Server("s", auth=entra()).asgi()
    assert (await metadata(app, host="evil.example")).status == 403
    assert (await metadata(app, origin="https://evil.example")).status == 403


async def test_a_page_that_may_call_may_read_the_metadata() -> None:
    app = Server("s", auth=verifier()).asgi(cors_origins=["https://app.example.com"])
    call = await metadata(app, origin="https://app.example.com")
    assert (call.status, call.headers["access-control-allow-origin"]) == (200, "https://app.example.com")


@pytest.mark.parametrize(
    "resource", ["mcp.example.com", "https://a.example/#x", "ftp://a.example", "https://u:p@a.example"]
)
def test_a_resource_is_a_url(resource: str) -> None:
    with pytest.raises(ConfigError, match="resource="):
        Server("s", auth=verifier()).asgi(resource=resource)


def test_a_mounted_endpoint_has_its_metadata_at_the_root() -> None:
    endpoint = Server("s", auth=entra()).asgi()
    app = Starlette(routes=[Mount("/.well-known", endpoint.well_known), Mount("/tools", endpoint)])
    client = TestClient(app, base_url="http://127.0.0.1:8000")
    pointer = client.post("/tools/mcp").headers["www-authenticate"].split('"')[1]
    assert pointer == "http://127.0.0.1:8000/.well-known/oauth-protected-resource/tools/mcp"
    found = client.get(pointer)
    assert (found.status_code, found.json()["resource"]) == (200, "http://127.0.0.1:8000/tools/mcp")
    assert client.get("/.well-known/other").status_code == 404


# --- what a verifier serves itself -----------------------------------------------------------------------------------


class Serving(Broken):
    def routes(self) -> Mapping[str, Any]:
        async def page(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"consent"})

        return {"/authorize": page}


@pytest.mark.parametrize(("path", "status"), [("/authorize", 200), ("/authorize/", 404), ("/Authorize", 404)])
async def test_routes_of_a_verifier_are_served_besides_the_endpoint(path: str, status: int) -> None:
    app = Server("s", auth=Serving(None)).asgi()
    assert (await ask(app, "GET", path).whole()).status == status
    assert (await ask(app, "GET", path, headers={"host": "evil.example"}).whole()).status == 403


# --- where it does not apply -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("auth", ["secret", 7, object()])
def test_an_invalid_verifier_is_a_config_error(auth: Any) -> None:
    with pytest.raises(ConfigError, match="JWTVerifier"):
        Server("s", auth=auth)


async def test_another_token_of_the_same_principal_counts_in_its_session() -> None:
    """A client that got a token that allows more goes on in its session."""
    server = Server("s", auth=verifier())
    server.add_tool(lambda: "sent", name="send", scopes=["mail"])
    client = await SessionClient.open(server.asgi(), token=token())
    before = await client.post(tool("send")).whole()
    client.token = token(scope="mail")
    after = await client.post(tool("send")).whole()
    client.token = token(scope="files:read")
    assert (before.status, after.status, (await client.post(tool("send")).whole()).status) == (403, 200, 403)


async def test_lists_of_authenticated_callers_are_not_cacheable_publicly() -> None:
    app = Workshop().asgi(auth=TOKENS)
    call = await modern(app, request("tools/list"), authorization="Bearer ada-token").whole()
    assert call.json["result"]["cacheScope"] == "private"
