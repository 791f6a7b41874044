"""Transports: I/O and nothing else; each gives a ``Link``.

Nothing is imported here, so that a stdio server loads no more than its own pipes: import the module that is wanted.
``memory`` joins two ends in one process, ``stdio`` is a server's own standard streams, ``process`` a server started as
a child, ``stream`` anything asyncio opened, ``pipes`` any two descriptors; ``link`` is the interface they share.
"""

from __future__ import annotations

__all__: list[str] = []
