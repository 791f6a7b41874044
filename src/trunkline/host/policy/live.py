"""A policy that can be exchanged while it is held: whoever has it judges by the rules that count now.

A ``Policy`` itself never changes, and one that was given in code stays what it is. What is read from a file is held by
gateways, desks and conversations for as long as they last; so they hold this, and a file that is read again takes its
place in all of them in one step, between two decisions and never within one.
"""

from __future__ import annotations

from trunkline.host.policy.policy import Policy

__all__ = ["LivePolicy"]


class LivePolicy(Policy):
    """The rules of another policy, until it is told to take those of a third."""

    __slots__ = ()

    def __init__(self, now: Policy) -> None:
        """Take the rules that count first."""
        super().__init__()
        self.become(now)

    def become(self, other: Policy) -> bool:
        """Judge by the rules of another policy from now on; tell whether that makes a difference."""
        differs = _said(self) != _said(other)
        for name in Policy.__slots__:
            setattr(self, name, getattr(other, name))
        return differs


def _said(policy: Policy) -> tuple[object, ...]:
    return policy.rules, policy.redactions, policy.places
