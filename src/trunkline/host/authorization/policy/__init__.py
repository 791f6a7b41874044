"""The user's rules as one pure function: from an act to allow, ask or deny, with the reason.

It uses no clock or randomness, and no I/O except in ``loader``: everything a decision depends on comes in with the act.
``loader`` parses a file into rules, where ``lint`` looks for rules that never decide; ``rules`` compiles them, with
``predicates`` for arguments; ``policy`` evaluates them in order and falls back to its default table.
"""

from __future__ import annotations

from trunkline.host.authorization.policy.decisions import Act, ActKind, Decision, Effect, ToolHints
from trunkline.host.authorization.policy.lint import PolicyIssue, lint_policy
from trunkline.host.authorization.policy.loader import load_policy, local_path_context, parse_policy
from trunkline.host.authorization.policy.locations import PathContext
from trunkline.host.authorization.policy.policy import DEFAULT_POLICY, DEFAULT_RULES, Policy, Trace, TraceStep
from trunkline.host.authorization.policy.predicates import Predicate
from trunkline.host.authorization.policy.rules import RedactionRule, Rule

__all__ = [
    "DEFAULT_POLICY",
    "DEFAULT_RULES",
    "Act",
    "ActKind",
    "Decision",
    "Effect",
    "PathContext",
    "Policy",
    "PolicyIssue",
    "Predicate",
    "RedactionRule",
    "Rule",
    "ToolHints",
    "Trace",
    "TraceStep",
    "lint_policy",
    "load_policy",
    "local_path_context",
    "parse_policy",
]
