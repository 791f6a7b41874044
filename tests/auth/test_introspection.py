"""Token introspection: what the issuer must answer, and that any other answer rejects the request."""

from __future__ import annotations

import asyncio
import base64
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.auth.resource_support import AUDIENCE, ISSUER, NOW, FakeFetcher, bearer, claims, reason
from trunkline.auth import IntrospectionVerifier
from trunkline.errors import ConfigError

URL = "https://auth.example.com/introspect"
AWAY = "The token cannot be checked at the moment; try again later"


def said(**changes: Any) -> dict[str, Any]:
    return claims(**{"active": True, **changes})


class Asked:
    """A verifier that asks an issuer whose answer and clock the test sets."""

    def __init__(self, answer: Any, **options: Any) -> None:
        self.now = NOW
        self.web = FakeFetcher({URL: answer})
        given: dict[str, Any] = {
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "client_id": "mcp server",
            "client_secret": "s:e/c",
            "fetcher": self.web,
            "now": lambda: self.now,
            **options,
        }
        self.checks = IntrospectionVerifier(URL, **given)

    async def reason(self, token: str = "opaque") -> str:
        return await reason(self.checks, bearer(token))


async def test_an_active_token_names_the_principal() -> None:
    found = await Asked(said()).checks.verify(bearer("opaque"))
    assert found is not None
    assert (found.subject, found.issuer, found.client) == ("ada", ISSUER, "notebook")
    assert found.scopes == {"files:read", "files:write"}


async def test_introspection_requests_follow_the_standard() -> None:
    asked = Asked(said())
    await asked.checks.verify(bearer("opaque"))
    assert parse_qs((asked.web.bodies[0] or b"").decode()) == {
        "token": ["opaque"],
        "token_type_hint": ["access_token"],
    }
    scheme, _, credentials = asked.web.headers[0]["Authorization"].partition(" ")
    assert (scheme, base64.b64decode(credentials)) == ("Basic", b"mcp+server:s%3Ae%2Fc")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(said(exp=None), id="without an end"),
        pytest.param(said(iss=None), id="without an issuer"),
        pytest.param(said(aud=[AUDIENCE, "x"]), id="for several"),
    ],
)
async def test_optional_response_fields_may_be_missing(answer: Any) -> None:
    assert await Asked(answer).checks.verify(bearer("opaque")) is not None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param({"active": False}, "The token is not active", id="not active"),
        pytest.param({}, "The token is not active", id="says nothing"),
        pytest.param(said(active=None), "The token is not active", id="all but that it is active"),
        pytest.param(said(active="true"), "The token is not active", id="active as text"),
        pytest.param(said(active=1), "The token is not active", id="active as a number"),
        pytest.param(said(aud=None), "The token was issued for another audience", id="no audience"),
        pytest.param(
            said(aud="https://api.example.com"), "The token was issued for another audience", id="a sibling's"
        ),
        pytest.param(said(iss="https://evil.example"), "The token is from another issuer", id="another issuer"),
        pytest.param(said(exp=NOW - 31), "The token has expired", id="expired"),
        pytest.param(said(nbf=NOW + 31), "The token is not valid yet", id="not yet valid"),
        pytest.param(said(sub=None, client_id=None), "The token has no subject", id="nobody's"),
        pytest.param(500, AWAY, id="500"),
        pytest.param(401, AWAY, id="our own credentials are refused"),
        pytest.param(302, AWAY, id="a redirect"),
        pytest.param("took too long", AWAY, id="too slow"),
        pytest.param(b"<html>", AWAY, id="not JSON"),
        pytest.param(b"\xff", AWAY, id="not UTF-8"),
        pytest.param(b"[true]", AWAY, id="a list"),
        pytest.param(b"", AWAY, id="nothing"),
    ],
)
async def test_any_other_answer_of_the_issuer_rejects_the_request(answer: Any, why: str) -> None:
    assert await Asked(answer).reason() == why


async def test_an_unexpected_exception_is_raised() -> None:
    asked = Asked(said())
    asked.web.fetch = None  # type: ignore[assignment, method-assign]
    with pytest.raises(TypeError):
        await asked.checks.verify(bearer("opaque"))


async def test_a_request_without_a_token_is_not_introspected() -> None:
    asked = Asked(said())
    assert await asked.checks.verify({}) is None
    assert asked.web.asked == []


# --- few fetches -----------------------------------------------------------------------------------------------------


async def test_an_introspection_result_is_cached() -> None:
    asked = Asked(said())
    await asked.checks.verify(bearer("opaque"))
    asked.now += 29
    await asked.checks.verify(bearer("opaque"))
    assert len(asked.web.asked) == 1
    asked.now += 1
    asked.web.answers[URL] = {"active": False}
    assert await asked.reason() == "The token is not active"


async def test_an_introspection_result_is_not_cached_beyond_the_expiry() -> None:
    asked = Asked(said(exp=NOW - 20))
    await asked.checks.verify(bearer("opaque"))
    asked.now += 10
    assert await asked.reason() == "The token has expired"


async def test_an_introspection_result_is_cached_per_token() -> None:
    asked = Asked(said())
    await asked.checks.verify(bearer("opaque"))
    asked.web.answers[URL] = {"active": False}
    assert await asked.reason("other") == "The token is not active"


async def test_a_failed_introspection_is_not_cached() -> None:
    asked = Asked(503)
    assert await asked.reason() == AWAY
    asked.web.answers[URL] = said()
    assert await asked.checks.verify(bearer("opaque")) is not None


async def test_concurrent_verifications_share_one_introspection() -> None:
    asked = Asked(said())
    asked.web.proceed = asyncio.Event()
    waiting = [asyncio.ensure_future(asked.checks.verify(bearer("opaque"))) for _ in range(10)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    asked.web.proceed.set()
    found = await asyncio.gather(*waiting[1:])
    assert {each and each.subject for each in found} == {"ada"}
    assert len(asked.web.asked) == 1


async def test_introspections_in_flight_are_bounded() -> None:
    asked = Asked(said())
    asked.web.proceed = asyncio.Event()
    waiting = [asyncio.ensure_future(asked.reason(f"random{n}")) for n in range(200)]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    asked.web.proceed.set()
    answers = await asyncio.gather(*waiting)
    assert (len(asked.web.asked), answers.count(AWAY)) == (64, 136)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"issuer": "auth.example.com"}, "issuer=", id="issuer"),
        pytest.param({"audience": ""}, "audience=", id="audience"),
    ],
)
def test_invalid_options_are_a_config_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Asked(200, **options)


def test_the_introspection_url_must_be_a_url() -> None:
    with pytest.raises(ConfigError, match="url='introspect'"):
        IntrospectionVerifier("introspect", issuer=ISSUER, audience=AUDIENCE, client_id="a", client_secret="b")
