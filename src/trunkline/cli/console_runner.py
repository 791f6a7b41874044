"""Runs the web console over a host: for ``console``, ``inspect`` and ``dev``, and inside a running gateway.

The console is imported only when one is opened: most commands and most gateways never need it. A command prints one
line: the address, with the token in its fragment. The browser is opened with a login file instead of that address.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from trunkline.cli.client_session import ScreenLogHandler
from trunkline.cli.console_socket import console_socket, find_console
from trunkline.cli.first_start import first_start_printed
from trunkline.cli.ui.output import current_secrets, is_terminal, one_line, print_notice, print_text
from trunkline.cli.ui.terminal import Screen, signal_handlers
from trunkline.errors import ConfigError
from trunkline.host.assembly import HostOptions, configuration_fingerprint
from trunkline.host.authorization.prompters import DeferredPrompter
from trunkline.host.config.model import Configuration
from trunkline.host.host import Host
from trunkline.host.state_files import state_folder
from trunkline.server.run import run_loop

if TYPE_CHECKING:
    from trunkline.console.console import ConsoleMode
    from trunkline.console.serve import RunningConsole
    from trunkline.host.models.interface import Model

__all__ = ["ConsoleSettings", "LazyConsole", "attach", "open_page", "running_console", "show_console", "until_stopped"]

_LOGIN_FILE_SECONDS = 10.0  # The console is on this machine, and writes a small file.


class ConsoleSettings(NamedTuple):
    """The title of a console, its port and model, and whether to open a browser."""

    mode: ConsoleMode
    #: Shown at the top of the page.
    title: str
    #: 0 for a free port.
    port: int = 0
    #: Whether to open it in a browser, if there is one.
    opens: bool = True
    #: The model of chats and sampling; None: that of the configuration or the environment.
    model: str | None = None
    verbosity: int = 0


# --- a command that shows a host -------------------------------------------------------------------------------------


def show_console(sources: Sequence[object], options: HostOptions, settings: ConsoleSettings) -> None:
    """Open a host and show its console until Ctrl-C or SIGTERM.

    Raises:
        ConfigError: a file, the model or the port cannot be used.
    """
    run_loop(_show(sources, options, settings))


async def _show(sources: Sequence[object], options: HostOptions, settings: ConsoleSettings) -> None:
    async with running_console(sources, options, settings) as running:
        await open_page(running.address.url, opens=settings.opens)
        with first_start_printed(running.console.host):
            await until_stopped()


@asynccontextmanager
async def running_console(
    sources: Sequence[object], options: HostOptions, settings: ConsoleSettings
) -> AsyncIterator[RunningConsole]:
    """Open a host whose questions go to the inbox of its console, and serve the console.

    Raises:
        ConfigError: a file, the model or the port cannot be used.
    """
    from trunkline.console.console import ConsoleOptions
    from trunkline.console.inbox import Inbox
    from trunkline.console.serve import open_console

    log, shown = logging.getLogger("trunkline"), ScreenLogHandler(Screen(verbose=False), settings.verbosity)
    inbox = Inbox()
    consoles: list[RunningConsole] = []

    def notice(text: str) -> None:
        for running in consoles:
            running.console.events.publish("notice", text=text, level="warning")

    async with AsyncExitStack() as stack:
        log.addHandler(shown)
        stack.callback(log.removeHandler, shown)
        model = _model(settings, options.get("configuration"))
        if model is not None:
            stack.push_async_callback(model.aclose)
        given: HostOptions = {
            "typed": True,
            "consent": inbox.approve,
            "models": () if model is None else (model,),
            "review": inbox.review,
            "forms": inbox.elicit,
            "notice": notice,
            "apps": True,
            # The page shows the servers while they start; what is cached of them tells whether it is the first time.
            "wait": "kept",
            "wait_seconds": 1.0,
            "secret_registry": current_secrets(),
            **options,
        }
        host = await stack.enter_async_context(Host.open(*sources, **given))
        shows = ConsoleOptions(mode=settings.mode, title=settings.title, model=settings.model)
        running = await stack.enter_async_context(open_console(host, shows, inbox=inbox, port=settings.port))
        consoles.append(running)
        if host.configuration.files:
            await stack.enter_async_context(
                console_socket(state_folder(), configuration_fingerprint(host.configuration), _address_of(running))
            )
        yield running


def _address_of(running: RunningConsole) -> Callable[[], Awaitable[str]]:
    async def address() -> str:
        return running.address.url

    return address


def _model(settings: ConsoleSettings, configuration: Configuration | None) -> Model | None:
    """Open the model that answers sampling requests; return None if no model was requested and none can be opened.

    Raises:
        ConfigError: the model of ``--model`` cannot be used.
    """
    from trunkline.host.models.configured import open_configured_model
    from trunkline.host.models.interface import ModelError

    try:
        return open_configured_model(settings.model, configuration or Configuration())
    except (ConfigError, ModelError) as error:
        if settings.model is not None:
            raise ConfigError(str(error)) from error
        print_notice(f"no model, so chat and sampling are not available: {one_line(str(error))}")
        return None


async def until_stopped(stopped: asyncio.Event | None = None) -> None:
    """Wait for Ctrl-C, SIGTERM or SIGHUP, which set the event, or until something else sets it."""
    stopped = stopped or asyncio.Event()
    signals = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    with signal_handlers(dict.fromkeys(signals, stopped.set)):
        await stopped.wait()


# --- addresses -------------------------------------------------------------------------------------------------------


async def open_page(url: str, *, opens: bool) -> None:
    """Print the address of a console; open it if there is a browser and the command runs in a terminal.

    The browser gets the path of a login file: other users can read its arguments, so the token must not be in them.
    """
    # Printed directly: notices mask secrets, and the user needs the token.
    print_text(f"The console is at {url}")
    sys.stdout.flush()
    if not opens or not is_terminal(sys.stdout):
        return
    from trunkline.auth.browser import has_browser

    if has_browser():
        import webbrowser

        file = await asyncio.to_thread(_create_login_file, url)
        if file is None:
            print_notice("no browser is opened: the console could not write a login file; open the address above")
        else:
            await asyncio.to_thread(webbrowser.open, file)


def _create_login_file(url: str) -> str | None:
    """Request a login file from the console at an address; return its ``file:`` URL, or None if there is none."""
    from http.client import HTTPConnection, HTTPException

    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=_LOGIN_FILE_SECONDS)
    try:
        token = address.fragment.removeprefix("token=")
        connection.request("POST", "/api/login-file", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        content = response.read()
        return Path(json.loads(content)["file"]).as_uri() if response.status == 200 else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()


def attach(configuration: Configuration, *, opens: bool) -> bool:
    """Open the console of a host that already runs with this configuration; return False if there is none.

    Raises:
        ConfigError: the host cannot start its console.
    """
    if not configuration.files:
        return False

    async def show() -> bool:
        url = await find_console(state_folder(), configuration_fingerprint(configuration))
        if url is not None:
            await open_page(url, opens=opens)
        return url is not None

    return asyncio.run(show())


# --- a gateway -------------------------------------------------------------------------------------------------------


class LazyConsole:
    """The console of a running gateway: imported and started on the first request for its address."""

    def __init__(self, prompter: DeferredPrompter, *, port: int = 0) -> None:
        """Store the prompter that the host was opened with, and the port (0: a free one)."""
        self._prompter = prompter
        self._port = port
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._url: str | None = None
        self._host: Host | None = None

    @asynccontextmanager
    async def beside(self, host: Host) -> AsyncIterator[None]:
        """Answer requests on the host's socket while the context is active; stop the console when it exits."""
        self._host = host
        try:
            async with AsyncExitStack() as stack:
                if host.configuration.files:
                    fingerprint = configuration_fingerprint(host.configuration)
                    await stack.enter_async_context(console_socket(state_folder(), fingerprint, self.address))
                yield
        finally:
            self._prompter.withdraw()
            await self._stack.aclose()

    async def address(self) -> str:
        """Return the address of the console; start it if it does not run.

        Raises:
            ConfigError: it cannot be started.
        """
        async with self._starting:
            if self._url is None:
                self._url = await self._start()
            return self._url

    async def _start(self) -> str:
        from trunkline.console.console import ConsoleOptions
        from trunkline.console.inbox import Inbox
        from trunkline.console.serve import open_console

        assert self._host is not None
        title = ", ".join(file.path for file in self._host.configuration.files)
        inbox = Inbox()
        running = await self._stack.enter_async_context(
            open_console(self._host, ConsoleOptions(mode="gateway", title=title), inbox=inbox, port=self._port)
        )
        # Ask in the page only while one is open; otherwise a client without elicitation would wait for no answer.
        self._prompter.use(inbox.approve, when=lambda: inbox.watched)
        return running.address.url
