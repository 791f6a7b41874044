"""The command of a reference server, run in this process up to the point where it would serve."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import NamedTuple
from unittest import mock

import click
from click.testing import CliRunner

from trunkline import Server
from trunkline_servers.cli import CommandOptions

__all__ = ["Started", "command_of", "started"]


class Started(NamedTuple):
    """What a command would serve, and how."""

    server: Server
    options: CommandOptions


def command_of(name: str) -> click.Command:
    """Return the command ``trunkline-server-<name>``."""
    command = importlib.import_module(f"trunkline_servers.{name}.__main__").command
    assert isinstance(command, click.Command)
    return command


def started(name: str, *arguments: str, env: Mapping[str, str] | None = None) -> Started:
    """Run a command with arguments and an environment; an error that it ends with is raised."""
    served: list[Started] = []

    def run(options: CommandOptions, server: Server) -> None:
        served.append(Started(server, options))

    with mock.patch.object(CommandOptions, "run", run):
        ended = CliRunner().invoke(command_of(name), arguments, env=env, standalone_mode=False)
    if ended.exception is not None:
        raise ended.exception
    return served[0]
