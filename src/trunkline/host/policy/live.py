"""A policy that can be replaced while it is held, so that its holders always decide by the current rules.

A ``Policy`` itself never changes, and one that was passed in code stays what it is. One that is loaded from a file is
held by gateways, request handlers and conversations for as long as they live; so they hold this object, and reloading
the file replaces the rules for all of them in one step, between two decisions and never within one.
"""

from __future__ import annotations

from trunkline.host.policy.policy import Policy

__all__ = ["LivePolicy"]


class LivePolicy(Policy):
    """A policy with the rules of another one, which can be replaced."""

    __slots__ = ()

    def __init__(self, now: Policy) -> None:
        """Start with the rules of ``now``."""
        super().__init__()
        self.become(now)

    def become(self, other: Policy) -> bool:
        """Use the rules of another policy from now on; return True if they differ."""
        differs = _said(self) != _said(other)
        for name in Policy.__slots__:
            setattr(self, name, getattr(other, name))
        return differs


def _said(policy: Policy) -> tuple[object, ...]:
    return policy.rules, policy.redactions, policy.places
