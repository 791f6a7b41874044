"""Notes in a file that it was started, then serves after a delay: ``delayed FILE SECONDS``."""

from __future__ import annotations

import os
import sys
import time

from tests.host.servers.plain import Plain

if __name__ == "__main__":
    with open(sys.argv[1], "a") as started:
        started.write(f"{os.getpid()}\n")
    time.sleep(float(sys.argv[2]))
    Plain().run()
