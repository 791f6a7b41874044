"""Begins to serve only once a file is there (the first argument), or its input has ended."""

from __future__ import annotations

import os
import select
import sys
import time

from tests.host.servers.plain import Plain

if __name__ == "__main__":
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.005)
        readable, _, _ = select.select([sys.stdin], [], [], 0)
        if readable and os.fstat(0).st_size == 0 and not sys.stdin.readable():
            sys.exit(0)
    Plain().run()
