"""How a client handles refusals: one login for all pending requests, refreshes, more scopes, and when it gives up."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.auth.client_web import ISSUER, PRM, SERVER, Web, answer, metadata, resource
from tests.support import run_async
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
        self._options = {"store": self.store, "open_browser": self.browse, **options}
        self.authorizer = self.again()

    def again(self) -> OAuthAuthorizer:
        """Another program with the same store."""
        options = OAuth(**self._options)
        return OAuthAuthorizer(SERVER, options, fetch=self.fetch, sources=ClockAndRandom(lambda: self.now))

    async def fetch(self, step: Fetch) -> FetchResponse:
        return await self.web.fetch_later(step)

    async def browse(self, url: str) -> str:
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


def test_no_credentials_are_sent_before_a_refusal() -> None:
    scene = Scene()

    async def work() -> None:
        await scene.authorizer.prepare()

    run_async(work())
    assert (scene.shown, scene.web.fetched, scene.authorizer.stale) == (None, [], False)


def test_a_refusal_leads_to_a_login_and_another_try() -> None:
    scene = Scene()
    assert run_async(scene.refuse()) is True
    assert scene.shown == "Bearer token-1"


def test_a_login_is_stored_for_the_next_program() -> None:
    scene = Scene()

    async def work() -> Any:
        await scene.refuse()
        other = scene.again()
        await other.prepare()
        return other.headers("POST", SERVER)

    assert run_async(work()) == {"Authorization": "Bearer token-1"}
    assert len(scene.web.visited) == 1


def test_requests_that_are_refused_together_share_one_login() -> None:
    scene = Scene()

    async def work() -> list[bool]:
        return await asyncio.gather(*(scene.refuse() for _ in range(20)))

    assert run_async(work()) == [True] * 20
    assert (len(scene.web.visited), len(scene.web.registrations())) == (1, 1)


def test_a_request_refused_with_an_older_token_is_retried_with_the_newer() -> None:
    scene = Scene()

    async def work() -> tuple[bool, bool]:
        await scene.refuse()
        return await scene.refuse(shown=None), await scene.refuse(shown="Bearer older")

    assert run_async(work()) == (True, True)
    assert len(scene.web.visited) == 1


def test_a_cancelled_waiter_does_not_end_the_login_of_others() -> None:
    scene = Scene()

    async def work() -> bool:
        scene.held = asyncio.Event()
        first = asyncio.ensure_future(scene.refuse())
        second = asyncio.ensure_future(scene.refuse())
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0)
        scene.held.set()
        return await second

    assert run_async(work()) is True
    assert len(scene.web.visited) == 1


def test_an_abandoned_login_ends_and_the_next_one_starts_again() -> None:
    scene = Scene()

    async def work() -> tuple[bool, bool]:
        scene.held = asyncio.Event()
        first = asyncio.ensure_future(scene.refuse())
        await asyncio.sleep(0.01)
        was_asking = scene.authorizer.is_logging_in
        first.cancel()
        await asyncio.wait([first])
        scene.held.set()
        return was_asking, await scene.refuse()

    assert run_async(work()) == (True, True)
    assert (len(scene.web.visited), scene.shown) == (1, "Bearer token-1")


def test_a_failed_login_fails_all_waiting_requests_and_stores_nothing() -> None:
    scene = Scene(Web({TOKEN: answer({"error": "invalid_grant"}, 400)}))

    async def work() -> list[Any]:
        return list(await asyncio.gather(scene.refuse(), scene.refuse(), return_exceptions=True))

    assert [type(error).__name__ for error in run_async(work())] == ["TokenEndpointError", "TokenEndpointError"]
    assert (scene.shown, run_async(scene.store.keys())) == (None, [])


def test_a_refused_newly_issued_token_raises() -> None:
    scene = Scene()

    async def work() -> None:
        await scene.refuse()
        await scene.refuse()

    with pytest.raises(AuthRequired, match="just issued"):
        run_async(work())
    assert len(scene.web.visited) == 1


def test_a_refused_stored_token_leads_to_a_new_login() -> None:
    scene = Scene(Web({TOKEN: [token("a"), token("b")]}))

    async def work() -> None:
        await scene.refuse()
        scene.authorizer.accepted(None)
        await scene.refuse()

    run_async(work())
    assert (scene.shown, len(scene.web.registrations())) == ("Bearer b", 1)


def test_a_quiet_request_starts_no_login() -> None:
    scene = Scene()
    assert run_async(scene.refuse(quietly=True)) is False
    assert scene.web.fetched == []


@pytest.mark.parametrize("challenge", ["", "Bearer", 'Bearer error="invalid_request"'])
def test_a_403_without_insufficient_scope_is_not_handled(challenge: str) -> None:
    scene = Scene()
    assert run_async(scene.refuse(403, challenge)) is False


def test_without_a_user_to_ask_the_login_fails_with_advice() -> None:
    scene = Scene(open_browser=False)
    with pytest.raises(AuthError, match="trunkline auth login"):
        run_async(scene.refuse())
    assert scene.web.registrations() == []


# --- renewing ---------------------------------------------------------------------------------------------------------


def test_an_expiring_token_is_refreshed_before_it_is_used() -> None:
    scene = Scene(Web({TOKEN: [token("a", expires_in=100, refresh_token="r1"), token("b", expires_in=100)]}))

    async def work() -> list[bool]:
        await scene.refuse()
        stale = [scene.authorizer.stale]
        scene.now += 71
        stale.append(scene.authorizer.stale)
        await scene.authorizer.prepare()
        return [*stale, scene.authorizer.stale]

    assert run_async(work()) == [False, True, False]
    assert (scene.shown, len(scene.web.visited)) == ("Bearer b", 1)


def test_a_refused_token_is_refreshed_before_a_login() -> None:
    scene = Scene(Web({TOKEN: [token("a", refresh_token="r1"), token("b")]}))

    async def work() -> None:
        await scene.refuse()
        scene.authorizer.accepted(None)
        await scene.refuse()

    run_async(work())
    assert (scene.shown, len(scene.web.visited)) == ("Bearer b", 1)


def test_a_refused_refreshed_token_leads_to_a_login_and_then_raises() -> None:
    scene = Scene(Web({TOKEN: [token("a", refresh_token="r1"), token("b"), token("c", refresh_token="r2")]}))

    async def work() -> None:
        await scene.refuse()
        scene.authorizer.accepted(None)
        await scene.refuse()
        await scene.refuse()
        await scene.refuse()

    with pytest.raises(AuthRequired, match="just issued"):
        run_async(work())
    assert [form["grant_type"] for form in scene.web.sent("/token")] == [
        "authorization_code",
        "refresh_token",
        "authorization_code",
    ]


def test_an_invalid_refresh_token_leads_to_a_login_with_the_same_client() -> None:
    refused = answer({"error": "invalid_grant"}, 400)
    scene = Scene(Web({TOKEN: [token("a", refresh_token="r1"), refused, token("c")]}))

    async def work() -> None:
        await scene.refuse()
        scene.authorizer.accepted(None)
        await scene.refuse()

    run_async(work())
    assert (scene.shown, len(scene.web.visited), len(scene.web.registrations())) == ("Bearer c", 2, 1)


def test_a_busy_server_does_not_lead_to_a_login() -> None:
    busy = answer({"error": "temporarily_unavailable"}, 503)
    scene = Scene(Web({TOKEN: [token("a", refresh_token="r1"), busy, token("b")]}))

    async def work() -> None:
        await scene.refuse()
        scene.authorizer.accepted(None)
        with pytest.raises(AuthError, match="temporarily_unavailable"):
            await scene.refuse()
        await scene.refuse()

    run_async(work())
    assert (scene.shown, len(scene.web.visited)) == ("Bearer b", 1)


def test_two_programs_renew_once(tmp_path: Any) -> None:
    web = Web({TOKEN: [token("a", refresh_token="r1"), token("b", refresh_token="r2"), answer({"error": "x"}, 400)]})
    scene = Scene(web, store=FileStore(tmp_path / "logins"))

    async def work() -> list[str]:
        await scene.refuse()
        programs = [scene.again() for _ in range(4)]
        for program in programs:
            await program.prepare()
        refusals = (program.refused(401, ["Bearer"], shown="Bearer a", nonce=None) for program in programs)
        await asyncio.gather(*refusals)
        return [program.headers("POST", SERVER)["Authorization"] for program in programs]

    assert run_async(work()) == ["Bearer b"] * 4
    assert [form["grant_type"] for form in web.sent("/token")] == ["authorization_code", "refresh_token"]


def test_a_client_unknown_to_the_server_is_registered_again() -> None:
    gone = answer({"error": "invalid_client"}, 401)
    web = Web({TOKEN: [token("a"), gone, token("b")]})
    web.pages[f"{ISSUER}/register"] = [answer({"client_id": name}, 201) for name in ("first", "second")]
    scene = Scene(web)

    async def work() -> None:
        await scene.refuse()
        scene.authorizer.accepted(None)
        await scene.refuse()

    run_async(work())
    assert [form["client_id"] for form in web.sent("/token")] == ["first", "first", "second"]


def test_client_credentials_are_used_again_when_the_token_expires() -> None:
    web = Web({TOKEN: [token("a", expires_in=100), token("b", expires_in=100)]})
    web.pages[AS] = metadata(token_endpoint_auth_methods_supported=["client_secret_basic"])
    scene = Scene(web, grant="client_credentials", client_id="me", client_secret="s", issuer=ISSUER)

    async def work() -> None:
        await scene.refuse()
        scene.now += 100
        await scene.authorizer.prepare()

    run_async(work())
    assert (scene.shown, web.visited) == ("Bearer b", [])


@pytest.mark.parametrize("asynchronous", [True, False])
def test_an_assertion_function_is_called_when_needed(asynchronous: bool) -> None:
    numbers = iter(range(1, 9))

    def give() -> str:
        return f"assertion-{next(numbers)}"

    async def give_later() -> str:
        return give()

    scene = Scene(grant="jwt_bearer", issuer=ISSUER, assertion=give_later if asynchronous else give)

    async def work() -> None:
        await scene.refuse()
        scene.authorizer.accepted(None)
        await scene.refuse()

    run_async(work())
    assert [form["assertion"] for form in scene.web.sent("/token")] == ["assertion-1", "assertion-2"]


# --- more scopes, other servers ---------------------------------------------------------------------------------------


def test_new_scopes_are_added_to_the_requested_ones() -> None:
    scene = Scene(Web({PRM: resource(scopes_supported=["read"]), TOKEN: [token("a", refresh_token="r"), token("b")]}))

    async def work() -> None:
        await scene.refuse()
        await scene.refuse(403, SCOPES)

    run_async(work())
    assert [visit["scope"] for visit in scene.web.visited] == ["read", "read write"]
    assert scene.shown == "Bearer b"


def test_scopes_already_requested_are_not_requested_again() -> None:
    scene = Scene(Web({TOKEN: [token("a"), token("b")]}))

    async def work() -> None:
        await scene.refuse()
        await scene.refuse(403, SCOPES)
        await scene.refuse(403, SCOPES)

    with pytest.raises(AuthRequired, match="not granted") as failure:
        run_async(work())
    assert (failure.value.status, len(scene.web.visited)) == (403, 2)


def test_an_insufficient_scope_challenge_without_scopes_raises() -> None:
    scene = Scene()

    async def work() -> None:
        await scene.refuse()
        await scene.refuse(403, 'Bearer error="insufficient_scope"')

    with pytest.raises(AuthRequired, match="not named"):
        run_async(work())


def test_a_server_that_moves_to_another_issuer_is_followed_with_a_new_client_and_a_new_token() -> None:
    other = "https://new.example.com"
    web = Web({TOKEN: [token("a", refresh_token="r1"), answer({"error": "invalid_grant"}, 400)]})
    web.pages[f"{other}/.well-known/oauth-authorization-server"] = metadata(other)
    web.pages[f"{other}/register"] = answer({"client_id": "at-new"}, 201)
    web.pages[f"{other}/token"] = token("n")
    scene = Scene(web)

    async def work() -> list[Any]:
        await scene.refuse()
        scene.authorizer.accepted(None)
        web.pages[PRM] = resource(authorization_servers=[other])
        await scene.refuse()
        return await stored_logins(scene.store)

    kept = run_async(work())
    told = [(step.url, step.body or b"") for step in web.fetched if step.url.startswith(other)]
    assert (scene.shown, [login.issuer for login in kept]) == ("Bearer n", [other])
    assert [url for url, body in told if b"registered" in body or b"r1" in body] == []


# --- bound tokens -----------------------------------------------------------------------------------------------------


def bound() -> Scene:
    web = Web({AS: metadata(dpop_signing_alg_values_supported=["ES256"])})
    web.pages[TOKEN] = {"access_token": "bound", "token_type": "DPoP"}
    return Scene(web)


def test_each_request_has_a_proof_of_its_own() -> None:
    scene = bound()
    run_async(scene.refuse(401, "DPoP"))
    first, second = (scene.authorizer.headers("POST", SERVER) for _ in range(2))
    assert (first["Authorization"], first["DPoP"] == second["DPoP"]) == ("DPoP bound", False)


def test_a_nonce_is_taken_from_refusals_and_from_answers() -> None:
    import base64
    import json

    scene = bound()

    def nonce() -> str | None:
        claims = scene.authorizer.headers("POST", SERVER)["DPoP"].split(".")[1]
        said: str | None = json.loads(base64.urlsafe_b64decode(claims + "==")).get("nonce")
        return said

    async def work() -> list[str | None]:
        await scene.refuse(401, "DPoP")
        seen = [nonce()]
        await scene.refuse(401, 'DPoP error="use_dpop_nonce"', nonce="n1")
        seen.append(nonce())
        scene.authorizer.accepted("n2")
        return [*seen, nonce()]

    assert run_async(work()) == [None, "n1", "n2"]
    assert len(scene.web.visited) == 1


def test_a_bound_token_is_stored_with_its_key() -> None:
    scene = bound()

    async def work() -> tuple[Any, Any]:
        await scene.refuse(401, "DPoP")
        other = scene.again()
        await other.prepare()
        return scene.authorizer.headers("GET", SERVER), other.headers("GET", SERVER)

    first, second = run_async(work())
    assert first["DPoP"].split(".")[0] == second["DPoP"].split(".")[0]


# --- no secret is logged ----------------------------------------------------------------------------------------------


def test_a_store_that_cannot_be_written_does_not_break_the_login(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()

    async def full(key: str, value: str) -> None:
        raise AuthError("The login cannot be kept: no space left.")

    store.put = full  # type: ignore[method-assign]
    scene = Scene(store=store)
    assert run_async(scene.refuse()) is True
    assert (scene.shown, "no space left" in caplog.text) == ("Bearer token-1", True)


def test_no_token_is_logged_or_shown(caplog: pytest.LogCaptureFixture) -> None:
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

    async def work() -> None:
        await scene.refuse()
        scene.authorizer.accepted(None)
        await scene.refuse()

    with caplog.at_level(logging.DEBUG):
        run_async(work())
    texts = [caplog.text, repr(scene.authorizer), *map(repr, scene.web.fetched)]
    assert [text for text in texts if "hidden" in text or "code-1" in text] == []


# --- a token that a function gives ------------------------------------------------------------------------------------


def test_a_token_function_is_asked_for_another_token_after_a_refusal() -> None:
    tokens = iter(["a", "b", "b"])
    authorizer = BearerAuthorizer(SERVER, BearerToken(lambda: next(tokens)))

    async def work() -> list[Any]:
        await authorizer.prepare()
        again = await authorizer.refused(401, [], shown="Bearer a", nonce=None)
        shown = authorizer.headers("POST", SERVER)
        return [again, shown, await authorizer.refused(401, [], shown="Bearer b", nonce=None)]

    assert run_async(work()) == [True, {"Authorization": "Bearer b"}, False]


@pytest.mark.parametrize("given", ["", "a b", None])
def test_a_function_that_returns_no_token_is_a_config_error(given: Any) -> None:
    authorizer = BearerAuthorizer(SERVER, BearerToken(lambda: given))
    with pytest.raises(ConfigError, match="visible"):
        run_async(authorizer.prepare())
