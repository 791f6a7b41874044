"""The secrets that a host has come across, so that none is written where it can be read later.

A host has one registry; every output (log, audit trail, state, error) is redacted through it. Besides the value
itself its usual encodings are matched: URL-quoted, JSON, Base64, and each line of a multi-line key. ``LogRedaction``
applies it to the package's log records. The oldest values are dropped once there are very many; it is thread-safe.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, quote_plus

from msgspec import Raw
from msgspec.structs import replace

from trunkline.host.authorization.policy.patterns import parse_pointer
from trunkline.host.config.variables import is_maskable
from trunkline.protocol.secret_patterns import find_secrets, names_secret

__all__ = ["HIDDEN", "LOGGERS", "LogRedaction", "Redaction", "SecretRegistry", "redact"]

if TYPE_CHECKING:
    import trunkline.types as t


_HIDDEN = "***"
_MAX_VALUES = 4096  # Far more secrets than a configuration names; searching for them is one pass.
_MAX_REDACTIONS = 256  # Sets of pointers in use: one for each [[redact]] table that matches.
# Shorter lines of a key may be its markers, or occur in other texts.
_SHORTEST_LINE = 16
# A chain of exceptions may be cyclic.
_MAX_CHAIN = 16
_MAX_DEPTH = 32  # Errors and results are nested less deeply; deeper values are cut.


class SecretRegistry:
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
        unknown = [value for value in values if is_maskable(value) and value not in self._values]
        new = [form for value in unknown for form in _encodings(value) if is_maskable(form)]
        if not new:
            return
        with self._lock:
            self._values.update(dict.fromkeys(new))
            for oldest in list(self._values)[:-_MAX_VALUES]:
                del self._values[oldest]
            self._pattern = re.compile("|".join(map(re.escape, sorted(self._values, key=len, reverse=True))))
            self._redactions = {}

    def hide(self, text: str) -> str:
        """Replace every known secret in a text by ``***``; nothing else is changed."""
        return text if self._pattern is None else self._pattern.sub(_HIDDEN, text)

    def holds(self, text: str) -> bool:
        """Return True if a text contains a known secret."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def may_occur_in(self, raw: Any) -> bool:
        """Return True if the strings of JSON text may contain a known secret; False for other values than ``Raw``."""
        if self._pattern is None or not isinstance(raw, Raw):
            return False
        # With an escape in it, a string may be written in many ways.
        text = str(bytes(raw), "utf-8")
        return "\\" in text or self.holds(text)

    def redaction(self, *, pointers: Iterable[str] = (), text_length: int = 1024) -> Redaction:
        """Return the redaction of known secrets and of whatever looks like one, for values that are stored; cached."""
        key = (tuple(pointers), text_length)
        with self._lock:
            found = self._redactions.get(key)
            if found is None:
                if len(self._redactions) >= _MAX_REDACTIONS:
                    self._redactions = {}
                found = Redaction(pointers=key[0], secrets=frozenset(self._values), text_length=text_length)
                self._redactions[key] = found
        return found

    # --- values and errors -------------------------------------------------------------------------------------------

    def hide_in(self, value: Any) -> Any:
        """Redact the secrets in all strings of a JSON value; without known secrets the value itself is returned."""
        return value if self._pattern is None else self._within(value, _MAX_DEPTH)

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

    def redact_error(self, error: BaseException) -> None:
        """Redact the secrets in an exception and in its causes, in place, before it is shown."""
        if self._pattern is None:
            return
        for each in _chain(error):
            each.args = self._within(each.args, _MAX_DEPTH)
            for name, value in list(vars(each).items()):
                hidden = self._within(value, _MAX_DEPTH)
                if hidden != value:
                    setattr(each, name, hidden)

    def redact_result(self, result: t.CallToolResult) -> t.CallToolResult:
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
            structured_content=self._within(result.structured_content, _MAX_DEPTH),
            meta=self._within(result.meta, _MAX_DEPTH),
        )


