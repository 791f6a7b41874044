"""The command ``trunkline-server-fetch``."""

from __future__ import annotations

import click

from trunkline_servers.cli import CommandOptions, run_command, with_command_options
from trunkline_servers.fetch.server import DEFAULT_MAX_BYTES, DEFAULT_SECONDS, make_server

__all__ = ["command", "main"]

_EPILOG = """\
\b
Examples:
  trunkline-server-fetch
  trunkline-server-fetch --allow-host localhost:3000
  trunkline-server-fetch --user-agent "acme/1.0 (+https://acme.example)"
  TOKENS=... trunkline-server-fetch --http 8000 --tokens-env TOKENS
"""


@click.command("trunkline-server-fetch", epilog=_EPILOG)
@click.option(
    "--user-agent", metavar="TEXT", help="User-Agent of all requests; its product name selects robots.txt rules."
)
@click.option("--ignore-robots-txt", is_flag=True, help="Ignore the rules of robots.txt.")
@click.option("--proxy-url", metavar="URL", help="HTTP proxy for all hosts but this machine.")
@click.option(
    "--allow-local",
    "--allow-private-ips",
    "allow_local",
    is_flag=True,
    help="Also fetch from this machine and from private networks.",
)
@click.option(
    "--allow-host", "allow_hosts", multiple=True, metavar="HOST[:PORT]", help="Allow this host whatever its address."
)
@click.option(
    "--max-bytes",
    type=int,
    default=DEFAULT_MAX_BYTES,
    show_default=True,
    metavar="BYTES",
    help="Most bytes read of a page.",
)
@click.option(
    "--timeout",
    "seconds",
    type=float,
    default=DEFAULT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for a page.",
)
@with_command_options
def command(
    *,
    user_agent: str | None,
    ignore_robots_txt: bool,
    proxy_url: str | None,
    allow_local: bool,
    allow_hosts: tuple[str, ...],
    max_bytes: int,
    seconds: float,
    serving: CommandOptions,
) -> None:
    """Fetch web pages for a model, as Markdown.

    Only public addresses are allowed, also after redirects, and only pages that a site's robots.txt allows.
    """
    serving.run(
        make_server(
            user_agent=user_agent,
            ignore_robots_txt=ignore_robots_txt,
            proxy_url=proxy_url,
            allow_local=allow_local,
            allow_hosts=allow_hosts,
            max_bytes=max_bytes,
            seconds=seconds,
        )
    )


def main() -> None:
    """Run the command."""
    run_command(command)


if __name__ == "__main__":
    main()
