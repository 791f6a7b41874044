"""The users of the shop: open a session, call one tool, close the session, and so on, each on one connection.

One turn of a user is four sessions, one for each tool and one for the list of tools. A session is `initialize`, the
notification `initialized`, the request and, where the server opened a session, DELETE. Only `initialize` and the
request are counted: the notification and DELETE are done, cost the server something, and do not raise the rate. After
a turn a user waits for 50 ms. Argument: the `Load` as JSON. Prints a `Report` as JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop

from benchmarks.driver import cpu_ns, process_tree

__all__ = ["EXTRA_SECONDS", "MIN_CALLS", "REVISION", "Load", "Report"]

REVISION = "2024-11-05"
PAUSE_SECONDS = 0.05
RESPONSE_SECONDS = 30.0
#: How much longer than asked for a server may be warmed up, or be measured until there is something to report.
EXTRA_SECONDS = 30.0
MIN_CALLS = 2
CLIENT = {"name": "users", "version": "1"}
BASKET = [{"product_id": 42, "quantity": 2}, {"product_id": 1337, "quantity": 1}]
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
SESSION = re.compile(rb"\r\nmcp-session-id: *([^\r]+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
NO_BODY = frozenset({b"204", b"304"})


@dataclass(frozen=True, slots=True)
class Load:
    """What is loaded, by how many users and for how long; and the processes whose processor time is counted."""

    port: int
    users: int
    warm: float
    warm_requests: int
    seconds: float
    processes: Mapping[str, int]


@dataclass(slots=True)
class Report:
    """What the users saw within the time that was measured, and how many requests came before it."""

    warmed: int = 0
    counted: int = 0
    uncounted: int = 0
    errors: int = 0
    first_error: str = ""
    seconds: float = 0.0
    driver_ns: int = 0
    cpu_ns: dict[str, int] = field(default_factory=dict)
    call_ms: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """One connection: sends a request, reads the whole response."""

    def __init__(self) -> None:
        self.closed = True
        self._transport: Any = None
        self._received = b""
        self._response: asyncio.Future[tuple[bytes, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self.closed = False
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request that waits for a response."""
        self.closed = True
        if self._response is not None and not self._response.done():
            self._response.set_exception(ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Set the response once it is complete."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if found and self._response is not None and not self._response.done() and _complete(head, body):
            self._received = b""
            self._response.set_result((head, body))

    async def exchange(self, request: bytes) -> tuple[bytes, bytes]:
        """Send a request and return the head and the body of its response."""
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._response


def _complete(head: bytes, body: bytes) -> bool:
    if head[9:12] in NO_BODY:
        return True
    length = LENGTH.search(head)
    if length is not None:
        return len(body) >= int(length[1])
    return body.endswith(b"0\r\n\r\n") if CHUNKED.search(head) else False


class User:
    """One user with a connection of its own."""

    def __init__(self, number: int, load: Load, report: Report) -> None:
        self._port = load.port
        self._report = report
        user = f"user-{number:05}"
        search = {"category": "Electronics", "min_price": 50.0, "max_price": 500.0, "limit": 10}
        self._works: tuple[tuple[bytes, Callable[[Any], bool]], ...] = (
            (_call("search_products", search), _is_search),
            (_call("get_user_cart", {"user_id": user}), _is_cart),
            (_call("checkout", {"user_id": user, "items": BASKET}), _is_order),
            (_message("tools/list", {}, 2), _is_list),
        )
        self._connection = Connection()

    async def run(self) -> None:
        """Open, use and close sessions until cancelled."""
        while True:
            for body, is_right in self._works:
                try:
                    async with asyncio.timeout(RESPONSE_SECONDS):
                        await self._session(body, is_right)
                except (OSError, TimeoutError, ValueError, LookupError, TypeError) as error:
                    self._failed(repr(error))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _session(self, body: bytes, is_right: Callable[[Any], bool]) -> None:
        head, _ = await self._exchange("POST", INITIALIZE)
        self._report.counted += 1
        opened = SESSION.search(head)
        session = opened[1] if opened else b""
        await self._exchange("POST", INITIALIZED, session)
        begun = time.perf_counter()
        _, response = await self._exchange("POST", body, session)
        took = time.perf_counter() - begun
        self._report.counted += 1
        if is_right is not _is_list:
            self._report.call_ms.append(took * 1000)
        if not is_right(_result(response)):
            self._failed(response[:300].decode(errors="replace"))
        self._report.uncounted += 1
        if session:
            await self._exchange("DELETE", b"", session)
            self._report.uncounted += 1

    async def _exchange(self, verb: str, body: bytes, session: bytes = b"") -> tuple[bytes, bytes]:
        if self._connection.closed:
            loop = asyncio.get_running_loop()
            _, self._connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
        lines = [b"%s /mcp HTTP/1.1" % verb.encode(), b"Host: 127.0.0.1:%d" % self._port]
        if body:
            lines += [b"Content-Type: application/json", b"Accept: application/json, text/event-stream"]
            lines += [b"Content-Length: %d" % len(body)]
        if session:
            lines += [b"Mcp-Session-Id: " + session]
        head, response = await self._connection.exchange(b"\r\n".join((*lines, b"", body)))
        if head[9:10] != b"2":
            self._failed((head + b" " + response)[:300].decode(errors="replace"))
        return head, response

    def _failed(self, text: str) -> None:
        self._report.errors += 1
        self._report.first_error = self._report.first_error or text


def _message(method: str, params: dict[str, Any] | None, number: int | None) -> bytes:
    parts = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps({name: value for name, value in parts.items() if value is not None}).encode()


def _call(name: str, arguments: dict[str, Any]) -> bytes:
    return _message("tools/call", {"name": name, "arguments": arguments}, 2)


INITIALIZE = _message("initialize", {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT}, 1)
INITIALIZED = _message("notifications/initialized", None, None)


def _result(body: bytes) -> Any:
    """Return the result in a response: plain JSON, or the one event of a stream."""
    return json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])["result"]


