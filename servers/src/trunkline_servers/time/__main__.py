"""The command ``trunkline-server-time``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.time.server import make_server

__all__ = ["command", "main"]

_EPILOG = """\b
Examples:
  trunkline-server-time
  trunkline-server-time --local-timezone Europe/Oslo
  trunkline-server-time --http 8000
"""


@click.command("trunkline-server-time", epilog=_EPILOG)
@click.option(
    "--local-timezone", metavar="NAME", help="IANA name of the local time zone; by default the zone of this machine."
)
@with_command_options
def command(local_timezone: str | None, *, serving: CommandOptions) -> None:
    """Show the time in any time zone, and convert times between zones."""
    serving.run(make_server(local_timezone=local_timezone))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
