"""How a client handles refusals: one login for all pending requests, refreshes, more scopes, and when it gives up."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.auth.client_web import ISSUER, PRM, SERVER, Web, answer, metadata, resource
from trunkline.auth.client import BearerAuthorizer, OAuthAuthorizer
from trunkline.auth.credential_store import FileStore, MemoryStore
from trunkline.auth.oauth import BearerToken, OAuth
from trunkline.auth.steps import ClockAndRandom, Fetch
from trunkline.auth.token_store import stored_logins
from trunkline.errors import AuthError, AuthRequired, ConfigError
from trunkline.net import FetchResponse

AS = f"{ISSUER}/.well-known/oauth-authorization-server"
TOKEN = f"{ISSUER}/token"
SCOPES = 'Bearer error="insufficient_scope", scope="write"'


def token(name: str, **more: Any) -> dict[str, Any]:
    return {"access_token": name, "token_type": "Bearer", **more}


class Scene:
    """An authorizer in a made-up web, with a clock that a test moves."""

    def __init__(self, web: Web | None = None, *, store: Any = None, **options: Any) -> None:
        self.web = web or Web()
        self.now = 1000.0
        self.store = MemoryStore() if store is None else store
        self.held: asyncio.Event | None = None
        self.browsing = asyncio.Event()
        self._options = {"store": self.store, "open_browser": self.browse, **options}
        self.authorizer = self.again()

    def again(self) -> OAuthAuthorizer:
        """Another program with the same store."""
        options = OAuth(**self._options)
        return OAuthAuthorizer(SERVER, options, fetch=self.fetch, sources=ClockAndRandom(lambda: self.now))

    async def fetch(self, step: Fetch) -> FetchResponse:
        return await self.web.fetch_later(step)

    async def browse(self, url: str) -> str:
        self.browsing.set()
        if self.held is not None:
            await self.held.wait()
        return urlencode(self.web.visit(url))

    @property
    def shown(self) -> str | None:
        return self.authorizer.headers("POST", SERVER).get("Authorization")

    async def refuse(self, status: int = 401, challenge: str = "Bearer", **more: Any) -> bool:
        """Report that the server refused the current credentials."""
        given = {"shown": self.shown, "nonce": None, **more}
        return await self.authorizer.refused(status, [challenge], **given)

    async def refuse_accepted(self) -> bool:
        """Report that the server refuses credentials that it accepted before."""
        self.authorizer.accepted(None)
        return await self.refuse()


async def test_no_credentials_are_sent_before_a_refusal() -> None:
    scene = Scene()
    await scene.authorizer.prepare()
    assert (scene.shown, scene.web.fetched, scene.authorizer.stale) == (None, [], False)


async def test_a_login_is_stored_for_the_next_program() -> None:
    scene = Scene()
    await scene.refuse()
    other = scene.again()
    await other.prepare()
    assert other.headers("POST", SERVER) == {"Authorization": "Bearer token-1"}
    assert len(scene.web.visited) == 1


async def test_requests_that_are_refused_together_share_one_login() -> None:
    scene = Scene()
    assert await asyncio.gather(*(scene.refuse() for _ in range(20))) == [True] * 20
    assert (len(scene.web.visited), len(scene.web.registrations())) == (1, 1)


async def test_a_request_refused_with_an_older_token_is_retried_with_the_newer() -> None:
    scene = Scene()
    await scene.refuse()
    assert (await scene.refuse(shown=None), await scene.refuse(shown="Bearer older")) == (True, True)
    assert len(scene.web.visited) == 1


async def test_a_cancelled_waiter_does_not_end_the_login_of_others() -> None:
    scene = Scene()
    scene.held = asyncio.Event()
    first = asyncio.ensure_future(scene.refuse())
    second = asyncio.ensure_future(scene.refuse())
    await scene.browsing.wait()
    first.cancel()
    await asyncio.sleep(0)
    scene.held.set()
    assert await second is True
    assert len(scene.web.visited) == 1


async def test_an_abandoned_login_ends_and_the_next_one_starts_again() -> None:
    scene = Scene()
    scene.held = asyncio.Event()
    first = asyncio.ensure_future(scene.refuse())
    await scene.browsing.wait()
    was_asking = scene.authorizer.is_logging_in
    first.cancel()
    await asyncio.wait([first])
    scene.held.set()
    assert (was_asking, await scene.refuse()) == (True, True)
    assert (len(scene.web.visited), scene.shown) == (1, "Bearer token-1")


async def test_a_failed_login_fails_all_waiting_requests_and_stores_nothing() -> None:
    scene = Scene(Web({TOKEN: answer({"error": "invalid_grant"}, 400)}))
    errors = await asyncio.gather(scene.refuse(), scene.refuse(), return_exceptions=True)
    assert [type(error).__name__ for error in errors] == ["TokenEndpointError", "TokenEndpointError"]
    assert (scene.shown, await scene.store.keys()) == (None, [])


async def test_a_refused_newly_issued_token_raises() -> None:
    scene = Scene()
    await scene.refuse()
    with pytest.raises(AuthRequired, match="just issued"):
        await scene.refuse()
    assert len(scene.web.visited) == 1


async def test_a_refused_stored_token_leads_to_a_new_login() -> None:
    scene = Scene(Web({TOKEN: [token("a"), token("b")]}))
    await scene.refuse()
    await scene.refuse_accepted()
    assert (scene.shown, len(scene.web.registrations())) == ("Bearer b", 1)


async def test_a_quiet_request_starts_no_login() -> None:
    scene = Scene()
    assert await scene.refuse(quietly=True) is False
    assert scene.web.fetched == []


@pytest.mark.parametrize("challenge", ["", "Bearer", 'Bearer error="invalid_request"'])
async def test_a_403_without_insufficient_scope_is_not_handled(challenge: str) -> None:
    scene = Scene()
    assert await scene.refuse(403, challenge) is False


async def test_without_a_user_to_ask_the_login_fails_with_advice() -> None:
    scene = Scene(open_browser=False)
    with pytest.raises(AuthError, match="trunkline auth login"):
        await scene.refuse()
    assert scene.web.registrations() == []


# --- renewing ---------------------------------------------------------------------------------------------------------


async def test_an_expiring_token_is_refreshed_before_it_is_used() -> None:
    scene = Scene(Web({TOKEN: [token("a", expires_in=100, refresh_token="r1"), token("b", expires_in=100)]}))
    await scene.refuse()
    stale = [scene.authorizer.stale]
    scene.now += 71
    stale.append(scene.authorizer.stale)
    await scene.authorizer.prepare()
    assert [*stale, scene.authorizer.stale] == [False, True, False]
    assert (scene.shown, len(scene.web.visited)) == ("Bearer b", 1)


async def test_a_refused_token_is_refreshed_before_a_login() -> None:
    scene = Scene(Web({TOKEN: [token("a", refresh_token="r1"), token("b")]}))
    await scene.refuse()
    await scene.refuse_accepted()
    assert (scene.shown, len(scene.web.visited)) == ("Bearer b", 1)


async def test_a_refused_refreshed_token_leads_to_a_login_and_then_raises() -> None:
    scene = Scene(Web({TOKEN: [token("a", refresh_token="r1"), token("b"), token("c", refresh_token="r2")]}))
    await scene.refuse()
    await scene.refuse_accepted()
    await scene.refuse()
    with pytest.raises(AuthRequired, match="just issued"):
        await scene.refuse()
    assert [form["grant_type"] for form in scene.web.sent("/token")] == [
        "authorization_code",
        "refresh_token",
        "authorization_code",
    ]


async def test_an_invalid_refresh_token_leads_to_a_login_with_the_same_client() -> None:
    refused = answer({"error": "invalid_grant"}, 400)
    scene = Scene(Web({TOKEN: [token("a", refresh_token="r1"), refused, token("c")]}))
    await scene.refuse()
    await scene.refuse_accepted()
    assert (scene.shown, len(scene.web.visited), len(scene.web.registrations())) == ("Bearer c", 2, 1)


async def test_a_busy_server_does_not_lead_to_a_login() -> None:
    busy = answer({"error": "temporarily_unavailable"}, 503)
    scene = Scene(Web({TOKEN: [token("a", refresh_token="r1"), busy, token("b")]}))
    await scene.refuse()
    scene.authorizer.accepted(None)
    with pytest.raises(AuthError, match="temporarily_unavailable"):
        await scene.refuse()
    await scene.refuse()
    assert (scene.shown, len(scene.web.visited)) == ("Bearer b", 1)


async def test_two_programs_renew_once(tmp_path: Any) -> None:
    web = Web({TOKEN: [token("a", refresh_token="r1"), token("b", refresh_token="r2"), answer({"error": "x"}, 400)]})
    scene = Scene(web, store=FileStore(tmp_path / "logins"))
    await scene.refuse()
    programs = [scene.again() for _ in range(4)]
    for program in programs:
        await program.prepare()
    refusals = (program.refused(401, ["Bearer"], shown="Bearer a", nonce=None) for program in programs)
    await asyncio.gather(*refusals)
    assert [program.headers("POST", SERVER)["Authorization"] for program in programs] == ["Bearer b"] * 4
    assert [form["grant_type"] for form in web.sent("/token")] == ["authorization_code", "refresh_token"]


async def test_a_client_unknown_to_the_server_is_registered_again() -> None:
    gone = answer({"error": "invalid_client"}, 401)
    web = Web({TOKEN: [token("a"), gone, token("b")]})
    web.pages[f"{ISSUER}/register"] = [answer({"client_id": name}, 201) for name in ("first", "second")]
    scene = Scene(web)
    await scene.refuse()
    await scene.refuse_accepted()
    assert [form["client_id"] for form in web.sent("/token")] == ["first", "first", "second"]


async def test_client_credentials_are_used_again_when_the_token_expires() -> None:
    web = Web({TOKEN: [token("a", expires_in=100), token("b", expires_in=100)]})
    web.pages[AS] = metadata(token_endpoint_auth_methods_supported=["client_secret_basic"])
    scene = Scene(web, grant="client_credentials", client_id="me", client_secret="s", issuer=ISSUER)
    await scene.refuse()
    scene.now += 100
    await scene.authorizer.prepare()
    assert (scene.shown, web.visited) == ("Bearer b", [])


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_an_assertion_function_is_called_when_needed(asynchronous: bool) -> None:
    numbers = iter(range(1, 9))

    def give() -> str:
        return f"assertion-{next(numbers)}"

    async def give_later() -> str:
        return give()

    scene = Scene(grant="jwt_bearer", issuer=ISSUER, assertion=give_later if asynchronous else give)
    await scene.refuse()
    await scene.refuse_accepted()
    assert [form["assertion"] for form in scene.web.sent("/token")] == ["assertion-1", "assertion-2"]


# --- more scopes, other servers ---------------------------------------------------------------------------------------


async def test_new_scopes_are_added_to_the_requested_ones() -> None:
    scene = Scene(Web({PRM: resource(scopes_supported=["read"]), TOKEN: [token("a", refresh_token="r"), token("b")]}))
    await scene.refuse()
    await scene.refuse(403, SCOPES)
    assert [visit["scope"] for visit in scene.web.visited] == ["read", "read write"]
    assert scene.shown == "Bearer b"


async def test_scopes_already_requested_are_not_requested_again() -> None:
    scene = Scene(Web({TOKEN: [token("a"), token("b")]}))
    await scene.refuse()
    await scene.refuse(403, SCOPES)
    with pytest.raises(AuthRequired, match="not granted") as failure:
        await scene.refuse(403, SCOPES)
    assert (failure.value.status, len(scene.web.visited)) == (403, 2)


async def test_an_insufficient_scope_challenge_without_scopes_raises() -> None:
    scene = Scene()
    await scene.refuse()
    with pytest.raises(AuthRequired, match="not named"):
        await scene.refuse(403, 'Bearer error="insufficient_scope"')


async def test_a_server_that_moves_to_another_issuer_is_followed_with_a_new_client_and_a_new_token() -> None:
    other = "https://new.example.com"
    web = Web({TOKEN: [token("a", refresh_token="refresh-of-old"), answer({"error": "invalid_grant"}, 400)]})
    web.pages[f"{other}/.well-known/oauth-authorization-server"] = metadata(other)
    web.pages[f"{other}/register"] = answer({"client_id": "at-new"}, 201)
    web.pages[f"{other}/token"] = token("n")
    scene = Scene(web)
    await scene.refuse()
    scene.authorizer.accepted(None)
    web.pages[PRM] = resource(authorization_servers=[other])
    await scene.refuse()
    kept = await stored_logins(scene.store)
    told = [(step.url, step.body or b"") for step in web.fetched if step.url.startswith(other)]
    assert (scene.shown, [login.issuer for login in kept]) == ("Bearer n", [other])
    assert [url for url, body in told if b"registered" in body or b"refresh-of-old" in body] == []


# --- bound tokens -----------------------------------------------------------------------------------------------------


def bound() -> Scene:
    web = Web({AS: metadata(dpop_signing_alg_values_supported=["ES256"])})
    web.pages[TOKEN] = {"access_token": "bound", "token_type": "DPoP"}
    return Scene(web)


async def test_each_request_has_a_proof_of_its_own() -> None:
    scene = bound()
    await scene.refuse(401, "DPoP")
    first, second = (scene.authorizer.headers("POST", SERVER) for _ in range(2))
    assert (first["Authorization"], first["DPoP"] == second["DPoP"]) == ("DPoP bound", False)


async def test_a_nonce_is_taken_from_refusals_and_from_answers() -> None:
    import base64
    import json

    scene = bound()

    def nonce() -> str | None:
        claims = scene.authorizer.headers("POST", SERVER)["DPoP"].split(".")[1]
        said: str | None = json.loads(base64.urlsafe_b64decode(claims + "==")).get("nonce")
        return said

    await scene.refuse(401, "DPoP")
    seen = [nonce()]
    await scene.refuse(401, 'DPoP error="use_dpop_nonce"', nonce="n1")
    seen.append(nonce())
    scene.authorizer.accepted("n2")
    assert [*seen, nonce()] == [None, "n1", "n2"]
    assert len(scene.web.visited) == 1


async def test_a_bound_token_is_stored_with_its_key() -> None:
    scene = bound()
    await scene.refuse(401, "DPoP")
    other = scene.again()
    await other.prepare()
    first, second = scene.authorizer.headers("GET", SERVER), other.headers("GET", SERVER)
    assert first["DPoP"].split(".")[0] == second["DPoP"].split(".")[0]


# --- no secret is logged ----------------------------------------------------------------------------------------------


async def test_a_store_that_cannot_be_written_does_not_break_the_login(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()

    async def full(key: str, value: str) -> None:
        raise AuthError("The login cannot be kept: no space left.")

    store.put = full  # type: ignore[method-assign]
    scene = Scene(store=store)
    assert await scene.refuse() is True
    assert (scene.shown, "no space left" in caplog.text) == ("Bearer token-1", True)


async def test_no_token_is_logged_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(
        Web(
            {
                TOKEN: [
                    token("hidden-a", refresh_token="hidden-r"),
                    answer({"error": "invalid_grant"}, 400),
                    token("hidden-b"),
                ]
            }
        )
    )
    with caplog.at_level(logging.DEBUG):
        await scene.refuse()
        await scene.refuse_accepted()
    texts = [caplog.text, repr(scene.authorizer), *map(repr, scene.web.fetched)]
    assert [text for text in texts if "hidden" in text or "code-1" in text] == []


# --- a token that a function gives ------------------------------------------------------------------------------------


async def test_a_token_function_is_asked_for_another_token_after_a_refusal() -> None:
    tokens = iter(["a", "b", "b"])
    authorizer = BearerAuthorizer(SERVER, BearerToken(lambda: next(tokens)))
    await authorizer.prepare()
    assert await authorizer.refused(401, [], shown="Bearer a", nonce=None)
    assert authorizer.headers("POST", SERVER) == {"Authorization": "Bearer b"}
    assert not await authorizer.refused(401, [], shown="Bearer b", nonce=None)


@pytest.mark.parametrize("given", ["", "a b", None])
async def test_a_function_that_returns_no_token_is_a_config_error(given: Any) -> None:
    authorizer = BearerAuthorizer(SERVER, BearerToken(lambda: given))
    with pytest.raises(ConfigError, match="visible"):
        await authorizer.prepare()
