"""Names of tools: the specification says which characters they should have; both frameworks warn of others."""

from __future__ import annotations

import logging
import re

__all__ = ["tool_name_problems", "validate_and_warn_tool_name"]

log = logging.getLogger("mcp.shared.tool_name_validation")

_LONGEST = 128  # 2025-11-25, server/tools: names SHOULD be between 1 and 128 characters.
_GOOD = re.compile(r"[A-Za-z0-9_./-]+")


def tool_name_problems(name: str) -> list[str]:
    """Return what is wrong with a name, by the specification's advice."""
    if not name:
        return ["the name is empty"]
    problems = []
    if len(name) > _LONGEST:
        problems.append(f"the name exceeds maximum length of {_LONGEST} characters (it has {len(name)})")
    if " " in name:
        problems.append("the name contains spaces")
    if "," in name:
        problems.append("the name contains commas")
    if name.startswith("-") or name.endswith("-"):
        problems.append("the name starts or ends with a dash")
    if name.startswith(".") or name.endswith("."):
        problems.append("the name starts or ends with a dot")
    bad = sorted(set(_GOOD.sub("", name)))
    if bad:
        problems.append(f"the name contains invalid characters: {' '.join(map(repr, bad))}")
    return problems


def validate_and_warn_tool_name(name: str) -> bool:
    """Log what is wrong with a name; return whether it is good."""
    problems = tool_name_problems(name)
    if problems:
        log.warning("Tool name validation warning for %r: %s", name, "; ".join(problems))
    return not problems
