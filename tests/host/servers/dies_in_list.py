"""Ends when it is asked for its tools."""

from __future__ import annotations

import os
from typing import Any

from tests.host.servers.plain import Plain


class DiesInList(Plain):
    """Connects and dies."""

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """End at once."""
        os._exit(1)


if __name__ == "__main__":
    DiesInList().run()
