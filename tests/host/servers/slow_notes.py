"""Has one resource that can be subscribed to, and begins to serve only once a file is there (the first argument)."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from tests.host.servers.plain import Plain, wait_for_file

__all__ = ["Notes"]


class Notes(Plain):
    """Serves one note that can be subscribed to; every call of a tool changes it."""

    capabilities: ClassVar[dict[str, Any]] = {"tools": {}, "resources": {"subscribe": True}}

    def on_resources_list(self, params: dict[str, Any]) -> Any:
        """List the note."""
        return {"resources": [{"uri": "note://one", "name": "one"}]}

    def on_resources_subscribe(self, params: dict[str, Any]) -> Any:
        """Accept the subscription."""
        return {}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Change the note, whichever tool is called."""
        self.send({"method": "notifications/resources/updated", "params": {"uri": "note://one"}})
        return {"content": []}


if __name__ == "__main__":
    wait_for_file(sys.argv[1])
    Notes().run()
