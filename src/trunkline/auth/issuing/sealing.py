"""Sealed requests: records that leave in a form and come back, signed and with an expiry.

A request that waits for the user's decision is kept in the page and not on the server, so that opening a million pages
uses no storage.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

import msgspec
from msgspec import Struct

from trunkline.auth.issuing.records import AuthorizationRequest, new_secret
from trunkline.auth.issuing.store import Store

__all__ = ["RequestSeal", "kept_secret"]

_LONGEST = 16 * 1024
_FOREVER = float(2**53)


class _Secret(Struct, frozen=True):
    value: str


class RequestSeal:
    """Seals requests with a key from the store, which all processes that share it use."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        """Load the key, or generate it."""
        self._clock = clock
        self._key = kept_secret(store, "requests", clock()).encode()

    def seal(self, request: AuthorizationRequest) -> str:
        """Return a request as signed text."""
        data = msgspec.json.encode(request)
        return f"{_text(data)}.{_text(self._mac(data))}"

    def open(self, sealed: str) -> AuthorizationRequest | None:
        """Return the request of a signed text; None if the signature is not ours, or it has expired."""
        body, _, mac = sealed.partition(".")
        if len(sealed) > _LONGEST or not sealed.isascii():
            return None
        try:
            data, given = _bytes(body), _bytes(mac)
        except binascii.Error:
            return None
        if not hmac.compare_digest(given, self._mac(data)):
            return None
        request = msgspec.json.decode(data, type=AuthorizationRequest)
        return request if request.until > self._clock() else None

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, hashlib.sha256)


def kept_secret(store: Store, name: str, now: float) -> str:
    """Return a secret that lives as long as the store; the first call generates it."""
    store.add("secret", name, _Secret(new_secret()), until=_FOREVER, now=now)
    kept = store.get("secret", name, _Secret, now=now)
    assert kept is not None
    return kept.value


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
