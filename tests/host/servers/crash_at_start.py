"""Ends before it reads anything, with a reason."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.stderr.write("cannot open the database: secret-token\n")
    sys.exit(3)
