"""Serves until the file that its first argument names is there, then reads and answers nothing.

A process id in the file is that of the one process that it concerns.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.host.servers.plain import Plain


class StopsAnswering(Plain):
    """Hangs once it is told to."""

    def send(self, message: dict[str, Any]) -> None:
        """Answer, or not."""
        file = Path(sys.argv[1])
        if not (file.exists() and file.read_text() in ("", str(os.getpid()))):
            super().send(message)


if __name__ == "__main__":
    StopsAnswering().run()
