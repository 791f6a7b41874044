"""The command ``trunkline-server-sentry``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, seconds_option, with_command_options
from trunkline_servers.sentry.server import DEFAULT_URL, TOKEN_VARIABLE, make_server

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  SENTRY_TOKEN=sntryu_... trunkline-server-sentry
  trunkline-server-sentry --api-url https://sentry.example.com/api/0
  CALLERS=ann:TOKEN trunkline-server-sentry --http 8000 --tokens-env CALLERS
"""


@click.command("trunkline-server-sentry", epilog=_EPILOG)
@click.option(
    "--auth-token",
    envvar=[TOKEN_VARIABLE, "SENTRY_AUTH_TOKEN"],
    metavar="TOKEN",
    help="The token. Prefer SENTRY_TOKEN (or SENTRY_AUTH_TOKEN): other users can see command lines.",
)
@click.option(
    "--api-url",
    envvar="SENTRY_API_URL",
    default=DEFAULT_URL,
    show_default=True,
    metavar="URL",
    help="Base URL of the API; also in SENTRY_API_URL.",
)
@seconds_option("Sentry")
@with_command_options
def command(auth_token: str | None, *, api_url: str, seconds: float, serving: CommandOptions) -> None:
    """Look up issues in Sentry, with their stack traces.

    The token needs the scope event:read; without a token the tool and the prompt report that it is missing. Over HTTP
    all callers use this one token.
    """
    serving.run(make_server(auth_token, api_url=api_url, seconds=seconds))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
