"""A handshake client of the soak: follows each request to its one answer, over lost connections and other workers."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from tests.soak.connections import Wire, current_wire
from tests.soak.ledger import Ledger
from tests.transports.http.serving_support import BOTH, initialize, notification, request
from trunkline.protocol.sse import EventReader, ServerSentEvent

__all__ = ["Events", "Lost", "Refused", "SoakSession"]

#: No answer takes longer, whatever was killed meanwhile.
ANSWER_SECONDS = 60.0
#: Seconds before a refused request is sent again.
RETRY_SECONDS = 0.25
ASKED: dict[str, Any] = {"elicitation": {}}
_PID = re.compile(r" pid (\d+)$")


class Lost(Exception):
    """The connection ended before there was an answer or an event id to resume from."""

    def __init__(self, wire: Wire | None = None) -> None:
        """Remember when the connection was last heard."""
        self.heard: float = (wire or current_wire()).heard
        super().__init__(self.heard)


class Refused(Exception):
    """The answer was 503."""


class Events:
    """The events of a response, until it ends however it does."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        """Read from a response."""
        self.response = response
        #: Its connection: the task may use others while it reads.
        self.wire: Wire = current_wire()
        self._reader = EventReader(max_event=1 << 20)
        self._ready: list[ServerSentEvent] = []

    async def next(self) -> ServerSentEvent | None:
        """Return the next event; None at the end."""
        while not self._ready:
            try:
                chunk = await self.response.content.readany()
            except (aiohttp.ClientError, OSError, TimeoutError):
                return None
            if not chunk:
                return None
            self.wire.hear()
            self._ready += self._reader.feed(chunk)
        return self._ready.pop(0)


class SoakSession:
    """One session."""

    def __init__(self, http: aiohttp.ClientSession, url: str, revision: str, ledger: Ledger) -> None:
        """Prepare a session; `open` opens it."""
        self.http = http
        self.url = url
        self.revision = revision
        self.ledger = ledger
        self.id = ""
        #: It is about to end, and is not used any more.
        self.closed = False
        #: It has tasks, and must not end.
        self.keep = False
        #: How many operations use it.
        self.users = 0
        self._numbers = 0
        self._event_ids: set[str] = set()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        head = {"accept": BOTH, "content-type": "application/json", "mcp-protocol-version": self.revision}
        return {**head, "mcp-session-id": self.id} if self.id else head

    async def open(self) -> None:
        """Open the session; tries again while Redis or a worker is gone."""
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                begun = time.monotonic()
                self.id = ""
                try:
                    async with self.http.post(
                        self.url, json=initialize(self.revision, ASKED), headers=self.headers
                    ) as response:
                        if response.status == 200:
                            await response.read()
                            current_wire().hear()
                            self.id = response.headers["mcp-session-id"]
                            await self.post(notification("notifications/initialized"))
                            return
                        self._refused("initialize", response.status, begun)
                except (aiohttp.ClientError, OSError):
                    self.ledger.lost("initialize", current_wire().heard)
                except Lost as lost:
                    self.ledger.lost("initialized", lost.heard)
                except Refused:
                    self.ledger.refused("initialized", begun)
                await asyncio.sleep(RETRY_SECONDS)

    async def post(self, message: Any) -> tuple[int, Any]:
        """Post a message that is answered with a single body.

        Raises:
            Lost: the connection ended first.
            Refused: the answer is 503.
        """
        try:
            async with self.http.post(self.url, json=message, headers=self.headers) as response:
                text = await response.text()
                current_wire().hear()
        except (aiohttp.ClientError, OSError) as error:
            raise Lost from error
        if response.status == 503:
            self._check_retry(response)
            raise Refused
        return response.status, json.loads(text) if text.startswith("{") else text

    def _check_retry(self, response: aiohttp.ClientResponse) -> None:
        if "retry-after" not in response.headers:
            self.ledger.fault("a 503 without Retry-After")

    def next_request(self, method: str, params: Any) -> dict[str, Any]:
        """Return a request with an id that the session has not used."""
        self._numbers += 1
        return request(method, params, id=self._numbers)

    # --- a request, wherever its answer comes from ---

    async def call(self, tool: str, arguments: Mapping[str, Any], *, leave_after: int | None = None) -> Answered:
        """Call a tool; with ``leave_after`` disconnect after so many events, and resume the stream.

        Raises:
            Lost: the connection ended, and there was no event id to resume from.
            Refused: the answer is 503.
        """
        message = self.next_request("tools/call", {"name": tool, "arguments": arguments})
        found = Answered(message["id"])
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self.http.post(self.url, json=message, headers=self.headers) as response,
            ):
                if response.status == 503:
                    self._check_retry(response)
                    raise Refused
                if response.status != 200:
                    found.status, found.reason = response.status, await response.text()
                    return found
                if response.content_type == "application/json":
                    found.add(json.loads(await response.text()))
                    current_wire().hear()
                    return found
                await self._follow(Events(response), found, leave_after)
        except (aiohttp.ClientError, OSError) as error:
            if not found.last:
                raise Lost(found.wire) from error
        if found.answer is None:
            if not found.last:
                raise Lost(found.wire)
            if not found.left:
                self.ledger.ended("the stream of a call", (found.wire or current_wire()).heard)
            await self._resume(found)
        return found

    async def _resume(self, found: Answered) -> None:
        """Open the stream again after its last event until the answer was seen."""
        self.ledger.counts["streams resumed"] += 1
        async with asyncio.timeout(ANSWER_SECONDS):
            while found.answer is None:
                head, begun = {**self.headers, "last-event-id": found.last}, time.monotonic()
                try:
                    async with self.http.get(self.url, headers=head) as response:
                        if response.status == 200:
                            await self._follow(Events(response), found, None)
                            if found.answer is None and found.wire is not None:
                                self.ledger.ended("a resumed stream", found.wire.heard)
                        elif response.status == 503:
                            self._check_retry(response)
                            self.ledger.refused("a resumed stream", begun)
                        else:
                            found.status, found.reason = response.status, await response.text()
                            return
                except (aiohttp.ClientError, OSError):
                    self.ledger.lost("a resumed stream", current_wire().heard)
                if found.answer is None:
                    await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self, events: Events, found: Answered, leave_after: int | None) -> None:
        found.wire = events.wire
        while (event := await events.next()) is not None:
            self._seen(event, found)
            if event.data:
                message = json.loads(event.data)
                found.add(message)
                if "method" in message and "id" in message:
                    await self._reply(message, found)
            if leave_after is not None and len(found.notifications) >= leave_after and found.answer is None:
                events.response.close()
                found.left = True
                return

    def _seen(self, event: ServerSentEvent, found: Answered) -> None:
        """Record the id of an event: none may come twice in a session."""
        if event.id:
            self.ledger.counts["events received"] += 1
            if event.id in self._event_ids:
                self.ledger.fault(f"event {event.id} of a session came twice")
            self._event_ids.add(event.id)
            found.last = event.id

    async def _reply(self, question: Any, found: Answered) -> None:
        """Answer a question on another connection, which reaches any worker."""
        reply = {
            "jsonrpc": "2.0",
            "id": question["id"],
            "result": {"action": "accept", "content": {"value": f"answer-{found.id}"}},
        }
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                begun = time.monotonic()
                try:
                    status, _ = await self.post(reply)
                except Refused:
                    self.ledger.refused("an answer to a question", begun)
                except Lost as lost:
                    self.ledger.lost("an answer to a question", lost.heard)
                else:
                    if status == 202:
                        self.ledger.counts["questions answered"] += 1
                    elif status == 410:
                        # The worker may have died before this: the question can come from the log.
                        self.ledger.unknown("an answer to a question", found.pids, found.begun)
                    else:
                        self.ledger.fault(f"an answer to a question got {status}")
                    return
                await asyncio.sleep(RETRY_SECONDS)

    def _refused(self, what: str, status: int, begun: float) -> None:
        if status == 503:
            self.ledger.refused(what, begun)
        else:
            self.ledger.fault(f"{what} got {status}")


class Answered:
    """What came of a request: the notifications of its stream in order, and its answer."""

    def __init__(self, id: int) -> None:
        """Start without an answer."""
        self.id = id
        self.begun = time.monotonic()
        #: Set if it is not 200.
        self.status = 200
        self.reason = ""
        #: The id of the last event.
        self.last = ""
        self.notifications: list[Any] = []
        self.answer: Any = None
        #: The processes that logged or asked something: one, that of the call.
        self.pids: set[int] = set()
        #: Whether this side ended the stream, and the connection that the last one had.
        self.left = False
        self.wire: Wire | None = None
        #: More than one answer.
        self.doubled = False

    def add(self, message: Any) -> None:
        """Add a message."""
        if "method" in message:
            params = message["params"]
            if (found := _PID.search(str(params.get("data", params.get("message", ""))))) is not None:
                self.pids.add(int(found[1]))
            if "id" not in message:
                self.notifications.append(params)
        else:
            self.doubled = self.doubled or self.answer is not None
            self.answer = message

    @property
    def text(self) -> str | None:
        """The text of the result; None if the answer is an error."""
        result = (self.answer or {}).get("result")
        return None if result is None else str(result["content"][0]["text"])

    @property
    def worker_gone(self) -> bool:
        """Whether another worker answered for one that had ended."""
        error = (self.answer or {}).get("error")
        return error is not None and "has ended" in error["message"]