def _value(result: Any) -> Any:
    return json.loads(result["content"][0]["text"])


def _is_search(result: Any) -> bool:
    value = _value(result)
    return bool(value["total_found"]) and len(value["products"]) == len(value["popular_ids"]) == 10


def _is_cart(result: Any) -> bool:
    value = _value(result)
    return bool(value["items"]) and len(value["recent_orders"]) == 5


def _is_order(result: Any) -> bool:
    value = _value(result)
    return bool(value["status"] == "confirmed" and value["total"] > 0 and value["items_count"] == len(BASKET))


def _is_list(result: Any) -> bool:
    return len(result["tools"]) == 3


async def measure(load: Load) -> Report:
    """Let the users work; report what happened after they have warmed the server up."""
    report = Report()
    async with asyncio.TaskGroup() as group:
        users = [group.create_task(User(number, load, report).run()) for number in range(1, load.users + 1)]
        await asyncio.sleep(load.warm)
        await _wait_until(lambda: report.counted >= load.warm_requests)
        report.warmed = report.counted
        # Errors count from the start on; nothing else does.
        report.counted = report.uncounted = 0
        report.call_ms.clear()
        processes = {name: process_tree(pid) for name, pid in load.processes.items()}
        before = {name: sum(map(cpu_ns, pids)) for name, pids in processes.items()}
        begun, driver = time.perf_counter(), time.process_time_ns()
        await asyncio.sleep(load.seconds)
        await _wait_until(lambda: len(report.call_ms) >= MIN_CALLS)
        report.driver_ns = time.process_time_ns() - driver
        report.seconds = time.perf_counter() - begun
        report.cpu_ns = {name: sum(map(cpu_ns, pids)) - before[name] for name, pids in processes.items()}
        for user in users:
            user.cancel()
    return report


async def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.perf_counter() + EXTRA_SECONDS
    while not condition() and time.perf_counter() < until:  # noqa: ASYNC110 (users that count do not notify)
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(measure(Load(**json.loads(sys.argv[1])))))))
