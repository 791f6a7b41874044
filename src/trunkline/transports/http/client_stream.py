"""Reads the event streams of a server: bytes to events, whatever compresses them, until the stream ends or breaks.

That a stream broke is no error here: whoever reads it knows whether it may be taken up again, and after how long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import aiohttp

from trunkline.protocol.sse import Event, EventReader
from trunkline.transports.http.client_failures import NETWORK_ERRORS
from trunkline.transports.http.decompress import Inflater

__all__ = ["linger", "media_type", "pause_before", "read_events"]

log = logging.getLogger("trunkline.transports")

# Until the server says otherwise; doubled with each failure in a row, up to the longest.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
# A server should end a stream once it has answered; one that does not is left after this time.
_LINGER = 1.0


def media_type(response: aiohttp.ClientResponse) -> str:
    """Give the type of an answer's body, without parameters."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def read_events(response: aiohttp.ClientResponse, reader: EventReader, take: Callable[[Event], bool]) -> bool:
    """Hand each event on; tell whether ``take`` said that it has what it wanted, before the stream ended or broke.

    Raises:
        RemoteProtocolError: an event is longer than the limit, or the compression is none that was asked for.
    """
    encoding = response.headers.get("Content-Encoding")
    inflater = None if encoding is None else Inflater(encoding)
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


async def linger(response: aiohttp.ClientResponse) -> None:
    """Wait a little for the end of a stream that has given what was wanted: its connection can then be used again."""
    content = response.content
    try:
        async with asyncio.timeout(_LINGER):
            while not content.at_eof():
                await content.readany()
    except NETWORK_ERRORS:
        response.close()


def pause_before(retry: int | None, failures: int) -> float:
    """Say how many seconds to wait before a stream is taken up again.

    The specification: the server's ``retry``, in milliseconds, must be respected; so it is never less.
    """
    asked = _FIRST_PAUSE if retry is None else retry / 1000
    return asked if failures < 2 else max(asked, min(_FIRST_PAUSE * 2 ** (failures - 1), _LONGEST_PAUSE))
