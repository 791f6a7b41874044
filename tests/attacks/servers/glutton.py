"""A server that wants all of the host's time and memory: the first argument says how."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.host.servers.plain import Plain, tool

_MANY = 60_000
_DEEP = 20_000
_HUGE = 100 * 1024 * 1024


class Glutton(Plain):
    """Behaves badly in one way."""

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List one tool, or far too many, or one whose schema has no end."""
        how = sys.argv[1]
        if how == "many":
            return {"tools": [tool(f"t{number}") for number in range(_MANY)]}
        if how == "wide":
            wide = {f"p{number}": {"description": "x" * 100} for number in range(50_000)}
            return {"tools": [tool("fine"), {**tool("wide"), "inputSchema": {"type": "object", "properties": wide}}]}
        return {"tools": [tool("fine")]}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Answer with too much, or say too much besides."""
        how = sys.argv[1]
        if how == "huge":
            return {"content": [{"type": "text", "text": "x" * _HUGE}]}
        if how == "flood":
            while not Path(sys.argv[2]).exists():
                self.send({"method": "notifications/message", "params": {"level": "error", "data": "more"}})
        return {"content": [{"type": "text", "text": "done"}]}

    def send(self, message: dict[str, Any]) -> None:
        """Write a message; one that is nested without end is written by hand, since no library would."""
        how, result = sys.argv[1], message.get("result") or {}
        if how == "deep list" and "tools" in result:
            schema = _nested('{"properties":{"a":', "}}")
            self._write(message["id"], '{"tools":[{"name":"t","inputSchema":' + schema + "}]}")
        elif how == "deep" and "content" in result:
            self._write(message["id"], '{"content":[],"structuredContent":{"a":' + _nested("[", "]") + "}}")
        else:
            super().send(message)

    def _write(self, id: Any, result: str) -> None:
        sys.stdout.write(f'{{"jsonrpc":"2.0","id":{id},"result":{result}}}\n')
        sys.stdout.flush()


def _nested(begin: str, end: str) -> str:
    return begin * _DEEP + "1" + end * _DEEP


if __name__ == "__main__":
    Glutton().run()
