"""What a decision of the policy costs, in microseconds, with few rules and with many, in the shapes that matter.

Everything runs in this process, on policies that are read from TOML as a user's would be, and is its processor time.
Nothing is compared with others: no other host has rules over arguments that could be measured beside these.
"""

from __future__ import annotations

import time
from statistics import median

from trunkline.host.authorization.policy import Act, PathContext, Policy, parse_policy

__all__ = ["decide_cost"]

ROUNDS = 21
SERVERS = 20


def decide_cost(*, seconds: float = 0.2) -> dict[str, float]:
    """Measure the median cost of a decision, in microseconds, by the shape of the policy and the number of rules."""
    return {
        f"{shape}, {count} rules": _cost(policy, act, seconds)
        for count in (50, 500)
        for shape, policy, act in (
            ("over 20 servers", _policy(count, servers=SERVERS), _act("s3", "tool_2_x")),
            ("over 20 servers, all of one tool", _policy(count, servers=SERVERS, tool="*"), _act("s3", "tool_2_x")),
            ("of one server", _policy(count, servers=1), _act("s0", "tool_2_x")),
            ("of one server, all of one tool", _policy(count, servers=1, tool="*"), _act("s0", "tool_2_x")),
        )
    }


def _policy(count: int, *, servers: int, tool: str = "tool_{}_*") -> Policy:
    """Spread rules over servers; each has a glob over tools and a folder that the path must be in."""
    effects = ("allow", "ask", "deny")
    rules = (
        f'[[rule]]\neffect = "{effects[at // servers % 3]}"\nserver = "s{at % servers}"\n'
        f'tool = "{tool.format(at // servers)}"\nwhen = [{{ arg = "/path", within = "/data/{at // servers}" }}]\n'
        for at in range(count)
    )
    return parse_policy("".join(rules), file="policy.toml", path_context=PathContext())


def _act(server: str, name: str) -> Act:
    return Act(kind="tool", server=server, name=name, arguments={"path": "/elsewhere/file.txt", "limit": 10})


def _cost(policy: Policy, act: Act, seconds: float) -> float:
    return median(_round(policy, act, seconds / ROUNDS) for _ in range(ROUNDS)) * 1e6


def _round(policy: Policy, act: Act, seconds: float) -> float:
    count = 0
    started = time.process_time()
    until = started + seconds
    while (now := time.process_time()) < until:
        for _ in range(20):
            policy.decide(act, 1.0)
        count += 20
    return (now - started) / count
