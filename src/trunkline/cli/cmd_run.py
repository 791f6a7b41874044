"""``trunkline run``: serve a Python file's server over stdio."""

from __future__ import annotations

import click

from trunkline.cli.exits import Exit
from trunkline.cli.loading import load_server
from trunkline.cli.not_yet import http_option

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline run weather.py
  trunkline run weather.py:server
"""


@click.command(epilog=_EPILOG)
@click.argument("spec", metavar="FILE[:OBJECT]")
@http_option
def command(spec: str) -> int:
    """Serve the server in FILE over stdio, until the client goes away.

    The server is OBJECT or, if none is named, what is called server, mcp or app, or the only Server there is. The file
    is imported, so what it does under if __name__ == "__main__" is left out.
    """
    load_server(spec).run()
    return Exit.OK
