"""A handshake server in plain JSON: ``python -m tests.host.servers.growing [undeclared]``.

What it lists depends on what its client declared and on what was called in this very process. With ``undeclared`` it
does not declare that it tells of changes, and tells of them all the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

_TELLS = sys.argv[1:] != ["undeclared"]
_FLAG = {"listChanged": True} if _TELLS else {}


class Growing:
    """The server: its tools by name, with their descriptions, and what its client declared."""

    def __init__(self) -> None:
        self.declared: dict[str, Any] = {}
        self.tools = dict.fromkeys(("declared", "grow", "shrink", "reword", "touch", "folders"), "A tool.")
        self.uris = ["note://1"]
        self.asked = 0
        #: What came while an answer was waited for.
        self.waiting: list[dict[str, Any]] = []

    def messages(self) -> Iterator[dict[str, Any]]:
        """Read messages until the input ends."""
        while line := sys.stdin.readline():
            yield json.loads(line)
            while self.waiting:
                yield self.waiting.pop(0)

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        """Shake hands."""
        self.declared = params["capabilities"]
        for name in ("elicitation", "roots", "sampling"):
            if name in self.declared:
                self.tools[f"only_{name}"] = "For those who declared it."
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": _FLAG, "resources": _FLAG},
            "serverInfo": {"name": "growing", "version": "1"},
        }

    def call(self, name: str) -> str:
        """Serve a tool."""
        if name == "declared":
            return json.dumps(sorted(self.declared))
        if name == "grow":
            self.tools["grown"] = "It was not there before."
            self.uris.append("note://2")
            tell("notifications/tools/list_changed")
            tell("notifications/resources/list_changed")
        elif name == "shrink":
            del self.tools["touch"]
            tell("notifications/tools/list_changed")
        elif name == "reword":
            self.tools["touch"] = "Another description."
            tell("notifications/tools/list_changed")
        elif name == "touch":
            tell("notifications/resources/updated", uri="note://1")
        elif name == "folders" and "roots" in self.declared:
            self.asked += 1
            write({"jsonrpc": "2.0", "id": f"asked-{self.asked}", "method": "roots/list"})
            while "result" not in (message := json.loads(sys.stdin.readline())):
                self.waiting.append(message)
            return json.dumps([root["uri"] for root in message["result"]["roots"]])
        return name

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Serve a request; None for what is unknown here."""
        if method == "initialize":
            return self.initialize(params)
        if method == "tools/list":
            schema = {"type": "object"}
            return {"tools": [{"name": n, "description": d, "inputSchema": schema} for n, d in self.tools.items()]}
        if method == "resources/list":
            return {"resources": [{"uri": uri, "name": uri} for uri in self.uris]}
        if method == "tools/call" and params["name"] in self.tools:
            return {"content": [{"type": "text", "text": self.call(params["name"])}]}
        return {} if method == "ping" else None


def write(message: dict[str, Any]) -> None:
    """Send a message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tell(method: str, **params: Any) -> None:
    """Send a notification."""
    write({"jsonrpc": "2.0", "method": method, "params": params})


def main() -> None:
    """Serve until the input ends."""
    server = Growing()
    for message in server.messages():
        if "id" not in message or "method" not in message:
            continue
        result = server.answer(message["method"], message.get("params") or {})
        if result is None:
            error = {"code": -32601, "message": "no such thing"}
            write({"jsonrpc": "2.0", "id": message["id"], "error": error})
        else:
            write({"jsonrpc": "2.0", "id": message["id"], "result": result})


if __name__ == "__main__":
    main()
