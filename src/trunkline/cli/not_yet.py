"""What the command line accepts and this version does not have: names from a configuration.

They end the command with a sentence that says so, instead of being an option that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from trunkline.cli.exits import Exit, Failure

__all__ = ["NO_NAMES", "config_option"]

NO_NAMES = "names from a configuration come with the host; give a file, FILE:object, a quoted command or a URL"

Function = TypeVar("Function", bound=Callable[..., Any])


def _refuse(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise Failure(NO_NAMES, Exit.USAGE)


def config_option(function: Function) -> Function:
    """Add ``-c/--config``, which is refused."""
    option = click.option(
        "-c",
        "--config",
        metavar="FILE",
        callback=_refuse,
        expose_value=False,
        help="A configuration to find TARGET in by name (comes with the host).",
    )
    return option(function)
