"""The user's rules as one pure function: from an act to allow, ask or deny, with the reason.

It uses no clock or randomness, and no I/O except in ``loader``: everything a decision depends on comes in with the act.
``loader`` and ``toml_keys`` parse a file into rules, where ``lint`` looks for rules that never decide; ``rules``
compiles them, with ``predicates`` for arguments; ``policy`` evaluates them in order and falls back to the default table
in ``decisions``.
"""

from __future__ import annotations

from trunkline.host.policy.acts import Act, ActKind, Annotations, Decision, Effect
from trunkline.host.policy.checking import Finding, check
from trunkline.host.policy.defaults import DEFAULTS
from trunkline.host.policy.paths import Places
from trunkline.host.policy.policy import DEFAULT, Policy, join_policies
from trunkline.host.policy.predicates import Predicate
from trunkline.host.policy.reading import load_policy, places_here, read_policy
from trunkline.host.policy.rules import Redact, Rule
from trunkline.host.policy.traces import Step, Trace

__all__ = [
    "DEFAULT",
    "DEFAULTS",
    "Act",
    "ActKind",
    "Annotations",
    "Decision",
    "Effect",
    "Finding",
    "Places",
    "Policy",
    "Predicate",
    "Redact",
    "Rule",
    "Step",
    "Trace",
    "check",
    "join_policies",
    "load_policy",
    "places_here",
    "read_policy",
]
