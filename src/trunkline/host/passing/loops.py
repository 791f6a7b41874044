"""Loop detection: keeps a gateway from serving itself; each gateway announces its id, and those behind it.

A host that has its own gateway among its servers would list its own list, endlessly. So the offering of a server is
left out if this host is among the gateways it announces. Calls are stopped by ``VIA``, whatever a server announces.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Raw

from trunkline.errors import InvalidRequest
from trunkline.host.catalog.offerings import Offering
from trunkline.protocol.methods import read_meta

__all__ = ["GATEWAYS", "VIA", "announcement", "came_through", "leads_back"]

#: The experimental capability with the ids of a gateway and of those behind it.
GATEWAYS = "dev.trunkline/gateways"

#: The member of ``_meta`` with the ids of the gateways a request came through.
VIA = "dev.trunkline/via"

_VIA = VIA.encode()
_MOST_HOPS = 8
_MOST = 64
_LONGEST = 64


def announcement(own: str, offerings: Iterable[Offering]) -> dict[str, Any]:
    """Return the capability that announces a gateway with this id and these offerings."""
    behind = dict.fromkeys(each for offering in offerings for each in _named(offering))
    return {GATEWAYS: {"ids": [own, *behind][:_MOST]}}


def leads_back(own: str, offering: Offering) -> bool:
    """Return True if an offering came through the gateway with this id."""
    return own in _named(offering)


def _named(offering: Offering) -> list[str]:
    """Return the gateways that a server announces; malformed announcements are ignored."""
    experimental = offering.capabilities.get("experimental")
    named = experimental.get(GATEWAYS) if isinstance(experimental, dict) else None
    ids = named.get("ids") if isinstance(named, dict) else None
    return (
        [each for each in ids[:_MOST] if isinstance(each, str) and len(each) <= _LONGEST]
        if isinstance(ids, list)
        else []
    )


def came_through(params: Raw | None, own: str) -> tuple[str, ...]:
    """Return the ids of the gateways that a request came through.

    Raises:
        InvalidRequest: the gateway with the id ``own`` is among them, or there are too many.
    """
    if params is None or _VIA not in bytes(params):
        return ()
    hops = read_meta(params).get(VIA)
    via = tuple(str(hop)[:_LONGEST] for hop in hops) if isinstance(hops, list) else ()
    if own in via or len(via) >= _MOST_HOPS:
        raise InvalidRequest(
            "Invalid request: it already came through this gateway; one of its servers leads back to it"
        )
    return via
