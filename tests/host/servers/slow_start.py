"""Begins to serve only once a file is there (the first argument)."""

from __future__ import annotations

import os
import sys
import time

from tests.host.servers.plain import Plain

if __name__ == "__main__":
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.005)
    Plain().run()
