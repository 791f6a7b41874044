"""The command ``trunkline-server-slack``."""

from __future__ import annotations

import os

import click

from trunkline_servers.cli import CommandOptions, run_command, seconds_option, with_command_options
from trunkline_servers.slack.server import DEFAULT_URL, TOKEN_VARIABLE, make_server

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  SLACK_BOT_TOKEN=xoxb-... trunkline-server-slack
  trunkline-server-slack --channel-ids C0123ABCD,C0456EFGH
  CALLERS=ann:TOKEN trunkline-server-slack --http 8000 --tokens-env CALLERS
"""


@click.command("trunkline-server-slack", epilog=_EPILOG)
@click.option(
    "--api-url",
    envvar="SLACK_API_URL",
    default=DEFAULT_URL,
    show_default=True,
    metavar="URL",
    help="Base URL of the Web API.",
)
@click.option(
    "--channel-ids",
    envvar="SLACK_CHANNEL_IDS",
    default="",
    metavar="ID,ID",
    help="Allow only these channels; by default all that the bot can see.",
)
@click.option(
    "--team-id",
    envvar="SLACK_TEAM_ID",
    metavar="ID",
    help="The workspace, if the app is installed for a whole organization.",
)
@click.option("--unfurl", is_flag=True, help="Let Slack fetch the links in what is posted, to show previews.")
@seconds_option("Slack")
@with_command_options
def command(
    api_url: str, *, channel_ids: str, team_id: str | None, unfurl: bool, seconds: float, serving: CommandOptions
) -> None:
    """Read and write in the channels of a Slack workspace, as a bot.

    The bot's token (xoxb-...) is in the variable SLACK_BOT_TOKEN; without it the tools report that it is missing.
    SLACK_CHANNEL_IDS, SLACK_TEAM_ID and SLACK_API_URL are used where the option is not given. Over HTTP all callers act
    as this bot.
    """
    server = make_server(
        os.environ.get(TOKEN_VARIABLE),
        team_id=team_id,
        channel_ids=channel_ids.split(","),
        api_url=api_url,
        unfurl=unfurl,
        seconds=seconds,
    )
    serving.run(server)


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
