"""The secrets that a host has come across, so that none of them is written where it can be read later.

A host has one registry: every secret it reads is added, and every output (log, audit trail, state, error) is redacted
through it. Besides the value itself its usual encodings are matched: URL-quoted, JSON, Base64, and each line of a
multi-line key. The oldest values are dropped once there are very many. It is thread-safe.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from msgspec.structs import replace

from trunkline.host.config.variables import is_secret

if TYPE_CHECKING:
    import trunkline.types as t
    from trunkline.host.secrecy.redaction import Redaction

__all__ = ["SecretBook"]

_HIDDEN = "***"
_MOST = 4096
_MOST_REDACTIONS = 256
# Shorter lines of a key may be its markers, or occur in other texts.
_SHORTEST_LINE = 16
# A chain of exceptions may be cyclic.
_LONGEST_CHAIN = 16
_DEEPEST = 32


class SecretBook:
    """The known secrets, which it redacts from output."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Start with these values."""
        self._lock = Lock()
        self._values: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None
        self._redactions: dict[tuple[tuple[str, ...], int], Redaction] = {}
        self.add(values)

    def __repr__(self) -> str:
        """Show only how many there are."""
        return f"SecretRegistry({len(self._values)} known)"

    def add(self, values: Iterable[str]) -> None:
        """Add values; those so short that they occur in any text are ignored."""
        unknown = [value for value in values if is_secret(value) and value not in self._values]
        new = [form for value in unknown for form in _forms(value) if is_secret(form)]
        if not new:
            return
        with self._lock:
            self._values.update(dict.fromkeys(new))
            for oldest in list(self._values)[:-_MOST]:
                del self._values[oldest]
            self._pattern = re.compile("|".join(map(re.escape, sorted(self._values, key=len, reverse=True))))
            self._redactions = {}

    def hide(self, text: str) -> str:
        """Replace every known secret in a text by ``***``; nothing else is changed."""
        return text if self._pattern is None else self._pattern.sub(_HIDDEN, text)

    def holds(self, text: str) -> bool:
        """Return True if a text contains a known secret."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def redaction(self, *, pointers: Iterable[str] = (), text_length: int = 1024) -> Redaction:
        """Return the redaction of known secrets and of whatever looks like one, for values that are stored; cached."""
        from trunkline.host.secrecy.redaction import Redaction

        key = (tuple(pointers), text_length)
        with self._lock:
            found = self._redactions.get(key)
            if found is None:
                if len(self._redactions) >= _MOST_REDACTIONS:
                    self._redactions = {}
                found = Redaction(pointers=key[0], secrets=frozenset(self._values), text_length=text_length)
                self._redactions[key] = found
        return found

    # --- values and errors -------------------------------------------------------------------------------------------

    def hide_in(self, value: Any) -> Any:
        """Redact the secrets in all strings of a JSON value; without known secrets the value itself is returned."""
        return value if self._pattern is None else self._within(value, _DEEPEST)

    def _within(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        kind = type(value)
        if kind not in (dict, list, tuple) or not value:
            return value
        if depth == 0:
            return _HIDDEN
        if kind is dict:
            return {self._within(name, depth - 1): self._within(each, depth - 1) for name, each in value.items()}
        return kind(self._within(each, depth - 1) for each in value)

    def clean(self, error: BaseException) -> None:
        """Redact the secrets in an exception and in its causes, in place, before it is shown."""
        if self._pattern is None:
            return
        for each in _chain(error):
            each.args = self._within(each.args, _DEEPEST)
            for name, value in list(vars(each).items()):
                hidden = self._within(value, _DEEPEST)
                if hidden != value:
                    setattr(each, name, hidden)

    def clean_result(self, result: t.CallToolResult) -> t.CallToolResult:
        """Redact the secrets in a tool's error result."""
        if self._pattern is None:
            return result
        from trunkline.types import TextContent

        content: list[t.ContentBlock] = [
            replace(each, text=self.hide(each.text)) if isinstance(each, TextContent) else each
            for each in result.content
        ]
        return replace(
            result,
            content=content,
            structured_content=self._within(result.structured_content, _DEEPEST),
            meta=self._within(result.meta, _DEEPEST),
        )


def _forms(value: str) -> Iterator[str]:
    """Yield a secret in the encodings in which it may occur."""
    stripped = value.strip()
    yield from (value, stripped)
    data = stripped.encode("utf-8", "surrogatepass")
    yield from (quote(data, safe=""), quote(data), quote_plus(data))
    yield from (json.dumps(stripped)[1:-1], json.dumps(stripped, ensure_ascii=False)[1:-1], repr(stripped)[1:-1])
    yield base64.b64encode(data).decode()
    yield base64.urlsafe_b64encode(data).decode().rstrip("=")
    lines = stripped.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception with its causes, contexts and the members of a group."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _LONGEST_CHAIN:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
        waiting += getattr(each, "exceptions", ())
