"""Who may use a server: its documents, its authorization server's, and the login that is kept."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.net.origins import Answer as Bytes
from tests.net.origins import Origin, answer, origin
from tests.support import run_async
from trunkline.auth.credential_store import MemoryStore
from trunkline.auth.discovery import AuthorizationServerMetadata
from trunkline.auth.oauth import OAuth
from trunkline.auth.token_store import LoginStore
from trunkline.auth.tokens import Login, RegisteredClient, TokenSet
from trunkline.devtools.doctor.checks import Check, CheckRecorder
from trunkline.devtools.doctor.remote import ProbeResponse, check_login
from trunkline.host.config.model import ServerEntry, Source
from trunkline.host.upstreams.supervision.clients import StoredLogins

JSON = "Content-Type: application/json"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"
SERVER = "/.well-known/oauth-authorization-server"


def document(**members: Any) -> bytes:
    """Answer with a document."""
    return answer(json.dumps(members).encode(), JSON)


def publish(server: Origin, *, registration: bool = True, issuer: str | None = None, resource: bool = True) -> None:
    """Have a server publish all that a login needs."""
    if resource:
        server.answers[RESOURCE] = document(resource=f"{server.url}/mcp", authorization_servers=[server.url])
    ends: dict[str, Any] = {"registration_endpoint": f"{server.url}/register"} if registration else {}
    server.answers[SERVER] = document(
        issuer=issuer or server.url,
        authorization_endpoint=f"{server.url}/authorize",
        token_endpoint=f"{server.url}/token",
        code_challenge_methods_supported=["S256"],
        **ends,
    )


async def kept(store: MemoryStore, url: str, *, expires_at: float, refresh_token: str | None) -> None:
    """Keep a login for a server."""
    client = RegisteredClient(issuer=url, client_id="c", method="none", redirect_uri="http://127.0.0.1/")
    tokens = TokenSet(
        access_token="t",
        issuer=url.removesuffix("/mcp"),
        resource=url,
        client_id="c",
        expires_at=expires_at,
        refresh_token=refresh_token,
    )
    await LoginStore(store, url, OAuth()).save(
        Login(client=client, tokens=tokens, server=AuthorizationServerMetadata(issuer=tokens.issuer))
    )


def looked(
    prepare: Any = None,
    *,
    answers: dict[str, Bytes] | None = None,
    said: ProbeResponse | None = None,
    headers: dict[str, str] | None = None,
    login: dict[str, Any] | None = None,
) -> tuple[bool, dict[str, Check]]:
    """Look at a server's documents and logins."""

    async def main() -> tuple[bool, dict[str, Check]]:
        async with origin(answers) as server:
            if prepare is not None:
                prepare(server)
            store, url = MemoryStore(), f"{server.url}/mcp"
            if login is not None:
                await kept(store, url, **login)
            entry = ServerEntry(name="a", source=Source("given"), url=url, headers=headers or {})
            recorder = CheckRecorder()
            on = await check_login(recorder, entry, said or ProbeResponse(401, ("Bearer",)), logins=StoredLogins(store))
            return on, {check.id: check for check in recorder.checks}

    return run_async(main())


def test_a_server_that_asks_for_nothing_needs_no_login() -> None:
    on, checks = looked(said=ProbeResponse(200))
    assert (on, checks["login"].detail) == (True, "not required")


def test_documents_that_are_in_order_are_named() -> None:
    on, checks = looked(publish)
    assert (checks["resource-metadata"].status, checks["authorization-server"].status) == ("ok", "ok")
    assert (on, checks["login"].status, "trunkline auth login http://" in (checks["login"].fix or "")) == (
        False,
        "fail",
        True,
    )


def test_a_server_that_names_no_login_needs_its_token() -> None:
    on, checks = looked()
    assert (on, [id for id, check in checks.items() if check.status == "fail"]) == (False, ["login"])
    assert (checks["login"].fix or "").startswith("pass its token with --token TOKEN or --token @FILE; if it has")


def test_a_login_of_before_resource_metadata_is_a_warning() -> None:
    _, checks = looked(lambda server: publish(server, resource=False))
    assert (checks["resource-metadata"].status, checks["authorization-server"].status) == ("warn", "ok")


def test_metadata_that_is_not_where_the_server_says_is_a_failure() -> None:
    challenge = 'Bearer resource_metadata="http://127.0.0.1:9/nothing"'
    _, checks = looked(publish, said=ProbeResponse(401, (challenge,)))
    assert checks["resource-metadata"].status == "fail"


def test_an_authorization_server_that_is_another_is_a_failure() -> None:
    _, checks = looked(lambda server: publish(server, issuer="https://other.example"))
    assert (checks["authorization-server"].status, "other.example" in checks["authorization-server"].detail) == (
        "fail",
        True,
    )


def test_an_authorization_server_without_registration_is_a_warning() -> None:
    _, checks = looked(lambda server: publish(server, registration=False))
    assert (checks["authorization-server"].status, "--client-id" in (checks["authorization-server"].fix or "")) == (
        "warn",
        True,
    )


def test_a_header_that_is_refused_is_the_failure() -> None:
    on, checks = looked(
        headers={"Authorization": "Bearer x"}, said=ProbeResponse(401, ('Bearer error="invalid_token"',))
    )
    assert (on, checks["login"].status, "invalid_token" in checks["login"].detail) == (False, "fail", True)


@pytest.mark.parametrize(
    ("late", "token", "on", "words"),
    [
        pytest.param(False, None, True, "more minutes", id="good"),
        pytest.param(True, "r", True, "is renewed", id="renewed"),
        pytest.param(True, None, False, "has expired", id="expired"),
    ],
)
def test_the_login_that_is_kept_is_looked_at(late: bool, token: str | None, on: bool, words: str) -> None:
    at = time.time() + (-60 if late else 600)
    went, checks = looked(publish, login={"expires_at": at, "refresh_token": token})
    assert (went, words in checks["login"].detail) == (on, True)
