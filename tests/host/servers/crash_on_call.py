"""Ends when a tool is called."""

from __future__ import annotations

import os
import sys
from typing import Any

from tests.host.servers.plain import Plain


class CrashOnCall(Plain):
    """Lists a tool that it does not survive."""

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """End at once."""
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(7)


if __name__ == "__main__":
    CrashOnCall().run()
