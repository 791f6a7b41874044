"""The command ``trunkline-server-docker``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.docker.container_spec import RunLimits
from trunkline_servers.docker.engine import DEFAULT_HOST
from trunkline_servers.docker.server import make_server

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  trunkline-server-docker --read-only
  trunkline-server-docker --only-own --image 'alpine:*' --image 'python:3.*'
  DOCKER_HOST=unix:///run/user/1000/podman/podman.sock trunkline-server-docker
"""

_MOST = RunLimits()


@click.command("trunkline-server-docker", epilog=_EPILOG)
@click.option(
    "--host",
    envvar="DOCKER_HOST",
    default=DEFAULT_HOST,
    show_default=True,
    metavar="unix://PATH",
    help="Socket of the Docker engine.",
)
@click.option("--read-only", is_flag=True, help="Offer no tool that starts, stops, restarts or runs containers.")
@click.option("--only-own", is_flag=True, help="Start, stop and restart only containers created by this server.")
@click.option("--image", "images", multiple=True, metavar="GLOB", help="Run only images that match; may be repeated.")
@click.option("--no-network", is_flag=True, help="Never give containers run by this server network access.")
@click.option(
    "--max-memory-mb",
    type=click.IntRange(6),
    default=_MOST.memory_mb,
    show_default=True,
    metavar="MIB",
    help="Memory limit of a run.",
)
@click.option(
    "--max-cpus",
    type=click.FloatRange(0.01),
    default=_MOST.cpus,
    show_default=True,
    metavar="CPUS",
    help="CPU limit of a run.",
)
@click.option(
    "--max-pids",
    type=click.IntRange(2),
    default=_MOST.pids,
    show_default=True,
    metavar="PROCESSES",
    help="Process limit of a run.",
)
@click.option(
    "--max-seconds",
    type=click.IntRange(1),
    default=_MOST.seconds,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of a run.",
)
@with_command_options
def command(
    host: str,
    *,
    read_only: bool,
    only_own: bool,
    images: tuple[str, ...],
    no_network: bool,
    max_memory_mb: int,
    max_cpus: float,
    max_pids: int,
    max_seconds: int,
    serving: CommandOptions,
) -> None:
    """Look at the containers and images of a Docker engine, start and stop them, and run commands in new ones.

    The engine is reached through a local socket, given by --host or the variable DOCKER_HOST.
    """
    limits = RunLimits(
        memory_mb=max_memory_mb,
        cpus=max_cpus,
        pids=max_pids,
        seconds=max_seconds,
        images=images,
        network=not no_network,
    )
    serving.run(make_server(host, read_only=read_only, only_own=only_own, limits=limits))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
