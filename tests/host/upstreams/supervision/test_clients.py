"""From an entry to a client: what it is told, and which login it shows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.host.supervised import program
from tests.support import run_async
from trunkline.auth.credential_store import FileStore, MemoryStore
from trunkline.auth.discovery import AuthorizationServerMetadata
from trunkline.auth.oauth import OAuth
from trunkline.auth.token_store import LoginStore
from trunkline.auth.tokens import Login, RegisteredClient, TokenEndpointError, TokenSet
from trunkline.errors import AuthError, AuthRequired, ConfigError, ConnectionLost, HttpError, RequestFailed
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.upstreams.supervision.clients import (
    StoredLogins,
    make_client,
    requires_login,
)
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE

URL = "https://mcp.example/mcp"
ISSUER = "https://login.example"


def remote(**more: Any) -> ServerEntry:
    return ServerEntry(name="a", source=Source("given"), url=URL, **more)


@pytest.mark.parametrize(
    ("era", "revision"),
    [
        ("auto", None),
        ("stateless", NEWEST.name),
        ("handshake", None),
        (NEWEST_HANDSHAKE.name, NEWEST_HANDSHAKE.name),
    ],
)
def test_an_era_becomes_a_revision(era: str, revision: str | None) -> None:
    client = make_client(program("a", "plain", era=era), {})
    pinned = client._settings.pinned
    assert (None if pinned is None else pinned.name) == revision


def test_a_server_that_shakes_hands_in_an_older_revision_fits_the_era() -> None:
    code = "from trunkline import Server; Server('old', revisions=['2025-03-26']).run()"
    entry = replace(program("a", "plain", era="handshake"), command=(sys.executable, "-c", code), env={})

    async def main() -> str | None:
        async with make_client(entry, {}) as client:
            return client.revision

    assert run_async(main()) == "2025-03-26"


def test_an_era_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        make_client(program("a", "plain", era="modern-ish"), {})


def test_the_clocks_of_the_entry_become_limits() -> None:
    limits = make_client(program("a", "plain", timeout=1.0, total_timeout=2.0, start_timeout=3.0), {})._settings.limits
    assert (limits.idle_seconds, limits.total_seconds, limits.connect_seconds) == (1.0, 2.0, 3.0)


def test_a_process_is_not_started_again_by_its_client_unless_that_is_asked_for() -> None:
    assert make_client(program("a", "plain"), {})._settings.restart is False
    assert make_client(program("a", "plain"), {"restart": True})._settings.restart is True
    assert make_client(remote(), {})._settings.restart is True


def test_headers_and_login_are_shown_to_a_url_only() -> None:
    client = make_client(remote(headers={"X-Team": "a"}), {}, auth=OAuth(store="memory"))
    assert client._settings.headers == {"X-Team": "a"}
    assert isinstance(client._settings.auth, OAuth)


@pytest.mark.parametrize(
    ("error", "wants"),
    [
        pytest.param(AuthRequired("no", status=401), True, id="401"),
        pytest.param(HttpError("no", status=403), True, id="403"),
        pytest.param(AuthError("nobody to ask"), True, id="nobody-to-ask"),
        pytest.param(TokenEndpointError("no", code="invalid_grant"), True, id="refused"),
        pytest.param(TokenEndpointError("later", code="temporarily_unavailable"), False, id="passing"),
        pytest.param(HttpError("oops", status=500), False, id="500"),
        pytest.param(RequestFailed("oops"), False, id="error"),
        pytest.param(ConnectionLost("gone"), False, id="lost"),
        pytest.param(None, False, id="none"),
    ],
)
def test_a_refusal_for_want_of_a_login_is_recognised(error: Exception | None, wants: bool) -> None:
    assert requires_login(error) is wants


# --- logins


async def keep(store: Any, options: OAuth, client_id: str) -> None:
    tokens = TokenSet(access_token="good", issuer=ISSUER, resource=URL, client_id=client_id)
    server = AuthorizationServerMetadata(
        issuer=ISSUER, authorization_endpoint=f"{ISSUER}/authorize", token_endpoint=f"{ISSUER}/token"
    )
    login = Login(tokens=tokens, client=RegisteredClient(issuer=ISSUER, client_id=client_id), server=server)
    await LoginStore(store, URL, options).save(login)


def found(entry: ServerEntry, kept_for: OAuth | None, client_id: str = "me") -> OAuth | None:
    async def main() -> OAuth | None:
        store = MemoryStore()
        if kept_for is not None:
            await keep(store, kept_for, client_id)
        return await StoredLogins(store).find(entry)

    return run_async(main())


def test_without_a_kept_login_none_is_shown() -> None:
    assert found(remote(), None) is None
    assert found(remote(auth="oauth"), None) is None


def test_a_stored_login_is_used_without_a_prompt() -> None:
    login = found(remote(), OAuth())
    assert login is not None
    assert login.open_browser is False


def test_a_login_of_a_client_that_was_given_by_name_is_found() -> None:
    login = found(remote(), OAuth(client_id="mine"), "mine")
    assert login is not None
    assert login.client_id == "mine"


@pytest.mark.parametrize("name", ["clientId", "client_id"])
def test_the_members_of_an_oauth_object_are_read_in_both_ways_of_writing(name: str) -> None:
    login = found(remote(auth={name: "mine", "scopes": ["read"], "unknown": 1}), OAuth(client_id="mine"), "mine")
    assert login is not None
    assert (login.client_id, login.scopes) == ("mine", ["read"])


def test_a_program_that_logs_in_as_itself_needs_no_kept_login() -> None:
    auth = {"grant": "client_credentials", "clientId": "a", "clientSecret": "b", "issuer": ISSUER}
    login = found(remote(auth=auth), None)
    assert login is not None
    assert login.grant == "client_credentials"


def test_a_login_that_makes_no_sense_is_an_error_of_the_entry() -> None:
    with pytest.raises(ConfigError, match="client_credentials"):
        found(remote(auth={"grant": "client_credentials"}), None)


@pytest.mark.parametrize("header", ["Authorization", "authorization"])
def test_a_header_of_the_entry_keeps_every_login_away(header: str) -> None:
    assert found(remote(headers={header: "Bearer x"}), OAuth()) is None


def test_no_login_is_shown_over_plain_http() -> None:
    entry = ServerEntry(name="a", source=Source("given"), url="http://mcp.example/mcp", settings=ServerSettings())
    assert found(entry, None) is None


def test_logins_that_cannot_be_read_are_no_logins(tmp_path: Path) -> None:
    (tmp_path / "logins").write_bytes(b"x" * 64)
    assert run_async(StoredLogins(FileStore(tmp_path / "logins")).find(remote())) is None


def test_the_usual_place_is_used_unless_another_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))

    async def main() -> OAuth | None:
        await keep(FileStore(tmp_path / "logins"), OAuth(), "me")
        return await StoredLogins().find(remote())

    assert run_async(main()) is not None
