"""The command ``trunkline-server-everything``."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.server import ListenAddress
from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.everything.server import make_server

__all__ = ["command", "main"]

_EPILOG = """\b
Examples:
  trunkline-server-everything                 over stdio
  trunkline-server-everything --http 3001     over HTTP, at 127.0.0.1:3001/mcp
  PORT=3001 trunkline-server-everything sse   the oldest HTTP transport, /sse
"""


class _Port(click.IntRange):
    """A port number, named "port" in error messages."""

    name = "port"


@click.command("trunkline-server-everything", epilog=_EPILOG)
@click.argument("transport", type=click.Choice(["stdio", "sse", "streamableHttp"]), required=False)
@click.option(
    "--port",
    type=_Port(0, 65535),
    envvar="PORT",
    default=3001,
    show_default=True,
    show_envvar=True,
    metavar="PORT",
    help="Port for sse and streamableHttp.",
)
@click.option("--show-environment", is_flag=True, help="Let get-env show the values of variables that look secret.")
@click.option("--without-extras", is_flag=True, help="Offer only what the official server offers.")
@click.option(
    "--max-fetch-size",
    type=click.IntRange(1, 1 << 30),
    envvar="GZIP_MAX_FETCH_SIZE",
    default=10 * 1024 * 1024,
    show_default=True,
    show_envvar=True,
    metavar="BYTES",
    help="Most bytes that gzip-file-as-resource fetches.",
)
@click.option(
    "--max-fetch-millis",
    type=click.IntRange(1, 600_000),
    envvar="GZIP_MAX_FETCH_TIME_MILLIS",
    default=30_000,
    show_default=True,
    show_envvar=True,
    metavar="MILLISECONDS",
    help="Time limit for that fetch.",
)
@click.option(
    "--allowed-domains",
    envvar="GZIP_ALLOWED_DOMAINS",
    default="",
    show_envvar=True,
    metavar="DOMAIN,...",
    help="Fetch only from these domains and their subdomains; by default from any public host.",
)
@with_command_options
def command(transport: str | None, *, serving: CommandOptions, **options: Any) -> None:
    """Offer every feature of the Model Context Protocol, for trying and testing clients."""
    server = make_server(
        show_environment=options["show_environment"],
        extras=not options["without_extras"],
        max_fetch_bytes=options["max_fetch_size"],
        fetch_seconds=options["max_fetch_millis"] / 1000,
        allowed_domains=[domain.strip() for domain in options["allowed_domains"].split(",") if domain.strip()],
    )
    addressed = _addressed(serving, transport, options["port"])
    try:
        addressed.run(server)
    except ConfigError as error:
        if addressed is serving:
            raise
        # The port was given with the official option names, so the message uses these too.
        raise ConfigError(str(error).replace("--http ", "--port ").replace(" port=", " PORT=")) from error


def _addressed(serving: CommandOptions, transport: str | None, port: int) -> CommandOptions:
    """Return the options with an address if the transport needs one; ``--http`` takes precedence."""
    if transport == "stdio" and serving.address is not None:
        raise click.UsageError("stdio and --http exclude each other: leave one out.")
    if transport in (None, "stdio") or serving.address is not None:
        return serving
    return replace(serving, address=ListenAddress(None, port))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
