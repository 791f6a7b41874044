"""Deceptive characters in a text: invisible ones, direction controls, terminal controls and look-alike letters.

What a person sees must be what a model reads. Pure: no I/O, no clock, no state.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from trunkline.protocol.printable import (
    ANNOTATIONS,
    CONTROLS,
    DIRECTION_CONTROLS,
    DIRECTION_MARKS,
    INVISIBLE,
    LINE_SEPARATORS,
    SELECTORS,
    TAGS,
    ZERO_WIDTH,
)

__all__ = ["SuspiciousText", "find_suspicious_characters", "fold_text"]


class SuspiciousText(NamedTuple):
    """Suspicious characters in a text: which rule, where, and what is wrong with them."""

    rule: str
    severity: str
    start: int
    end: int
    message: str


_ANY = re.compile(f"[{INVISIBLE}{CONTROLS}\\r{LINE_SEPARATORS}]")
_INVISIBLE_CHARACTER = re.compile(f"[{INVISIBLE}]")
# The flag of a region: a black flag, letters and digits as tags, the closing tag (Unicode Technical Standard 51).
_FLAGS = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_ANSI = re.compile(r"\x1b[\[\]()#PX^_].{0,64}?|\x1b|[\x9b\x9d\x90]|\x08", re.S)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
# Scripts in which joiners and non-joiners are part of the spelling.
_JOINING = re.compile("[\u0600-\u08ff\u0900-\u0dff\u0e80-\u0fff\u1000-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc]")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
# Letters of other scripts that look like Latin ones; the list has those that fool a reader in a plain font.
_LOOKALIKES: Mapping[str, str] = MappingProxyType(
    dict(
        zip(
            "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u04cf\u0475"
            "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405"
            "\u03bf\u03bd\u039f\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u03a1\u03a4\u03a5\u03a7"
            "\u0585\u057d\u0578\u0251\u0261\u026a\u1d00\u0131",
            "aeopcyxijsdhqwlvABEKMHOPCTXIJSovOABEZHIKMNPTYXounagiai",
            strict=True,
        )
    )
)
_FOLDING = str.maketrans(dict(_LOOKALIKES))
_LATIN = re.compile("[A-Za-z]")
_LOOKALIKE = re.compile(f"[{''.join(_LOOKALIKES)}]")
# Styled variants of letters: fullwidth, mathematical, enclosed.
_STYLED_LETTERS = re.compile(
    "(?:[\uff21-\uff3a\uff41-\uff5a\U0001d400-\U0001d7cb\u24b6-\u24e9\U0001f130-\U0001f189] ?){4,}"
)
_MANY = 8  # Emoji sequences and right-to-left text use a few invisible characters, hidden text many.
_RUN = 4  # Legitimate sequences have one or two in a row.


def find_suspicious_characters(text: str, *, name: bool = False) -> Iterator[SuspiciousText]:
    """Yield the deceptive characters of a text; a ``name`` is held to stricter rules."""
    if text.isascii() and text.isprintable():
        return
    if _ANY.search(text):
        plain = _FLAGS.sub(lambda found: " " * len(found.group()), text)
        yield from _tags(plain)
        yield from _selectors(plain)
        yield from _zero_width(plain)
        yield from _direction_controls(plain)
        yield from _controls(plain)
    if not text.isascii():
        yield from _lookalikes(text, name=name)


def fold_text(text: str) -> str:
    """Return a text as a model may read it: in lower case, nothing invisible, Latin letters for look-alikes."""
    if not text.isascii():
        text = _INVISIBLE_CHARACTER.sub("", text)
        text = unicodedata.normalize("NFKC", text).translate(_FOLDING)
        text = text.translate(_QUOTES)
    return text.lower()


_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2011\u2012\u2013\u2014", "''\"\"-----")


# --- the kinds -------------------------------------------------------------------------------------------------------


def _tags(text: str) -> Iterator[SuspiciousText]:
    for found in re.finditer(f"[{TAGS}]+", text):
        said = "".join(chr(ord(each) - 0xE0000) for each in found.group())
        hidden = "".join(each for each in said if each.isprintable())
        yield SuspiciousText("tag characters", "hide", *found.span(), f"invisible tag characters say {hidden[:120]!r}")


def _selectors(text: str) -> Iterator[SuspiciousText]:
    for found in re.finditer(f"[{SELECTORS}]+", text):
        before = text[found.start() - 1 : found.start()]
        if len(found.group()) > 1:
            message = f"{len(found.group())} variation selectors in a row, which can hide data"
            yield SuspiciousText("variation selectors", "hide", *found.span(), message)
        elif not before or before.isspace() or (before.isascii() and before.isalpha()):
            yield SuspiciousText(
                "variation selectors", "ask", *found.span(), "a variation selector where it has no meaning"
            )


def _zero_width(text: str) -> Iterator[SuspiciousText]:
    found = [each for each in re.finditer(f"[{ZERO_WIDTH}]+", text) if not _joins(text, each)]
    if not found:
        return
    count = sum(len(each.group()) for each in found)
    longest = max(found, key=lambda each: len(each.group()))
    if count >= _MANY or len(longest.group()) >= _RUN:
        message = f"{count} zero-width characters, which can hide text"
        yield SuspiciousText("zero-width characters", "hide", *longest.span(), message)
        return
    # A byte order mark at the start and soft hyphens come from files and word processors.
    harmless = all(each.group() == "\u00ad" or (each.group() == "\ufeff" and each.start() == 0) for each in found)
    yield SuspiciousText(
        "zero-width characters", "info" if harmless else "ask", *longest.span(), f"{count} zero-width characters"
    )


def _joins(text: str, found: re.Match[str]) -> bool:
    """Return True if a joiner is where one belongs: in an emoji, or in a script that is spelt with it."""
    if found.group() not in ("\u200c", "\u200d"):
        return False
    before, after = text[: found.start()][-1:], text[found.end() :][:1]
    if found.group() == "\u200d" and before and after and _is_symbol(before) and _is_symbol(after):
        return True
    return bool(_JOINING.match(before) and _JOINING.match(after))


def _is_symbol(character: str) -> bool:
    # Emoji, skin tones (Sk), and the selector that turns a symbol into an emoji.
    return character == "\ufe0f" or unicodedata.category(character) in ("So", "Sk")


def _direction_controls(text: str) -> Iterator[SuspiciousText]:
    written_so = bool(_RIGHT_TO_LEFT.search(text))
    found = re.search(f"[{DIRECTION_CONTROLS}]", text)
    if found is not None:
        overrides = found.group() in "\u202d\u202e" or not written_so
        message = "the writing direction is changed, so the text on screen differs from the real one"
        yield SuspiciousText("bidirectional controls", "hide" if overrides else "ask", *found.span(), message)
    mark = re.search(f"[{DIRECTION_MARKS}]", text)
    if mark is not None and not written_so:
        yield SuspiciousText(
            "bidirectional controls", "ask", *mark.span(), "a direction mark in a text that needs none"
        )


def _controls(text: str) -> Iterator[SuspiciousText]:
    ansi = _ANSI.search(text)
    if ansi is not None:
        message = "it would control a terminal: the text on screen differs from the real one"
        yield SuspiciousText("control characters", "hide", *ansi.span(), message)
        return
    other = re.search(f"[{CONTROLS}{ANNOTATIONS}\u2028\u2029]|\\r(?!\\n)", text)
    if other is not None:
        yield SuspiciousText("control characters", "ask", *other.span(), "a control character")


def _lookalikes(text: str, *, name: bool) -> Iterator[SuspiciousText]:
    for found in _LETTERS.finditer(text):
        word = found.group()
        if not word.isascii() and _LATIN.search(word) and _LOOKALIKE.search(word):
            message = f"letters of several scripts in one word: it looks like {word.translate(_FOLDING)!r} and is not"
            yield SuspiciousText("look-alike letters", "hide" if name else "ask", *found.span(), message)
            return
    dressed = _STYLED_LETTERS.search(text)
    if dressed is not None:
        message = f"styled letters say {unicodedata.normalize('NFKC', dressed.group())[:80]!r}"
        yield SuspiciousText("look-alike letters", "ask", *dressed.span(), message)
