"""Reads the bodies and event streams of HTTP responses, within a size limit and decompressed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import aiohttp

from trunkline.errors import RemoteProtocolError
from trunkline.net.decompression import ENCODINGS, DecompressionError, Decompressor
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.transports.http.client.errors import NETWORK_ERRORS

__all__ = ["ACCEPTED", "media_type", "read_body", "read_events", "read_to_end", "retry_delay"]

#: The value of ``Accept-Encoding``.
ACCEPTED = "gzip, deflate"

log = logging.getLogger("trunkline.transports")

# The delay before a stream is resumed, unless the server sets another; doubled with each failure in a row.
_FIRST_DELAY = 1.0
_LONGEST_DELAY = 30.0  # A server that comes back is reconnected to within half a minute.
# A server should end a stream after its answer; if it does not, the connection is closed after this time.
_LINGER_SECONDS = 1.0


def media_type(response: aiohttp.ClientResponse) -> str:
    """Return the media type of a response, without parameters."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read a whole body, decompressed.

    Raises:
        RemoteProtocolError: it is longer than the limit, or its compression was not requested or is invalid.
        NETWORK_ERRORS: the connection broke.
    """
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_long(limit)
    body = _Body(response)
    if not body.compressed and length:
        return await response.content.read()
    pieces: list[bytes] = []
    size = 0
    while data := await response.content.readany():
        for piece in body.pieces(data):
            size += len(piece)
            if size > limit:
                raise _too_long(limit)
            pieces.append(piece)
    return b"".join(pieces)


async def read_events(
    response: aiohttp.ClientResponse, reader: EventReader, handle: Callable[[ServerSentEvent], bool]
) -> bool:
    """Call ``handle`` with each event until it returns True; return False if the stream ended or broke before.

    Raises:
        RemoteProtocolError: an event is longer than the limit, or the compression was not requested or is invalid.
    """
    body = _Body(response)
    content = response.content
    done = False
    try:
        while not done and (data := await content.readany()):
            for piece in body.pieces(data):
                for event in reader.feed(piece):
                    done = handle(event) or done
    except NETWORK_ERRORS as error:
        log.debug("a stream broke: %s", error)
    return done


class _Body:
    """The bytes of one response, decompressed if its ``Content-Encoding`` says so."""

    __slots__ = ("_decompressor", "_encoding")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        encoding = response.headers.get("Content-Encoding", "")
        self._encoding = encoding.strip().lower()
        self._decompressor: Decompressor | None = None
        if self._encoding in ENCODINGS:
            self._decompressor = Decompressor(self._encoding)
        elif self._encoding not in ("identity", ""):
            raise RemoteProtocolError(
                f"the answer is compressed with {encoding[:40]!r}, but only {ACCEPTED} were requested"
            )

    @property
    def compressed(self) -> bool:
        """Whether the body is compressed."""
        return self._decompressor is not None

    def pieces(self, data: bytes) -> Iterable[bytes]:
        """Return the decompressed pieces of received data."""
        return (data,) if self._decompressor is None else self._decompressed(self._decompressor, data)

    def _decompressed(self, decompressor: Decompressor, data: bytes) -> Iterable[bytes]:
        try:
            yield from decompressor.feed(data)
        except DecompressionError as error:
            raise RemoteProtocolError(f"the answer cannot be decompressed: it {error}") from error


def _too_long(limit: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the answer is longer than {limit} bytes, which is the limit")


async def read_to_end(response: aiohttp.ClientResponse) -> None:
    """Read the rest of a stream whose answer has arrived, for a short time: its connection can then be reused."""
    content = response.content
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while not content.at_eof():
                await content.readany()
    except NETWORK_ERRORS:
        response.close()


def retry_delay(retry: int | None, failures: int) -> float:
    """Return how many seconds to wait before a stream is resumed.

    The specification: the server's ``retry``, in milliseconds, must be respected; so the delay is never less.
    """
    requested = _FIRST_DELAY if retry is None else retry / 1000
    return requested if failures < 2 else max(requested, min(_FIRST_DELAY * 2 ** (failures - 1), _LONGEST_DELAY))
