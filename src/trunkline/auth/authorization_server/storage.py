"""What the authorization server stores.

Frozen records with an expiry, and the seal of requests that travel in a page. Secrets are not stored: a code, refresh
token, cookie or client secret is stored under its digest. The records are in one SQLite file, or, if several workers
share a store, there (``shared_storage``). Writes to the file do not wait for the disk (WAL,
``synchronous=NORMAL``), so they are short enough for the event loop; after a power loss the last moment may be missing,
never more. Several processes may share the file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import sqlite3
from asyncio import Lock
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.sqlite_wal import enter_wal_mode

__all__ = [
    "DEFAULT_FILE",
    "AuthorizationCode",
    "AuthorizationRequest",
    "BrowserSession",
    "OAuthClient",
    "RecordEngine",
    "RecordStore",
    "RefreshToken",
    "RequestSeal",
    "SqliteRecords",
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


class SqliteRecords:
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
            enter_wal_mode(self._db, seconds=_BUSY_SECONDS)
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

    def add(self, kind: str, name: str, record: Struct, *, until: float, now: float, most: int | None = None) -> bool:
        """Store a record unless one of the same name exists, or ``most`` of its kind; return True if it was stored."""
        self.sweep(now)
        if most is not None and self.count(kind, now=now) >= most:
            return False
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
        # What was revoked has no data.
        return None if found is None or not found[0] else msgspec.json.decode(found[0], type=of)

    def has(self, kind: str, name: str, *, now: float) -> bool:
        """Return True if such a record exists and has not expired."""
        row = self._db.execute(
            "SELECT 1 FROM records WHERE kind = ? AND name = ? AND until > ? AND length(data) > 0", (kind, name, now)
        )
        return row.fetchone() is not None

    def use(self, kind: str, name: str) -> bool:
        """Mark a record as used; return True the first time. Of two concurrent callers only one gets True."""
        marked = self._db.execute("UPDATE records SET used = 1 WHERE kind = ? AND name = ? AND used = 0", (kind, name))
        return marked.rowcount == 1

    def extend(self, kind: str, name: str, until: float) -> None:
        """Extend the expiry of a record."""
        self._db.execute("UPDATE records SET until = max(until, ?) WHERE kind = ? AND name = ?", (until, kind, name))

    def revoke(self, kind: str, name: str, *, until: float) -> None:
        """Delete a record, and let no record of this name be added before ``until``."""
        self._db.execute("REPLACE INTO records (kind, name, data, until) VALUES (?, ?, x'', ?)", (kind, name, until))

    def drop(self, kind: str, name: str) -> bool:
        """Delete a record; return True if it existed. Of two concurrent callers only one gets True."""
        return self._db.execute("DELETE FROM records WHERE kind = ? AND name = ?", (kind, name)).rowcount == 1

    def all(self, kind: str, of: type[T], *, now: float) -> list[tuple[str, T, float]]:
        """Return all records of a kind with their names and expiries, the latest expiry first."""
        rows = self._db.execute(
            "SELECT name, data, until FROM records WHERE kind = ? AND until > ? AND length(data) > 0 "
            "ORDER BY until DESC",
            (kind, now),
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


class RecordEngine(Protocol):
    """Where records are stored; each method may raise ``StoreUnavailable`` if that is outside of this machine."""

    #: Since when all that was stored is known; what was to be used once and is older counts as used.
    known_since: float

    async def put(self, kind: str, name: str, record: Struct, *, until: float) -> None:
        """Store a record, replacing one of the same name."""

    async def add(
        self, kind: str, name: str, record: Struct, *, until: float, now: float, most: int | None = None
    ) -> bool:
        """Store a record unless one of the same name exists, or ``most`` of its kind; return True if it was stored."""

    async def get(self, kind: str, name: str, of: type[T], *, now: float) -> T | None:
        """Return a record that has not expired, whether it was used or not."""

    async def has(self, kind: str, name: str, *, now: float) -> bool:
        """Return True if such a record exists and has not expired."""

    async def use(self, kind: str, name: str) -> bool:
        """Mark a record as used; return True the first time. Of two concurrent callers only one gets True."""

    async def extend(self, kind: str, name: str, until: float) -> None:
        """Extend the expiry of a record."""

    async def drop(self, kind: str, name: str) -> bool:
        """Delete a record; return True if it existed. Of two concurrent callers only one gets True."""

    async def revoke(self, kind: str, name: str, *, until: float) -> None:
        """Delete a record, and let no record of this name be added before ``until``."""

    async def all(self, kind: str, of: type[T], *, now: float) -> list[tuple[str, T, float]]:
        """Return all records of a kind with their names and expiries, the latest expiry first."""

    async def secrets(self, name: str, *, now: float) -> tuple[bytes, ...]:
        """Return the secrets for a purpose, which all processes have: the first signs, and all of them verify."""

    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        """Return a lock between all that use these records."""

    def close(self) -> None:
        """Close what was opened."""


class _FileRecords:
    """Records in an SQLite file, which is opened when it is first used."""

    known_since = 0.0

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: SqliteRecords | None = None
        self._locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    @property
    def file(self) -> SqliteRecords:
        """The file.

        Raises:
            ConfigError: it cannot be used.
        """
        if self._opened is None:
            self._opened = SqliteRecords(self._path)
        return self._opened

    def rest(self) -> None:
        """Close the file until it is used: an SQLite connection must not be carried across a fork to workers."""
        if self._path != ":memory:":
            self.close()

    async def put(self, kind: str, name: str, record: Struct, *, until: float) -> None:
        self.file.put(kind, name, record, until=until)

    async def add(
        self, kind: str, name: str, record: Struct, *, until: float, now: float, most: int | None = None
    ) -> bool:
        return self.file.add(kind, name, record, until=until, now=now, most=most)

    async def get(self, kind: str, name: str, of: type[T], *, now: float) -> T | None:
        return self.file.get(kind, name, of, now=now)

    async def has(self, kind: str, name: str, *, now: float) -> bool:
        return self.file.has(kind, name, now=now)

    async def use(self, kind: str, name: str) -> bool:
        return self.file.use(kind, name)

    async def extend(self, kind: str, name: str, until: float) -> None:
        self.file.extend(kind, name, until)

    async def drop(self, kind: str, name: str) -> bool:
        return self.file.drop(kind, name)

    async def revoke(self, kind: str, name: str, *, until: float) -> None:
        self.file.revoke(kind, name, until=until)

    async def all(self, kind: str, of: type[T], *, now: float) -> list[tuple[str, T, float]]:
        return self.file.all(kind, of, now=now)

    async def secrets(self, name: str, *, now: float) -> tuple[bytes, ...]:
        return (stored_secret(self.file, name, now).encode(),)

    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        found = self._locks.get(name)
        if found is None:
            found = self._locks[name] = Lock()
        return found

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


class RecordStore:
    """The records of an authorization server: in its file, until several workers share them."""

    def __init__(self, path: str | None) -> None:
        """Use a file: the given one, which is checked now, or ``authorization.db``; it is opened when it is first used.

        Raises:
            ConfigError: the given file cannot be used.
        """
        self._file = _FileRecords(path or DEFAULT_FILE)
        #: Whether the user chose the file.
        self.chosen: bool = path is not None
        self._engine: RecordEngine = self._file
        if path is not None:
            _ = self._file.file
            self.rest()

    @property
    def engine(self) -> RecordEngine:
        """Where the records are now."""
        return self._engine

    @property
    def file(self) -> SqliteRecords | None:
        """The file, if the records are in one."""
        return self._file.file if self._engine is self._file else None

    def rest(self) -> None:
        """Close the file; it is opened again when it is next used."""
        self._file.rest()

    def share(self, engine: RecordEngine) -> None:
        """Store everything elsewhere from now on."""
        self._engine = engine

    def close(self) -> None:
        """Close what was opened."""
        self._engine.close()


#: The default file of an authorization server.
DEFAULT_FILE = "authorization.db"
_MAX_SEALED_CHARS = 16 * 1024  # As long as the query (`QUERY_BYTES`) that a sealed request was read from.
_FOREVER = float(2**53)


class _Secret(Struct, frozen=True):
    value: str


class RequestSeal:
    """Seals requests with a key from the store, which all processes that share it use."""

    def __init__(self, store: RecordStore, clock: Callable[[], float]) -> None:
        """Use the keys of a store; they are loaded, or generated, when they are first needed."""
        self._clock = clock
        self._store = store

    async def seal(self, request: AuthorizationRequest) -> str:
        """Return a request as signed text."""
        data = msgspec.json.encode(request)
        key = (await self._store.engine.secrets("requests", now=self._clock()))[0]
        return f"{_text(data)}.{_text(_mac(key, data))}"

    async def open(self, sealed: str) -> AuthorizationRequest | None:
        """Return the request of a signed text; None if the signature is not ours, or it has expired."""
        body, _, mac = sealed.partition(".")
        if len(sealed) > _MAX_SEALED_CHARS or not sealed.isascii():
            return None
        try:
            data, given = _bytes(body), _bytes(mac)
        except binascii.Error:
            return None
        keys = await self._store.engine.secrets("requests", now=self._clock())
        if not any(hmac.compare_digest(given, _mac(key, data)) for key in keys):
            return None
        request = msgspec.json.decode(data, type=AuthorizationRequest)
        return request if request.until > self._clock() else None


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha256)


def stored_secret(store: SqliteRecords, name: str, now: float) -> str:
    """Return a secret that lives as long as the store; the first call generates it."""
    store.add("secret", name, _Secret(new_secret()), until=_FOREVER, now=now)
    kept = store.get("secret", name, _Secret, now=now)
    assert kept is not None
    return kept.value


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
