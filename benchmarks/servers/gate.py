"""A wait that does not let the event loop turn: what has not left the process by now cannot leave during it."""

import os
import time

__all__ = ["GATE_AT", "opened"]

GATE_AT = 100
WAIT_SECONDS = 2.0


def opened(path: str) -> bool:
    """Block the whole process until a file exists, and say whether it came to exist in time."""
    until = time.monotonic() + WAIT_SECONDS
    while not os.path.exists(path):
        if time.monotonic() > until:
            return False
        time.sleep(0.0005)
    return True
