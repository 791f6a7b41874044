"""Writes a lot to stdout that is no message, and serves as well."""

from __future__ import annotations

import sys
from typing import Any

from tests.host.servers.plain import Plain


class FloodStdout(Plain):
    """Prints junk before each answer."""

    def answer(self, method: str, params: dict[str, Any]) -> Any:
        """Print ten thousand lines first."""
        sys.stdout.write("loading… 100 %\n" * 10_000)
        return super().answer(method, params)


if __name__ == "__main__":
    FloodStdout().run()
