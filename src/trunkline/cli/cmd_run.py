"""``trunkline run``: serve a Python file's server over stdio or HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from trunkline.cli.exits import Exit
from trunkline.cli.loading import load_server

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
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):)?(?P<port>[0-9]{1,5})")
# What a server is bound to when it listens on every address; it is called by another name.
_EVERYWHERE = ("0.0.0.0", "[::]")


class _Address(NamedTuple):
    """What was typed behind ``--http``; what was not is left to the server, and then to the defaults."""

    host: str | None = None
    port: int | None = None


def _address(context: click.Context, option: click.Parameter, value: str | None) -> _Address | None:
    if not value:
        return None if value is None else _Address()
    found = _ADDRESS.fullmatch(value)
    if found is None:
        said = f"{value!r} is no [HOST:]PORT; --http alone goes behind the file."
        raise click.BadParameter(said, context, option)
    host = found["host"]
    return _Address(None if host is None else host.strip("[]"), int(found["port"]))


@click.command(epilog=_EPILOG)
@click.argument("spec", metavar="FILE[:OBJECT]")
@click.option(
    "--http",
    "address",
    metavar="[HOST:]PORT",
    is_flag=False,
    flag_value="",
    callback=_address,
    help="Serve over HTTP; without an address at 127.0.0.1:8000.",
)
@click.option("--path", metavar="/PATH", help="The path of the endpoint, else /mcp.")
@click.option("--certfile", type=_FILE, help="Serve HTTPS with this certificate (PEM).")
@click.option("--keyfile", type=_FILE, help="Its key, if that is in another file.")
@click.option("--allowed-host", multiple=True, metavar="NAME", help="A public name under which a proxy reaches it.")
@click.option("--allow-unauthenticated", is_flag=True, help="Let others reach it, whoever they are.")
@click.option("--no-sse", is_flag=True, help="Do not serve the transport of the oldest revision.")
def command(
    spec: str,
    *,
    address: _Address | None,
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

        scheme, _, where = origin.partition("://")
        host, _, port = where.rpartition(":")
        here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
        url = f"{scheme}://{here}:{port}{path}"
        everywhere = " (and every other address of this machine)" if host in _EVERYWHERE else ""
        complain(f"{one_line(server.name)} is served at {url}{everywhere}; try: trunkline list tools {url}")

    given = {name: value for name, value in options.items() if value is not None}
    run_loop(run_async(server, "http", **given, started=tell))
