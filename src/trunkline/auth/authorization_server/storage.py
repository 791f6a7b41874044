"""What the authorization server stores.

Frozen records with an expiry in one SQLite file, and the seal of requests that travel in a page. Secrets are not
stored: a code, refresh token, cookie or client secret is stored under its digest. Writes do not wait for the disk
(WAL, ``synchronous=NORMAL``), so they are short enough for the event loop; after a power loss the last moment may be
missing, never more. Several processes may share the file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError

__all__ = [
    "AuthorizationCode",
    "AuthorizationRequest",
    "BrowserSession",
    "OAuthClient",
    "RecordStore",
    "RefreshToken",
    "RequestSeal",
    "StoredConsent",
    "TokenGrant",
    "constant_time_equal",
    "digest",
    "new_secret",
    "stored_secret",
]


class OAuthClient(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client of the authorization server: configured, registered dynamically, or described by a document."""

    client_id: str
    client_name: str = ""
    #: Allowed redirect URIs: https, or loopback with any port.
    redirect_uris: tuple[str, ...] = ()
    #: Only configured clients may also have ``client_credentials``.
    grant_types: tuple[str, ...] = ("authorization_code", "refresh_token")
    #: For configuration only; never stored.
    client_secret: str | None = None
    #: Public keys of a client that authenticates with signed assertions.
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None
    #: The scopes that a configured client may request; None: all.
    scopes: tuple[str, ...] | None = None
    client_uri: str | None = None
    #: Where it comes from: ``configured``, ``registered`` or ``document``.
    source: str = "configured"
    #: The digest of its secret.
    secret_digest: str | None = None

    @property
    def is_public(self) -> bool:
        """Whether it has no credentials."""
        return self.secret_digest is None and self.jwks is None and self.jwks_uri is None


class AuthorizationRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A validated authorization request that waits for the user's decision."""

    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    state: str | None = None
    #: The digest of the cookie of the browser that was shown the page.
    browser: str = ""
    #: Makes each request unique, so that it can be decided only once.
    nonce: str = ""
    until: float = 0.0


class AuthorizationCode(Struct, frozen=True, kw_only=True):
    """The record of an authorization code."""

    grant_id: str
    subject: str
    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    until: float


class TokenGrant(Struct, frozen=True, kw_only=True):
    """What a user allowed a client: a family of tokens. It is valid for as long as it is stored."""

    subject: str
    client_id: str
    resource: str
    scopes: tuple[str, ...]


class RefreshToken(Struct, frozen=True):
    """The record of a refresh token."""

    grant_id: str


class BrowserSession(Struct, frozen=True):
    """The user who signed in with a browser."""

    subject: str


class StoredConsent(Struct, frozen=True):
    """What was allowed before to the same client, in the same browser."""

    scopes: tuple[str, ...]


def digest(secret: str) -> str:
    """Return the digest under which a secret is stored; secrets have 256 bits, so a plain hash is enough."""
    return base64.urlsafe_b64encode(hashlib.sha256(secret.encode()).digest()).rstrip(b"=").decode()


def new_secret() -> str:
    """Generate an unguessable string of 256 bits for URLs and cookies."""
    return secrets.token_urlsafe(32)


def constant_time_equal(one: str, other: str) -> bool:
    """Compare two strings in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


T = TypeVar("T", bound=Struct)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    kind TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, until REAL NOT NULL, used INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_until ON records (until);
"""
_SWEEP_SECONDS = 60.0  # Expired records are never returned, so deleting them can wait.
_BUSY_SECONDS = 5.0  # The default of the sqlite3 module: writes take milliseconds.


