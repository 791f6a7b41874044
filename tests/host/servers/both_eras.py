"""Speaks both eras and offers more in the newer one; ``both_eras GO REVISION`` serves once the file GO is there.

GO.up is there as soon as it runs.

Like a server that is slow to start: what it was asked meanwhile it answers then, in order.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.host.servers.plain import Plain, tool, wait_for_file


class BothEras(Plain):
    """Lists two tools to a client that shook hands, ten to others."""

    def __init__(self, revision: str) -> None:
        self._revision = revision

    def on_server_discover(self, params: dict[str, Any]) -> Any:
        """Say what it speaks."""
        return {"resultType": "complete", "supportedVersions": [self._revision], "capabilities": {"tools": {}}}

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List by era: a request of the newer one says its revision."""
        stateless = "_meta" in params and any(key.endswith("/protocolVersion") for key in params["_meta"])
        tools = [tool(f"t{number}") for number in range(10 if stateless else 2)]
        return {"tools": tools, **({"resultType": "complete"} if stateless else {})}


if __name__ == "__main__":
    open(f"{sys.argv[1]}.up", "w").close()
    wait_for_file(sys.argv[1])
    BothEras(sys.argv[2]).run()
