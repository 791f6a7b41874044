"""How a server is reached, in the form that both kinds of entries are parsed into."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from trunkline.host.config.collecting import Collector
from trunkline.host.config.positions import Member

__all__ = ["Reach", "say_unused"]


class Reach(NamedTuple):
    """How a server is reached, as far as it could be parsed."""

    command: tuple[str, ...] | None = None
    env: Mapping[str, str] = MappingProxyType({})
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    type: str | None = None
    auth: Any = None


def say_unused(found: Mapping[str, Member], names: tuple[str, ...], *, into: Collector, why: str) -> None:
    """Warn about members that have no meaning for this kind of entry."""
    for name in names:
        if name in found:
            into.warn(found[name].name, found[name].line, f"it is ignored: {why}")
