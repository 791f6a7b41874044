"""Checks of a policy against the configured servers: rules about nothing, and rules that have expired.

Whether a policy is valid by itself is checked when it is loaded; this checks it against what it is used with. It only
reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from trunkline.host.config.spelling import nearest
from trunkline.host.policy.globs import compile_glob, is_glob
from trunkline.host.policy.policy import Policy
from trunkline.host.policy.rules import Redact, Rule

__all__ = ["Finding", "check"]


class Finding(Struct, frozen=True):
    """Something in a policy that has no effect."""

    severity: Literal["error", "warning"]
    where: str
    message: str

    def __str__(self) -> str:
        """Format it as one line."""
        return f"{self.where}: {self.message}"


def check(
    policy: Policy,
    known: Collection[str] | None = None,
    *,
    tools: Mapping[str, Collection[str]] | None = None,
    now: float | None = None,
) -> tuple[Finding, ...]:
    """Report servers and tools that do not exist, and rules that have expired.

    ``known`` are the names of all servers, ``tools`` the tool names of servers whose catalog is known.
    """
    return (
        *(finding for each in policy.rules for finding in _of_rule(each, known, tools, now)),
        *(finding for each in policy.redactions for finding in _of_servers(each, known)),
    )


def _of_rule(
    rule: Rule, known: Collection[str] | None, tools: Mapping[str, Collection[str]] | None, now: float | None
) -> Iterator[Finding]:
    yield from _of_servers(rule, known)
    if tools is not None and rule.kinds == ("tool",):
        yield from _of_tools(rule, tools)
    if now is not None and rule.expires is not None and now >= rule.expires:
        yield Finding("warning", rule.where, f"{_named(rule)}has expired and has no effect; remove it")


def _of_servers(rule: Rule | Redact, known: Collection[str] | None) -> Iterator[Finding]:
    if known is None:
        return
    for pattern in rule.servers:
        if is_glob(pattern):
            if not any(map(compile_glob(pattern), known)):
                yield Finding("warning", rule.where, f"{_named(rule)}no server matches {pattern!r}")
        elif pattern not in known:
            near = nearest(pattern, known)
            meant = f"did you mean {near!r}?" if near else f"configured: {', '.join(sorted(known)) or 'none'}"
            yield Finding("error", rule.where, f"{_named(rule)}there is no server {pattern!r}: {meant}")


def _of_tools(rule: Rule, tools: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    """Report names that no tool has, among the servers whose tools are known."""
    fits = [compile_glob(pattern) for pattern in rule.servers or ("*",)]
    meant = [server for server in tools if any(fit(server) for fit in fits)]
    names = {name for server in meant for name in tools[server]}
    for pattern in rule.names if meant else ():
        if not any(map(compile_glob(pattern), names)):
            near = None if is_glob(pattern) else nearest(pattern, names)
            hint = f": did you mean {near!r}?" if near else ""
            said = f"{_named(rule)}no tool of {', '.join(meant)} matches {pattern!r}{hint}"
            yield Finding("warning", rule.where, said)


def _named(rule: Rule | Redact) -> str:
    return f"{rule.name}: " if isinstance(rule, Rule) and rule.name != rule.where else ""
