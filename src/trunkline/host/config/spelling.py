"""Spelling of names in a configuration: snake and camel case, near misses, invisible characters.

Pure functions over single strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["camel", "hidden_space", "nearest", "quoted", "snake"]

# Not visible in an editor: characters without a width, or that look like a space.
_INVISIBLE = re.compile("[\u00a0\u00ad\u115f\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
_UPPER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake(name: str) -> str:
    """Return a name in snake case, as in ``idle_stop``."""
    return _UPPER.sub("_", name).replace("-", "_").lower()


def camel(name: str) -> str:
    """Return a name in camel case, as in ``idleStop``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def hidden_space(text: str) -> str | None:
    """Describe what is invisible in a text: a leading or trailing space, or an invisible character."""
    found = _INVISIBLE.search(text)
    if found is not None:
        return f"the invisible character U+{ord(found.group()):04X} in it"
    if text != text.strip():
        return "hidden space " + ("before it" if text != text.lstrip() else "after it")
    return None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was most likely meant."""
    from difflib import get_close_matches

    by_folded = {each.lower().replace("_", "").replace("-", ""): each for each in known}
    near = get_close_matches(name[:80].lower().replace("_", "").replace("-", ""), list(by_folded), n=1, cutoff=0.7)
    return by_folded[near[0]] if near else None


def quoted(text: str) -> str:
    """Quote a name that comes from a file: shortened, with control characters escaped."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
