"""``trunkline dev``: shows a server in the browser and reloads it when its source files change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from trunkline.cli.exit_codes import CommandError, Exit
from trunkline.cli.options import listen_option, page_options
from trunkline.cli.targets import load_server
from trunkline.net.addresses import ListenAddress
from trunkline.transports.python_files import split_spec

if TYPE_CHECKING:
    from trunkline.cli.console_runner import ConsoleSettings
    from trunkline.cli.reload import ProjectModules
    from trunkline.console.console import LoadProblem
    from trunkline.server.replacement import Reloader
    from trunkline.server.server import Server

__all__ = ["command"]

_EPILOG = """\
\b
Examples:
  trunkline dev weather.py
  trunkline dev weather.py:server --http 8000
  trunkline dev weather.py --no-open

The file is reloaded when it or a module of its project changes; open pages and connected clients stay connected. If
it cannot be loaded, the page shows the reason until it can, and the previous version, if any, keeps running.
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

    def __init__(self, running: Reloader) -> None:
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
    from trunkline.cli.reload import watch
    from trunkline.console.console import LoadProblem
    from trunkline.devtools.client_configs.entries import file_name
    from trunkline.server.handler_functions import TRACEBACKS
    from trunkline.server.replacement import Reloader

    name = file_name(settings.title)
    server, known, problem = _load(modules, name)
    running, loaded = Reloader(server), asyncio.Event()
    async with AsyncExitStack() as stack:
        # The author of the server reads its results.
        os.environ[TRACEBACKS] = "1"
        stack.callback(os.environ.pop, TRACEBACKS, None)
        stack.push_async_callback(running.aclose)
        # Every edit changes the definitions of a server under development, so pins would flag all of them.
        page = await stack.enter_async_context(
            running_console([{name: CurrentServer(running)}], {"pins": False, "scanning": "ask"}, settings)
        )

        def on_reload(sentence: str, traceback: str | None) -> None:
            page.console.set_load_problem(None if traceback is None else LoadProblem(sentence, traceback))
            if traceback is None:
                loaded.set()
                page.console.events.publish("notice", text=sentence, level="info")

        if problem is None:
            loaded.set()
        else:
            page.console.set_load_problem(problem)
        await stack.enter_async_context(watch(running, modules, known, on_reload))
        await open_page(page.address.url, opens=settings.opens)
        # The endpoint has the options of the server in the file, such as auth=.
        await until_stopped(None if address is None else loaded)
        if address is not None and (problem is None or running.server is not server):
            await _serve_http(running.server, address)


def _load(modules: ProjectModules, name: str) -> tuple[Server, Mapping[str, Any], LoadProblem | None]:
    """Load a server with the state of its files; if it cannot be loaded, return an empty one, and the reason.

    Raises:
        CommandError: it cannot be loaded, and there is no file of it that could be mended.
    """
    from trunkline.cli.reload import load_first, reason_of
    from trunkline.cli.ui.output import print_notice
    from trunkline.console.console import LoadProblem
    from trunkline.server.server import Server

    try:
        return *load_first(modules), None
    except (CommandError, SystemExit) as error:
        files = modules.stamps()
        if not files:
            raise
        failure = error if isinstance(error, CommandError) else CommandError(f"SystemExit: {error}", Exit.CONFIG)
        print_notice(str(failure))
        sentence = f"the server cannot be loaded, it is shown once its files have changed: {reason_of(failure)}"
        return Server(name), files, LoadProblem(sentence, str(failure))


async def _serve_http(server: Server, address: ListenAddress) -> None:
    """Serve over HTTP until Ctrl-C or SIGTERM, which the HTTP server handles."""
    from trunkline.cli.announcement import announce_address
    from trunkline.server.run import run_async

    path = str(server.settings.http.get("streamable_http_path") or "/mcp")

    def announce(origin: str) -> None:
        announce_address(server, origin, path)

    given = {"host": address.host, "port": address.port}
    await run_async(
        server, "http", **{key: value for key, value in given.items() if value is not None}, started=announce
    )
