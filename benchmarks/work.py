"""The work every server is given: requests of both revisions, encoded before the clock starts, and what must come back.

Knows the wire and nothing of processes or clocks. Ids never repeat within a connection, as the specification asks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from benchmarks.driver import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ADD",
    "ADD_SYNC",
    "BLOB_1M",
    "BLOB_32M",
    "ECHO_1K",
    "ECHO_1M",
    "LIST_500",
    "MB",
    "Requests",
    "Work",
    "check_result",
    "check_window",
]

MB = 1_000_000
HANDSHAKE = "2025-11-25"
CLIENT = {"name": "bench", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of request: its name in the tables, its params, and the value or number of tools expected."""

    name: str
    tool: str | None
    size: int = 0
    sync: bool = False

    def params(self, number: int) -> dict[str, Any]:
        """Give the params of the request with this id."""
        match self.tool:
            case None:
                return {}
            case "echo":
                return {"name": "echo", "arguments": {"text": "x" * self.size}}
            case "blob":
                return {"name": "blob", "arguments": {"size": self.size}}
            case adding:
                return {"name": adding, "arguments": {"a": number, "b": 1}}

    def check(self, answer: Any) -> None:
        """Look into one decoded answer.

        Raises:
            ServerFailed: It is an error, a notification, or not the answer asked for.
        """
        result = answer.get("result")
        if not isinstance(result, dict) or result.get("isError"):
            raise ServerFailed(f"{self.name} was answered with {json.dumps(answer)[:200]}")
        found = len(result["tools"]) if self.tool is None else result["structuredContent"]
        wanted = self._wanted(answer["id"])
        # Since 2026-07-28 structured content may be any value; before, and with some peers still, it is an object.
        if isinstance(found, dict):
            found = found.get("result")
        if found != wanted:
            raise ServerFailed(f"{self.name} gave {str(found)[:80]} instead of {str(wanted)[:80]}")

    def _wanted(self, number: int) -> int | str:
        if self.tool is None:
            return self.size
        return "x" * self.size if self.size else number + 1


ADD = Work("add, async tool", "add")
ADD_SYNC = Work("add, sync tool", "add_sync", sync=True)
ECHO_1K = Work("echo 1 kB", "echo", size=1_000)
ECHO_1M = Work("echo 1 MB", "echo", size=MB)
BLOB_1M = Work("result of 1 MB", "blob", size=MB)
BLOB_32M = Work("result of 32 MB", "blob", size=32 * MB)
LIST_500 = Work("tools/list of 500", None, size=500)


class Requests:
    """Makes the requests of one connection in one revision."""

    def __init__(self, revision: str) -> None:
        self._handshake = revision == HANDSHAKE
        self._ids: Iterator[int] = count(1)

    def first(self) -> bytes:
        """Give the first request a client of this revision sends: `initialize`, or straight the call."""
        if not self._handshake:
            return self.windows(ADD, 1, in_flight=1)[0]
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT}
        return self._line({"id": 0, "method": "initialize", "params": params})

    def after_first(self) -> bytes:
        """Give what must follow the first answer before any other request: `initialized`, or nothing."""
        return self._line({"method": "notifications/initialized"}) if self._handshake else b""

    def windows(self, work: Work, number: int, *, in_flight: int) -> list[bytes]:
        """Give `number` blocks of `in_flight` requests each."""
        return [b"".join(self._request(work) for _ in range(in_flight)) for _ in range(number)]

    def _request(self, work: Work) -> bytes:
        number = next(self._ids)
        params = work.params(number)
        if not self._handshake:
            params["_meta"] = META
        method = "tools/list" if work.tool is None else "tools/call"
        return self._line({"id": number, "method": method, "params": params})

    @staticmethod
    def _line(message: dict[str, Any]) -> bytes:
        return json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":")).encode() + b"\n"


def check_result(chunks: Sequence[bytes]) -> None:
    """See that one answer is a result, whatever is in it.

    Raises:
        ServerFailed: It is an error.
    """
    answer = b"".join(chunks)
    if "result" not in json.loads(answer):
        raise ServerFailed(f"the first request was answered with {answer[:200]!r}")


def check_window(work: Work, chunks: Sequence[bytes]) -> None:
    """Look into every answer of one window."""
    for line in b"".join(chunks).splitlines():
        work.check(json.loads(line))
