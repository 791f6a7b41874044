"""The command ``trunkline-server-sqlite``."""

from __future__ import annotations

from pathlib import Path

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options, with_statement_options

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  trunkline-server-sqlite --db-path shop.db
  trunkline-server-sqlite --db-path shop.db --read-only
  trunkline-server-sqlite --db-path demo.db --sample
  trunkline-server-sqlite --db-path shop.db --http 8000 --tokens-env TOKENS
"""


@click.command("trunkline-server-sqlite", epilog=_EPILOG)
@click.option(
    "--db-path", default="./sqlite_mcp_server.db", show_default=True, metavar="FILE", help="The database file."
)
@click.option("--read-only", is_flag=True, help="Offer only tools that read, and never create the file.")
@click.option("--sample", is_flag=True, help="Fill an empty database with a small sample shop.")
@with_statement_options
@with_command_options
def command(
    db_path: str,
    *,
    read_only: bool,
    sample: bool,
    max_rows: int,
    max_bytes: int,
    timeout: float,
    serving: CommandOptions,
) -> None:
    """Query one SQLite database: tools to read and write, its schema as resources, a memo of insights."""
    from trunkline_servers.sqlite.database import create_sample, limit_memory
    from trunkline_servers.sqlite.server import make_server

    if sample:
        create_sample(Path(db_path).expanduser())
    limit_memory()
    serving.run(make_server(db_path, read_only=read_only, max_rows=max_rows, max_bytes=max_bytes, timeout=timeout))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
