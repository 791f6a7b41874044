"""The Redis server: names, arguments and texts of the official server's tools, over one lazy connection pool.

``RedisStore`` knows nothing of tools. It connects on first use, retries a bounded number of times, requests no more
than it may hold, and turns driver errors into messages that name the database without its password.

Input schemas are written out because they are the official ones except for the descriptions; what a schema does not
express (whole seconds, sizes, number of keys) is checked by the tools and the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from trunkline import Server, ToolError, __version__
from trunkline.errors import ConfigError
from trunkline.types import TextContent
from trunkline_servers.untrusted import one_line, printable

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["DEFAULT_URL", "KeyList", "RedisLimits", "RedisStore", "make_server", "redacted_redis_url"]

DEFAULT_URL = "redis://localhost:6379"

_SCHEMES = ("redis", "rediss", "unix")
_SCAN_STEP = 500
_MOST_STARS = 8
_CONNECTIONS = 32
#: The first pause before a retry, which doubles, and the longest.
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_MESSAGE_CHARS = 300


class RedisLimits(Struct, frozen=True, kw_only=True):
    """The limits of one server; sizes in bytes, times in seconds."""

    #: Longest key or pattern.
    key_bytes: int = 4096
    #: Longest value that is written or read.
    value_bytes: int = 1024 * 1024
    #: Most keys that one call lists or deletes.
    keys: int = 1000
    #: Bytes of all the keys that one call lists.
    list_bytes: int = 256 * 1024
    #: Longest scan of the database for one list.
    scan_seconds: float = 10.0
    #: Longest wait for the database to accept a connection.
    connect_seconds: float = 5.0
    #: Longest wait for one response.
    answer_seconds: float = 10.0
    #: Retries of a lost or refused connection; none while the database is known to be unreachable.
    retries: int = 5
    #: Longest wait in one call, all retries together.
    call_seconds: float = 15.0


class KeyList(Struct, frozen=True):
    """Matching keys, and why there may be more."""

    keys: tuple[str, ...]
    cut: str | None = None


def redacted_redis_url(url: str) -> str:
    """Return the URL without user, password and options."""
    scheme, _, rest = url.partition("://")
    before, _, place = rest.rpartition("@")
    if "?" in before:  # ambiguous: an at sign in an option or a question mark in a password
        return f"{scheme}://..."
    return f"{scheme}://{place.partition('?')[0]}" if rest else scheme


class RedisStore:
    """One Redis database."""

    def __init__(self, url: str, *, limits: RedisLimits) -> None:
        """Check the URL without connecting.

        Raises:
            ConfigError: the URL is not a Redis URL, or the driver is not installed.
        """
        if _scheme(url) not in _SCHEMES:
            raise ConfigError(
                f"{redacted_redis_url(url)!r} is not the URL of a Redis server: give redis://HOST:PORT, rediss:// or unix://"
            )
        self.shown = redacted_redis_url(url)
        self._url = url
        self._limits = limits
        self._client: Redis | None = None
        #: Whether the last call failed to reach the database.
        self._is_away = False
        self._make_client()

    def _make_client(self) -> Redis:
        """Create a client without connecting."""
        try:
            from redis.asyncio import BlockingConnectionPool, Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ModuleNotFoundError as error:
            raise ConfigError("the Redis driver is missing: pip install 'trunkline[servers]'") from error
        try:
            _check_place(self._url)
            pool: Any = BlockingConnectionPool.from_url(
                self._url,
                socket_connect_timeout=self._limits.connect_seconds,
                socket_timeout=self._limits.answer_seconds,
                retry=Retry(NoBackoff(), 0),  # retries are ours: see _ask
                timeout=self._limits.answer_seconds,
                max_connections=_CONNECTIONS,
            )
            pool.connection_kwargs["decode_responses"] = False  # an option of the URL could change it
            pool.make_connection()  # does not connect, but rejects unknown options
            return Redis.from_pool(pool)
        except (ValueError, TypeError) as error:
            # The driver's message may contain the URL with its password.
            fix = "look at its host, port, database number and options"
            raise ConfigError(f"the address {self.shown} cannot be used: {fix}") from error

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[RedisStore]:
        """Provide the pool for the lifespan; connects with the first command."""
        client = self._client = self._make_client()
        try:
            yield self
        finally:
            self._client = None
            await client.aclose()

    # --- commands -----------------------------------------------------------------------------------------------------

    async def put(self, key: str, value: str, *, seconds: int | None) -> None:
        """Store a text, permanently or for some seconds."""
        name, sent = self._key(key), value.encode()
        if len(sent) > self._limits.value_bytes:
            raise ToolError(f"The value has {len(sent)} bytes; at most {self._limits.value_bytes} can be stored.")
        await self._ask(lambda client: client.set(name, sent, ex=seconds))

    async def read(self, key: str) -> str | None:
        """Read a text; ``None`` if there is no such key."""
        name, most = self._key(key), self._limits.value_bytes

        async def look(client: Any) -> Any:
            async with client.pipeline(transaction=True) as pipe:
                pipe.exists(name)
                pipe.strlen(name)
                # Whatever the key holds, no more than this is transferred.
                pipe.getrange(name, 0, most - 1)
                return await pipe.execute(raise_on_error=False)

        exists, size, value = await self._ask(look)
        for answer in (exists, size, value):
            if isinstance(answer, Exception):
                raise ToolError(_refusal(key, answer))
        if not exists:
            return None
        if size > most:
            raise ToolError(f"The value of {key!r} has {size} bytes; at most {most} are read.")
        return bytes(value).decode(errors="backslashreplace")

    async def remove(self, keys: Sequence[str]) -> None:
        """Remove keys, in one command."""
        if not keys:
            raise ToolError("Give at least one key to delete.")
        if len(keys) > self._limits.keys:
            raise ToolError(f"{len(keys)} keys are too many for one call: give at most {self._limits.keys}.")
        names = [self._key(key) for key in keys]
        await self._ask(lambda client: client.delete(*names))

    async def find(self, pattern: str) -> KeyList:
        """Scan for the keys that match a pattern, up to the limits."""
        wanted = self._key(pattern, what="pattern")
        if wanted.count(b"*") > _MOST_STARS:
            # Matching in an older Redis slows down with every star, and blocks all other clients.
            raise ToolError(f"The pattern has more than {_MOST_STARS} stars: give a plainer one.")
        found: dict[str, None] = {}
        cursor, room, end = 0, self._limits.list_bytes, time.monotonic() + self._limits.scan_seconds
        while time.monotonic() < end:
            step = partial(_scan, cursor=cursor, pattern=wanted)
            cursor, names = await self._ask(step)
            for name in names:
                key = bytes(name).decode(errors="backslashreplace")
                if key in found:  # a scan may return a key twice
                    continue
                room -= len(name)
                if len(found) == self._limits.keys or room < 0:
                    return KeyList(tuple(found), cut="more match")
                found[key] = None
            if not cursor:
                return KeyList(tuple(found))
        return KeyList(tuple(found), cut=f"the scan took longer than {self._limits.scan_seconds:g} s")

    def _key(self, key: str, *, what: str = "key") -> bytes:
        sent = key.encode()
        if len(sent) > self._limits.key_bytes:
            raise ToolError(f"The {what} has {len(sent)} bytes; at most {self._limits.key_bytes} are allowed.")
        return sent

    async def _ask(self, act: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run an operation with the client, and translate driver errors.

        A lost or refused connection is retried, all retries under one timeout. After that failed, calls try only once
        until one succeeds, so that callers do not wait each time for an unreachable database.
        """
        from redis import exceptions

        assert self._client is not None, "the store is not open"
        try:
            async with asyncio.timeout(self._limits.call_seconds):
                answer = await self._tries(self._client, act)
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            self._is_away = True
            if any(isinstance(each, exceptions.AuthenticationError) for each in _causes(error)):
                raise ToolError(f"Redis at {self.shown} rejects the user and password of its address.") from error
            fix = "Start it, or start this server with its address."
            raise ToolError(f"Redis at {self.shown} cannot be reached ({_reason(error)}). {fix}") from error
        except exceptions.RedisError as error:
            raise ToolError(self._refused(error)) from error
        self._is_away = False
        return answer

    async def _tries(self, client: Any, act: Callable[[Any], Awaitable[Any]]) -> Any:
        from redis import exceptions

        retries = 0 if self._is_away else self._limits.retries
        for tried in range(retries):
            try:
                return await act(client)
            except exceptions.AuthenticationError:
                raise
            except exceptions.ConnectionError:
                await asyncio.sleep(min(_LONGEST_PAUSE, _PAUSE * 2**tried))
        return await act(client)

    def _refused(self, error: Exception) -> str:
        from redis import exceptions

        if isinstance(error, exceptions.AskError | exceptions.ClusterDownError):  # MovedError is an AskError
            fix = "Start this server with the address of a Redis that is not a cluster, or of a proxy in front of it."
            return f"Redis at {self.shown} is a member of a cluster, which this server does not follow. {fix}"
        return f"Redis refused: {one_line(str(error), _MESSAGE_CHARS)}"


