"""The command ``trunkline-server-npm``."""

from __future__ import annotations

import os

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.npm.server import ScriptOptions, make_server

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  trunkline-server-npm ~/projects/shop
  trunkline-server-npm ~/projects --script-seconds 900
  NPM_TOKEN=... trunkline-server-npm --registry https://npm.example.com ~/shop
"""


@click.command("trunkline-server-npm", epilog=_EPILOG)
@click.argument("folders", nargs=-1, metavar="[FOLDER]...")
@click.option(
    "--registry",
    metavar="URL",
    help="The only registry to use; by default npm's settings in the environment, the project's .npmrc and yours.",
)
@click.option("--allow-scripts", is_flag=True, help="Run scripts without asking the user.")
@click.option("--npm", metavar="PATH", help="The npm program, if it is not on the PATH.")
@click.option(
    "--script-seconds",
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for a script.",
)
@click.option("--pass-env", multiple=True, metavar="NAME", help="A variable that scripts may see; may be repeated.")
@with_command_options
def command(
    folders: tuple[str, ...],
    *,
    registry: str | None,
    allow_scripts: bool,
    npm: str | None,
    script_seconds: float,
    pass_env: tuple[str, ...],
    serving: CommandOptions,
) -> None:
    """Look up npm packages, check the projects in the FOLDERs, and run their scripts.

    Folders that the client shares as roots replace the ones given here. A token for the registry is taken from the
    variable NPM_TOKEN, which scripts do not see, else from your .npmrc. It is sent only to the registry or host that it
    is for, whatever a project names.
    """
    running = ScriptOptions(without_asking=allow_scripts, npm=npm, seconds=script_seconds, passed=pass_env)
    token = os.environ.get("NPM_TOKEN") or None
    serving.run(make_server(folders, registry=registry, token=token, running=running))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
