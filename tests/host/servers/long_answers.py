"""A server whose answers can be of any length, with the id in any place of the envelope."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.host.servers.plain import Plain, tool


class LongAnswers(Plain):
    """``text`` answers with a text, ``hold`` not at all, ``ask`` after a request that is too long."""

    def run(self) -> None:
        """Serve until the input ends."""
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("method") == "tools/call":
                self.call(message["id"], message["params"]["name"], message["params"].get("arguments") or {})
            elif message.get("id") == "question":
                self.send({"id": self.asked, "result": _texts(json.dumps(message))})
            elif "id" in message and "method" in message:
                self.respond(message)

    def respond(self, message: dict[str, Any]) -> None:
        """Answer anything else."""
        try:
            outcome = {"result": self.answer(message["method"], message.get("params") or {})}
        except LookupError:
            outcome = {"error": {"code": -32601, "message": "Method not found"}}
        self.send({"id": message["id"], **outcome})

    def call(self, id: Any, name: str, arguments: dict[str, Any]) -> None:
        """Answer a call."""
        if name == "hold":
            return
        if name == "ask":
            self.asked = id
            self.send({"id": "question", "method": "roots/list", "params": {"_meta": {"x": "y" * 5000}}})
            return
        result = _texts("x" * arguments["length"])
        beside = {"padding": "x" * 2000}
        envelopes: dict[str, dict[str, Any]] = {
            "first": {"jsonrpc": "2.0", "id": id, "result": result},
            "last": {"result": result, "jsonrpc": "2.0", "id": id},
            "hidden": {"result": result, "id": id, "x-beside": beside, "jsonrpc": "2.0"},
        }
        sys.stdout.write(json.dumps(envelopes[arguments.get("id", "first")]) + "\n")
        sys.stdout.flush()

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List the tools."""
        return {"tools": [tool("text"), tool("hold"), tool("ask")]}


def _texts(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    LongAnswers().run()
