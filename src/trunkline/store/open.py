"""From the URL of a store to the store."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import MappingProxyType

from trunkline.errors import ConfigError
from trunkline.store.interface import Store

__all__ = ["open_store"]

_REDIS = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_VALKEY: Mapping[str, str] = MappingProxyType({"valkey": "redis", "valkeys": "rediss"})


def open_store(option: str | os.PathLike[str] | Store | None, *, name: str, timeout: float = 2.0) -> Store:
    """Return the store that an option ``store=`` means, for the server of this name; it is not connected yet.

    Raises:
        ConfigError: the URL is not valid, or its engine is not installed.
    """
    if isinstance(option, Store):
        return option
    url = "memory" if option is None else os.fspath(option)
    scheme, separator, rest = url.partition("://")
    if url == "memory" or (scheme == "memory" and separator):
        from trunkline.store.memory import MemoryContents, MemoryEngine

        return MemoryEngine(MemoryContents(now=time.time, random=os.urandom))
    scheme = _VALKEY.get(scheme, scheme)
    if scheme not in _REDIS or not rest:
        raise ConfigError(
            "store= must be the URL of a Redis or Valkey server, such as redis://127.0.0.1:6379/0 "
            "(rediss:// for TLS, unix:// for a socket)"
        )
    try:
        from trunkline.store.redis import RedisEngine
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":
            raise
        raise ConfigError("a Redis store needs redis-py; run: pip install 'trunkline[redis]'") from error
    try:
        return RedisEngine(f"{scheme}://{rest}", name=name, timeout=timeout)
    except ValueError:
        # Without its cause, which quotes a part of the URL: that may be of the password.
        raise ConfigError(
            "store= is not a valid URL; write it as redis://USER:PASSWORD@HOST:PORT/DB, "
            "with /, #, ? and @ of the password percent-encoded"
        ) from None
