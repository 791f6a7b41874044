"""A server that remembers, for its whole process, whatever it was told last."""

from __future__ import annotations

from typing import Any

from tests.host.servers.plain import Plain, tool


class Memory(Plain):
    """Has one memory and thinks that there is one user."""

    kept = "nothing"

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List both tools."""
        return {"tools": [tool("remember"), tool("recall")]}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Remember, or say what is remembered."""
        if params["name"] == "remember":
            self.kept = params["arguments"]["text"]
        return {"content": [{"type": "text", "text": self.kept}]}


if __name__ == "__main__":
    Memory().run()
