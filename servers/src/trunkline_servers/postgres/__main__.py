"""The command ``trunkline-server-postgres``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options, with_statement_options

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  trunkline-server-postgres postgresql://mcp_reader@localhost/shop
  DATABASE_URL=postgresql://reader:secret@db/shop trunkline-server-postgres
  DATABASE_URL=... trunkline-server-postgres --http 8000 --tokens-env TOKENS
"""


@click.command("trunkline-server-postgres", epilog=_EPILOG)
@click.argument("url", envvar="DATABASE_URL", required=False, metavar="[URL]")
@click.option(
    "--schema", default="public", show_default=True, metavar="NAME", help="The schema whose tables are shown."
)
@with_statement_options
@click.option("--allow-superuser", is_flag=True, help="Allow a role that can reach files of the database host.")
@with_command_options
def command(
    url: str | None,
    *,
    schema: str,
    max_rows: int,
    max_bytes: int,
    timeout: float,
    allow_superuser: bool,
    serving: CommandOptions,
) -> None:
    """Query the PostgreSQL database at URL, or in the variable DATABASE_URL, which ps does not show.

    Connect as a read-only role: the role is what keeps the database safe.
    """
    if not url:
        raise click.UsageError("Missing argument '[URL]': give it, or set DATABASE_URL.")
    from trunkline_servers.postgres.server import make_server

    serving.run(
        make_server(
            url,
            schema=schema,
            max_rows=max_rows,
            max_bytes=max_bytes,
            timeout=timeout,
            allow_superuser=allow_superuser,
        )
    )


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
