"""The ``--http`` option of the commands that serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from trunkline.server.addresses import Address

__all__ = ["http_option"]

Function = TypeVar("Function", bound=Callable[..., Any])


def _read(context: click.Context, option: click.Parameter, value: str | None) -> Address | None:
    from trunkline.server.addresses import read_address

    address = None if value is None else read_address(value)
    if value is not None and address is None:
        raise click.BadParameter(f"{value!r} is not [HOST:]PORT; put --http without a value last.", context, option)
    return address


def http_option(function: Function) -> Function:
    """Add the option ``--http [HOST:]PORT``, passed to the command as ``address``."""
    option = click.option(
        "--http",
        "address",
        metavar="[HOST:]PORT",
        is_flag=False,
        flag_value="",
        callback=_read,
        help="Serve over HTTP. Default address: 127.0.0.1:8000.",
    )
    return option(function)
