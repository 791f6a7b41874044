"""Shared by the tests of the resource server: keys, valid and forged tokens, and an issuer."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry, serialize_compact

from trunkline.auth import InvalidToken, JWTVerifier
from trunkline.errors import FetchError
from trunkline.net import FetchResponse
from trunkline.protocol.caller import Principal

__all__ = [
    "AUDIENCE",
    "ISSUER",
    "NOW",
    "FakeFetcher",
    "bearer",
    "claims",
    "ec_key",
    "encoded",
    "jwks",
    "public",
    "reason",
    "rsa_key",
    "sign",
    "sign_hs",
    "token",
    "verifier",
]

ISSUER = "https://auth.example.com/tenant"
AUDIENCE = "https://mcp.example.com/mcp"
NOW = 1_700_000_000.0


@cache
def ec_key(kid: str = "first") -> ECKey:
    return ECKey.generate_key("P-256", {"kid": kid}, private=True)


@cache
def rsa_key(kid: str = "rsa", bits: int = 2048) -> RSAKey:
    return RSAKey.generate_key(bits, {"kid": kid}, private=True)


def public(key: ECKey | RSAKey) -> dict[str, Any]:
    return dict(key.as_dict(private=False))


def jwks(*keys: ECKey | RSAKey) -> dict[str, Any]:
    return {"keys": [public(key) for key in keys]}


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a good token; None leaves one out."""
    good = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "client_id": "notebook",
        "scope": "files:read files:write",
        "iat": NOW - 10,
        "exp": NOW + 300,
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def sign(payload: bytes, header: Mapping[str, Any], key: Any) -> str:
    registry = JWSRegistry(algorithms=[header["alg"]], strict_check_header=False)
    return serialize_compact(dict(header), payload, key, registry=registry)


def token(*, header: Mapping[str, Any] | None = None, key: Any = None, **changes: Any) -> str:
    """A token of the issuer, but for what is changed."""
    named = {"alg": "ES256", "kid": "first", "typ": "at+jwt", **(header or {})}
    head = {name: value for name, value in named.items() if value is not None}
    return sign(json.dumps(claims(**changes)).encode(), head, key or ec_key())


def sign_hs(secret: bytes, **header: Any) -> str:
    """A token that is signed with a secret, of whatever kind: forgers do not use libraries that would refuse it."""
    signed = f"{encoded({'alg': 'HS256', **header})}.{encoded(claims())}"
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"


def encoded(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def bearer(given: str) -> dict[str, str]:
    return {"authorization": f"Bearer {given}"}


def verifier(**options: Any) -> JWTVerifier:
    """A verifier that has the issuer's keys."""
    given = {"issuer": ISSUER, "audience": AUDIENCE, "keys": jwks(ec_key(), rsa_key()), "now": lambda: NOW, **options}
    return JWTVerifier(**given)


async def reason(checks: Any, headers: Mapping[str, str]) -> str:
    """Why a verifier does not take what a request brings."""
    try:
        found: Principal | None = await checks.verify(headers)
    except InvalidToken as error:
        return str(error)
    return f"taken: {found}"


class FakeFetcher:
    """An issuer that answers what it is told to, and counts."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.bodies: list[bytes | None] = []
        self.headers: list[Mapping[str, str]] = []
        self.proceed: asyncio.Event | None = None

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        **bounds: Any,
    ) -> FetchResponse:
        self.asked.append(url)
        self.bodies.append(body)
        self.headers.append(headers or {})
        assert {"max_bytes", "seconds"} <= set(bounds)
        if self.proceed is not None:
            await self.proceed.wait()
        answer = self.answers.get(url, 404)
        if isinstance(answer, int):
            return FetchResponse(answer, {}, b"{}", url)
        if isinstance(answer, str):
            raise FetchError(answer)
        return FetchResponse(200, {}, answer if isinstance(answer, bytes) else json.dumps(answer).encode(), url)
