"""Reports about a policy for ``trunkline policy`` and the console: explanations, tests, findings, grants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from trunkline.host.authorization.approval import consent_covers
from trunkline.host.authorization.grants import Grant
from trunkline.host.authorization.policy.decisions import Act
from trunkline.host.authorization.policy.lint import KnownTools, PolicyIssue, lint_policy
from trunkline.host.authorization.policy.policy import Policy, Trace
from trunkline.host.authorization.policy.policy_tests import PolicyTestResult, parse_policy_tests, run_policy_tests
from trunkline.host.config.model import Configuration

__all__ = ["CONSENTED", "explain_decision", "failed_test_line", "find_issues", "grant_document", "run_tests"]

#: The line of an explanation for a decision that the user's own call satisfies.
CONSENTED = (
    "no prompt if you type the call yourself, or if it comes from the client of a gateway in approval mode client"
)


def explain_decision(trace: Trace, act: Act, *, listed: bool) -> Iterator[str]:
    """Yield the lines of an explanation: the rule, the reason, and the consequences."""
    decision = trace.decision
    where = next((step.where for step in trace.steps if step.outcome == "decided"), None)
    yield f"by {decision.rule}{'' if where in (None, decision.rule) else f' ({where})'}"
    yield f"because {decision.reason}"
    if decision.message is not None:
        yield f"message to the caller: {decision.message}"
    if not listed:
        yield "not listed"
    if consent_covers(act, decision):
        yield CONSENTED
    yield from trace.notes


def run_tests(
    policy: Policy, text: str, *, file: str, now: float, with_policy: bool = True
) -> tuple[PolicyTestResult, ...]:
    """Run the ``[[test]]`` tables of a text against a policy; with ``with_policy``, the text may also contain rules.

    Raises:
        ConfigError: the text is invalid.
    """
    return run_policy_tests(policy, parse_policy_tests(text, file=file, with_policy=with_policy), now=now)


def failed_test_line(result: PolicyTestResult) -> str:
    """Return one line about a test that failed."""
    case = result.case
    named = "" if case.name == case.where else f"{case.name}: "
    return f"{case.where}: {named}{result.failure}"


def find_issues(
    policy: Policy,
    configuration: Configuration,
    *,
    now: float,
    servers: Iterable[str] = (),
    tools: KnownTools | None = None,
) -> tuple[PolicyIssue, ...]:
    """Return the problems of a policy, including rules for servers that are not configured.

    ``servers`` are names of servers that were added in code; ``tools`` are the tools of listed servers.
    """
    known = {*configuration.entries, *(each.entry.name for each in configuration.hidden), *servers}
    return lint_policy(policy, known or None, tools=tools, now=now)


def grant_document(grant: Grant) -> dict[str, Any]:
    """Return a grant as JSON, without the digest of its arguments."""
    document: dict[str, Any] = msgspec.to_builtins(grant)
    document.get("match", {}).pop("rest", None)
    return document
