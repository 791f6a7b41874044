"""Roots: the folders and files that a client lets a server work on."""

from __future__ import annotations

from typing import Any

from msgspec import field

from trunkline.types.base import Wire

__all__ = ["ListRootsResult", "Root"]


class Root(Wire, frozen=True, kw_only=True):
    """One folder or file, as a ``file:`` URI."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListRootsResult(Wire, frozen=True, kw_only=True):
    """All roots of a client."""

    roots: list[Root]
    meta: dict[str, Any] | None = field(name="_meta", default=None)
