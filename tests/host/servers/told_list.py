"""Lists the tools that a file has when it is started: ``told_list FILE [GO]``; with GO only once that file is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.host.servers.plain import Plain, wait_for_file


class ToldList(Plain):
    """Offers what its file says."""

    def __init__(self, file: str) -> None:
        self._tools = json.loads(Path(file).read_text())

    def on_tools_list(self, params: dict[str, Any]) -> Any:
        """List them."""
        return {"tools": self._tools}


if __name__ == "__main__":
    for go in sys.argv[2:]:
        wait_for_file(go)
    ToldList(sys.argv[1]).run()
