"""A small server of the handshake era without the package; the other programs here are this one, misbehaving."""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any, ClassVar

__all__ = ["Plain", "tool", "wait_for_file"]


def tool(name: str) -> dict[str, Any]:
    """Describe a tool that takes anything."""
    return {"name": name, "description": f"does {name}", "inputSchema": {"type": "object"}}


def wait_for_file(path: str) -> None:
    """Wait until a file is there; end the process if the input ends before."""
    end_of_input = select.poll()
    end_of_input.register(sys.stdin, 0)
    while not os.path.exists(path):
        if end_of_input.poll(5):
            sys.exit()


class Plain:
    """Answers one line after the other; ``pid`` is its only tool that does something."""

    capabilities: ClassVar[dict[str, Any]] = {"tools": {"listChanged": True}}

    def run(self) -> None:
        """Serve until the input ends."""
        for line in sys.stdin:
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                continue
            try:
                outcome = {"result": self.answer(message["method"], message.get("params") or {})}
            except LookupError:
                outcome = {"error": {"code": -32601, "message": "Method not found"}}
            self.send({"id": message["id"], **outcome})

    def send(self, message: dict[str, Any]) -> None:
        """Write a message."""
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def answer(self, method: str, params: dict[str, Any]) -> Any:
        """Answer a request by the method of this class that is named after it."""
        name = method.replace("/", "_")
        if not hasattr(type(self), f"on_{name}"):
            raise LookupError(method)
        return getattr(self, f"on_{name}")(params)

    def on_initialize(self, params: dict[str, Any]) -> Any:
        """Agree to whatever is asked for."""
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": self.capabilities,
            "serverInfo": {"name": type(self).__name__, "version": "1"},
        }

    def on_ping(self, params: dict[str, Any]) -> Any:
        """Live."""
        return {}

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List one tool."""
        return {"tools": [tool("pid")]}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Say which process this is."""
        return {"content": [{"type": "text", "text": str(os.getpid())}]}


if __name__ == "__main__":
    Plain().run()
