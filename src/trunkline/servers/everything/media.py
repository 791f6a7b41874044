"""A small image and a short sound, generated on first use."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from functools import cache

from trunkline.types import Icon

__all__ = ["icon", "picture", "sound"]

_SIDE = 20
_RATE = 8000
_RULE, _PAPER = b"\x1f\x4e\x79", b"\xf2\xf5\xf9"


@cache
def picture() -> bytes:
    """Return a PNG: three rails on a light background."""
    rows = (b"\0" + (_RULE if line % 7 in (3, 4) else _PAPER) * _SIDE for line in range(_SIDE))
    header = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


@cache
def sound() -> bytes:
    """Return a WAV: a twentieth of a second of a square wave, mono, 8 bits."""
    samples = bytes(160 if step // 10 % 2 else 96 for step in range(_RATE // 20))
    form = struct.pack("<HHIIHH", 1, 1, _RATE, _RATE, 1, 8)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def icon() -> Icon:
    """Return the image as an icon with a data URI."""
    source = "data:image/png;base64," + b64encode(picture()).decode()
    return Icon(src=source, mime_type="image/png", sizes=[f"{_SIDE}x{_SIDE}"])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
