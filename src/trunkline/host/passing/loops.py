"""Keeps a gateway from serving what is its own: each names itself, and those behind it, among its capabilities.

A host one of whose servers is its own gateway would list its list, and the list of that, without end. So what a server
offers is left out if this host is among the gateways it names. Calls are held up by ``forwarding.VIA``, whatever a
server says of itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trunkline.host.catalog.offerings import Offering

__all__ = ["GATEWAYS", "announcement", "leads_back"]

#: The experimental capability that has the ids of a gateway and of those behind it.
GATEWAYS = "dev.trunkline/gateways"

_MOST = 64
_LONGEST = 64


def announcement(own: str, offerings: Iterable[Offering]) -> dict[str, Any]:
    """Give the capability of a gateway that has this id and serves these."""
    behind = dict.fromkeys(each for offering in offerings for each in _named(offering))
    return {GATEWAYS: {"ids": [own, *behind][:_MOST]}}


def leads_back(own: str, offering: Offering) -> bool:
    """Tell whether what a server offers came through the gateway that has this id."""
    return own in _named(offering)


def _named(offering: Offering) -> list[str]:
    """Read which gateways a server names, whatever it wrote there."""
    experimental = offering.capabilities.get("experimental")
    named = experimental.get(GATEWAYS) if isinstance(experimental, dict) else None
    ids = named.get("ids") if isinstance(named, dict) else None
    return (
        [each for each in ids[:_MOST] if isinstance(each, str) and len(each) <= _LONGEST]
        if isinstance(ids, list)
        else []
    )
