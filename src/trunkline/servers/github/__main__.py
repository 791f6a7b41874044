"""The command ``trunkline-server-github``."""

from __future__ import annotations

import os

import click

from trunkline.servers.github.calls import DEFAULT_URL, VARIABLE
from trunkline.servers.github.reviews import Confirm
from trunkline.servers.github.server import make_server
from trunkline.servers.starting import Serving, serving_options, start

_EPILOG = """\
\b
Examples:
  GITHUB_PERSONAL_ACCESS_TOKEN=github_pat_... trunkline-server-github
  trunkline-server-github --api-url https://github.example.com/api/v3
  TOKENS=ann:... trunkline-server-github --http 8000 --tokens-env TOKENS
"""


@click.command("trunkline-server-github", epilog=_EPILOG)
@click.option(
    "--api-url", envvar="GITHUB_API_URL", default=DEFAULT_URL, show_default=True, metavar="URL", help="The REST API."
)
@click.option(
    "--confirm-merges",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Whether the user confirms a merge: auto asks if the client can, always refuses if it cannot.",
)
@click.option("--seconds", type=click.FloatRange(1, 300), default=30.0, show_default=True, help="Wait so long at most.")
@serving_options
def command(api_url: str, *, confirm_merges: Confirm, seconds: float, serving: Serving) -> None:
    """Work with repositories, files, issues and pull requests on GitHub.

    The token is in the variable GITHUB_PERSONAL_ACCESS_TOKEN, else in GITHUB_TOKEN. Without one, public data can be
    read, less often, and nothing can be changed. Over HTTP everybody who is let in acts with this one token.
    """
    token = os.environ.get(VARIABLE) or os.environ.get("GITHUB_TOKEN")
    serving.run(make_server(token=token, api_url=api_url, confirm_merges=confirm_merges, seconds=seconds))


def main() -> None:
    """Run the command."""
    start(command)


if __name__ == "__main__":
    main()
