"""How names are spelt in a configuration: both usual ways, near misses, what an editor hides.

Pure functions over single texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["camel", "hidden_space", "nearest", "quoted", "snake"]

# What is not seen in an editor: spaces at the ends, and characters without a width or that look like a space.
_INVISIBLE = re.compile("[\u00a0\u00ad\u115f\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")
_UPPER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake(name: str) -> str:
    """Give a name in the spelling ``idle_stop``."""
    return _UPPER.sub("_", name).replace("-", "_").lower()


def camel(name: str) -> str:
    """Give a name in the spelling ``idleStop``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def hidden_space(text: str) -> str | None:
    """Name what cannot be seen in a text: a space at its end or beginning, or an invisible character."""
    found = _INVISIBLE.search(text)
    if found is not None:
        return f"the invisible character U+{ord(found.group()):04X} in it"
    if text != text.strip():
        return "hidden space " + ("before it" if text != text.lstrip() else "after it")
    return None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Give the known name that was most likely meant."""
    from difflib import get_close_matches

    by_folded = {each.lower().replace("_", "").replace("-", ""): each for each in known}
    near = get_close_matches(name[:80].lower().replace("_", "").replace("-", ""), list(by_folded), n=1, cutoff=0.7)
    return by_folded[near[0]] if near else None


def quoted(text: str) -> str:
    """Put a name of the file's in quotes, short, with nothing in it that could control a terminal."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
