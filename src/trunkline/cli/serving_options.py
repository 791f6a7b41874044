"""The options of commands that serve: the store, and what is seen of them from outside: metrics, health, log lines."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from trunkline.net.addresses import ListenAddress

__all__ = ["is_path", "log_format_option", "metrics_option", "store_of_environment", "store_option"]

#: The environment variable with the path or the URL of the store.
_STORE = "TRUNKLINE_STORE"


def store_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add ``--store``."""
    return click.option(
        "--store",
        metavar="FILE|URL",
        help="Where everything that outlives a request is kept: an SQLite file, or for several machines a Redis server "
        f"(redis://HOST:PORT/DB; needs TRUNKLINE_STATE_KEY). Default: in memory. With --http also: {_STORE}.",
    )(function)


def store_of_environment(address: ListenAddress | None) -> str | None:
    """Return the store in the environment, which does not show a password in the list of processes."""
    return None if address is None else os.environ.get(_STORE) or None


def is_path(store: str | None) -> bool:
    """Return whether a store is a file of this machine."""
    return store is not None and ("://" not in store or store.startswith("sqlite://"))


def metrics_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add ``--metrics [HOST:]PORT``."""
    return click.option(
        "--metrics",
        metavar="[HOST:]PORT",
        callback=_parse_metrics,
        help="Serve metrics and health checks at this address. Default host: 127.0.0.1.",
    )(function)


def log_format_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add ``--log-format``, which takes effect as soon as it is parsed."""
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        envvar="TRUNKLINE_LOG_FORMAT",
        expose_value=False,
        callback=_use_log_format,
        help="Format of log lines on stderr. Also: TRUNKLINE_LOG_FORMAT.",
    )(function)


def _use_log_format(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value == "json" and not ctx.resilient_parsing:
        from trunkline.cli.ui.output import redact
        from trunkline.telemetry.json_logs import install_json_logs

        install_json_logs(redact)


def _parse_metrics(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from trunkline.net.addresses import parse_listen_address

    if value is not None and (not value or parse_listen_address(value) is None):
        raise click.BadParameter(f"{value!r} is not [HOST:]PORT.")
    return value
