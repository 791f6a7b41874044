"""The command ``trunkline-server-memory``."""

from __future__ import annotations

import os

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  trunkline-server-memory
  trunkline-server-memory --file ~/notes/memory.jsonl
  MEMORY_FILE_PATH=/srv/memory.jsonl trunkline-server-memory
  trunkline-server-memory --http 8000 --tokens-env MEMORY_TOKENS
"""


@click.command("trunkline-server-memory", epilog=_EPILOG)
@click.option(
    "--file",
    "memory_file",
    metavar="FILE",
    help="The memory file; by default MEMORY_FILE_PATH, else a file in your data folder.",
)
@click.option(
    "--max-bytes",
    metavar="BYTES",
    type=click.IntRange(1024, 1024 * 1024 * 1024),
    default=32 * 1024 * 1024,
    show_default=True,
    help="Largest size of the file.",
)
@with_command_options
def command(memory_file: str | None, *, max_bytes: int, serving: CommandOptions) -> None:
    """Keep a knowledge graph of entities, observations and relations in a file."""
    from trunkline.auth import default_folder
    from trunkline_servers.memory.graph import GraphLimits
    from trunkline_servers.memory.server import find_file, make_server

    where = os.path.expanduser(memory_file) if memory_file else find_file(os.environ, default_folder())
    serving.run(make_server(where, limits=GraphLimits(file_bytes=max_bytes)))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