async def _scan(client: Any, *, cursor: int, pattern: bytes) -> Any:
    return await client.scan(cursor, match=pattern, count=_SCAN_STEP)


def _refusal(key: str, error: Exception) -> str:
    said = one_line(str(error), _MESSAGE_CHARS)
    if "WRONGTYPE" in said:
        return f"{key!r} holds a list, a hash or the like (WRONGTYPE); only texts are read here."
    return f"Redis refused: {said}"


def _check_place(url: str) -> None:
    """Reject URLs that the driver would misread: a missing socket path, or a database that is not a number."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        usable = bool(parts.path)
    else:
        number = parts.path.strip("/")
        usable = not number or (number.isascii() and number.isdecimal())
    if not usable:
        raise ValueError("no socket, or no number of a database")


def _scheme(url: str) -> str:
    """Return the scheme of a URL; empty if it has none."""
    return url.partition("://")[0] if "://" in url else ""


def _reason(error: BaseException) -> str:
    """Return the kind of failure; the driver's own message may contain the URL."""
    kinds = {
        ConnectionRefusedError: "connection refused",
        FileNotFoundError: "no such socket",
        PermissionError: "no permission",
        TimeoutError: "no answer in time",
    }
    for cause in _causes(error):
        for kind, words in kinds.items():
            if isinstance(cause, kind):
                return words
        if type(cause).__name__ in ("ResponseError", "BusyLoadingError"):
            return one_line(str(cause), _MESSAGE_CHARS)  # the database's own message
    return "no answer in time" if "timeout" in type(error).__name__.lower() else "no connection"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


