"""Begins to serve only once a file is there (the first argument)."""

from __future__ import annotations

import sys

from tests.host.servers.plain import Plain, wait_for_file

if __name__ == "__main__":
    wait_for_file(sys.argv[1])
    Plain().run()
