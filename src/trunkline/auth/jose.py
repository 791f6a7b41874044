"""Signed tokens and the keys that verify them: configured keys, or an issuer's JWK set, fetched and cached.

Only public keys of the pinned algorithms are used; a token's own pointers to its key are ignored.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from trunkline.auth.steps import ClockAndRandom
from trunkline.auth.verifiers import InvalidToken
from trunkline.errors import AuthError, ConfigError, FetchError

__all__ = [
    "ALGORITHMS",
    "FetchDocument",
    "IssuerKeys",
    "Key",
    "KeySource",
    "ProofKey",
    "StaticKeys",
    "client_assertion",
    "digest",
    "document_fetcher",
    "public_key_from_jwk",
    "read_header",
    "verified_payload",
]

_ASSERTION_SECONDS = 60  # An assertion is used at once; a minute allows for clocks that differ.
_ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA", "Ed25519")
#: The only kind of key we generate: every DPoP implementation supports it.
_PROOF_ALGORITHM = "ES256"


def digest(text: str) -> str:
    """Return the SHA-256 of a text in unpadded base64url, as PKCE and DPoP use it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def client_assertion(client_id: str, audience: str, *, key: str, algorithm: str, sources: ClockAndRandom) -> str:
    """Sign a client assertion for one authorization server, valid for one minute (RFC 7523).

    Raises:
        ConfigError: the key or the algorithm cannot be used.
    """
    _check_installed()
    from joserfc import jwk, jwt
    from joserfc.errors import JoseError

    if algorithm not in _ALGORITHMS:
        raise ConfigError(f"signing_algorithm={algorithm!r} must be one of {', '.join(_ALGORITHMS)}.")
    now = int(sources.now())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + _ASSERTION_SECONDS,
        "jti": sources.token(),
    }
    kinds: tuple[Any, ...] = (jwk.ECKey, jwk.OKPKey, jwk.RSAKey)
    kind = kinds[("ES", "Ed").index(algorithm[:2])] if algorithm[0] == "E" else kinds[2]
    try:
        private = kind.import_key(key)
        return jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, private, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError) as error:
        # The library's message may quote the key.
        raise ConfigError(
            f"private_key= cannot sign with {algorithm}: it must be a PEM private key for that algorithm "
            f"({type(error).__name__})."
        ) from None


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("joserfc") is None:
        raise ConfigError("Signing needs an extra: pip install 'trunkline[auth]'")


class ProofKey:
    """A key that tokens are bound to, and the nonces that servers require in its proofs (RFC 9449)."""

    def __init__(self, stored: Mapping[str, Any] | None = None, *, sources: ClockAndRandom) -> None:
        """Load a stored key, or generate one."""
        _check_installed()
        from joserfc.jwk import ECKey

        self._sources = sources
        self._key = ECKey.import_key(dict(stored)) if stored is not None else ECKey.generate_key("P-256")
        #: The last nonce of each server, by URL.
        self.nonces: dict[str, str] = {}

    def __repr__(self) -> str:
        """Show no key."""
        return "ProofKey(…)"

    @property
    def stored(self) -> dict[str, Any]:
        """The private key as a JWK, for the store."""
        return dict(self._key.as_dict(private=True))

    @property
    def thumbprint(self) -> str:
        """The thumbprint by which bound tokens name this key."""
        return self._key.thumbprint()

    def proof(self, method: str, url: str, *, nonce: str | None = None, token: str | None = None) -> str:
        """Sign a proof for one request."""
        from joserfc import jwt

        header = {
            "typ": "dpop+jwt",
            "alg": _PROOF_ALGORITHM,
            "jwk": {name: self._key.as_dict(private=False)[name] for name in ("kty", "crv", "x", "y")},
        }
        claims: dict[str, Any] = {
            "jti": self._sources.token(),
            "htm": method,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": int(self._sources.now()),
        }
        if nonce is not None:
            claims["nonce"] = nonce
        if token is not None:
            claims["ath"] = digest(token)
        return jwt.encode(header, claims, self._key, algorithms=[_PROOF_ALGORITHM])


log = logging.getLogger("trunkline.auth")

#: A public key, as an object of the library that verifies signatures.
Key = Any
#: Fetches a URL and returns status and body.
FetchDocument = Callable[[str], Awaitable[tuple[int, bytes]]]

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
_MOST_KEYS = 128  # Providers publish two to ten; verification may have to try each.
_DOCUMENT_BYTES = 512 * 1024  # Key sets with certificate chains have up to 100 KiB.
_FETCH_SECONDS = 5.0  # A request waits for it, and a failed fetch is tried again.


