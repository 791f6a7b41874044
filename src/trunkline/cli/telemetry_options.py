"""The options of commands that serve, for what is seen of them from outside: metrics, health and log lines."""

from __future__ import annotations

from collections.abc import Callable

import click

__all__ = ["log_format_option", "metrics_option"]


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
