"""Images for models: the type, read from the bytes, the dimensions, and the size in tokens.

Only the header is decoded. No I/O.
"""

from __future__ import annotations

import binascii
from base64 import b64decode

from msgspec import Struct

__all__ = ["MOST_BYTES", "MOST_PIXELS", "Picture", "PictureError", "look_at", "picture_tokens"]

#: Limits that hold for all providers: bytes of an image, and pixels along an edge.
MOST_BYTES = 3_750_000
MOST_PIXELS = 8_000
_TOKENS_A_PICTURE = 1600
# One provider's rule, in pixels per token; the others' results are of the same order.
_PIXELS_A_TOKEN = 750
_HEAD = 64 * 1024
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


class PictureError(ValueError):
    """The bytes are not a valid image; the message says why."""


class Picture(Struct, frozen=True):
    """The header of an image; the type is None if models do not support it, an unknown dimension is 0."""

    mime_type: str | None
    width: int = 0
    height: int = 0

    @property
    def fits(self) -> bool:
        """Whether providers accept its type and dimensions."""
        return self.mime_type is not None and max(self.width, self.height) <= MOST_PIXELS


def look_at(data: str) -> tuple[Picture, bytes]:
    """Decode a base64 image, and return its header and bytes.

    Raises:
        InvalidImage: it is empty, not base64, or truncated before its dimensions.
    """
    try:
        content = b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PictureError("it is not valid base64") from error
    if not content:
        raise PictureError("it is empty")
    return _look(content), content


def _look(content: bytes) -> Picture:
    try:
        if content.startswith(b"\x89PNG\r\n\x1a\n"):
            if content[12:16] != b"IHDR":
                raise PictureError("it is a PNG without a header")
            return _sized("image/png", _big(content, 16, 4), _big(content, 20, 4))
        if content.startswith((b"GIF87a", b"GIF89a")):
            return _sized("image/gif", _little(content, 6, 2), _little(content, 8, 2))
        if content.startswith(b"\xff\xd8"):
            return _jpeg(content)
        if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
            return _webp(content)
    except IndexError:
        raise PictureError("it is truncated in its header") from None
    return Picture(None)


def _sized(mime_type: str, width: int, height: int) -> Picture:
    if not width or not height:
        raise PictureError("it has no pixels")
    return Picture(mime_type, width, height)


def _jpeg(content: bytes) -> Picture:
    """Walk from marker to marker up to the one with the dimensions."""
    place = 2
    while True:
        while content[place] != 0xFF:
            place += 1
        while content[place] == 0xFF:
            place += 1
        marker = content[place]
        if marker in _FRAMES:
            return _sized("image/jpeg", _big(content, place + 6, 2), _big(content, place + 4, 2))
        place += 1 if 0xD0 <= marker <= 0xD9 or marker == 1 else 1 + max(2, _big(content, place + 1, 2))


def _webp(content: bytes) -> Picture:
    kind = content[12:16]
    if kind == b"VP8X":
        return Picture("image/webp", _little(content, 24, 3) + 1, _little(content, 27, 3) + 1)
    if kind == b"VP8L":
        bits = _little(content, 21, 4)
        return Picture("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        return _sized("image/webp", _little(content, 26, 2) & 0x3FFF, _little(content, 28, 2) & 0x3FFF)
    raise PictureError("it is an unknown kind of WebP")


def _big(content: bytes, place: int, size: int) -> int:
    return int.from_bytes(_part(content, place, size), "big")


def _little(content: bytes, place: int, size: int) -> int:
    return int.from_bytes(_part(content, place, size), "little")


def _part(content: bytes, place: int, size: int) -> bytes:
    part = content[place : place + size]
    if len(part) < size:
        raise IndexError(place)
    return part


def picture_tokens(data: str) -> int:
    """Estimate the tokens of a base64 image."""
    try:
        # The header is in the first bytes of all but odd files, whose dimensions then stay unknown.
        picture = _look(b64decode(data[:_HEAD]))
    except (PictureError, ValueError):
        return _TOKENS_A_PICTURE
    if picture.mime_type is None:
        return _TOKENS_A_PICTURE
    return min(_TOKENS_A_PICTURE, picture.width * picture.height // _PIXELS_A_TOKEN + 85)
