"""Approval modes of a gateway: who is responsible for asking a person before a call.

A call may arrive with consent: from the client in front of a gateway in mode ``client``, whose user approves calls
there, or from the person who typed it (``trunkline call``). Such consent stands in for the questions of the default
table and of taint, and for nothing else: acts that a rule denies or asks about, and definitions that are flagged or
changed, are decided as if there were no consent. This module decides which mode is safe by default and what consent
covers; it does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

from trunkline.host.policy.acts import Act, Decision

__all__ = [
    "APPROVALS",
    "MEANINGS",
    "Approval",
    "ConsentedBy",
    "Exposure",
    "covered",
    "default_approval",
    "is_own_client",
    "stricter",
]

Approval: TypeAlias = Literal["client", "ask", "deny"]
#: From the loosest to the strictest.
APPROVALS: tuple[Approval, ...] = ("client", "ask", "deny")
#: Who approved a call before it arrived; the audit trail records it as ``by``.
ConsentedBy: TypeAlias = Literal["client", "user"]

MEANINGS: Mapping[Approval, str] = MappingProxyType(
    {
        "client": "the client in front asks its own user; calls pass unless a rule denies or asks, or a definition is "
        "flagged or changed",
        "ask": "a call that no rule allows needs approval by elicitation, and is denied if the client cannot be asked",
        "deny": "only calls that a rule or an earlier approval allows pass; nothing is asked",
    }
)

_COVERED = frozenset({"default", "taint"})


class Exposure(Struct, frozen=True, kw_only=True):
    """How a gateway can be reached; over stdio the other fields do not matter."""

    http: bool = False
    #: It binds a loopback address.
    loopback: bool = False
    #: Callers authenticate with a single static token, and in no other way.
    static_token: bool = False
    #: It accepts further host names, or browsers from further origins.
    allowed_hosts: bool = False
    allowed_origins: bool = False


def default_approval(exposure: Exposure) -> Approval:
    """Return the approval mode of a gateway that does not set one.

    ``client`` is safe where the client is the user's own: the one that started the gateway over stdio, or one on this
    machine that the user gave the token to. If more than one person can reach the gateway, the mode is ``ask``.
    """
    return "client" if is_own_client(exposure) else "ask"


def is_own_client(exposure: Exposure) -> bool:
    """Return True if only the user's own client can reach the gateway."""
    if not exposure.http:
        return True
    own = exposure.loopback and exposure.static_token
    return own and not exposure.allowed_hosts and not exposure.allowed_origins


def stricter(one: Approval, other: Approval | None) -> Approval:
    """Return the stricter of two modes."""
    return one if other is None or APPROVALS.index(one) >= APPROVALS.index(other) else other


def covered(act: Act, decision: Decision) -> bool:
    """Return True if consent given before the call covers a decision to ask."""
    return decision.effect == "ask" and decision.cause in _COVERED and not act.flagged and not act.changed
