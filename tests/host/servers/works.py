"""One thread for everything: a call of ``work`` keeps it from answering anything else.

``{"seconds": S, "progress": true}`` says for how long, and whether it tells of its progress meanwhile; ``pid`` answers
at once.
"""

from __future__ import annotations

import os
import time
from typing import Any

from tests.host.servers.plain import Plain, tool

_STEP = 0.25


class Works(Plain):
    """Does one thing after the other."""

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List both tools."""
        return {"tools": [tool("pid"), tool("work")]}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Work for as long as asked."""
        asked = params.get("arguments") or {}
        token = (params.get("_meta") or {}).get("progressToken")
        for step in range(round(asked.get("seconds", 0) / _STEP)):
            time.sleep(_STEP)
            if asked.get("progress") and token is not None:
                self.send(
                    {"method": "notifications/progress", "params": {"progressToken": token, "progress": step + 1}}
                )
        return {"content": [{"type": "text", "text": str(os.getpid())}]}


if __name__ == "__main__":
    Works().run()
