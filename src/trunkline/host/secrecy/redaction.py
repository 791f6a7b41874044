"""Redaction of values for storage: of credentials by name, by place and by look, and of excessive size.

Pure: values in, values out; the input is neither changed nor shared. A ``Redaction`` is built once and applied many
times. What looks like a credential is defined by ``protocol.secret_looks``. That is a safety net, not a proof: a policy
names the places that must be hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

from trunkline.host.policy.pointers import parse_pointer
from trunkline.protocol.secret_looks import find_secrets, names_secret

__all__ = ["HIDDEN", "Redaction", "redact"]

#: The replacement of a hidden value.
HIDDEN = "***"

# A shorter secret would match inside ordinary words; it is hidden only if it is the whole text.
_SHORTEST_SECRET = 4
_MARGIN = 1024
# Integers that a decoder of the audit trail reads back unchanged.
_WHOLE_NUMBERS = range(-(2**63), 2**64)
Segments: TypeAlias = tuple[str, ...]


def redact(
    value: Any,
    *,
    pointers: Iterable[str] = (),
    secrets: frozenset[str] = frozenset(),
    names: frozenset[str] | None = None,
) -> Any:
    """Return a redacted copy of a JSON value."""
    return Redaction(pointers=pointers, secrets=secrets, names=names).apply(value)


class Redaction:
    """The rules of a redaction, compiled."""

    def __init__(
        self,
        *,
        pointers: Iterable[str] = (),
        secrets: frozenset[str] = frozenset(),
        names: frozenset[str] | None = None,
        text_length: int = 1024,
        depth: int = 16,
        members: int = 512,
    ) -> None:
        """Set the JSON pointers (``*`` for any one step), the known secrets, and how much is kept.

        ``names`` are the lower-case member names to hide, instead of those that look like secrets.
        """
        self._names = names
        self._pointers = tuple(parse_pointer(pointer) for pointer in pointers)
        self._short = frozenset(each for each in secrets if 0 < len(each) < _SHORTEST_SECRET)
        long = sorted((each for each in secrets if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, long))) if long else None
        self._text_length = text_length
        self._margin = max(_MARGIN, *map(len, long)) if long else _MARGIN
        self._depth = depth
        self._members = members

    def apply(self, value: Any) -> Any:
        """Return a redacted copy of a JSON value."""
        return _Copy(self, self._members).of(value, self._pointers, self._depth)

    def text(self, text: str) -> str:
        """Return a redacted text, shortened if it is long."""
        if text in self._short:
            return HIDDEN
        limit = self._text_length
        window = text[: limit + self._margin]
        kept: list[str] = []
        at, end = 0, min(limit, len(text))
        for start, stop in self._hidden_in(window):
            if start >= end:
                break
            if start >= at:
                kept += (window[at:start], HIDDEN)
            at = max(at, stop)
        kept.append(window[at : max(at, end)])
        if len(text) <= limit:
            return "".join(kept)
        # The digest of a text with a secret in it could be used to guess the secret.
        about = "" if at else f", sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
        return f"{''.join(kept)}... ({len(text)} characters{about})"

    def hides(self, name: str) -> bool:
        """Return True if a member of this name is a credential."""
        return names_secret(name) if self._names is None else name.lower() in self._names

    def _hidden_in(self, text: str) -> list[tuple[int, int]]:
        """Return where known secrets, and what looks like one, stand in a text."""
        spans = [(span.sign, span.end) for span in find_secrets(text)]
        if self._known is not None and (known := [found.span() for found in self._known.finditer(text)]):
            # Of two that start at the same position, the longer one covers both.
            return sorted([*spans, *known], key=lambda span: (span[0], -span[1]))
        return spans


class _Copy:
    """A copy in progress, with the number of members it may still have."""

    def __init__(self, rules: Redaction, members: int) -> None:
        """Start with nothing copied."""
        self._rules = rules
        self._left = members

    def of(self, value: Any, pointers: Sequence[Segments], depth: int) -> Any:
        """Copy a value; the pointers are relative to it."""
        if () in pointers:
            return HIDDEN
        if isinstance(value, str):
            return self._rules.text(value)
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return value if value in _WHOLE_NUMBERS else self._rules.text(f"{value:#x}")
        if isinstance(value, bytes | bytearray | memoryview):
            return f"({len(value)} bytes)"
        if isinstance(value, dict | Mapping):
            return self._object(value, pointers, depth) if depth > 0 else f"({len(value)} members)"
        if isinstance(value, list | tuple):
            return self._array(value, pointers, depth) if depth > 0 else f"({len(value)} items)"
        return f"({type(value).__name__})"

    def _object(self, value: Mapping[Any, Any], pointers: Sequence[Segments], depth: int) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for count, (name, member) in enumerate(value.items()):
            if self._left <= 0:
                copied["..."] = f"({len(value) - count} more members)"
                break
            self._left -= 1
            shown = self._free(self._rules.text(str(name)), copied)
            if member is not None and not isinstance(member, bool) and self._rules.hides(str(name)):
                copied[shown] = HIDDEN
            else:
                copied[shown] = self.of(member, _within(pointers, str(name)), depth - 1)
        return copied

    def _free(self, name: str, taken: Mapping[str, Any]) -> str:
        """Number a name that equals another member's after redaction."""
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name} ({number})"
        return free

    def _array(self, value: Sequence[Any], pointers: Sequence[Segments], depth: int) -> list[Any]:
        copied: list[Any] = []
        for index, item in enumerate(value):
            if self._left <= 0:
                copied.append(f"({len(value) - index} more items)")
                break
            self._left -= 1
            copied.append(self.of(item, _within(pointers, str(index)), depth - 1))
        return copied


def _within(pointers: Sequence[Segments], name: str) -> Sequence[Segments]:
    """Return the remaining pointers after one step."""
    if not pointers:
        return pointers
    return [each[1:] for each in pointers if each and each[0] in ("*", name)]
