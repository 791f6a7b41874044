"""What the tests of policy need: acts in few words, and policies from TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trunkline.host.authorization.policy import Act, Decision, PathContext, Policy, parse_policy

__all__ = ["HOME", "decide", "make_act", "policy"]

HOME = "/home/me"


def make_act(address: str = "files/read_file", arguments: Mapping[str, Any] | None = None, **given: Any) -> Act:
    """Make an act of ``server/name``; a tool with no arguments unless said."""
    server, _, name = address.partition("/")
    given.setdefault("kind", "tool")
    return Act(server=server, name=name, arguments={} if arguments is None else arguments, **given)


def policy(text: str, *, path_context: PathContext | None = None) -> Policy:
    """Read a policy called ``p.toml``."""
    return parse_policy(
        text, file="p.toml", path_context=PathContext(home=HOME) if path_context is None else path_context
    )


def decide(text: str, act: Act, *, now: float | None = None) -> Decision:
    """Decide by a policy."""
    return policy(text).decide(act, now)
