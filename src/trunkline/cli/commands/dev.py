"""``trunkline dev``: shows a server in the browser and reloads it when its source files change."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import Exit
from trunkline.cli.options import listen_option, page_options
from trunkline.cli.targets import load_server, split_spec
from trunkline.net.addresses import ListenAddress, reachable_url

if TYPE_CHECKING:
    from trunkline.cli.console_runner import ConsoleSettings
    from trunkline.cli.reload import ProjectModules
    from trunkline.server.replacement import ReplaceableServer
    from trunkline.server.server import Server

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline dev weather.py
  trunkline dev weather.py:server --http 8000
  trunkline dev weather.py --no-open

The file is reloaded when it or a module of its project changes; open pages and connected clients stay connected. If
it cannot be loaded, the page shows the reason, and the previous version keeps running.
"""


@click.command(epilog=_EPILOG)
@click.argument("spec", metavar="FILE[:OBJECT]")
@listen_option("Serve it over HTTP too. Default address: 127.0.0.1:8000.")
@page_options
def command(
    spec: str, *, address: ListenAddress | None, model: str | None, port: int, no_open: bool, verbose: int
) -> int:
    """Show the server in FILE in the browser, and reload it when its source files change.

    OBJECT is the name of the server in the file. It defaults to server, mcp or app, or to the only Server in the file.
    Runs until Ctrl-C.
    """
    from trunkline.cli.console_runner import ConsoleSettings
    from trunkline.cli.reload import ProjectModules
    from trunkline.server.run import run_loop

    settings = ConsoleSettings("dev", spec, port=port, opens=not no_open, model=model, verbosity=verbose)
    roots = [os.getcwd(), os.path.dirname(os.path.abspath(split_spec(spec)[0]))]
    run_loop(_develop(ProjectModules(lambda: load_server(spec), roots), settings, address))
    return Exit.OK


class CurrentServer:
    """The target of the host's client: each new connection is served by the current version of the server."""

    def __init__(self, running: ReplaceableServer) -> None:
        """Serve the given server until a reload replaces it."""
        self._running = running

    @property
    def name(self) -> str:
        """Its name."""
        return self._running.server.name

    def accept(self, link: Any) -> Any:
        """Serve a connection."""
        return self._running.server.accept(link)


async def _develop(modules: ProjectModules, settings: ConsoleSettings, address: ListenAddress | None) -> None:
    from trunkline.cli.console_runner import open_page, running_console, until_stopped
    from trunkline.cli.reload import load_first, watch
    from trunkline.devtools.client_configs.entries import suggest_name
    from trunkline.server.replacement import ReplaceableServer

    server, known = load_first(modules)
    running = ReplaceableServer(server)
    name = suggest_name([split_spec(settings.title)[0]])
    async with AsyncExitStack() as stack:
        stack.push_async_callback(running.aclose)
        # Every edit changes the definitions of a server under development, so pins would flag all of them.
        page = await stack.enter_async_context(
            running_console([{name: CurrentServer(running)}], {"pins": False, "scanning": "ask"}, settings)
        )

        def told(sentence: str, failed: bool) -> None:
            page.console.events.publish("notice", text=sentence, level="error" if failed else "info")

        await stack.enter_async_context(watch(running, modules, known, told))
        await open_page(page.address.url, opens=settings.opens)
        if address is None:
            await until_stopped()
        else:
            await _serve_http(server, address)


async def _serve_http(server: Server, address: ListenAddress) -> None:
    """Serve over HTTP until Ctrl-C or SIGTERM, which the HTTP server handles."""
    from trunkline.cli.ui.output import one_line, print_notice
    from trunkline.server.run import run_async

    path = str(server.http_options.get("streamable_http_path") or "/mcp")

    def announce(origin: str) -> None:
        url, listens_everywhere = reachable_url(origin, path)
        print_notice(f"{one_line(server.name)} is served at {url}{listens_everywhere}; try: trunkline list tools {url}")

    given = {"host": address.host, "port": address.port}
    await run_async(
        server, "http", **{key: value for key, value in given.items() if value is not None}, started=announce
    )
