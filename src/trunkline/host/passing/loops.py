"""Keeps a gateway from serving what is its own: each names itself, and those behind it, among its capabilities.

A host one of whose servers is its own gateway would list its list, and the list of that, without end. So what a server
offers is left out if this host is among the gateways it names. Calls are held up by ``VIA``, whatever a server says of
itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Raw

from trunkline.errors import InvalidRequest
from trunkline.host.catalog.offerings import Offering
from trunkline.protocol.methods import read_meta

__all__ = ["GATEWAYS", "VIA", "announcement", "came_through", "leads_back"]

#: The experimental capability that has the ids of a gateway and of those behind it.
GATEWAYS = "dev.trunkline/gateways"

#: The member of ``_meta`` that has the ids of the gateways a request came through.
VIA = "dev.trunkline/via"

_VIA = VIA.encode()
_MOST_HOPS = 8
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


def came_through(params: Raw | None, own: str) -> tuple[str, ...]:
    """Return the ids of the gateways that a request came through.

    Raises:
        InvalidRequest: the gateway that has the id ``own`` is among them, or there are too many.
    """
    if params is None or _VIA not in bytes(params):
        return ()
    hops = read_meta(params).get(VIA)
    via = tuple(str(hop)[:_LONGEST] for hop in hops) if isinstance(hops, list) else ()
    if own in via or len(via) >= _MOST_HOPS:
        raise InvalidRequest("Invalid request: it came through this gateway already; a server here leads back to it")
    return via
