"""From the option ``store=`` to the store."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import MappingProxyType

from trunkline.errors import ConfigError
from trunkline.store.interface import Store

__all__ = ["open_store"]

#: The scheme that redis-py knows, by that of the URL.
_REDIS: Mapping[str, str] = MappingProxyType(
    {
        **{scheme: scheme for scheme in ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")},
        "valkey": "redis",
        "valkeys": "rediss",
    }
)


def open_store(option: str | os.PathLike[str] | Store | None, *, name: str, timeout: float = 2.0) -> Store:
    """Return the store that an option ``store=`` means, for the server of this name; it is not connected yet.

    None is a store in memory, a path or ``sqlite:///`` and a path a file, ``redis://`` and the like a Redis or Valkey,
    which is given up when it does not answer for ``timeout`` seconds.

    Raises:
        ConfigError: the option is not valid, or its engine is not installed.
    """
    if isinstance(option, Store):
        return option
    if option is None:
        from trunkline.store.memory import MemoryContents, MemoryEngine

        return MemoryEngine(MemoryContents(now=time.time, random=os.urandom))
    if isinstance(option, os.PathLike):
        return _open_file(os.fspath(option), name)
    scheme, separator, rest = option.partition("://")
    if not separator:
        return _open_file(option, name)
    if scheme == "sqlite":
        # Three slashes and a relative path, or four and an absolute one, as elsewhere: there is no host.
        return _open_file(rest[1:] if rest.startswith("/") else "", name)
    if scheme in _REDIS and rest:
        return _open_redis(f"{_REDIS[scheme]}://{rest}", name, timeout)
    raise _invalid()


def _open_file(path: str, name: str) -> Store:
    if not path:
        raise _invalid()
    from trunkline.store.sqlite import SqliteEngine

    return SqliteEngine(path, name=name)


def _open_redis(url: str, name: str, timeout: float) -> Store:
    try:
        from trunkline.store.redis import RedisEngine
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise ConfigError("a Redis store needs redis-py; run: pip install 'trunkline[redis]'") from error
    try:
        return RedisEngine(url, name=name, timeout=timeout)
    except ValueError:
        # Without its cause, which quotes a part of the URL: that may be of the password.
        raise ConfigError(
            "store= is not a valid URL; write it as redis://USER:PASSWORD@HOST:PORT/DB, "
            "with /, #, ? and @ of the password percent-encoded"
        ) from None


def _invalid() -> ConfigError:
    return ConfigError(
        "store= must be the path of a file, such as state.db or sqlite:////var/lib/example/state.db, or the URL of a "
        "Redis or Valkey server, such as redis://127.0.0.1:6379/0 (rediss:// for TLS, unix:// for a socket)"
    )
