"""Declares tools and does not know how to list them."""

from __future__ import annotations

from typing import Any

from tests.host.servers.plain import Plain


class FailingList(Plain):
    """Answers every other request."""

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """Fail."""
        raise LookupError


if __name__ == "__main__":
    FailingList().run()
