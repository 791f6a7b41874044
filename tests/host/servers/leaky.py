"""A server that repeats the secret it was given wherever it can: in lists, errors, log messages and on stderr.

The first argument says how it behaves: ``crash`` ends at once, ``serve`` serves, ``quiet`` does not say the secret in
what it lists. The secret is in ``LEAK``.
"""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar

from tests.host.servers.plain import Plain, tool

SECRET = os.environ.get("LEAK", "")


class Leaky(Plain):
    """Says the secret in every answer but a good one."""

    capabilities: ClassVar[dict[str, Any]] = {"tools": {"listChanged": True}, "logging": {}}

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List tools that fail, with the secret in a description."""
        said = "" if sys.argv[1] == "quiet" else SECRET
        names = ("know", "fail", "refuse", "hang", "die")
        return {"tools": [{**tool(name), "description": f"does {name} with {said}"} for name in names]}

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Fail in the way that the tool is named after."""
        name = params["name"]
        sys.stderr.write(f"calling {name} with {SECRET}\n{SECRET!r}\n")
        sys.stderr.flush()
        if name == "know":
            return {"content": [{"type": "text", "text": "yes" if params["arguments"]["guess"] == SECRET else "no"}]}
        if name == "fail":
            return {"content": [{"type": "text", "text": f"{SECRET} is wrong"}], "isError": True}
        if name == "refuse":
            raise LookupError(name)
        if name == "die":
            os._exit(3)
        while sys.stdin.readline():
            pass
        sys.exit()

    def send(self, message: dict[str, Any]) -> None:
        """Log the secret before each answer, and say it in each error."""
        if "error" in message:
            message["error"] = {"code": -32000, "message": f"refused {SECRET}", "data": {"with": [SECRET]}}
        super().send({"method": "notifications/message", "params": {"level": "error", "data": f"using {SECRET}"}})
        super().send(message)


if __name__ == "__main__":
    if sys.argv[1] == "crash":
        sys.stderr.write(f"{SECRET} again\n" * 1000 + f"{SECRET} and {'on ' * 100}\n" * 8)
        sys.stderr.write(f"cannot use {SECRET}\n{SECRET}\n")
        sys.exit(1)
    Leaky().run()
