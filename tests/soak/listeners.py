"""Streams that stay open for a whole soak: the GET streams of sessions, and the listen streams of stateless clients."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

import aiohttp

from tests.soak.connections import current_wire
from tests.soak.ledger import Ledger
from tests.soak.sessions import RETRY_SECONDS, Events, SoakSession
from tests.transports.http.serving_support import BOTH, META, modern_headers, request

__all__ = ["URI", "GetListener", "ListenStream"]

URI = "note://one"


class GetListener:
    """The GET stream of a session, resumed after its last event as often as it ends."""

    def __init__(self, session: SoakSession) -> None:
        """Prepare to listen."""
        self.session = session
        self.opened = asyncio.Event()
        #: How often each number was heard.
        self.ticks: Counter[int] = Counter()
        self.updates = 0
        self._last = ""
        self._ids: set[str] = set()

    async def run(self) -> None:
        """Listen until it is cancelled."""
        session, ledger = self.session, self.session.ledger
        while True:
            begun = time.monotonic()
            head = {**session.headers, **({"last-event-id": self._last} if self._last else {})}
            try:
                async with session.http.get(session.url, headers=head) as response:
                    if response.status == 200:
                        self.opened.set()
                        await self._listen(Events(response))
                        ledger.ended("a GET stream", current_wire().heard)
                        ledger.counts["GET streams that ended and were opened again"] += 1
                    elif response.status == 503:
                        ledger.refused("a GET stream", begun)
                    else:
                        ledger.fault(f"a GET stream got {response.status}: {(await response.text())[:200]}")
                        return
            except (aiohttp.ClientError, OSError):
                ledger.lost("a GET stream", current_wire().heard)
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self, events: Events) -> None:
        ledger = self.session.ledger
        while (event := await events.next()) is not None:
            if event.id:
                ledger.counts["events received"] += 1
                if event.id in self._ids:
                    ledger.fault(f"event {event.id} of a GET stream came twice")
                self._ids.add(event.id)
                self._last = event.id
            if event.data:
                self._received(json.loads(event.data))

    def _received(self, message: Any) -> None:
        if message["method"] == "soak/tick":
            self.ticks[message["params"]["number"]] += 1
        elif message["method"] == "notifications/resources/updated":
            self.updates += 1


class ListenStream:
    """A ``subscriptions/listen`` stream of the stateless era, opened again as often as it ends; there is no replay."""

    def __init__(self, http: aiohttp.ClientSession, url: str, ledger: Ledger) -> None:
        """Prepare to listen."""
        self.http = http
        self.url = url
        self.ledger = ledger
        self.opened = asyncio.Event()
        self.updates = 0

    async def run(self) -> None:
        """Listen until it is cancelled."""
        message = request("subscriptions/listen", {"notifications": {"resourceSubscriptions": [URI]}, "_meta": META})
        head = {"accept": BOTH, "content-type": "application/json", **modern_headers("subscriptions/listen")}
        while True:
            try:
                async with self.http.post(self.url, json=message, headers=head) as response:
                    if response.status != 200:
                        self.ledger.fault(f"a listen stream got {response.status}: {(await response.text())[:200]}")
                        return
                    await self._listen(Events(response))
                self.opened.clear()
                self.ledger.lost("a listen stream", current_wire().heard)
            except (aiohttp.ClientError, OSError):
                self.ledger.lost("a listen stream", current_wire().heard)
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self, events: Events) -> None:
        while (event := await events.next()) is not None:
            if event.data:
                method = json.loads(event.data).get("method")
                if method == "notifications/subscriptions/acknowledged":
                    self.opened.set()
                elif method == "notifications/resources/updated":
                    self.updates += 1
