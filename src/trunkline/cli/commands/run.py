"""``trunkline run``: runs the server in a Python file, over stdio or HTTP."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.announcement import announce_address, announce_http, announce_stdio
from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import http_option, rate_limit_option
from trunkline.cli.serving_options import log_format_option, metrics_option, store_of_environment, store_option
from trunkline.cli.targets import load_installed_server, load_server
from trunkline.net.addresses import ListenAddress
from trunkline.transports.python_files import split_spec

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline run weather.py
  trunkline run weather.py:server --http
  trunkline run weather.py --reload
  trunkline run -m weather.server --http 8000 --reload
  trunkline run weather.py --http 0.0.0.0:8443 --certfile cert.pem --keyfile key.pem --allow-unauthenticated
  trunkline run weather.py --http 8000 --allowed-host mcp.example.com
  trunkline run weather.py --store weather.db
  trunkline run weather.py --http 8000 --workers 4 --store redis://127.0.0.1:6379/0
  trunkline run --compat server_for_fastmcp.py
  trunkline run --compat -m some_server --option
  trunkline run --compat -- mcp-server-time --local-timezone Europe/Berlin
"""

_FILE = click.Path()
_COMPAT = "trunkline.run.compat"


class _RunCommand(click.Command):
    """Leaves everything after ``--compat`` to the program that is run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set aside what follows ``--compat``."""
        if "--compat" in args and "--" not in args[: args.index("--compat")]:
            at = args.index("--compat")
            ctx.meta[_COMPAT] = tuple(args[at + 1 :])
            args = args[: at + 1]
        return super().parse_args(ctx, args)


@click.command(epilog=_EPILOG, cls=_RunCommand)
@click.argument("spec", metavar="FILE[:OBJECT]", required=False)
@click.option("-m", "module", metavar="MODULE[:OBJECT]", help="Run the server in a module instead of a file.")
@click.option("--reload", is_flag=True, help="Reload the server when its source files change; clients stay connected.")
@click.option(
    "--compat",
    is_flag=True,
    help="Run a server written for mcp or fastmcp unchanged: FILE, -m MODULE or -- COMMAND, each with its arguments.",
)
@http_option
@click.option("--path", metavar="/PATH", help="Path of the endpoint. Default: /mcp.")
@click.option("--certfile", type=_FILE, help="TLS certificate (PEM); serves HTTPS.")
@click.option("--keyfile", type=_FILE, help="TLS private key, if it is not in the certificate file.")
@click.option(
    "--allowed-host", multiple=True, metavar="NAME", help="Accept this Host name, as sent by a proxy; repeatable."
)
@click.option("--allow-unauthenticated", is_flag=True, help="Allow other machines to connect without authentication.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Serve with N worker processes. Needs --http.")
@store_option
@rate_limit_option
@click.option("--no-sse", is_flag=True, help="Do not serve the deprecated HTTP+SSE transport.")
@metrics_option
@log_format_option
def command(
    spec: str | None,
    *,
    module: str | None,
    reload: bool,
    compat: bool,
    address: ListenAddress | None,
    path: str | None,
    certfile: str | None,
    keyfile: str | None,
    allowed_host: tuple[str, ...],
    allow_unauthenticated: bool,
    workers: int | None,
    store: str | None,
    rate_limit: str | None,
    no_sse: bool,
    metrics: str | None,
) -> int:
    """Run the server in FILE or MODULE, over stdio until the client disconnects, or over HTTP until Ctrl-C or SIGTERM.

    OBJECT is the name of the server in the file. It defaults to server, mcp or app, or to the only Server in the file.
    The file is imported, so code under if __name__ == "__main__" does not run.

    With --compat, a server written for the official SDK or FastMCP runs as a program, its imports resolved to
    Trunkline in this process.
    """
    if compat:
        if reload:
            raise click.UsageError("--reload cannot be combined with --compat: such a server runs as a program.")
        if address is not None:
            raise click.UsageError("--http cannot be combined with --compat: such a program chooses its own transport.")
        if metrics is not None:
            raise click.UsageError("--metrics cannot be combined with --compat: such a server runs as a program.")
        return _run_compat(click.get_current_context().meta[_COMPAT])
    if (spec is None) == (module is None):
        raise click.UsageError(
            "Missing argument 'FILE[:OBJECT]'." if spec is None else "Pass either FILE or -m MODULE, not both."
        )
    given = {
        "path": path,
        "certfile": certfile,
        "keyfile": keyfile,
        "allowed_hosts": allowed_host or None,
        "allow_unauthenticated": allow_unauthenticated or None,
        "workers": workers,
        "store": store or store_of_environment(address),
        "rate_limit": rate_limit,
        "sse": False if no_sse else None,
    }
    if reload and (workers or 1) > 1:
        raise click.UsageError("--reload cannot be combined with --workers: it reloads one process.")
    if spec is None or reload:
        return _run_source(spec, module, given, address, reload=reload, metrics=metrics)
    if address is None:
        _check_stdio(given)
        server = _load(spec)
        announce_stdio(server, spec)
        server.run("stdio", **_stdio_options(metrics, store))
    else:
        _serve_http(_load(spec), {**given, "host": address.host, "port": address.port, "metrics": metrics})
    return Exit.OK


