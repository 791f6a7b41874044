"""A server that offers nothing."""

from __future__ import annotations

from trunkline import Server


def make() -> Server:
    """Make the server."""
    return Server("bare", version="1")


if __name__ == "__main__":
    make().run()
