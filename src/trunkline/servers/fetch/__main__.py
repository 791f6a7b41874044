"""The command of the fetch server."""

from __future__ import annotations

import click

from trunkline.servers.fetch.server import DEFAULT_MAX_BYTES, DEFAULT_SECONDS, make_server
from trunkline.servers.starting import Serving, serving_options, start

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
@click.option("--user-agent", metavar="TEXT", help="The User-Agent of all requests; robots.txt is read for its name.")
@click.option("--ignore-robots-txt", is_flag=True, help="Fetch what sites ask programs not to fetch.")
@click.option("--proxy-url", metavar="URL", help="An http proxy for everything but this machine.")
@click.option(
    "--allow-local",
    "--allow-private-ips",
    "allow_local",
    is_flag=True,
    help="Fetch from this machine and from private networks too.",
)
@click.option(
    "--allow-host", "allow_hosts", multiple=True, metavar="HOST[:PORT]", help="Fetch from this host wherever it is."
)
@click.option(
    "--max-bytes",
    type=int,
    default=DEFAULT_MAX_BYTES,
    show_default=True,
    metavar="BYTES",
    help="How much is read of a page.",
)
@click.option(
    "--timeout",
    "seconds",
    type=float,
    default=DEFAULT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long a page may take.",
)
@serving_options
def command(
    *,
    user_agent: str | None,
    ignore_robots_txt: bool,
    proxy_url: str | None,
    allow_local: bool,
    allow_hosts: tuple[str, ...],
    max_bytes: int,
    seconds: float,
    serving: Serving,
) -> None:
    """Fetch pages of the web for a model, as Markdown.

    Only public addresses are fetched from, by redirect too, and only what a site's robots.txt lets programs fetch.
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
    """Run the command and end the process."""
    start(command)


if __name__ == "__main__":
    main()
