"""The Redis database behind the tools: one lazy connection pool, and the few commands that are sent through it.

It knows nothing of tools. It connects when it is first used, tries again a bounded number of times, asks for no more
than it may hold, and turns whatever the driver raises into a sentence that names the database without its password.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["DEFAULT_URL", "Caps", "Found", "Store", "shown_url"]

DEFAULT_URL = "redis://localhost:6379"

_SCHEMES = ("redis", "rediss", "unix")
_SCAN_STEP = 500
_MESSAGE_CHARS = 300


class Caps(Struct, frozen=True, kw_only=True):
    """The caps of one server; sizes in bytes, times in seconds."""

    #: Longest key or pattern.
    key_bytes: int = 4096
    #: Longest value that is written or read.
    value_bytes: int = 1024 * 1024
    #: Most keys that one call lists or deletes.
    keys: int = 1000
    #: Bytes of all the keys that one call lists.
    list_bytes: int = 256 * 1024
    #: Longest walk through the database for one list.
    scan_seconds: float = 10.0
    #: Longest wait for the database to accept a connection.
    connect_seconds: float = 5.0
    #: Longest wait for one answer.
    answer_seconds: float = 10.0
    #: How often a lost or refused connection is tried again.
    retries: int = 5


class Found(Struct, frozen=True):
    """Keys that were found, and why there may be more."""

    keys: tuple[str, ...]
    cut: str | None = None


def shown_url(url: str) -> str:
    """Give the address without user, password and options, fit to be shown."""
    scheme, _, rest = url.partition("://")
    before, _, place = rest.rpartition("@")
    if "?" in before:  # an at sign in an option or a question mark in a password: nobody can tell
        return f"{scheme}://..."
    return f"{scheme}://{place.partition('?')[0]}" if rest else scheme


class Store:
    """One Redis database."""

    def __init__(self, url: str, *, caps: Caps) -> None:
        """Check the address without connecting to it.

        Raises:
            ConfigError: the address is none of Redis, or the driver is not installed.
        """
        if _scheme(url) not in _SCHEMES:
            raise ConfigError(
                f"{shown_url(url)!r} is no address of a Redis server: give redis://HOST:PORT, rediss:// or unix://"
            )
        self.shown = shown_url(url)
        self._url = url
        self._caps = caps
        self._client: Redis | None = None
        self._make_client()

    def _make_client(self) -> Redis:
        """Make a client that has not connected yet."""
        try:
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import ExponentialBackoff
        except ModuleNotFoundError as error:
            raise ConfigError("the Redis driver is missing: pip install 'trunkline[servers]'") from error
        try:
            return Redis.from_url(
                self._url,
                socket_connect_timeout=self._caps.connect_seconds,
                socket_timeout=self._caps.answer_seconds,
                retry=Retry(ExponentialBackoff(cap=1.0, base=0.05), self._caps.retries),
                max_connections=32,
            )
        except (ValueError, TypeError) as error:
            # What the driver says may repeat the address, password included.
            raise ConfigError(f"the address {self.shown} cannot be used: look at its port and options") from error

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """Have the pool while the body runs; nothing is connected before the first command."""
        client = self._client = self._make_client()
        try:
            yield self
        finally:
            self._client = None
            await client.aclose()

    # --- commands -----------------------------------------------------------------------------------------------------

    async def put(self, key: str, value: str, *, seconds: int | None) -> None:
        """Store a text, for good or for some seconds."""
        sent = value.encode()
        if len(sent) > self._caps.value_bytes:
            raise ToolError(f"The value has {len(sent)} bytes; at most {self._caps.value_bytes} can be stored.")
        async with self._commands() as client:
            await client.set(self._key(key), sent, ex=seconds)

    async def read(self, key: str) -> str | None:
        """Read a text; ``None`` if there is no such key."""
        name = self._key(key)
        async with self._commands() as client, client.pipeline(transaction=True) as pipe:
            pipe.exists(name)
            pipe.strlen(name)
            # Whatever the key holds, no more than this much is ever sent to us.
            pipe.getrange(name, 0, self._caps.value_bytes - 1)
            exists, size, value = await pipe.execute()
        if not exists:
            return None
        if size > self._caps.value_bytes:
            raise ToolError(f"The value of {key!r} has {size} bytes; at most {self._caps.value_bytes} are read.")
        return bytes(value).decode(errors="backslashreplace")

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove keys, in one command."""
        if not keys:
            raise ToolError("Give at least one key to delete.")
        if len(keys) > self._caps.keys:
            raise ToolError(f"{len(keys)} keys are too many for one call: give at most {self._caps.keys}.")
        names = [self._key(key) for key in keys]
        async with self._commands() as client:
            await client.delete(*names)

    async def find(self, pattern: str) -> Found:
        """Walk through the keys that match a pattern, up to the caps."""
        wanted = self._key(pattern, what="pattern")
        found: dict[str, None] = {}
        room = self._caps.list_bytes
        try:
            async with asyncio.timeout(self._caps.scan_seconds), self._commands() as client:
                async for name in client.scan_iter(match=wanted, count=_SCAN_STEP):
                    key = bytes(name).decode(errors="backslashreplace")
                    if key in found:  # a walk may meet a key twice
                        continue
                    room -= len(name)
                    if len(found) == self._caps.keys or room < 0:
                        return Found(tuple(found), cut="more match")
                    found[key] = None
        except TimeoutError:
            return Found(tuple(found), cut=f"the walk took longer than {self._caps.scan_seconds:g} s")
        return Found(tuple(found))

    def _key(self, key: str, *, what: str = "key") -> bytes:
        sent = key.encode()
        if len(sent) > self._caps.key_bytes:
            raise ToolError(f"The {what} has {len(sent)} bytes; at most {self._caps.key_bytes} are taken.")
        return sent

    @asynccontextmanager
    async def _commands(self) -> AsyncIterator[Any]:
        """Give the client, and say in our words what goes wrong with it."""
        from redis import exceptions

        assert self._client is not None, "the store is not open"
        try:
            yield self._client
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            if any(isinstance(each, exceptions.AuthenticationError) for each in _causes(error)):
                raise ToolError(f"Redis at {self.shown} does not take the user and password of its address.") from error
            fix = "Start it, or start this server with its address."
            raise ToolError(f"Redis at {self.shown} cannot be reached ({_reason(error)}). {fix}") from error
        except exceptions.RedisError as error:
            raise ToolError(f"Redis refused: {_line(str(error))}") from error


def _scheme(url: str) -> str:
    """Give the scheme of an address, empty if it has none."""
    return url.partition("://")[0] if "://" in url else ""


def _reason(error: BaseException) -> str:
    """Say what kind of failure it was; the driver's own text may hold the address."""
    kinds = {
        ConnectionRefusedError: "connection refused",
        FileNotFoundError: "no such socket",
        TimeoutError: "no answer in time",
    }
    for cause in _causes(error):
        for kind, words in kinds.items():
            if isinstance(cause, kind):
                return words
    return "no answer in time" if "timeout" in type(error).__name__.lower() else "no connection"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Walk from an error to what was behind it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _line(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_CHARS]
