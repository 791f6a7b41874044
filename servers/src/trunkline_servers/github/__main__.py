"""The command ``trunkline-server-github``."""

from __future__ import annotations

import os

import click

from trunkline_servers.cli import CommandOptions, run_command, seconds_option, with_command_options
from trunkline_servers.github.client import DEFAULT_URL, TOKEN_VARIABLE
from trunkline_servers.github.issues import ConfirmMerges
from trunkline_servers.github.server import make_server

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  GITHUB_PERSONAL_ACCESS_TOKEN=github_pat_... trunkline-server-github
  trunkline-server-github --api-url https://github.example.com/api/v3
  CALLERS=ann:TOKEN trunkline-server-github --http 8000 --tokens-env CALLERS
"""


@click.command("trunkline-server-github", epilog=_EPILOG)
@click.option(
    "--api-url",
    envvar="GITHUB_API_URL",
    default=DEFAULT_URL,
    show_default=True,
    metavar="URL",
    help="Base URL of the REST API; also in GITHUB_API_URL.",
)
@click.option(
    "--confirm-merges",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Whether the user must confirm merges: if the client supports it (auto), always (a client without support "
    "cannot merge), or never.",
)
@seconds_option("GitHub")
@with_command_options
def command(api_url: str, *, confirm_merges: ConfirmMerges, seconds: float, serving: CommandOptions) -> None:
    """Work with repositories, files, issues and pull requests on GitHub.

    The token is in the variable GITHUB_PERSONAL_ACCESS_TOKEN, else in GITHUB_TOKEN. Without one, public data can be
    read, less often, and nothing can be changed. Over HTTP all callers act with this one token.
    """
    token = os.environ.get(TOKEN_VARIABLE) or os.environ.get("GITHUB_TOKEN")
    serving.run(make_server(token=token, api_url=api_url, confirm_merges=confirm_merges, seconds=seconds))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
