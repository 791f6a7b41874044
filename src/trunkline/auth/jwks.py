"""The keys that tokens are signed with: configured, or fetched from the issuer and cached.

An issuer rotates its keys, so a token with an unknown key is a reason to fetch them again, but at a limited rate:
anyone can send tokens with made-up key ids. Concurrent callers share one fetch. If the issuer cannot be reached, the
last keys are used for a day. Only public keys of the pinned kinds are used; a token's own pointers to its key are
ignored.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from trunkline.auth.verifiers import InvalidToken
from trunkline.errors import AuthError, ConfigError, FetchError

__all__ = ["ALGORITHMS", "Fetch", "GivenKeys", "IssuerKeys", "Key", "Keys", "fetch_with", "key_of"]

log = logging.getLogger("trunkline.auth")

#: A public key, as an object of the library that verifies signatures.
Key = Any
#: Fetches a URL and returns status and body.
Fetch = Callable[[str], Awaitable[tuple[int, bytes]]]

#: The supported signature algorithms, with the key type and curves of each. All are asymmetric: a party that can
#: verify a signature cannot make one.
ALGORITHMS: Mapping[str, tuple[str, frozenset[str]]] = MappingProxyType(
    {
        **{name: ("RSA", frozenset[str]()) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")},
        "ES256": ("EC", frozenset({"P-256"})),
        "ES384": ("EC", frozenset({"P-384"})),
        "ES512": ("EC", frozenset({"P-521"})),
        "EdDSA": ("OKP", frozenset({"Ed25519", "Ed448"})),
        "Ed25519": ("OKP", frozenset({"Ed25519"})),
    }
)
# Shorter RSA keys can be broken.
_RSA_BITS = 2048
_MOST_KEYS = 128
_DOCUMENT_BYTES = 512 * 1024
_FETCH_SECONDS = 5.0


class Keys(Protocol):
    """A source of keys."""

    async def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the keys that a signature may have been made with.

        Raises:
            InvalidToken: there are none.
        """


class _Shelf:
    """The usable keys of a JWK set."""

    def __init__(self, documents: Sequence[Mapping[str, Any]]) -> None:
        self._keys: list[tuple[Mapping[str, Any], Key]] = []
        for document in documents[:_MOST_KEYS]:
            key = _usable(document)
            if key is not None:
                self._keys.append((document, key))

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, kid: str | None, algorithm: str) -> list[Key]:
        """Return the matching keys; without a ``kid`` the match must be unambiguous."""
        kind, curves = ALGORITHMS[algorithm]
        fitting = [
            (document, key)
            for document, key in self._keys
            if document["kty"] == kind
            and (not curves or document.get("crv") in curves)
            and document.get("alg", algorithm) == algorithm
        ]
        if kid is None:
            return [key for _, key in fitting] if len(fitting) == 1 else []
        return [key for document, key in fitting if document.get("kid") == kid]


class GivenKeys:
    """Keys that the verifier was configured with."""

    def __init__(self, given: Any) -> None:
        """Accept a public key in PEM, a JWK, a JWK Set, or a list of these.

        Raises:
            ConfigError: none of them can be used.
        """
        self._shelf = _Shelf(_documents(given))
        if not len(self._shelf):
            raise ConfigError(
                "keys= has no usable public key: give an RSA key of at least 2048 bits, an EC key or an Ed25519 key"
            )

    async def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the matching keys; a single configured key matches any ``kid``."""
        found = self._shelf.find(kid, algorithm) or (self._shelf.find(None, algorithm) if len(self._shelf) == 1 else [])
        if not found:
            raise InvalidToken("The token is signed with an unknown key")
        return found


class IssuerKeys:
    """Keys that are fetched from the issuer, cached, and fetched again when a token names an unknown one."""

    #: Age after which keys are fetched again, and age up to which they are used if that fails.
    FRESH_SECONDS = 600.0
    STALE_SECONDS = 86_400.0
    #: The shortest time between two fetches.
    PAUSE_SECONDS = 30.0

    def __init__(self, issuer: str, jwks_uri: str | None, *, fetch: Fetch, now: Callable[[], float]) -> None:
        """Prepare without any I/O; without ``jwks_uri`` it is read from the issuer's metadata."""
        self._issuer = issuer
        self._jwks_uri = jwks_uri
        self._fetch = fetch
        self._now = now
        self._shelf = _Shelf(())
        self._fetched = -math.inf
        self._tried = -math.inf
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the matching keys, after a fetch if no cached key matches and the last fetch is long enough ago.

        Raises:
            InvalidToken: no key matches, or the keys cannot be fetched.
        """
        age = self._now() - self._fetched
        found = self._shelf.find(kid, algorithm) if age < self.STALE_SECONDS else []
        if found:
            if age >= self.FRESH_SECONDS:
                # The cached keys are good enough: no request waits for an issuer that may be unreachable.
                self._begin()
            return found
        fetching = self._begin()
        if fetching is not None:
            # Shielded: a cancelled request must not cancel the fetch that others wait for.
            await asyncio.shield(fetching)
        found = self._shelf.find(kid, algorithm) if self._now() - self._fetched < self.STALE_SECONDS else []
        if not found:
            raise InvalidToken(
                "The token is signed with an unknown key"
                if self._fetched > -math.inf
                else "The token cannot be checked: the keys of its issuer are not available; try again later"
            )
        return found

    def _begin(self) -> asyncio.Task[None] | None:
        """Return the running fetch, or start one if the last is long enough ago."""
        running = self._fetching
        loop = asyncio.get_running_loop()
        if running is not None and not running.done() and running.get_loop() is loop:
            return running
        now = self._now()
        if now - self._tried < self.PAUSE_SECONDS:
            return None
        self._tried = now
        self._fetching = loop.create_task(self._refresh())
        return self._fetching

    async def _refresh(self) -> None:
        try:
            shelf = _Shelf(_documents(await self._document(await self._address())))
            if not len(shelf):
                raise AuthError(f"{self._issuer} publishes no usable key")
        except (AuthError, ConfigError, FetchError) as error:
            log.warning("cannot fetch the keys of %s: %s", self._issuer, error)
        else:
            self._shelf, self._fetched = shelf, self._now()

    async def _address(self) -> str:
        """Return the URL of the keys; remembered once the issuer's metadata has named it."""
        if self._jwks_uri is None:
            from trunkline.auth.metadata import server_urls

            for url in server_urls(self._issuer):
                status, body = await self._fetch(url)
                if status == 200:
                    self._jwks_uri = self._named(url, _object(body, url))
                    return self._jwks_uri
            raise AuthError(f"{self._issuer} has no metadata at the well-known URLs; set jwks_uri=")
        return self._jwks_uri

    def _named(self, url: str, metadata: Mapping[str, Any]) -> str:
        if metadata.get("issuer") != self._issuer:
            # RFC 8414, 3.3: the two must be identical, or another party answers for the issuer.
            raise AuthError(f"the metadata at {url} belongs to another issuer")
        address = metadata.get("jwks_uri")
        if not isinstance(address, str):
            raise AuthError(f"the metadata at {url} has no jwks_uri; set jwks_uri=")
        return address

    async def _document(self, url: str) -> Mapping[str, Any]:
        status, body = await self._fetch(url)
        if status != 200:
            raise AuthError(f"{url} answered {status}")
        return _object(body, url)


