"""``trunkline run``: serve a Python file's server over stdio or HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from trunkline.cli.addresses import http_option
from trunkline.cli.exits import Exit
from trunkline.cli.loading import load_server
from trunkline.server.addresses import Address, shown_url

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline run weather.py
  trunkline run weather.py:server --http
  trunkline run weather.py --http 0.0.0.0:8443 --certfile cert.pem --keyfile key.pem --allow-unauthenticated
  trunkline run weather.py --http 8000 --allowed-host mcp.example.com
"""

_FILE = click.Path()


@click.command(epilog=_EPILOG)
@click.argument("spec", metavar="FILE[:OBJECT]")
@http_option
@click.option("--path", metavar="/PATH", help="The path of the endpoint, else /mcp.")
@click.option("--certfile", type=_FILE, help="Serve HTTPS with this certificate (PEM).")
@click.option("--keyfile", type=_FILE, help="Its key, if that is in another file.")
@click.option("--allowed-host", multiple=True, metavar="NAME", help="A public name under which a proxy reaches it.")
@click.option("--allow-unauthenticated", is_flag=True, help="Let others reach it, whoever they are.")
@click.option("--no-sse", is_flag=True, help="Do not serve the transport of the oldest revision.")
def command(
    spec: str,
    *,
    address: Address | None,
    path: str | None,
    certfile: str | None,
    keyfile: str | None,
    allowed_host: tuple[str, ...],
    allow_unauthenticated: bool,
    no_sse: bool,
) -> int:
    """Serve the server in FILE, over stdio until the client goes away, or over HTTP until Ctrl-C or SIGTERM.

    The server is OBJECT or, if none is named, what is called server, mcp or app, or the only Server there is. The file
    is imported, so what it does under if __name__ == "__main__" is left out.
    """
    given = {
        "path": path,
        "certfile": certfile,
        "keyfile": keyfile,
        "allowed_hosts": allowed_host or None,
        "allow_unauthenticated": allow_unauthenticated or None,
        "sse": False if no_sse else None,
    }
    if address is None:
        _check_stdio(given)
        load_server(spec).run()
    else:
        _serve_http(load_server(spec), {**given, "host": address.host, "port": address.port})
    return Exit.OK


def _check_stdio(given: Mapping[str, object]) -> None:
    """Refuse options that would do nothing."""
    for name, value in given.items():
        if value is not None:
            option = {"allowed_hosts": "allowed-host", "sse": "no-sse"}.get(name, name.replace("_", "-"))
            raise click.UsageError(f"--{option} is for HTTP: give --http as well.")


def _serve_http(server: Server, options: Mapping[str, object]) -> None:
    from trunkline.server.run import run_async, run_loop

    path = options["path"] or server.http_options.get("streamable_http_path") or "/mcp"

    def tell(origin: str) -> None:
        from trunkline.cli.output import complain, one_line

        url, everywhere = shown_url(origin, str(path))
        complain(f"{one_line(server.name)} is served at {url}{everywhere}; try: trunkline list tools {url}")

    given = {name: value for name, value in options.items() if value is not None}
    run_loop(run_async(server, "http", **given, started=tell))
