"""Serves until the file that its first argument names is there, then reads and answers nothing."""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.host.servers.plain import Plain


class StopsAnswering(Plain):
    """Hangs once it is told to."""

    def send(self, message: dict[str, Any]) -> None:
        """Answer, or not."""
        if not os.path.exists(sys.argv[1]):
            super().send(message)


if __name__ == "__main__":
    StopsAnswering().run()