class KeySource(Protocol):
    """A source of keys."""

    async def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the keys that a signature may have been made with.

        Raises:
            InvalidToken: there are none.
        """


class _KeySet:
    """The usable keys of a JWK set."""

    def __init__(self, documents: Sequence[Mapping[str, Any]]) -> None:
        self._keys: list[tuple[Mapping[str, Any], Key]] = []
        for document in documents[:_MOST_KEYS]:
            key = _import_public_key(document)
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


class StaticKeys:
    """Keys that the verifier was configured with."""

    def __init__(self, given: Any) -> None:
        """Accept a public key in PEM, a JWK, a JWK Set, or a list of these.

        Raises:
            ConfigError: none of them can be used.
        """
        self._key_set = _KeySet(_documents(given))
        if not len(self._key_set):
            raise ConfigError(
                "keys= has no usable public key: give an RSA key of at least 2048 bits, an EC key or an Ed25519 key"
            )

    async def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the matching keys; a single configured key matches any ``kid``."""
        found = self._key_set.find(kid, algorithm) or (
            self._key_set.find(None, algorithm) if len(self._key_set) == 1 else []
        )
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

    def __init__(self, issuer: str, jwks_uri: str | None, *, fetch: FetchDocument, now: Callable[[], float]) -> None:
        """Prepare without any I/O; without ``jwks_uri`` it is read from the issuer's metadata."""
        self._issuer = issuer
        self._jwks_uri = jwks_uri
        self._fetch = fetch
        self._now = now
        self._key_set = _KeySet(())
        self._fetched = -math.inf
        self._tried = -math.inf
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> Sequence[Key]:
        """Return the matching keys, after a fetch if no cached key matches and the last fetch is long enough ago.

        Raises:
            InvalidToken: no key matches, or the keys cannot be fetched.
        """
        age = self._now() - self._fetched
        found = self._key_set.find(kid, algorithm) if age < self.STALE_SECONDS else []
        if found:
            if age >= self.FRESH_SECONDS:
                # The cached keys are good enough: no request waits for an issuer that may be unreachable.
                self._begin()
            return found
        fetching = self._begin()
        if fetching is not None:
            # Shielded: a cancelled request must not cancel the fetch that others wait for.
            await asyncio.shield(fetching)
        found = self._key_set.find(kid, algorithm) if self._now() - self._fetched < self.STALE_SECONDS else []
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
            key_set = _KeySet(_documents(await self._document(await self._address())))
            if not len(key_set):
                raise AuthError(f"{self._issuer} publishes no usable key")
        except (AuthError, ConfigError, FetchError) as error:
            log.warning("cannot fetch the keys of %s: %s", self._issuer, error)
        else:
            self._key_set, self._fetched = key_set, self._now()

    async def _address(self) -> str:
        """Return the URL of the keys; remembered once the issuer's metadata has named it."""
        if self._jwks_uri is None:
            from trunkline.auth.discovery import server_metadata_urls

            for url in server_metadata_urls(self._issuer):
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


def document_fetcher(fetcher: Any) -> FetchDocument:
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


def _import_public_key(document: Mapping[str, Any]) -> Key | None:
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


def public_key_from_jwk(document: Mapping[str, Any], algorithm: str) -> Key | None:
    """Import a public JWK; return None unless it can verify signatures of this algorithm."""
    found = _KeySet([document]).find(None, algorithm) if algorithm in ALGORITHMS else []
    return found[0] if found else None


def _bits(modulus: Any) -> int:
    """Return the bit length of an RSA key, from the modulus in its JWK."""
    return len(modulus) * 6 if isinstance(modulus, str) else 0


H = TypeVar("H", bound=Struct)
# A DPoP header carries a whole key, with an RSA key about 1 KiB; the library's own limit is 512 bytes.
_LONGEST_HEADER = 16 * 1024


def verified_payload(token: str, algorithm: str, key: Any) -> bytes | None:
    """Return the payload of a token if its signature by this algorithm and key is valid; else None."""
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry, deserialize_compact

    # Providers add header parameters of their own; unknown ones are ignored.
    registry = JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    # Certificates and keys make headers longer than the library expects; the caller has bounded the whole token.
    registry.max_header_length = _LONGEST_HEADER
    try:
        return deserialize_compact(token, key, registry=registry).payload
    except (JoseError, ValueError, TypeError):
        return None


def read_header(token: str, kind: type[H]) -> H | None:
    """Decode the header of a token; return None if it is not a compact JWT, or the header has another shape."""
    import binascii
    from base64 import urlsafe_b64decode

    first, *rest = token.split(".")
    if len(rest) != 2:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(first + "=" * (-len(first) % 4)), type=kind)
    except (ValueError, binascii.Error, RecursionError):
        # msgspec's own error and UnicodeDecodeError are subclasses of ValueError.
        return None
