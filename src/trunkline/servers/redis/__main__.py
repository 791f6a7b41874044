"""The command ``trunkline-server-redis``."""

from __future__ import annotations

import click

from trunkline.servers.redis.server import make_server
from trunkline.servers.redis.store import DEFAULT_URL, Caps
from trunkline.servers.starting import Serving, serving_options, start

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
    default=Caps().value_bytes,
    show_default=True,
    metavar="BYTES",
    help="Largest value.",
)
@click.option(
    "--max-keys",
    type=click.IntRange(1),
    default=Caps().keys,
    show_default=True,
    metavar="KEYS",
    help="Most keys that a call lists or deletes.",
)
@serving_options
def command(url: str, *, read_only: bool, max_value_bytes: int, max_keys: int, serving: Serving) -> None:
    """Read and write keys of the Redis database at URL (redis://, rediss:// or unix://).

    Without URL the variable REDIS_URL is used, else redis://localhost:6379. Prefer the variable for a URL with
    a password: other users of the machine can see command lines.
    """
    caps = Caps(value_bytes=max_value_bytes, keys=max_keys)
    serving.run(make_server(url, read_only=read_only, caps=caps))


def main() -> None:
    """Run the command."""
    start(command)


if __name__ == "__main__":
    main()
