"""The command ``trunkline-server-filesystem``."""

from __future__ import annotations

import click

from trunkline.servers.filesystem.limits import FileLimits
from trunkline.servers.filesystem.server import make_server
from trunkline.servers.starting import Serving, serving_options, start

__all__ = ["command", "main"]

_DEFAULT = FileLimits()

EPILOG = """\b
Examples:
  trunkline-server-filesystem ~/projects ~/notes
  trunkline-server-filesystem --read-only --max-file-bytes 1000000 .
  trunkline-server-filesystem --http 8000 --tokens-env TOKENS /srv/shared
"""


@click.command("trunkline-server-filesystem", epilog=EPILOG)
@click.argument("folders", nargs=-1, type=click.Path())
@click.option("--read-only", is_flag=True, help="Offer no tool that changes something.")
@click.option(
    "--max-file-bytes",
    metavar="BYTES",
    type=click.IntRange(min=1),
    default=_DEFAULT.file_bytes,
    show_default=True,
    help="Most bytes read from a file, or written to one, in a call.",
)
@click.option(
    "--max-entries",
    metavar="NUMBER",
    type=click.IntRange(min=1),
    default=_DEFAULT.entries,
    show_default=True,
    help="Most entries that a list, a tree or a search looks at.",
)
@click.option(
    "--max-depth",
    metavar="NUMBER",
    type=click.IntRange(min=1, max=256),
    default=_DEFAULT.depth,
    show_default=True,
    help="How many folders deep a tree or a search goes.",
)
@click.option(
    "--max-seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=_DEFAULT.seconds,
    show_default=True,
    help="Longest time of a tree, a search, many edits, or many files.",
)
@serving_options
def command(
    folders: tuple[str, ...],
    read_only: bool,
    max_file_bytes: int,
    max_entries: int,
    max_depth: int,
    max_seconds: float,
    *,
    serving: Serving,
) -> None:
    """Read, write and search files in FOLDERS, and nowhere else.

    A client that shares roots replaces FOLDERS by them; over HTTP its roots only narrow FOLDERS.
    """
    limits = FileLimits(file_bytes=max_file_bytes, entries=max_entries, depth=max_depth, seconds=max_seconds)
    serving.run(make_server(folders, limits=limits, read_only=read_only))


def main() -> None:
    """Run the command."""
    start(command)


if __name__ == "__main__":
    main()
