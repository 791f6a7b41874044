"""What the tests of policy need: acts in few words, and policies from TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trunkline.host.policy import Act, Decision, Places, Policy, read_policy

__all__ = ["HOME", "decide", "make_act", "policy"]

HOME = "/home/me"


def make_act(address: str = "files/read_file", arguments: Mapping[str, Any] | None = None, **given: Any) -> Act:
    """Make an act of ``server/name``; a tool with no arguments unless said."""
    server, _, name = address.partition("/")
    given.setdefault("kind", "tool")
    return Act(server=server, name=name, arguments={} if arguments is None else arguments, **given)


def policy(text: str, *, places: Places | None = None) -> Policy:
    """Read a policy called ``p.toml``."""
    return read_policy(text, file="p.toml", places=Places(home=HOME) if places is None else places)


def decide(text: str, act: Act, *, now: float | None = None) -> Decision:
    """Decide by a policy."""
    return policy(text).decide(act, now)
