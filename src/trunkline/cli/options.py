"""The arguments that all verbs with a TARGET share, read once into a record.

It reads and checks what was typed, and starts nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

from trunkline.cli.not_yet import config_option, http_option
from trunkline.cli.targets import Launch, read_target

__all__ = ["Choices", "client_verb", "json_option", "pairs"]


class Choices(NamedTuple):
    """What was chosen for one conversation with a server."""

    launch: Launch
    revision: str
    env: dict[str, str]
    cwd: str | None
    #: Seconds to wait for the connection, and for each answer; None for the usual limits.
    timeout: float | None
    #: How much is shown besides the answer: 1 the server's log and stderr, 2 its debug messages too.
    verbosity: int
    #: Decline every question.
    no_input: bool
    #: The answer is wanted as one JSON document.
    as_json: bool


def client_verb(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command the shared options; it gets a ``Choices`` as ``choices``, besides its own parameters.

    TARGET is the command's own argument, since its place among the others is.
    """

    @wraps(function)
    def read(
        *,
        target: str,
        revision: str,
        env: tuple[str, ...],
        cwd: str | None,
        timeout: float | None,
        verbose: int,
        no_input: bool,
        as_json: bool = False,
        **own: Any,
    ) -> int:
        given = _environment(env)
        launch = read_target(target)
        choices = Choices(
            launch,
            revision,
            {**launch.env, **given},
            cwd,
            timeout,
            verbosity=verbose,
            no_input=no_input,
            as_json=as_json,
        )
        return function(choices=choices, **own)

    options = (
        config_option,
        http_option,
        click.option("--revision", default="auto", metavar="NAME", callback=_revision, help=_REVISION_HELP),
        click.option("--env", multiple=True, metavar="K=V", help="A variable for the server; K alone passes ours on."),
        click.option("--cwd", type=click.Path(exists=True, file_okay=False), help="The folder the server starts in."),
        click.option("--timeout", type=float, metavar="S", callback=_seconds, help=_TIMEOUT_HELP),
        click.option("-v", "--verbose", count=True, help="Show the server's log messages and stderr; -vv also debug."),
        click.option("--no-input", is_flag=True, help="Decline every question of the server's."),
    )
    command: Callable[..., int] = read
    for option in reversed(options):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, in the wire's own form.")

_REVISION_HELP = "The protocol revision to speak; auto asks the server."
_TIMEOUT_HELP = "Seconds to wait for the connection, and then for the answer."


def _revision(context: click.Context, option: click.Parameter, value: str) -> str:
    from trunkline.protocol.revisions import ALL_NAMES

    if value not in ("auto", *ALL_NAMES):
        raise click.BadParameter(f"{value!r} is none of: auto, {', '.join(ALL_NAMES)}.", context, option)
    return value


def _seconds(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter("give a number of seconds above 0.", context, option)
    return value


def _environment(entries: tuple[str, ...]) -> dict[str, str]:
    return dict(_variable(entry) for entry in entries)


def _variable(entry: str) -> tuple[str, str]:
    name, equals, value = entry.partition("=")
    if not name:
        raise click.UsageError(f"--env {entry}: give NAME=VALUE.")
    if not equals and name not in os.environ:
        raise click.UsageError(f"--env {entry}: there is no variable {name} to pass on; give {name}=VALUE.")
    return name, value if equals else os.environ[name]


def pairs(entries: tuple[str, ...]) -> dict[str, str]:
    """Read ``key=value`` arguments; each key once."""
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{entry!r} is no key=value.")
        if name in found:
            raise click.UsageError(f"{name} is given twice.")
        found[name] = value
    return found
