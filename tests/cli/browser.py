"""Stands in for a browser, in a process of its own: goes where it is told, follows redirects, and leaves a trace."""

from __future__ import annotations

import os
import sys
from urllib.request import urlopen


def main() -> None:
    """Visit a page."""
    with open(os.environ["VISITS"], "a", encoding="utf-8") as file:
        file.write(f"{sys.argv[1]}\n")
    with urlopen(sys.argv[1], timeout=120) as response:
        response.read()


if __name__ == "__main__":
    main()