_INSTRUCTIONS = (
    "Keys and text values of one Redis database. List keys with a glob pattern before you read or delete; "
    "deleted and overwritten values cannot be restored."
)
_MAX_EXPIRE = 10 * 366 * 24 * 3600

_SET = MappingProxyType(
    {
        "key": {"type": "string", "description": "The key to write"},
        "value": {"type": "string", "description": "The text to store; an existing value is replaced"},
        "expireSeconds": {
            "type": "number",
            "description": "Whole seconds until the key expires; without it the key does not expire",
        },
    }
)
_GET = MappingProxyType({"key": {"type": "string", "description": "The key to read"}})
_DELETE = MappingProxyType(
    {
        "key": {
            "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "One key, or a list of keys",
        }
    }
)
_LIST = MappingProxyType({"pattern": {"type": "string", "description": "A glob such as user:*; every key if absent"}})

_READS = MappingProxyType({"readOnlyHint": True, "openWorldHint": False})
_WRITES = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False}
)


def make_server(url: str = DEFAULT_URL, *, read_only: bool = False, limits: RedisLimits | None = None) -> Server:
    """Make the server for one database; nothing is connected before the first call.

    Raises:
        ConfigError: the URL is not a Redis URL, or the driver is not installed.
    """
    store = RedisStore(url, limits=limits or RedisLimits())
    server = Server("redis", _INSTRUCTIONS, version=__version__, title="Redis", lifespan=lambda _server: store.opened())
    _add_reading(server, store)
    if not read_only:
        _add_writing(server, store)
    return server


def _add_writing(server: Server, store: RedisStore) -> None:
    """Add the tools that change the database."""

    @server.tool(name="set", input_schema=_schema(_SET, "key", "value"), output_schema=None, annotations=dict(_WRITES))
    async def put(key: str, value: str, expireSeconds: float | None = None, **unknown: Any) -> str:
        """Store a text value under a key, optionally with an expiry."""
        _reject_unknown(unknown)
        await store.put(key, value, seconds=_whole_seconds(expireSeconds))
        return f"Successfully set key: {key}"

    @server.tool(name="delete", input_schema=_schema(_DELETE, "key"), output_schema=None, annotations=dict(_WRITES))
    async def delete(key: str | list[str], **unknown: Any) -> str:
        """Delete one key or several."""
        _reject_unknown(unknown)
        await store.remove([key] if isinstance(key, str) else key)
        return f"Successfully deleted key: {key}" if isinstance(key, str) else f"Successfully deleted {len(key)} keys"


def _add_reading(server: Server, store: RedisStore) -> None:
    """Add the read-only tools."""

    @server.tool(name="get", input_schema=_schema(_GET, "key"), output_schema=None, annotations=dict(_READS))
    async def get(key: str, **unknown: Any) -> str:
        """Read the text value of a key."""
        _reject_unknown(unknown)
        value = await store.read(key)
        return f"Key not found: {key}" if value is None else value

    @server.tool(name="list", input_schema=_schema(_LIST), output_schema=None, annotations=dict(_READS))
    async def find(pattern: str = "*", **unknown: Any) -> list[TextContent]:
        """List the keys that match a glob pattern."""
        _reject_unknown(unknown)
        found = await store.find(pattern)
        if not found.keys and found.cut is None:
            return [TextContent(text="No keys found matching pattern")]
        # A newline in a key must not look like another key.
        told = ["Found keys:\n" + "\n".join(printable(key, replacement="python") for key in found.keys)]
        if found.cut is not None:
            told.append(f"The list is cut after {len(found.keys)} keys ({found.cut}). Give a narrower pattern.")
        return [TextContent(text=each) for each in told]


def _schema(properties: MappingProxyType[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return schema


def _reject_unknown(unknown: Mapping[str, Any]) -> None:
    """Reject unknown arguments: a misspelled one would otherwise be ignored silently."""
    if unknown:
        raise ToolError(f"There is no argument {', '.join(sorted(unknown))[:200]}")


def _whole_seconds(seconds: float | None) -> int | None:
    """Validate an expiry as Redis does: whole seconds, at least one."""
    if seconds is None:
        return None
    if seconds != int(seconds) or not 1 <= seconds <= _MAX_EXPIRE:
        raise ToolError(f"expireSeconds must be a whole number from 1 to {_MAX_EXPIRE}; leave it out for no expiry.")
    return int(seconds)
