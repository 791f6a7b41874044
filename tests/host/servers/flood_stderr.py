"""Writes a lot to stderr, and serves as well."""

from __future__ import annotations

import sys
from typing import Any

from tests.host.servers.plain import Plain


class FloodStderr(Plain):
    """Logs too much before each answer."""

    def answer(self, method: str, params: dict[str, Any]) -> Any:
        """Log ten thousand lines first."""
        sys.stderr.write("debug: nothing happened\n" * 10_000)
        sys.stderr.flush()
        return super().answer(method, params)


if __name__ == "__main__":
    FloodStderr().run()
