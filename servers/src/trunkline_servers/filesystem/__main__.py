"""The command ``trunkline-server-filesystem``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.filesystem.server import make_server
from trunkline_servers.filesystem.worker import FileLimits

__all__ = ["command", "main"]

_DEFAULT = FileLimits()

_EPILOG = """\b
Examples:
  trunkline-server-filesystem ~/projects ~/notes
  trunkline-server-filesystem --read-only --max-file-bytes 1000000 .
  trunkline-server-filesystem --http 8000 --tokens-env TOKENS /srv/shared
"""


@click.command("trunkline-server-filesystem", epilog=_EPILOG)
@click.argument("folders", nargs=-1, type=click.Path())
@click.option("--read-only", is_flag=True, help="Offer only tools that read.")
@click.option(
    "--max-file-bytes",
    metavar="BYTES",
    type=click.IntRange(min=1),
    default=_DEFAULT.file_bytes,
    show_default=True,
    help="Most bytes read from or written to a file in one call.",
)
@click.option(
    "--max-entries",
    metavar="NUMBER",
    type=click.IntRange(min=1),
    default=_DEFAULT.entries,
    show_default=True,
    help="Most entries visited by a listing, tree or search.",
)
@click.option(
    "--max-depth",
    metavar="NUMBER",
    type=click.IntRange(min=1, max=256),
    default=_DEFAULT.depth,
    show_default=True,
    help="Deepest folder level of a tree or search.",
)
@click.option(
    "--max-seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=_DEFAULT.seconds,
    show_default=True,
    help="Time limit for a tree, a search, a series of edits, or reading several files.",
)
@with_command_options
def command(
    folders: tuple[str, ...],
    read_only: bool,
    max_file_bytes: int,
    max_entries: int,
    max_depth: int,
    max_seconds: float,
    *,
    serving: CommandOptions,
) -> None:
    """Read, write and search files in FOLDERS, and nowhere else.

    The roots of a client that shares them replace FOLDERS; over HTTP they only narrow FOLDERS.
    """
    limits = FileLimits(file_bytes=max_file_bytes, entries=max_entries, depth=max_depth, seconds=max_seconds)
    serving.run(make_server(folders, limits=limits, read_only=read_only))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
