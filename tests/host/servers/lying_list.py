"""Lists without end (``cursor``), or announces changes without end (``storm``)."""

from __future__ import annotations

import sys
from typing import Any

from tests.host.servers.plain import Plain, tool


class LyingList(Plain):
    """Says one thing about its tools and does another."""

    listed = 0

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """Give the same cursor each time, or change each time."""
        self.listed += 1
        if sys.argv[1] == "cursor":
            return {"tools": [tool("one")], "nextCursor": "again"}
        return {"tools": [tool(f"tool-{self.listed}")]}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Announce a thousand changes."""
        for _ in range(1000):
            self.send({"method": "notifications/tools/list_changed"})
        return {"content": [{"type": "text", "text": str(self.listed)}]}


if __name__ == "__main__":
    LyingList().run()
