"""A server that writes sets into its definitions, as mcp-shell-server and mcp-atlassian do.

Their order is that of Python's hashes, so it is another one in every process unless ``PYTHONHASHSEED`` says otherwise.
"""

from __future__ import annotations

import os
from typing import Any

from tests.host.servers.plain import Plain

__all__ = ["Shuffling"]


def _words(text: str) -> set[str]:
    """Return words as a set, at run time: the order of a constant also depends on the process that compiled it."""
    return set(text.split())


COMMANDS = _words("ls cat pwd grep wc touch find head tail sort git-log du")
FIELDS = _words("summary status assignee reporter labels priority created updated description")
STATES = _words("open closed merged draft locked stale all")


class Shuffling(Plain):
    """Lists two tools, and says the seed that it was started with."""

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List the tools as a program with sets does."""
        execute = {
            "name": "execute",
            "description": f"Run a command.\nAllowed commands: {', '.join(COMMANDS)}. Ask before you delete anything.",
            "inputSchema": {
                "type": "object",
                "properties": {"command": {"type": "array", "items": {"type": "string", "enum": list(COMMANDS)}}},
                "required": ["command"],
            },
        }
        issue = {
            "name": "get_issue",
            "description": f"Get an issue with {' and '.join(FIELDS)}. Other fields: {FIELDS}",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "fields": {"type": "string", "default": ",".join(FIELDS)},
                    "states": {"type": "array", "default": list(STATES), "items": {"enum": list(STATES)}},
                    **{name: {"type": ["string", "null"]} for name in FIELDS},
                },
                "required": list(FIELDS),
            },
        }
        return {"tools": [execute, issue]}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Say the seed of this process."""
        return {"content": [{"type": "text", "text": os.environ.get("PYTHONHASHSEED", "random")}]}


if __name__ == "__main__":
    Shuffling().run()
