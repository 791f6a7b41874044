"""Transports: I/O and nothing else; each provides a ``Link``.

Nothing is imported here, so that a stdio server loads no more than its own pipes: import the module you need.
``memory`` connects two ends in one process, ``stdio`` uses a server's own standard streams, ``process`` a server
started as a child, ``stream`` a pair of asyncio streams, ``pipes`` two file descriptors; ``link`` is the interface they
share.
"""

from __future__ import annotations

__all__: list[str] = []
