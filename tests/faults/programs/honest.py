"""A server in one file without the package, of either era, that does all it should; the faulty ones are made of it.

Its tool ``echo`` gives back the server's name and what it was given, after a moment, so that answers overtake each
other. Each execution is written to a ledger before anything is answered: nothing may stand there twice.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import select
import time
from typing import Any

__all__ = ["Honest", "echo_tool"]

_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_LONGEST_WAIT = 3600.0


def echo_tool(name: str = "echo", **more: Any) -> dict[str, Any]:
    """Describe a tool that takes what ``echo`` takes."""
    members = {"call": {"type": "string"}, "value": {"type": "string"}}
    schema = {"type": "object", "properties": members, "required": ["call", "value"]}
    return {"name": name, "description": f"gives back ({name})", "inputSchema": schema, **more}


class Honest:
    """Answers one line after the other, some later than others."""

    def __init__(self, name: str, *, revision: str, stateless: bool, ledger: str, seed: str) -> None:
        """Say who it is, what it speaks, and where to write down what it executes."""
        self.name = name
        self.revision = revision
        self.stateless = stateless
        self.chance = random.Random(seed)
        self.calls = 0
        self.open = True
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._waiting: list[tuple[float, int, bytes]] = []
        self._order = 0
        self._input = b""
        #: The subscription of a stateless client that listens.
        self.listener: Any = None

    # --- lines -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the input ends."""
        while self.open:
            if select.select([0], [], [], self.patience())[0]:
                self.read()
            self.idle()
            self._send_due()

    def patience(self) -> float:
        """Say how long to wait for input."""
        return max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else _LONGEST_WAIT

    def idle(self) -> None:
        """Do something of one's own once in a while; nothing here."""

    def read(self) -> None:
        """Take what there is, and serve what is whole."""
        data = os.read(0, 65536)
        if not data:
            self.end()
            return
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            self.take(json.loads(line))

    def end(self) -> None:
        """End, now that the input has."""
        self.open = False

    def take(self, message: dict[str, Any]) -> None:
        """Serve one message."""
        if "id" in message and "method" in message:
            self.serve(message["id"], message["method"], message.get("params") or {})

    def write(self, data: bytes) -> None:
        """Write bytes, all of them."""
        while data:
            data = data[os.write(1, data) :]

    def send(self, message: dict[str, Any], *, after: float = 0.0) -> None:
        """Write a message, now or later."""
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        if after <= 0:
            self.write(line)
            return
        self._order += 1
        heapq.heappush(self._waiting, (time.monotonic() + after, self._order, line))

    def _send_due(self) -> None:
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            self.write(heapq.heappop(self._waiting)[2])

    # --- methods -----------------------------------------------------------------------------------------------------

    def serve(self, id: Any, method: str, params: dict[str, Any]) -> None:
        """Answer a request by the method of this class that is named after it."""
        answer = getattr(self, "on_" + method.replace("/", "_"), None)
        other_era = method in _OPENINGS and (method == "server/discover") != self.stateless
        if answer is None or other_era:
            self.send({"id": id, "error": {"code": -32601, "message": "Method not found"}})
        else:
            answer(id, params)

    def result(self, id: Any, result: Any, *, after: float = 0.0) -> None:
        """Answer with a result, with what the era adds to it."""
        self.send({"id": id, "result": self.dressed(result)}, after=after)

    def dressed(self, result: Any) -> Any:
        """Add what the era wants in a result."""
        if not self.stateless or not isinstance(result, dict):
            return result
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}

    @property
    def capabilities(self) -> dict[str, Any]:
        """What it says it can do."""
        return {"tools": {"listChanged": True}}

    def on_initialize(self, id: Any, params: dict[str, Any]) -> None:
        """Open a conversation in its own revision."""
        info = {"name": self.name, "version": "1"}
        self.result(id, {"protocolVersion": self.revision, "capabilities": self.capabilities, "serverInfo": info})

    def on_server_discover(self, id: Any, params: dict[str, Any]) -> None:
        """Say what it speaks."""
        self.result(id, {"supportedVersions": [self.revision], "capabilities": self.capabilities})

    def on_ping(self, id: Any, params: dict[str, Any]) -> None:
        """Live."""
        self.result(id, {})

    def on_subscriptions_listen(self, id: Any, params: dict[str, Any]) -> None:
        """Take somebody on who listens."""
        self.listener = id
        wanted = {"toolsListChanged": True}
        self.notify("subscriptions/acknowledged", {"notifications": wanted})

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification, on the subscription if there is one."""
        meta = {} if self.listener is None else {"_meta": {_SUBSCRIPTION: self.listener}}
        self.send({"method": f"notifications/{method}", "params": {**meta, **(params or {})}})

    def on_tools_list(self, id: Any, params: dict[str, Any]) -> None:
        """List the tools."""
        self.result(id, {"tools": self.tools()})

    def tools(self) -> list[dict[str, Any]]:
        """Describe the tools."""
        return [echo_tool()]

    def on_tools_call(self, id: Any, params: dict[str, Any]) -> None:
        """Execute a call and answer it."""
        arguments = params.get("arguments") or {}
        self.execute(arguments["call"])
        self.answer(id, arguments["call"], arguments["value"])

    def execute(self, call: str) -> None:
        """Write down that a call is executed."""
        self.calls += 1
        os.write(self._ledger, f"{self.name} {call}\n".encode())

    def answer(self, id: Any, call: str, value: str) -> None:
        """Answer a call rightly, after a moment."""
        self.result(id, self.echoed(call, value), after=self.chance.choice(_MOMENTS))

    def echoed(self, call: str, value: str) -> dict[str, Any]:
        """Make the result of a call."""
        return {"content": [{"type": "text", "text": f"{self.name} {call} {value}"}]}


_OPENINGS = ("initialize", "server/discover")
_MOMENTS = (0.0, 0.0, 0.002, 0.01, 0.03, 0.2)
