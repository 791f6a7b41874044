"""Names of tools and arguments derived from a document: valid for models and hosts, unique, and stable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from hashlib import sha256

__all__ = ["argument_name", "free_name", "slug", "tool_names"]

#: Longest name of a tool or an argument that model APIs accept.
_MOST = 64
_DIGEST = 8
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")


def tool_names(operations: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return tool names for operations, each given as method, path and id (which may be empty).

    A name depends on the operation only, not on its position in the document: if two would be equal, or one is too
    long, a digest of method and path is appended.
    """
    wished = [_wish(method, path, identifier) for method, path, identifier in operations]
    cut = [name if len(name) <= _MOST else name[: _MOST - _DIGEST - 1] for name in wished]
    times = Counter(cut)
    names = [
        short if short == whole and times[short] == 1 else _digested(short, f"{method} {path}")
        for whole, short, (method, path, _) in zip(wished, cut, operations, strict=True)
    ]
    seen: set[str] = set()
    return [_noted(free_name(name, seen), seen) for name in names]


def _wish(method: str, path: str, identifier: str) -> str:
    name = _OTHER.sub("_", identifier).strip("_")
    return name or f"{method.lower()}_{_OTHER.sub('_', path).strip('_')}".strip("_")


def _digested(name: str, key: str) -> str:
    digest = sha256(key.encode(errors="replace")).hexdigest()[:_DIGEST]
    return f"{name[: _MOST - _DIGEST - 1]}_{digest}"


def _noted(name: str, seen: set[str]) -> str:
    seen.add(name)
    return name


def argument_name(name: str, where: str, *, taken: Collection[str]) -> str:
    """Return the argument name of a parameter or body member; if it is taken, its location is appended."""
    plain = _OTHER.sub("_", name)[: _MOST - 16] or "value"
    plain = plain if plain.strip("_") else "value"
    return plain if plain not in taken else free_name(f"{plain}_{where}", taken)


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name[: _MOST - 6]}_{number}"
    return found


def slug(title: str) -> str:
    """Return a short plain name derived from a title."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40].strip("-") or "openapi"
