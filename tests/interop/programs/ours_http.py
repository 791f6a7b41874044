"""Our server of every kind, over HTTP: it writes its URL to stdout; its arguments are the revisions it serves."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def say(url: str) -> None:
    """Write where the server is."""
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    from ours import build  # type: ignore[import-not-found,unused-ignore]

    build(*sys.argv[1:]).run("http", port=0, started=say)
