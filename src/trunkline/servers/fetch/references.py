"""HTML character references such as ``&amp;`` and ``&#38;``, replaced in linear time.

The names are those of the standard library, whose function is slow for unknown names. This module knows no markup.
"""

from __future__ import annotations

import html
import re
from html.entities import html5

__all__ = ["unescape"]

# A code point has at most seven digits; longer numbers are invalid, and not worth converting.
_REFERENCE = re.compile(r"&(?:#(?:[xX]([0-9a-fA-F]++)|([0-9]++));?|([a-zA-Z][a-zA-Z0-9]{1,31}+;?))")
_MOST_DIGITS = 7
# References beyond this number stay as written.
_MOST_IN_A_TEXT = 100_000
# The longest name that needs no semicolon.
_LONGEST_BARE = max(len(name) for name in html5 if not name.endswith(";"))


def unescape(text: str) -> str:
    """Replace the character references in a text; anything else stays."""
    return _REFERENCE.sub(_character, text, count=_MOST_IN_A_TEXT) if "&" in text else text


def _character(found: re.Match[str]) -> str:
    hexadecimal, decimal, name = found.groups()
    if name is not None:
        return html5.get(name) or _begun(name)
    digits = hexadecimal or decimal
    if len(digits) > _MOST_DIGITS:
        return "\ufffd"
    code = int(digits, 16 if hexadecimal else 10)
    return chr(code) if 0xA0 <= code < 0xD800 or 32 <= code < 127 else html.unescape(f"&#{code};")


def _begun(name: str) -> str:
    """Replace the longest known prefix of an unknown name, if there is one."""
    for length in range(min(_LONGEST_BARE, len(name)), 1, -1):
        known = html5.get(name[:length])
        if known is not None:
            return known + name[length:]
    return f"&{name}"
