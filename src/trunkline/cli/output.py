"""Writes output: text made safe for a terminal, tables and JSON. All other modules of the command line print with it.

Text from a server (names, descriptions, results, errors, log lines) may hold control characters that move the cursor,
recolour earlier output or reverse the reading direction. In text they are shown as escapes, also when the output is not
a terminal, since a pager or ``cat`` brings it to one. JSON has its own escapes for the same characters.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

import click

from trunkline.cli.secrecy import hidden, hidden_in

__all__ = [
    "clip",
    "clip_middle",
    "complain",
    "counted",
    "error_document",
    "one_line",
    "plain",
    "say",
    "say_bytes",
    "say_json",
    "size_text",
    "table",
    "wire_json",
]

# C0 but for tab and line feed, DEL and C1; marks, embeddings, overrides and isolates of direction; the line and
# paragraph separators; invisible tag characters; halves of surrogate pairs, which no encoding can write.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
_SPACES = re.compile(r"\s+")
# Escaping creates several objects per character: a long text is processed in parts to bound the memory.
_PART = 64 * 1024


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain(text: str) -> str:
    """Return a text with all characters that could control a terminal shown as escapes; line breaks are kept."""
    text = text.replace("\r\n", "\n")
    if _UNSAFE.search(text) is None:
        return text
    return "".join(_escaped(text[at : at + _PART]) for at in range(0, len(text), _PART))


def _escaped(part: str) -> str:
    """Escape a part of a text: with a translation table if there is much to escape, else by substitution."""
    dense = len(_UNSAFE.findall(part)) > len(part) // 16
    return part.translate(_escapes()) if dense else _UNSAFE.sub(_escape, part)


@cache
def _escapes() -> dict[int, str]:
    """Return the table of all escapes; it includes Latin characters, since a failed lookup is slow."""
    unsafe = (range(0x061C, 0x2070), range(0xD800, 0xE000), range(0xE0000, 0xE0080))
    latin = {code: _UNSAFE.sub(_escape, chr(code)) for code in range(0x100)}
    return latin | {code: _UNSAFE.sub(_escape, chr(code)) for codes in unsafe for code in codes}


def one_line(text: str) -> str:
    """Return a text made safe and put on one line."""
    return _SPACES.sub(" ", plain(text).strip())


def counted(count: int, what: str) -> str:
    """Return a number with its noun: ``1 tool``, ``2 tools``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def clip(text: str, width: int) -> str:
    """Cut a safe line to a number of columns; dots mark the cut."""
    if _columns(text) <= width:
        return text
    kept = ""
    for character in text:
        if _columns(kept + character) > max(width - 3, 0):
            break
        kept += character
    return (kept.rstrip() + "...")[: max(width, 0)]


def clip_middle(text: str, width: int) -> str:
    """Cut a safe line in the middle: an error begins with what was done and ends with the cause."""
    if _columns(text) <= width:
        return text
    head = clip(text, width // 3)
    tail = text[-(width - _columns(head)) :]
    while tail and _columns(head + tail) > width:
        tail = tail[1:]
    return head + tail


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def size_text(size: int) -> str:
    """Format a size in bytes with a unit."""
    amount = float(size)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


# --- writing ---------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print text to stdout, made safe."""
    click.echo(plain(text))


def say_bytes(data: bytes) -> None:
    """Write raw bytes to stdout."""
    click.echo(data, nl=False)


def complain(text: str) -> None:
    """Print a message of the command itself to stderr, made safe and with secrets redacted."""
    click.echo(f"trunkline: {plain(hidden(text))}", err=True)


def say_json(value: Any) -> None:
    """Print a value to stdout as one JSON document, in its wire form."""
    click.echo(wire_json(value, indent=2))


def error_document(error: Exception) -> dict[str, Any]:
    """Return an error as JSON, with secrets redacted: as it came over the wire or, if it did not, its message."""
    from trunkline.errors import RequestFailed

    if not isinstance(error, RequestFailed):
        return {"error": {"message": hidden(str(error))}}
    data = {} if error.data is None else {"data": hidden_in(error.data)}
    return {"error": {"code": error.code, "message": hidden(error.message), **data}}


def wire_json(value: Any, *, indent: int = 0) -> bytes:
    """Encode a value as JSON in its wire form, with characters that could control a terminal escaped."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=indent or -1).decode()
    # Such a character can occur only inside a string, where JSON allows it to be written as an escape.
    return _UNSAFE.sub(_json_escape, text).encode()


def _json_escape(found: re.Match[str]) -> str:
    pair = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{pair[at]:02x}{pair[at + 1]:02x}" for at in range(0, len(pair), 2))


# --- tables ----------------------------------------------------------------------------------------------------------


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format rows under headings; on a terminal, the last column is cut at the edge."""
    lines = [list(headings), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(_columns(line[at]) for line in lines) for at in range(len(headings))]
    room = _terminal_width() - sum(width + 2 for width in widths[:-1])
    return "\n".join(_row(line, widths, room) for line in lines)


def _row(cells: list[str], widths: list[int], room: int) -> str:
    padded = [cell + " " * (width - _columns(cell)) for cell, width in zip(cells[:-1], widths[:-1], strict=True)]
    # If the other columns fill the terminal, a line that wraps is better than an empty last column.
    last = cells[-1] if room < 20 else clip(cells[-1], room)
    return "  ".join([*padded, last]).rstrip()


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 1_000_000
