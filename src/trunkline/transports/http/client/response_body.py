"""Reads response bodies and event streams, decompressing them piece by piece so that a size limit can stop a.

Decompression bomb.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterator

import aiohttp

from trunkline.errors import RemoteProtocolError
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.transports.http.client.errors import NETWORK_ERRORS

__all__ = ["ACCEPTED", "Decompressor", "media_type", "read_events", "read_to_end", "retry_delay"]

#: What to ask for.
ACCEPTED = "gzip, deflate"

_PIECE = 64 * 1024  # Decompressed at once, so that a small body cannot fill the memory.
_GZIP = 16 + zlib.MAX_WBITS


class Decompressor:
    """Undoes one body's compression."""

    __slots__ = ("_encoding", "_inflate")

    def __init__(self, encoding: str) -> None:
        """Take the value of ``Content-Encoding``.

        Raises:
            RemoteProtocolError: it is an encoding that we did not ask for.
        """
        self._encoding = encoding.strip().lower()
        if self._encoding not in ("gzip", "x-gzip", "deflate", "identity", ""):
            raise RemoteProtocolError(
                f"the answer is compressed with {encoding[:40]!r}, but only {ACCEPTED} were asked for"
            )
        self._inflate: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take compressed bytes; give what they become, in pieces.

        Raises:
            RemoteProtocolError: they are not what the header says.
        """
        if self._encoding in ("identity", ""):
            yield data
            return
        while data:
            if self._inflate is None or self._inflate.eof:
                # Several compressed parts may follow one another.
                self._inflate = zlib.decompressobj(self._window(data))
            try:
                piece = self._inflate.decompress(data, _PIECE)
            except zlib.error as error:
                raise RemoteProtocolError(f"the answer says it is {self._encoding} but is not: {error}") from error
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece

    def _window(self, data: bytes) -> int:
        if self._encoding != "deflate":
            return _GZIP
        # The name means a zlib stream; some servers send it without the zlib header, whose low bits are always 8.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS


log = logging.getLogger("trunkline.transports")

# Until the server says otherwise; doubled with each failure in a row, up to the longest.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0  # A server that comes back is noticed within half a minute.
# A server should end a stream once it has answered; one that does not is left after this time.
_LINGER = 1.0


def media_type(response: aiohttp.ClientResponse) -> str:
    """Give the type of an answer's body, without parameters."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def read_events(
    response: aiohttp.ClientResponse, reader: EventReader, take: Callable[[ServerSentEvent], bool]
) -> bool:
    """Hand each event on; tell whether ``take`` said that it has what it wanted, before the stream ended or broke.

    Raises:
        RemoteProtocolError: an event is longer than the limit, or the compression is none that was asked for.
    """
    encoding = response.headers.get("Content-Encoding")
    inflater = None if encoding is None else Decompressor(encoding)
    content = response.content
    enough = False
    try:
        while not enough and (data := await content.readany()):
            for piece in (data,) if inflater is None else inflater.feed(data):
                for event in reader.feed(piece):
                    enough = take(event) or enough
    except NETWORK_ERRORS as error:
        log.debug("a stream broke: %s", error)
    return enough


async def read_to_end(response: aiohttp.ClientResponse) -> None:
    """Wait a little for the end of a stream that has given what was wanted: its connection can then be used again."""
    content = response.content
    try:
        async with asyncio.timeout(_LINGER):
            while not content.at_eof():
                await content.readany()
    except NETWORK_ERRORS:
        response.close()


def retry_delay(retry: int | None, failures: int) -> float:
    """Say how many seconds to wait before a stream is taken up again.

    The specification: the server's ``retry``, in milliseconds, must be respected; so it is never less.
    """
    asked = _FIRST_PAUSE if retry is None else retry / 1000
    return asked if failures < 2 else max(asked, min(_FIRST_PAUSE * 2 ** (failures - 1), _LONGEST_PAUSE))
