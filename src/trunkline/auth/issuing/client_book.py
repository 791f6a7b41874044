"""The clients: configured, dynamically registered, or described by a document at the URL that is their client_id.

A document is fetched at a stranger's request, so only with the guarded HTTP client, without following redirects,
rate-limited, and cached for a while, whether it was valid or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from trunkline.auth.issuing.faults import OAuthFault
from trunkline.auth.issuing.records import OAuthClient, digest, new_secret
from trunkline.auth.issuing.redirects import redirect_fault
from trunkline.auth.issuing.registration import read_metadata, registration_answer
from trunkline.auth.issuing.settings import Settings
from trunkline.auth.issuing.store import Store
from trunkline.auth.issuing.throttle import Throttle
from trunkline.errors import ConfigError, LinkError

__all__ = ["ClientBook"]

_DOCUMENT_BYTES = 16 * 1024
_DOCUMENT_SECONDS = 5.0
_KEPT_SECONDS = (60.0, 3600.0, 24 * 3600.0)
_BAD_SECONDS = 30.0
_DOCUMENTS = 256
_PER_MINUTE = 20
_ALL_PER_MINUTE = 300
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=(\d{1,9})(?:$|[,\s])")


class ClientBook:
    """Finds clients by id, and registers new ones."""

    def __init__(self, settings: Settings, store: Store, *, clients: Iterable[OAuthClient], fetcher: Any) -> None:
        """Load the configured clients.

        Raises:
            ConfigError: one of them is not valid.
        """
        self._settings = settings
        self._store = store
        self._fetcher = fetcher
        self._configured = {client.client_id: _configured(client, settings) for client in clients}
        #: The clients of documents, or why a document is not valid, with the expiry of that result.
        self._documents: dict[str, tuple[OAuthClient | str, float]] = {}
        self._jwks: dict[str, tuple[dict[str, Any], float]] = {}
        self._registering = Throttle(_PER_MINUTE, 60.0, clock=settings.clock)
        self._fetching = Throttle(_PER_MINUTE, 60.0, clock=settings.clock)
        self._fetching_all = Throttle(_ALL_PER_MINUTE, 60.0, clock=settings.clock)

    @property
    def grant_types(self) -> list[str]:
        """The grant types that any client may use."""
        machines = any("client_credentials" in each.grant_types for each in self._configured.values())
        return ["authorization_code", "refresh_token", *(["client_credentials"] if machines else [])]

    async def find(self, client_id: str, *, address: str) -> OAuthClient:
        """Return a client by its id.

        Raises:
            OAuthError: there is no such client, or its document is not valid.
        """
        if found := self._configured.get(client_id):
            return found
        if self._settings.documents and client_id.startswith("https://"):
            return await self._document(client_id, address)
        registered = self._store.get("client", client_id, OAuthClient, now=self._settings.clock())
        if registered is None:
            raise OAuthFault("invalid_client", "Unknown client_id; the client may have to register again")
        return registered

    def used(self, client: OAuthClient) -> None:
        """Extend the lifetime of a dynamically registered client that is in use."""
        if client.source == "registered":
            self._store.extend("client", client.client_id, self._settings.clock() + self._settings.lives.used_client)

    # --- registration ------------------------------------------------------------------------------------------------

    def register(self, given: Mapping[str, Any], *, address: str) -> dict[str, Any]:
        """Register a client; it expires after an hour unless it is used. Return the registration response.

        Raises:
            OAuthError: its metadata is not valid, or there are too many clients.
        """
        now = self._settings.clock()
        self._store.sweep(now)
        full = self._store.count("client", now=now) >= self._settings.registered_clients
        if wait := self._registering.count(address) or (60 if full else 0):
            raise _too_many("Too many registrations", wait)
        client, secret = read_metadata(
            given, client_id=new_secret(), source="registered", schemes=self._settings.redirect_schemes
        )
        self._store.put("client", client.client_id, client, until=now + self._settings.lives.unused_client)
        return registration_answer(client, secret, given, now=now)

    # --- documents ---------------------------------------------------------------------------------------------------

    async def _document(self, url: str, address: str) -> OAuthClient:
        now = self._settings.clock()
        known, until = self._documents.get(url, ("", 0.0))
        if until <= now:
            known, seconds = await self._fetched(url, address)
            if len(self._documents) >= _DOCUMENTS:
                self._documents.clear()
            self._documents[url] = known, now + seconds
        if isinstance(known, str):
            raise OAuthFault("invalid_client", f"The document at the client_id URL {known}")
        return known

    async def _fetched(self, url: str, address: str) -> tuple[OAuthClient | str, float]:
        if fault := _document_fault(url):
            return fault, _BAD_SECONDS
        try:
            answer = await self._get(url, address)
            given = msgspec.json.decode(answer.body, type=dict[str, Any])
            # Compared as they are written: RFC 3986, 6.2.1.
            if given.get("client_id") != url:
                return "has a client_id that differs from its URL", _BAD_SECONDS
            if "client_secret" in given or not given.get("client_name"):
                return "must have a client_name and no client_secret", _BAD_SECONDS
            schemes = self._settings.redirect_schemes
            client, _ = read_metadata(given, client_id=url, source="document", schemes=schemes)
        except LinkError:
            return "could not be fetched", _BAD_SECONDS
        except (msgspec.DecodeError, UnicodeDecodeError):
            return "is not a JSON object", _BAD_SECONDS
        except OAuthFault as refused:
            if refused.status == 429:
                raise
            return f"is not valid: {refused.description}", _BAD_SECONDS
        return client, _lifetime(answer.headers.get("cache-control", ""))

    async def _get(self, url: str, address: str) -> Any:
        """Fetch a document.

        Raises:
            OAuthError: the rate limit is reached.
            LinkError: it cannot be fetched.
        """
        if wait := self._fetching.count(address) or self._fetching_all.count(""):
            raise _too_many("Too many client documents requested", wait)
        if self._fetcher is None:
            from trunkline.net import Fetcher

            self._fetcher = Fetcher()
        answer = await self._fetcher.fetch(
            "GET",
            url,
            headers={"accept": "application/json"},
            max_bytes=_DOCUMENT_BYTES,
            seconds=_DOCUMENT_SECONDS,
            redirects=0,
        )
        content_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status != 200 or not (content_type == "application/json" or content_type.endswith("+json")):
            raise LinkError("the response is not a JSON document")
        return answer

    async def keys_of(self, client: OAuthClient, *, address: str) -> dict[str, Any]:
        """Return the public keys of a client.

        Raises:
            OAuthError: they cannot be fetched.
        """
        if client.jwks is not None or client.jwks_uri is None:
            return client.jwks or {"keys": []}
        now = self._settings.clock()
        keys, until = self._jwks.get(client.jwks_uri, ({}, 0.0))
        if until <= now:
            try:
                keys = msgspec.json.decode((await self._get(client.jwks_uri, address)).body, type=dict[str, Any])
            except (LinkError, msgspec.DecodeError, UnicodeDecodeError):
                raise OAuthFault("invalid_client", "The keys at jwks_uri could not be fetched", status=401) from None
            if len(self._jwks) >= _DOCUMENTS:
                self._jwks.clear()
            self._jwks[client.jwks_uri] = keys, now + _KEPT_SECONDS[0]
        return keys

    async def aclose(self) -> None:
        """Close the HTTP client."""
        if self._fetcher is not None:
            await self._fetcher.aclose()


def _configured(client: OAuthClient, settings: Settings) -> OAuthClient:
    for uri in client.redirect_uris:
        if fault := redirect_fault(uri, schemes=settings.redirect_schemes):
            raise ConfigError(f"client {client.client_id!r}: the redirect URI {uri!r} {fault}")
    secret = client.client_secret
    ready = msgspec.structs.replace(
        client, client_secret=None, secret_digest=None if secret is None else digest(secret), source="configured"
    )
    if "client_credentials" in client.grant_types and ready.is_public:
        raise ConfigError(
            f"client {client.client_id!r}: the client_credentials grant needs client_secret=, jwks= or jwks_uri="
        )
    return ready


def _document_fault(url: str) -> str | None:
    """Return what is wrong with the URL of a document, which needs a plain host and a path without dot segments."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "has a malformed URL"
    steps = parts.path.split("/")
    if len(url) > 500 or not url.isascii() or "#" in url or "@" in parts.netloc or not parts.hostname:
        return "has a URL that is too long, or contains a fragment or user information"
    if parts.path in ("", "/") or {".", ".."} & {step.lower().replace("%2e", ".") for step in steps}:
        return "has a URL without a plain path"
    return None


def _lifetime(cache_control: str) -> float:
    least, usual, most = _KEPT_SECONDS
    said = _MAX_AGE.search(cache_control.lower())
    if "no-store" in cache_control.lower() or "no-cache" in cache_control.lower():
        return least
    return usual if said is None else min(max(float(said[1]), least), most)


def _too_many(sentence: str, wait: int) -> OAuthFault:
    headers = (("retry-after", str(wait)),)
    return OAuthFault("temporarily_unavailable", f"{sentence}; try again in {wait} s", status=429, headers=headers)
