"""The stream on which a handshake server says what belongs to no request: a GET that is kept open.

It opens once the server was told that we are ready. A server need not have one. When it breaks it is taken up again
after the last event, so nothing is missed where the server keeps a log. Answers have no business on it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from trunkline.errors import AuthError, ConnectionLost, HttpError, LinkError, RemoteProtocolError, SessionExpired
from trunkline.protocol.jsonrpc import ErrorResponse, Malformed, Response, decode
from trunkline.protocol.limits import Limits
from trunkline.protocol.sse import Event, EventReader
from trunkline.transports.http.client_exchange import HTTP
from trunkline.transports.http.client_failures import status_failure
from trunkline.transports.http.client_heads import Heads
from trunkline.transports.http.client_stream import media_type, pause_before, read_events
from trunkline.transports.http.client_web import Web
from trunkline.transports.link import Receiver

__all__ = ["Listening"]

log = logging.getLogger("trunkline.transports")


class _Carrier(Protocol):
    web: Web
    heads: Heads
    limits: Limits

    @property
    def receiver(self) -> Receiver: ...

    async def wait_idle(self) -> None: ...


class Listening:
    """The stream of one session that belongs to no request."""

    def __init__(self, link: _Carrier) -> None:
        """Make one that is not open yet."""
        self._link = link
        self._heard = False
        #: Set once the stream is open, or it is clear that there is none.
        self.settled = asyncio.Event()

    async def run(self) -> None:
        """Keep the stream open as long as the server has one."""
        try:
            await self._listen()
        except (AuthError, HttpError, RemoteProtocolError) as error:
            log.debug("no stream to listen to: %s", error)
        except LinkError as error:
            # Nobody can be told of it alone, and listeners would wait for ever; but calls may still get their answers.
            await self._link.wait_idle()
            self._link.receiver.eof_received(error)
        except Exception:
            log.exception("listening failed")
        finally:
            self.settled.set()

    async def _listen(self) -> None:
        limits = self._link.limits
        clock = asyncio.get_running_loop().time
        last_id, retry, failures = "", None, 0
        while True:
            reader = EventReader(max_event=limits.message_bytes)
            reader.last_id = last_id
            self._heard = False
            began = clock()
            lost = await self._once(reader)
            # One that was open for a while was only cut by somebody in between.
            lasted = lost is None and clock() - began >= limits.comment_seconds
            failures = 1 if self._heard or lasted else failures + 1
            if failures > limits.resumptions:
                break
            last_id, retry = reader.last_id, retry if reader.retry is None else reader.retry
            await asyncio.sleep(pause_before(retry, failures))
        if lost is not None:
            raise lost
        log.warning("the server ends its stream again and again; what it says there is no longer heard")

    async def _once(self, reader: EventReader) -> ConnectionLost | None:
        """Open the stream and read it to its end; give the reason if it could not be opened this time.

        Raises:
            SessionExpired: the server does not know the session any more.
            HttpError: it has no such stream.
        """
        link = self._link
        try:
            response = await link.web.open("GET", link.heads.listening(reader.last_id))
        except ConnectionLost as error:
            self.settled.set()
            return error
        try:
            if response.status >= 500:
                self.settled.set()
                return ConnectionLost(str(status_failure(response, "GET")))
            if response.status == 404 and link.heads.session is not None:
                raise SessionExpired("the server no longer knows this session")
            if response.status != 200 or media_type(response) != "text/event-stream":
                raise status_failure(response, "GET")
            self.settled.set()
            await read_events(response, reader, self._event)
            return None
        finally:
            if not response.content.is_eof():
                response.close()

    def _event(self, event: Event) -> bool:
        self._heard = True
        if not event.data:
            return False
        incoming = decode(event.data, self._link.limits)
        if isinstance(incoming, Response | ErrorResponse | Malformed):
            # The specification: a server must not answer here, except on a stream of a request that is taken up.
            log.debug("dropped from the stream: a %s", type(incoming).__name__)
        else:
            self._link.receiver.message_received(incoming, HTTP)
        return False
