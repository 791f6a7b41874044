"""What the command line accepts and this version does not have: HTTP, and names from a configuration.

Each ends the command with a sentence that says so, instead of being an option that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from trunkline.cli.exits import Exit, Failure

__all__ = ["NO_HTTP", "NO_NAMES", "config_option", "http_option"]

NO_HTTP = "URLs (and --http) come with the HTTP transport; this version speaks stdio."
NO_NAMES = "names from a configuration come with the host; give a file, FILE:object or a quoted command"

Function = TypeVar("Function", bound=Callable[..., Any])


def _refuse(sentence: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def refuse(context: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise Failure(sentence, Exit.USAGE)

    return refuse


def http_option(function: Function) -> Function:
    """Add ``--http``, with or without an address, which is refused."""
    option = click.option(
        "--http", hidden=True, is_flag=False, flag_value="", callback=_refuse(NO_HTTP), expose_value=False
    )
    return option(function)


def config_option(function: Function) -> Function:
    """Add ``-c/--config``, which is refused."""
    option = click.option(
        "-c",
        "--config",
        metavar="FILE",
        callback=_refuse(NO_NAMES),
        expose_value=False,
        help="A configuration to find TARGET in by name (comes with the host).",
    )
    return option(function)