def _encodings(value: str) -> Iterator[str]:
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
    while waiting and len(seen) < _MAX_CHAIN:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
        waiting += getattr(each, "exceptions", ())


#: Every logger of the package.
LOGGERS: tuple[str, ...] = (
    "trunkline",
    "trunkline.auth",
    "trunkline.store",
    "trunkline.console",
    "trunkline.host",
    "trunkline.host.chat",
    "trunkline.http",
    "trunkline.notices",
    "trunkline_servers",
    "trunkline.transports",
)
# Records are not shortened: a traceback is wanted in full.
_MAX_RECORD_CHARS = 1024 * 1024
_STANDARD_ATTRIBUTES = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime"}


class LogRedaction(logging.Filter):
    """Redacts known secrets, and whatever looks like a credential, in log records of the package."""

    def __init__(self, registry: SecretRegistry) -> None:
        """Use a registry; nothing is filtered before ``install``."""
        super().__init__()
        self._registry = registry

    def install(self) -> None:
        """Start filtering."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def remove(self) -> None:
        """Stop filtering."""
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record; none is dropped."""
        hide = self._registry.redaction(text_length=_MAX_RECORD_CHARS).text
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - a record that cannot be formatted is the handler's to report
            message = f"{record.msg} (arguments do not match the format)"
        record.msg, record.args = hide(message), None
        if record.exc_info is not None:
            # The exception object contains what its text does.
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        if record.exc_text:
            record.exc_text = hide(record.exc_text)
        if record.stack_info:
            record.stack_info = hide(record.stack_info)
        for name, value in vars(record).items():
            if name not in _STANDARD_ATTRIBUTES and isinstance(value, str):
                setattr(record, name, hide(value))
        return True


#: The replacement of a hidden value.
HIDDEN = "***"

# A shorter secret would match inside ordinary words; it is hidden only if it is the whole text.
_SHORTEST_SECRET = 4
_LONGEST_NAME = 64  # Names of arguments are shorter; longer ones are not cached.
_MOST_NAMES = 1024  # The argument names of some hundred tools.
_LONGEST_SEARCHED = 262_144  # Searched in some 20 ms; a longer text has no digest.
_MARGIN = 1024  # Searched beyond the cut, so that a secret across it is hidden as a whole.
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
        # Most member names are those of a few tools' arguments.
        self._names_seen: dict[str, tuple[str, bool]] = {}

    def apply(self, value: Any) -> Any:
        """Return a redacted copy of a JSON value."""
        return _Copy(self, self._members).of(value, self._pointers, self._depth)

    def text(self, text: str) -> str:
        """Return a redacted text, shortened if it is long."""
        if text in self._short:
            return HIDDEN
        limit = self._text_length
        if len(text) <= limit and not self._hidden_in(text):
            return text
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
        # The digest of a text with a secret in it could be used to guess the secret, wherever in the text it is.
        digest = (
            ""
            if at or len(text) > _LONGEST_SEARCHED or self._hidden_in(text)
            else f", sha256:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
        )
        return f"{''.join(kept)}... ({len(text)} characters{digest})"

    def hides(self, name: str) -> bool:
        """Return True if a member of this name is a credential."""
        return names_secret(name) if self._names is None else name.lower() in self._names

    def member(self, name: str) -> tuple[str, bool]:
        """Return the name of a member as it may be shown, and whether its value is a credential; cached."""
        found = self._names_seen.get(name)
        if found is None:
            found = (self.text(name), self.hides(name))
            if len(name) <= _LONGEST_NAME:
                if len(self._names_seen) >= _MOST_NAMES:
                    self._names_seen.clear()
                self._names_seen[name] = found
        return found

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
        if pointers and () in pointers:
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
            shown, hidden = self._rules.member(str(name))
            if shown in copied:
                shown = self._free(shown, copied)
            if hidden and member is not None and not isinstance(member, bool):
                copied[shown] = HIDDEN
            else:
                copied[shown] = self.of(member, _within(pointers, str(name)) if pointers else (), depth - 1)
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
