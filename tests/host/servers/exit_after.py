"""Ends by itself after so many calls (the first argument)."""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.host.servers.plain import Plain


class ExitAfter(Plain):
    """Counts its calls."""

    calls = 0

    def send(self, message: dict[str, Any]) -> None:
        """Answer, and end if that was the last call."""
        super().send(message)
        if "content" in message.get("result", {}):
            self.calls += 1
            if self.calls >= int(sys.argv[1]):
                os._exit(0)


if __name__ == "__main__":
    ExitAfter().run()
