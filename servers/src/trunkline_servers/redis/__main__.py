"""The command ``trunkline-server-redis``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.redis.server import DEFAULT_URL, RedisLimits, make_server

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  trunkline-server-redis
  trunkline-server-redis redis://localhost:6379/1 --read-only
  REDIS_URL=rediss://:secret@cache.example.com:6380 trunkline-server-redis
"""


@click.command("trunkline-server-redis", epilog=_EPILOG)
@click.argument("url", envvar="REDIS_URL", default=DEFAULT_URL, metavar="[URL]")
@click.option("--read-only", is_flag=True, help="Offer only get and list.")
@click.option(
    "--max-value-bytes",
    type=click.IntRange(1),
    default=RedisLimits().value_bytes,
    show_default=True,
    metavar="BYTES",
    help="Largest value.",
)
@click.option(
    "--max-keys",
    type=click.IntRange(1),
    default=RedisLimits().keys,
    show_default=True,
    metavar="KEYS",
    help="Most keys that a call lists or deletes.",
)
@with_command_options
def command(url: str, *, read_only: bool, max_value_bytes: int, max_keys: int, serving: CommandOptions) -> None:
    """Read and write keys of the Redis database at URL (redis://, rediss:// or unix://).

    Without URL the variable REDIS_URL is used, else redis://localhost:6379. Prefer the variable for a URL with
    a password: other users of the machine can see command lines.
    """
    limits = RedisLimits(value_bytes=max_value_bytes, keys=max_keys)
    serving.run(make_server(url, read_only=read_only, limits=limits))


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
