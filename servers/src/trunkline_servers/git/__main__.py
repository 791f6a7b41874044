"""The command ``trunkline-server-git``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.git.server import make_server

__all__ = ["command", "main"]

_EPILOG = """\b
Examples:
  trunkline-server-git --repository .
  trunkline-server-git -r ~/work/site -r ~/work/shop --timeout 60
  trunkline-server-git                     (the client's roots are allowed)
"""


@click.command("trunkline-server-git", epilog=_EPILOG)
@click.option(
    "-r",
    "--repository",
    "repositories",
    multiple=True,
    metavar="PATH",
    help="An allowed repository, or a folder of allowed repositories. May be repeated.",
)
@click.option("--any-repository", is_flag=True, help="Allow every repository that this user can read.")
@click.option("--run-hooks", is_flag=True, help="Let git_commit run the repository's hooks. They can do anything.")
@click.option(
    "--timeout", metavar="SECONDS", type=float, default=30.0, show_default=True, help="Time limit for one git command."
)
@click.option(
    "--max-output",
    metavar="BYTES",
    type=int,
    default=1024 * 1024,
    show_default=True,
    help="Most bytes of git output that are shown.",
)
@click.option("-v", "--verbose", count=True, help="Accepted for compatibility; see --log-level.")
@with_command_options
def command(
    repositories: tuple[str, ...],
    *,
    any_repository: bool,
    run_hooks: bool,
    timeout: float,
    max_output: int,
    verbose: int,
    serving: CommandOptions,
) -> None:
    """Read and change local Git repositories, without running any program that they configure."""
    server = make_server(
        repositories=repositories,
        any_repository=any_repository,
        run_hooks=run_hooks,
        timeout=timeout,
        max_output=max_output,
    )
    serving.run(server)


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
