"""Servers: what is offered, how it is served. The public names are in ``trunkline`` itself."""

from __future__ import annotations

__all__: tuple[str, ...] = ()
