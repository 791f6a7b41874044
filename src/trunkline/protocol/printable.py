"""Makes the text of others safe to show: characters that could deceive a reader or control a terminal become escapes.

Text from a server (names, descriptions, results, errors, log lines) may hold characters that move the cursor, recolour
earlier output, reverse the reading direction, or are not visible at all. The classes of such characters are defined
here once; the scan of definitions (``host/integrity/scan``) reports them, and everything that shows text escapes them.
"""

from __future__ import annotations

import re
from functools import cache

__all__ = [
    "ANNOTATIONS",
    "CONTROLS",
    "DIRECTION_CONTROLS",
    "DIRECTION_MARKS",
    "INVISIBLE",
    "LINE_SEPARATORS",
    "SELECTORS",
    "TAGS",
    "UNSAFE",
    "ZERO_WIDTH",
    "escape_invisible",
    "printable",
]

# The classes are written as the content of a character class of a regular expression.
#: Tag characters, which spell invisible text.
TAGS = "\U000e0000-\U000e007f"
#: Variation selectors.
SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d\u180f"
#: Characters without a width, and fillers.
ZERO_WIDTH = "\u200b-\u200d\u2060-\u2064\u206a-\u206f\ufeff\u180e\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u00ad"
#: Embeddings, overrides and isolates of direction.
DIRECTION_CONTROLS = "\u202a-\u202e\u2066-\u2069"
DIRECTION_MARKS = "\u200e\u200f\u061c"
#: C0 but for tab and line ends, DEL and C1.
CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
LINE_SEPARATORS = "\u2028\u2029"
#: Controls of annotations, shorthand and musical notation.
ANNOTATIONS = "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
#: Everything that is in a text but not to be seen.
INVISIBLE = f"{TAGS}{SELECTORS}{ZERO_WIDTH}{DIRECTION_CONTROLS}{DIRECTION_MARKS}{ANNOTATIONS}"

# Halves of surrogate pairs, which no encoding can write.
_SURROGATES = "\ud800-\udfff"
#: One character that could control a terminal.
UNSAFE = re.compile(f"[{CONTROLS}\\r{DIRECTION_CONTROLS}{DIRECTION_MARKS}{LINE_SEPARATORS}{TAGS}{_SURROGATES}]")
_UNSEEN = re.compile(f"[{INVISIBLE}{CONTROLS}\\r{LINE_SEPARATORS}{_SURROGATES}]")
# Escaping creates several objects per character: a long text is processed in parts to bound the memory.
_PART = 64 * 1024


def printable(text: str) -> str:
    """Return a text with all characters that could control a terminal shown as escapes; line breaks are kept."""
    text = text.replace("\r\n", "\n")
    if UNSAFE.search(text) is None:
        return text
    return "".join(_escaped(text[at : at + _PART]) for at in range(0, len(text), _PART))


def escape_invisible(text: str) -> str:
    """Escape invisible characters too, for a text that a person is to judge; line feeds and tabs are kept."""
    return _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(part: str) -> str:
    """Escape a part of a text: with a translation table if there is much to escape, else by substitution."""
    dense = len(UNSAFE.findall(part)) > len(part) // 16
    return part.translate(_escapes()) if dense else UNSAFE.sub(_escape, part)


@cache
def _escapes() -> dict[int, str]:
    """Return the table of all escapes; it includes Latin characters, since a failed lookup is slow."""
    unsafe = (range(0x061C, 0x2070), range(0xD800, 0xE000), range(0xE0000, 0xE0080))
    latin = {code: UNSAFE.sub(_escape, chr(code)) for code in range(0x100)}
    return latin | {code: UNSAFE.sub(_escape, chr(code)) for codes in unsafe for code in codes}
