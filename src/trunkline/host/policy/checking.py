"""What is wrong with a policy beside the servers that there are: rules about nothing, and rules that are over.

A policy is right or wrong by itself when it is read; this looks at what it is used with. It only tells.
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
    """Something that a policy says to no effect."""

    severity: Literal["error", "warning"]
    where: str
    message: str

    def __str__(self) -> str:
        """Say it on one line."""
        return f"{self.where}: {self.message}"


def check(
    policy: Policy,
    known: Collection[str] | None = None,
    *,
    tools: Mapping[str, Collection[str]] | None = None,
    now: float | None = None,
) -> tuple[Finding, ...]:
    """Look for servers and tools that do not exist, and for rules that have expired.

    ``known`` are the names of all servers, ``tools`` those of the tools of servers whose catalog is known.
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
        yield Finding("warning", rule.where, f"{_named(rule)}has expired: it does nothing; remove it")


def _of_servers(rule: Rule | Redact, known: Collection[str] | None) -> Iterator[Finding]:
    if known is None:
        return
    for pattern in rule.servers:
        if is_glob(pattern):
            if not any(map(compile_glob(pattern), known)):
                yield Finding("warning", rule.where, f"{_named(rule)}no server is like {pattern!r}")
        elif pattern not in known:
            near = nearest(pattern, known)
            meant = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"
            yield Finding("error", rule.where, f"{_named(rule)}there is no server {pattern!r}: {meant}")


def _of_tools(rule: Rule, tools: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    """Look for names that no tool has, among the servers whose tools are known."""
    fits = [compile_glob(pattern) for pattern in rule.servers or ("*",)]
    meant = [server for server in tools if any(fit(server) for fit in fits)]
    names = {name for server in meant for name in tools[server]}
    for pattern in rule.names if meant else ():
        if not any(map(compile_glob(pattern), names)):
            near = None if is_glob(pattern) else nearest(pattern, names)
            hint = f": did you mean {near!r}?" if near else ""
            yield Finding("warning", rule.where, f"{_named(rule)}no tool of {', '.join(meant)} is {pattern!r}{hint}")


def _named(rule: Rule | Redact) -> str:
    return f"{rule.name}: " if isinstance(rule, Rule) and rule.name != rule.where else ""