def _load(spec: str) -> Server:
    import sys

    from trunkline.cli.ui.output import is_terminal

    if not is_terminal(sys.stderr):
        return load_server(spec)
    from trunkline.cli.ui.terminal import spinner

    with spinner(f"importing {spec}"):
        return load_server(spec)


def compat_startup() -> Any:
    """Return the module of the distribution ``trunkline-compat`` that runs programs.

    Raises:
        CommandError: it is not installed.
    """
    try:
        from trunkline_compat import startup
    except ImportError as error:
        if error.name not in ("trunkline_compat", "trunkline_compat.startup"):
            raise
        raise CommandError("--compat needs another package: pip install trunkline-compat", Exit.CONFIG) from error
    return startup


def _run_compat(arguments: Sequence[str]) -> int:
    """Run a server of another framework as the main program."""
    startup = compat_startup()
    if not arguments:
        raise click.UsageError("--compat needs FILE, -m MODULE or -- COMMAND.")
    first, rest = arguments[0], arguments[1:]
    try:
        if first in ("-m", "--"):
            if not rest:
                raise click.UsageError(f"--compat {first} needs a {'module' if first == '-m' else 'command'}.")
            (startup.run_module if first == "-m" else startup.run_command)(rest[0], rest[1:])
        else:
            path, name = split_spec(first)
            startup.run_file(path, rest, name)
    except startup.NotFound as error:
        raise CommandError(str(error), Exit.CONFIG) from error
    except Exception:  # noqa: BLE001 - the program's own failure, as Python shows it
        import traceback

        traceback.print_exc()
        return Exit.FAILED
    return Exit.OK


def _check_stdio(given: Mapping[str, object]) -> None:
    """Reject options that would have no effect."""
    for name, value in given.items():
        if value is not None and name != "store":
            option = {"allowed_hosts": "allowed-host", "sse": "no-sse"}.get(name, name.replace("_", "-"))
            raise click.UsageError(f"--{option} needs --http.")


def _stdio_options(metrics: str | None, store: object) -> dict[str, Any]:
    options = {"metrics": metrics, "store": store}
    return {name: value for name, value in options.items() if value is not None}


def _serve_http(server: Server, options: Mapping[str, object]) -> None:
    from trunkline.server.run import run_loop

    if options.get("workers") in (None, 1):
        run_loop(_http_server(server, options))
        return
    from trunkline.server.runtime import has_shared_store
    from trunkline.server.workers import run_workers

    given = _http_options(server, options)
    announce = given["started"]

    def started(origin: str) -> None:
        from trunkline.cli.ui.output import print_notice

        announce(origin)
        if given.get("store") is None and not has_shared_store(server):
            print_notice(
                f"{options['workers']} workers share sessions, handles and tasks until this process ends; to keep them "
                "longer, give --store FILE, or for several machines --store redis://..."
            )

    run_workers(server, "http", {**given, "started": started})


def _http_server(server: Server, options: Mapping[str, object]) -> Coroutine[Any, Any, None]:
    """Return the coroutine that serves over HTTP; it prints the URL as soon as the server listens."""
    from trunkline.server.run import run_async

    return run_async(server, "http", **_http_options(server, options))


def _http_options(server: Server, options: Mapping[str, object]) -> dict[str, Any]:
    """Return the options to serve with; the URL is printed as soon as the server listens."""
    path = options["path"] or server.settings.http.get("streamable_http_path") or "/mcp"

    def announce(origin: str) -> None:
        from trunkline.cli.ui.output import print_notice

        announce_http(server, announce_address(server, origin, str(path)))
        for metrics in (runtime.metrics for runtime in server._known_runtimes() if runtime.metrics is not None):
            print_notice(f"metrics are served at {metrics.url}/metrics, health at /healthz and /readyz")

    return {**{name: value for name, value in options.items() if value is not None}, "started": announce}


def _run_source(
    spec: str | None,
    module: str | None,
    given: Mapping[str, object],
    address: ListenAddress | None,
    *,
    reload: bool,
    metrics: str | None,
) -> int:
    """Run the server of a module, or one that is loaded again when its files change."""

    def load() -> Server:
        return load_server(spec) if spec is not None else load_installed_server(str(module))

    def serve(server: Server) -> Coroutine[Any, Any, None]:
        if address is not None:
            return _http_server(server, {**given, "host": address.host, "port": address.port, "metrics": metrics})
        from trunkline.server.run import run_async

        announce_stdio(server, spec or f"-m {module}")
        return run_async(server, "stdio", **_stdio_options(metrics, given["store"]))

    if address is None:
        _check_stdio(given)
    if reload:
        from trunkline.cli.reload import ProjectModules, run_reloading

        run_reloading(ProjectModules(load, _roots(spec)), serve, stdio=address is None)
    elif address is not None:
        _serve_http(load(), {**given, "host": address.host, "port": address.port})
    else:
        from trunkline.server.run import run_loop

        run_loop(serve(load()))
    return Exit.OK


def _roots(spec: str | None) -> list[str]:
    """Return the directories whose modules belong to the project: the current one, and that of the file."""
    return [os.getcwd()] if spec is None else [os.getcwd(), os.path.dirname(os.path.abspath(split_spec(spec)[0]))]