def fetch_with(fetcher: Any) -> Fetch:
    """Return a function that fetches documents with the guarded HTTP client, within limits."""

    async def fetch(url: str) -> tuple[int, bytes]:
        answer = await fetcher.fetch("GET", url, max_bytes=_DOCUMENT_BYTES, seconds=_FETCH_SECONDS)
        return answer.status, answer.body

    return fetch


# --- reading keys ----------------------------------------------------------------------------------------------------


def _object(body: bytes, url: str) -> Mapping[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AuthError(f"the document at {url} is not JSON") from error
    if not isinstance(document, dict):
        raise AuthError(f"the document at {url} is not a JSON object")
    return document


def _documents(given: Any) -> list[Mapping[str, Any]]:
    """Return the JWKs of a key, a JWK Set or a list of these."""
    if isinstance(given, str | bytes):
        return [_from_pem(given)]
    if isinstance(given, Mapping):
        keys = given.get("keys", [given] if "kty" in given else None)
        if not isinstance(keys, list):
            raise ConfigError("keys=: a JWK Set needs a list under 'keys', and a JWK needs 'kty'")
        return [key for key in keys if isinstance(key, Mapping)]
    if isinstance(given, Sequence):
        return [key for each in given for key in _documents(each)]
    raise ConfigError(
        f"keys= must be a public key in PEM, a JWK, a JWK Set or a list of these, not {type(given).__name__}"
    )


def _from_pem(text: str | bytes) -> Mapping[str, Any]:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    try:
        key = load_pem_public_key(text.encode() if isinstance(text, str) else text)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"keys= contains text that is not a public key in PEM: {error}") from error
    kind: Any = (
        RSAKey if isinstance(key, rsa.RSAPublicKey) else ECKey if isinstance(key, ec.EllipticCurvePublicKey) else OKPKey
    )
    document: Mapping[str, Any] = kind.import_key(text).as_dict(private=False)
    return {name: value for name, value in document.items() if name != "kid"}


def _usable(document: Mapping[str, Any]) -> Key | None:
    """Import a JWK; return None unless it is a public key for verifying signatures."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    makers: Mapping[str, Any] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    maker = makers.get(str(document.get("kty")))
    operations = document.get("key_ops")
    if (
        maker is None
        or document.get("use", "sig") != "sig"
        or (isinstance(operations, list) and "verify" not in operations)
        or ("kid" in document and not isinstance(document["kid"], str))
    ):
        return None
    # Everything else in a JWK (certificates, URLs) is ignored.
    known = {name: value for name, value in document.items() if name in ("kty", "crv", "x", "y", "n", "e")}
    try:
        if maker is RSAKey and _bits(known.get("n")) < _RSA_BITS:
            return None
        return maker.import_key(known)
    except (JoseError, ValueError, TypeError):
        return None


def key_of(document: Mapping[str, Any], algorithm: str) -> Key | None:
    """Import a public JWK; return None unless it can verify signatures of this algorithm."""
    found = _Shelf([document]).find(None, algorithm) if algorithm in ALGORITHMS else []
    return found[0] if found else None


def _bits(modulus: Any) -> int:
    """Return the bit length of an RSA key, from the modulus in its JWK."""
    return len(modulus) * 6 if isinstance(modulus, str) else 0
