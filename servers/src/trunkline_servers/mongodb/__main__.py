"""The command ``trunkline-server-mongodb``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.mongodb.server import make_server
from trunkline_servers.mongodb.store import DEFAULT_URI, READ_PREFERENCES, MongoLimits

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  trunkline-server-mongodb mongodb://localhost:27017
  MONGODB_URI=mongodb://me:secret@db.example.com trunkline-server-mongodb
  trunkline-server-mongodb --database shop --write
"""


@click.command("trunkline-server-mongodb", epilog=_EPILOG)
@click.argument("uri", envvar="MONGODB_URI", default=DEFAULT_URI, metavar="[URI]")
@click.option("--write", is_flag=True, help="Also offer insert, update and delete.")
@click.option(
    "--database", "databases", multiple=True, metavar="NAME", help="Allow only this database; may be repeated."
)
@click.option(
    "--read-preference",
    type=click.Choice(READ_PREFERENCES),
    metavar="MEMBER",
    help=f"Which member of a replica set to read from: {', '.join(READ_PREFERENCES)}.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1),
    default=MongoLimits().rows,
    show_default=True,
    metavar="ROWS",
    help="Most documents in one result.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(1),
    default=MongoLimits().answer_bytes,
    show_default=True,
    metavar="BYTES",
    help="Most bytes in one result.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(0.1),
    default=MongoLimits().seconds,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for a call.",
)
@with_command_options
def command(
    uri: str,
    *,
    write: bool,
    databases: tuple[str, ...],
    read_preference: str | None,
    max_rows: int,
    max_bytes: int,
    max_seconds: float,
    serving: CommandOptions,
) -> None:
    """Query the MongoDB deployment at URI, and write to it if --write is given.

    Without URI the variable MONGODB_URI is used, else mongodb://localhost:27017. Prefer the variable for a
    URI with a password: other users of the machine can see command lines.
    """
    limits = MongoLimits(rows=max_rows, answer_bytes=max_bytes, seconds=max_seconds)
    serving.run(make_server(uri, write=write, databases=databases, read_preference=read_preference, limits=limits))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
