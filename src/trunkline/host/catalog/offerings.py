"""What one server offers, as it was last listed: the raw material of the catalog, and what is kept between runs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

import trunkline.types as t

__all__ = ["Offering"]


class Offering(Struct, frozen=True, kw_only=True):
    """The lists of one server, whole: all pages of each, or none of it."""

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
    #: What could not be listed, with the reason, by method; its part is what was known before.
    failures: dict[str, str] = {}
    #: Items that could not be read, each with its place and the reason; the others of its list are here.
    unreadable: tuple[str, ...] = ()
    #: It, or a list of it that could not be read since, was kept in an earlier run: nothing is pinned by it.
    recalled: bool = False
