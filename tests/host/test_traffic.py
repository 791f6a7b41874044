"""Observation of a host's traffic: every message of every connection, from now on, and nothing without an observer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.host.test_host import library, open_host, process
from tests.transports.http.serving_support import running
from trunkline import Context, Server
from trunkline.host.host import Host
from trunkline.host.traffic import TrafficSource
from trunkline.protocol.jsonrpc import Batch, Incoming, InvalidMessage, Outbound, encode
from trunkline.protocol.traffic import HttpTraffic
from trunkline.types import RequestId

Seen = tuple[str, str, str, Any]


class Log:
    """A handler that notes everything: server, connection, what happened, and the message."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def __call__(self, source: TrafficSource) -> LogObserver:
        return LogObserver(self, source)

    def methods(self, what: str = "sent", server: str | None = None) -> list[str]:
        """Return the methods of the requests and notifications in one direction."""
        return [
            message["method"]
            for name, _, happened, message in self.seen
            if happened == what and "method" in message and server in (None, name)
        ]

    def call(self) -> list[Seen]:
        """Return what was noted about the one tool call, in order."""
        id = next(message["id"] for _, _, _, message in self.seen if isinstance(message, dict) and _calls(message))
        return [each for each in self.seen if (each[3].about if each[2] == "http" else each[3].get("id")) == id]

    def where(self, method: str) -> list[str]:
        """Return the connections on which a method was sent."""
        return [
            connection
            for _, connection, happened, message in self.seen
            if happened == "sent" and message.get("method") == method
        ]


def _calls(message: dict[str, Any]) -> bool:
    return message.get("method") == "tools/call"


class LogObserver:
    """Notes the traffic of one connection."""

    def __init__(self, log: Log, source: TrafficSource) -> None:
        self._log = log
        self._source = source

    def messages_sent(self, batch: Sequence[Outbound]) -> None:
        for each in batch:
            for message in each.message if isinstance(each.message, tuple) else (each.message,):
                self._note("sent", json.loads(encode(message)))

    def message_received(self, incoming: Incoming) -> None:
        if not isinstance(incoming, Batch):
            self._note("received", {} if isinstance(incoming, InvalidMessage) else json.loads(encode(incoming)))

    def request_failed(self, id: RequestId, error: Exception | None) -> None:
        self._note("failed", {"id": id, "error": str(error)})

    def http_exchanged(self, exchange: HttpTraffic) -> None:
        self._note("http", exchange)

    def connected(self) -> None:
        self._note("connected", {})

    def _note(self, what: str, message: Any) -> None:
        self._log.seen.append((self._source.server, self._source.connection, what, message))


def observe(host: Host, log: Log) -> Any:
    """Observe a host."""
    return host._open.core.traffic.observe(log)


async def test_a_connection_that_is_open_already_is_observed_until_observing_ends(tmp_path: Path) -> None:
    async with open_host({"a": library()}, folder=tmp_path) as host:
        log = Log()
        end = observe(host, log)
        await host.call_tool("a/lend", {"title": "Emma"})
        end()
        end()
        await host.call_tool("a/lend", {"title": "Dune"})
        sent, received = log.call()
        assert "Dune" not in str(log.seen)
        assert sent[:3] == ("a", "shared", "sent")
        assert received[:3] == ("a", "shared", "received")
        assert received[3]["result"]["structuredContent"] == {"Emma": 7}


async def test_a_server_that_is_added_later_is_observed_from_its_first_message(tmp_path: Path) -> None:
    async with open_host({"a": library()}, folder=tmp_path) as host:
        log = Log()
        observe(host, log)
        await host.add_server("b", process())
        await host.call_tool("b/pid")
        assert log.methods(server="b")[:2] == ["initialize", "notifications/initialized"]
        assert "tools/call" in log.methods(server="b")
        assert "tools/call" not in log.methods(server="a")


async def test_a_restarted_server_is_observed_again(tmp_path: Path) -> None:
    async with open_host({"a": process()}, folder=tmp_path) as host:
        log = Log()
        observe(host, log)
        await host.restart("a")
        await host.call_tool("a/pid")
        assert log.methods().count("initialize") == 1
        assert ("a", "shared", "connected", {}) in log.seen


async def test_dedicated_connections_are_told_apart(tmp_path: Path) -> None:
    server = Server("a")

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", {"type": "object", "properties": {"ok": {"type": "boolean"}}})
        return str(answer)

    def answer(params: Any) -> dict[str, bool]:
        return {"ok": True}

    entry = {"settings": {"era": "handshake"}}
    async with open_host({"a": server}, folder=tmp_path, elicitation=answer, **entry) as host:
        log = Log()
        observe(host, log)
        await host.call_tool("a/ask")
        assert log.where("tools/call") == ["dedicated 1"]
        assert log.methods("received") == ["elicitation/create"]


async def test_http_exchanges_are_observed_with_their_messages_and_without_credentials(tmp_path: Path) -> None:
    async with running(library().asgi()) as web:
        url = f"{web.url}/mcp"
        entry = {"url": f"{url}?key=hunter2", "headers": {"Authorization": "Bearer sesame", "X-Team": "blue"}}
        async with open_host({"a": entry}, folder=tmp_path) as host:
            log = Log()
            observe(host, log)
            await host.call_tool("a/lend", {"title": "Emma"})
        sent, exchange, received = log.call()
        assert (sent[2], exchange[2], received[2]) == ("sent", "http", "received")
        http: HttpTraffic = exchange[3]
        assert (http.method, http.status) == ("POST", 200)
        assert http.url == url
        assert http.request_headers["Authorization"] == "***"
        assert http.request_headers["X-Team"] == "blue"
        assert "sesame" not in repr(http)
        assert http.seconds > 0


async def test_a_server_that_cannot_be_reached_leaves_a_failed_exchange(tmp_path: Path) -> None:
    async with open_host({"a": library()}, folder=tmp_path) as host:
        log = Log()
        observe(host, log)
        await host.add_server("b", {"url": "http://127.0.0.1:1/mcp"})
        await host._open.core.supervisor.settled(5.0, everything=True)
        failed = next(message for name, _, what, message in log.seen if (name, what) == ("b", "http"))
        assert failed.status is None
        assert "Cannot connect" in failed.error
        assert ("b", "failed") in {(name, what) for name, _, what, _ in log.seen}


async def test_a_failing_observer_disturbs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(LogObserver):
        def messages_sent(self, batch: Sequence[Outbound]) -> None:
            raise RuntimeError("no")

    async with open_host({"a": library()}, folder=tmp_path) as host:
        log, broken = Log(), Log()
        host._open.core.traffic.observe(lambda source: Broken(broken, source))
        observe(host, log)
        await host.call_tool("a/lend", {"title": "Emma"})
        assert "tools/call" in log.methods()
        assert "an observer of the traffic failed" in caplog.text