class RecordStore:
    """Stores records until they expire, in a file that only its owner can read."""

    def __init__(self, path: str) -> None:
        """Open or create the file; ``:memory:`` keeps everything in this process.

        Raises:
            ConfigError: the file cannot be used.
        """
        self._path = path
        self._swept = 0.0
        try:
            _make_private(path)
            self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA secure_delete=ON")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as problem:
            raise ConfigError(
                f"cannot use store={path!r} ({problem}): choose a file in a writable folder, or ':memory:'"
            ) from problem

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __del__(self) -> None:
        # A server that is created but never served is not closed by its user; SQLite would warn about it.
        db: sqlite3.Connection | None = getattr(self, "_db", None)
        if db is not None:
            db.close()

    # --- records -----------------------------------------------------------------------------------------------------

    def put(self, kind: str, name: str, record: Struct, *, until: float) -> None:
        """Store a record, replacing one of the same name."""
        data = msgspec.json.encode(record)
        self._db.execute(
            "REPLACE INTO records (kind, name, data, until) VALUES (?, ?, ?, ?)", (kind, name, data, until)
        )

    def add(self, kind: str, name: str, record: Struct, *, until: float, now: float) -> bool:
        """Store a record unless one of the same name exists; return True if it was stored."""
        self.sweep(now)
        data = msgspec.json.encode(record)
        added = self._db.execute(
            "INSERT OR IGNORE INTO records (kind, name, data, until) VALUES (?, ?, ?, ?)", (kind, name, data, until)
        )
        return added.rowcount == 1

    def get(self, kind: str, name: str, of: type[T], *, now: float) -> T | None:
        """Return a record that has not expired, whether it was used or not."""
        found = self._db.execute(
            "SELECT data FROM records WHERE kind = ? AND name = ? AND until > ?", (kind, name, now)
        ).fetchone()
        return None if found is None else msgspec.json.decode(found[0], type=of)

    def has(self, kind: str, name: str, *, now: float) -> bool:
        """Return True if such a record exists and has not expired."""
        row = self._db.execute("SELECT 1 FROM records WHERE kind = ? AND name = ? AND until > ?", (kind, name, now))
        return row.fetchone() is not None

    def use(self, kind: str, name: str) -> bool:
        """Mark a record as used; return True the first time. Of two concurrent callers only one gets True."""
        marked = self._db.execute("UPDATE records SET used = 1 WHERE kind = ? AND name = ? AND used = 0", (kind, name))
        return marked.rowcount == 1

    def extend(self, kind: str, name: str, until: float) -> None:
        """Extend the expiry of a record."""
        self._db.execute("UPDATE records SET until = max(until, ?) WHERE kind = ? AND name = ?", (until, kind, name))

    def drop(self, kind: str, name: str) -> bool:
        """Delete a record; return True if it existed. Of two concurrent callers only one gets True."""
        return self._db.execute("DELETE FROM records WHERE kind = ? AND name = ?", (kind, name)).rowcount == 1

    def all(self, kind: str, of: type[T], *, now: float) -> list[tuple[str, T, float]]:
        """Return all records of a kind with their names and expiries, the latest expiry first."""
        rows = self._db.execute(
            "SELECT name, data, until FROM records WHERE kind = ? AND until > ? ORDER BY until DESC", (kind, now)
        )
        return [(name, msgspec.json.decode(data, type=of), until) for name, data, until in rows]

    def count(self, kind: str, *, now: float) -> int:
        """Count the records of a kind."""
        row = self._db.execute("SELECT count(*) FROM records WHERE kind = ? AND until > ?", (kind, now)).fetchone()
        return int(row[0])

    def erase_traces(self) -> None:
        """Checkpoint and truncate the write-ahead log, so that replaced records remain in neither file."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def sweep(self, now: float) -> None:
        """Delete expired records, at most once a minute."""
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept = now
            self._db.execute("DELETE FROM records WHERE until <= ?", (now,))


def _make_private(path: str) -> None:
    """Create the file before SQLite does, readable by its owner only; SQLite's further files get the same mode."""
    if path == ":memory:" or os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


_MAX_SEALED_CHARS = 16 * 1024  # As long as the query (`QUERY_BYTES`) that a sealed request was read from.
_FOREVER = float(2**53)


class _Secret(Struct, frozen=True):
    value: str


class RequestSeal:
    """Seals requests with a key from the store, which all processes that share it use."""

    def __init__(self, store: RecordStore, clock: Callable[[], float]) -> None:
        """Load the key, or generate it."""
        self._clock = clock
        self._key = stored_secret(store, "requests", clock()).encode()

    def seal(self, request: AuthorizationRequest) -> str:
        """Return a request as signed text."""
        data = msgspec.json.encode(request)
        return f"{_text(data)}.{_text(self._mac(data))}"

    def open(self, sealed: str) -> AuthorizationRequest | None:
        """Return the request of a signed text; None if the signature is not ours, or it has expired."""
        body, _, mac = sealed.partition(".")
        if len(sealed) > _MAX_SEALED_CHARS or not sealed.isascii():
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


def stored_secret(store: RecordStore, name: str, now: float) -> str:
    """Return a secret that lives as long as the store; the first call generates it."""
    store.add("secret", name, _Secret(new_secret()), until=_FOREVER, now=now)
    kept = store.get("secret", name, _Secret, now=now)
    assert kept is not None
    return kept.value


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
