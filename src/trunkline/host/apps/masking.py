"""Masks secrets in a JSON file, value by value, before it is shown or compared.

Masked are strings under names that indicate a secret, all headers, values of secret arguments, credentials and query
values in URLs, and whatever looks like a secret by itself. References to variables are not secrets. No I/O.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import Any

from trunkline.host.apps.spans import span_of, walk
from trunkline.protocol.secret_looks import hide_secrets, names_secret

__all__ = ["masked_diff", "masked_text"]

_FLAG = re.compile(r"-{0,2}([A-Za-z_][\w-]*)(=.*)?", re.S)
_REFERENCE = re.compile(r"(\$\{[^}]*\})")
_QUERY = re.compile(r"(?<==)[^&#]+")
_USER = re.compile(r"(?<=://)[^\s/?#@]*@")
_COVER = "***"


def masked_text(text: str) -> str:
    """Return a JSON text with everything masked that could be a secret."""
    if not text.strip():
        return text
    pieces: list[str] = []
    at = 0
    before = ""
    for way, span in walk(span_of(text)):
        if not text.startswith('"', span.start) or not way:
            continue
        value: str = json.loads(text[span.start : span.end], strict=False)
        shown = _shown(way, value, before)
        before = value if isinstance(way[-1], int) else ""
        if shown != value:
            pieces += (text[at : span.start], json.dumps(shown))
            at = span.end
    return "".join([*pieces, text[at:]])


def masked_diff(before: str, after: str, name: str) -> str:
    """Return a unified diff of two texts, both masked."""
    lines = difflib.unified_diff(
        masked_text(before).splitlines(), masked_text(after).splitlines(), name, name, lineterm="", n=2
    )
    return "\n".join(lines)


def _shown(way: tuple[Any, ...], value: str, before: str) -> str:
    names = [part for part in way if isinstance(part, str)]
    if "headers" in names[:-1] or any(names_secret(name, setting=True) for name in names[-1:]):
        return _covered(value)
    if isinstance(way[-1], int):
        flag, own = _FLAG.fullmatch(before), _FLAG.fullmatch(value)
        if (
            flag is not None
            and before.startswith("-")
            and "=" not in before
            and names_secret(flag.group(1), setting=True)
        ):
            return _covered(value)
        if own is not None and own.group(2) and names_secret(own.group(1), setting=True):
            return f"{value.partition('=')[0]}={_COVER}"
    if "://" in value:
        address, mark, query = _USER.sub(f"{_COVER}@", value).partition("?")
        value = address + mark + _QUERY.sub(_COVER, query)
    parts = _REFERENCE.split(value)
    return "".join(part if at % 2 else hide_secrets(part, _COVER) for at, part in enumerate(parts))


def _covered(value: str) -> str:
    """Mask a value, unless it consists only of references, with an optional scheme such as Bearer."""
    rest = _REFERENCE.sub("", value).strip()
    return value if not rest or rest.lower() in ("bearer", "basic", "token") or "secret://" in value else _COVER
