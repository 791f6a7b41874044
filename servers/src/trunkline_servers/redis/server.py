"""The Redis server's tools: names, arguments and texts of the official server, over ``store.RedisStore``.

Input schemas are written out because they are the official ones except for the descriptions; what a schema does not
express (whole seconds, sizes, number of keys) is checked by the tools and the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trunkline import Server, ToolError, __version__
from trunkline.types import TextContent
from trunkline_servers.redis.store import DEFAULT_URL, RedisLimits, RedisStore
from trunkline_servers.untrusted import escape_invisible

__all__ = ["make_server"]

_INSTRUCTIONS = (
    "Keys and text values of one Redis database. List keys with a glob pattern before you read or delete; "
    "what is deleted or overwritten cannot be had back."
)
_MAX_EXPIRE = 10 * 366 * 24 * 3600

_SET = MappingProxyType(
    {
        "key": {"type": "string", "description": "The key to write"},
        "value": {"type": "string", "description": "The text to keep under it; what was there is replaced"},
        "expireSeconds": {
            "type": "number",
            "description": "Whole seconds after which the key is gone; for good if absent",
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
        """Write a text value under a key, with an expiry if you wish."""
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
        told = ["Found keys:\n" + "\n".join(escape_invisible(key) for key in found.keys)]
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
        raise ToolError(
            f"expireSeconds must be a whole number from 1 to {_MAX_EXPIRE}; leave it out to keep the key for good."
        )
    return int(seconds)
