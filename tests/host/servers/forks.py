"""Starts a child of its own that ignores every polite signal, and serves."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from tests.host.servers.plain import Plain


class Forks(Plain):
    """Names its child in its answers."""

    child = 0

    def on_tools_call(self, params: dict[str, Any]) -> Any:
        """Name this process and its child."""
        return {"content": [{"type": "text", "text": f"{os.getpid()} {self.child}"}]}


def stay() -> None:
    """Outlive everything but SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(600)
    os._exit(0)


if __name__ == "__main__":
    forks = Forks()
    forks.child = os.fork()
    if forks.child == 0:
        stay()
    forks.run()
