"""What one server offers, as last listed: the input of the catalog, and what is cached between runs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

import trunkline.types as t

__all__ = ["Offering"]


class Offering(Struct, frozen=True, kw_only=True):
    """The complete lists of one server: all pages of each, or none."""

    revision: str
    capabilities: dict[str, Any]
    server_info: t.Implementation | None = None
    instructions: str | None = None
    tools: tuple[t.Tool, ...] = ()
    prompts: tuple[t.Prompt, ...] = ()
    resources: tuple[t.Resource, ...] = ()
    templates: tuple[t.ResourceTemplate, ...] = ()
    #: Seconds since the epoch at which it was listed.
    listed_at: float = 0.0
    #: Lists that failed, by method, with the reason; their items are those known before.
    failures: dict[str, str] = {}
    #: Items that could not be decoded, each with its position and the reason; the rest of the list is present.
    unreadable: tuple[str, ...] = ()
    #: Whether it comes from the cache of an earlier run, wholly or for a list that failed since: pins ignore it.
    recalled: bool = False
