"""Response bodies as text: the kind of content and its encoding.

The Content-Type counts, but not against the bytes: an image is not a page, whatever its header says. An encoding must
be one that browsers know, never one of Python's codecs that are not text encodings. Invalid bytes become U+FFFD.
"""

from __future__ import annotations

import codecs
import re
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

__all__ = ["Kind", "Text", "binary_type", "kind_of", "read_text"]

Kind = Literal["html", "text"]

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x7fELF", "application/x-elf"),
    (b"\x00asm", "application/wasm"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
)
# Signatures that a text may begin with too; they count only if bytes follow that no text has. With their offsets.
_LETTERS = (
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"OggS", "application/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (4, b"ftyp", "video/mp4"),
)
_NEVER_IN_TEXT = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_CONTAINERS = MappingProxyType({b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"})
# The encoding labels of browsers and the Python codec of each; where browsers decode one encoding with the table of a
# larger one, the larger one.
_ENCODINGS = MappingProxyType(
    {
        **{name: name for name in ("utf-8", "utf-16le", "utf-16be", "gb18030", "euc-jp", "iso-2022-jp")},
        **{name: name for name in ("koi8-r", "koi8-u")},
        **{f"iso-8859-{part}": f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
        **{f"{name}{page}": f"cp{page}" for name in ("windows-", "cp", "x-cp") for page in range(1250, 1259)},
        **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "ms_kanji", "windows-31j"), "cp932"),
        **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "windows-949"), "cp949"),
        **dict.fromkeys(("gbk", "gb2312", "x-gbk", "gb_2312-80"), "gb18030"),
        **dict.fromkeys(("big5", "big5-hkscs"), "big5hkscs"),
        "x-euc-jp": "euc-jp",
        "iso-8859-8-i": "iso-8859-8",
        "iso-8859-1": "cp1252",
        "latin1": "cp1252",
        "us-ascii": "cp1252",
        "ascii": "cp1252",
        "iso-8859-9": "cp1254",
        "iso-8859-11": "cp874",
        "windows-874": "cp874",
        "tis-620": "cp874",
        "utf8": "utf-8",
        "utf-16": "utf-16le",
        "ibm866": "cp866",
        "macintosh": "mac-roman",
        "x-mac-cyrillic": "mac-cyrillic",
    }
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,400}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_XML = re.compile(rb"<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_:.-]{1,40})")
_LOOKS_HTML = re.compile(r"\s*(?:<!doctype\s+html|<(?:html|head|body|title|h1|div|p|table|article|main)\b)", re.I)
_TEXT_TYPES = ("text/", "message/")
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml", "/json", "/xml", "/yaml", "/javascript", "/x-ndjson", "/sql", "/toml")


class Text(Struct, frozen=True):
    """A decoded body."""

    text: str
    encoding: str


def binary_type(content_type: str, body: bytes) -> str | None:
    """Return the media type of binary content; None if it is, or may be, text."""
    said = _media_type(content_type)
    head = body[:1024]
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head.startswith(b"RIFF") and head[8:12] in _CONTAINERS:
        return _CONTAINERS[head[8:12]]
    if _NEVER_IN_TEXT.search(head):
        for place, letters, name in _LETTERS:
            if head.startswith(letters, place):
                return name
    if _bom(head) or "utf-16" in content_type.lower():
        return None
    if b"\0" in head:
        return said or "application/octet-stream"
    is_text = not said or said.startswith(_TEXT_TYPES) or said.endswith(_TEXT_SUFFIXES)
    return said if not is_text and _is_noise(head) else None


def kind_of(content_type: str, text: str) -> Kind:
    """Return whether a text is HTML: by its Content-Type, or by its beginning if there is none."""
    said = _media_type(content_type)
    if said in ("text/html", "application/xhtml+xml") or "<html" in text[:100].lower():
        return "html"
    return "html" if not said and _LOOKS_HTML.match(text[:1024]) else "text"


def read_text(content_type: str, body: bytes) -> Text:
    """Decode a body: by its BOM, the Content-Type, the declaration in HTML or XML, or the encoding that fits."""
    mark = _bom(body)
    if mark is not None:
        return Text(body.decode(mark, "replace").removeprefix("\ufeff"), mark)
    for label in (_CHARSET.search(content_type), _META.search(body[:2048]), _XML.match(body[:256])):
        if label is not None:
            given = label.group(1)
            named = _ENCODINGS.get((given.decode() if isinstance(given, bytes) else given).lower())
            if named is not None:
                # A page whose label is readable as ASCII cannot be UTF-16.
                named = "utf-8" if named.startswith("utf-16") and isinstance(given, bytes) else named
                return Text(body.decode(named, "replace"), named)
    try:
        # A truncated body may end in the middle of a character.
        return Text(codecs.getincrementaldecoder("utf-8")().decode(body), "utf-8")
    except UnicodeDecodeError:
        return Text(body.decode("cp1252", "replace"), "cp1252")


def _bom(body: bytes) -> str | None:
    return next((name for mark, name in _BOMS if body.startswith(mark)), None)


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].partition(",")[0].strip().lower()[:100]


def _is_noise(head: bytes) -> bool:
    """Return True if more than one in ten characters is a control character or invalid."""
    broken = sum(1 for character in head.decode("utf-8", "replace") if character < " " and character not in "\t\n\r\f")
    broken += head.decode("utf-8", "replace").count("\ufffd")
    return broken * 10 > len(head)
