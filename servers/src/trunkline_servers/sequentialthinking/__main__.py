"""The command ``trunkline-server-sequentialthinking``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.sequentialthinking.server import make_server

__all__ = ["command", "main"]

_EPILOG = """\b
Examples:
  trunkline-server-sequentialthinking
  trunkline-server-sequentialthinking --hide-thoughts
  DISABLE_THOUGHT_LOGGING=true trunkline-server-sequentialthinking
"""


@click.command("trunkline-server-sequentialthinking", epilog=_EPILOG)
@click.option("--hide-thoughts", is_flag=True, help="Do not draw the thoughts on stderr.")
@with_command_options
def command(*, hide_thoughts: bool, serving: CommandOptions) -> None:
    """Let a model think in steps, correct them, and branch."""
    serving.run(make_server(show_thoughts=False if hide_thoughts else None))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
