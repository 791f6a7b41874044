"""A server that is another one after each change of a file: it shakes hands, or it is stateless.

``python -m tests.host.servers.changes_era FILE REVISION``: FILE says which, and FILE.log gets the methods that it was
asked for.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.host.servers.plain import Plain


class ChangesEra(Plain):
    """Does as its file says: ``handshake``; ``refuses`` it, ``dies`` of it, is ``silent`` on it; ``crashes`` always."""

    def __init__(self, file: str, revision: str) -> None:
        self._mode = Path(file).read_text()
        self._log = Path(f"{file}.log")
        self._revision = revision

    def answer(self, method: str, params: dict[str, Any]) -> Any:
        """Note what is asked, and answer."""
        with self._log.open("a") as log:
            log.write(f"{method}\n")
        if self._mode == "crashes" or (self._mode == "dies" and method == "initialize"):
            sys.exit(3)
        if self._mode == "silent" and method == "initialize":
            sys.stdin.read()
            sys.exit(0)
        if self._mode == "refuses" and method == "initialize":
            raise LookupError(method)
        result = super().answer(method, params)
        return result if self._mode == "handshake" else {"resultType": "complete", **result}

    def on_server_discover(self, params: dict[str, Any]) -> Any:
        """Say what it speaks, if it is stateless."""
        if self._mode == "handshake":
            raise LookupError
        return {"supportedVersions": [self._revision], "capabilities": {"tools": {}}}


if __name__ == "__main__":
    ChangesEra(*sys.argv[1:]).run()
