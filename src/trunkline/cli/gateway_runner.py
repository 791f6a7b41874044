"""Runs the gateway until it is stopped, and reports on stderr where it listens and in which state its servers are.

Over stdio, stdout belongs to the protocol: nothing here writes to it. SIGHUP reloads the configuration and
the policies; SIGTERM and SIGINT stop the gateway, also while servers are starting.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import click

from trunkline.cli.client_session import ScreenLogHandler
from trunkline.cli.console_runner import LazyConsole
from trunkline.cli.first_start import first_start_printed
from trunkline.cli.gateway_options import print_approval
from trunkline.cli.host_session import ResolvedInputs, resolve_inputs
from trunkline.cli.options import PolicyOptions
from trunkline.cli.ui.output import change_lines, clip_middle, current_secrets, one_line, print_notice, writes_json_logs
from trunkline.cli.ui.terminal import Screen, signal_handlers
from trunkline.errors import ConfigError
from trunkline.host.assembly import HostOptions
from trunkline.host.authorization.prompters import DeferredPrompter
from trunkline.host.config.model import Configuration
from trunkline.host.events import DefinitionInspected, EventsMissed, EventSubscription, ServerStateChanged
from trunkline.host.host import Host
from trunkline.host.upstreams.supervision.state import UNAVAILABLE_STATES
from trunkline.host.upstreams.supervision.upstream import ServerStatus
from trunkline.net.addresses import reachable_url
from trunkline.server.run import run_loop

__all__ = [
    "GatewaySettings",
    "StateLineFormatter",
    "definition_changes_printed",
    "host_options",
    "logs_shown",
    "nothing_served",
    "print_gateway_start",
    "print_problems",
    "reload_on_sighup",
    "run_gateway",
    "state_changes_printed",
]

_LONGEST_REASON = 300  # Three lines of a terminal.
#: States that last until the user acts. States that the user chose are not reported.
_NEEDS_ATTENTION = UNAVAILABLE_STATES - {"disabled", "stopped"}


class StateLineFormatter:
    """Selects and formats the lines; remembers what was reported about each server."""

    def __init__(self, *, every: bool, remote: Iterable[str] = ()) -> None:
        """Set whether every change is reported, or only those that need attention.

        Servers at a URL are retried forever and are never ``broken``.
        """
        self._every = every
        self._remote = frozenset(remote)
        self._printed_states: dict[str, tuple[str, str]] = {}

    def lines(self, server: str, state: str, reason: str | None) -> Iterator[str]:
        """Yield the line for a state that a server reached, if it says something new."""
        if state in ("ready", "partial"):
            self._printed_states.pop(server, None)
        if state == "starting" and server in self._printed_states:
            # Another attempt; the next state says whether it succeeded.
            return
        trouble = (reason or "").partition(": ")[2] if state == "waiting" else reason or ""
        last = self._printed_states.get(server)
        if state == "waiting" or state in _NEEDS_ATTENTION:
            wanted = self._every or state in _NEEDS_ATTENTION or server in self._remote
            news = (state, trouble) if self._every else (state, "")
            if not wanted or last == news:
                return
            self._printed_states[server] = news
        elif not self._every:
            return
        why = f": {clip_middle(one_line(reason), _LONGEST_REASON)}" if reason else ""
        yield f"{one_line(server)}: {state}{why}{_step(server, state)}"


def _step(server: str, state: str) -> str:
    """Return the next step for a state whose reason does not name one."""
    if state in ("broken", "misconfigured"):
        return f"; to find out more, run: trunkline doctor {shlex.quote(server)}"
    return ""


def nothing_served(statuses: Iterable[ServerStatus]) -> str | None:
    """Return a sentence if no server can be used and none is about to start; else None."""
    found = list(statuses)
    if any(each.state not in UNAVAILABLE_STATES or each.tools or each.prompts or each.resources for each in found):
        return None
    if not found:
        return "no servers configured, so nothing is served"
    return "none of the servers can be used, so nothing is served; to see why, run: trunkline status"


# Far more than reading the catalogs on disk takes; a client waits for ``initialize`` meanwhile.
_RECALL_SECONDS = 1.0


class GatewaySettings(NamedTuple):
    """What to serve, and how."""

    #: The files given with ``--config``; empty: those that are found.
    files: Sequence[str]
    #: What was loaded from the files.
    configuration: Configuration
    policy_options: PolicyOptions
    #: Seconds that the first list waits for servers; ``initialize`` never waits.
    wait: float
    #: Servers that start at the same time; None for the default.
    starts: int | None
    #: Options of ``Host.serve``.
    options: Mapping[str, Any]
    verbose: bool
    #: The port of the console (0: a free one); None: it is started when its address is asked for.
    console: int | None = None


def run_gateway(settings: GatewaySettings) -> None:
    """Serve until the client disconnects or a signal arrives.

    Raises:
        ConfigError: the gateway cannot be started with these settings.
    """
    resolved = resolve_inputs(settings.configuration)
    with logs_shown(settings):
        run_loop(_run(settings, resolved))


@contextmanager
def logs_shown(settings: GatewaySettings) -> Iterator[None]:
    """Print log messages on stderr while the context is active, unless they are written as JSON."""
    log, shown = (
        logging.getLogger("trunkline"),
        ScreenLogHandler(Screen(verbose=settings.verbose), int(settings.verbose)),
    )
    if not writes_json_logs():
        log.addHandler(shown)
    try:
        yield
    finally:
        log.removeHandler(shown)


async def _run(settings: GatewaySettings, resolved: ResolvedInputs) -> None:
    stop, prompter = _StopSignal(), DeferredPrompter()
    console = LazyConsole(prompter, port=settings.console or 0)
    try:
        async with AsyncExitStack() as stack:
            with stop.installed():
                options: HostOptions = {**host_options(settings, resolved), "consent": prompter}
                host = await stack.enter_async_context(Host.open(*settings.files, **options))
                await stack.enter_async_context(console.beside(host))
                if settings.console is not None:
                    _print_console_url(await console.address())
            print_problems(host)
            with state_changes_printed(host, settings), definition_changes_printed(host), reload_on_sighup(host):
                await _serve(host, settings)
    except asyncio.CancelledError:
        if not stop.received:
            raise


def host_options(settings: GatewaySettings, resolved: ResolvedInputs) -> HostOptions:
    """Return the options of the gateway's host."""
    return {
        **settings.policy_options.options(),
        **resolved.options(),
        # Clients give up on a slow initialize, so it waits only for catalogs on disk; lists wait for the servers.
        "wait": "kept",
        "wait_seconds": _RECALL_SECONDS,
        "list_seconds": settings.wait,
        "hold_starts": settings.options.get("http") is None,
        "secret_registry": current_secrets(),
        **({} if settings.starts is None else {"starts_at_once": settings.starts}),
    }


async def _serve(host: Host, settings: GatewaySettings) -> None:
    options: dict[str, Any] = dict(settings.options)
    options["started"] = lambda url, token: print_gateway_start(url, token, options)
    await host.serve(**options)


class _StopSignal:
    """Stops the program on a signal before it serves; afterwards the server handles signals itself."""

    def __init__(self) -> None:
        """Start with no signal received."""
        self.received = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Cancel the current task on SIGTERM or SIGINT while the context is active."""
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            self.received = True
            task.cancel()

        with signal_handlers({signal.SIGTERM: stop, signal.SIGINT: stop}):
            yield


# --- reloading -------------------------------------------------------------------------------------------------------


@contextmanager
def reload_on_sighup(host: Host) -> Iterator[None]:
    """Reload configuration and policies on SIGHUP, one reload at a time."""
    hangup = getattr(signal, "SIGHUP", None)
    again = asyncio.Event()
    task = asyncio.get_running_loop().create_task(_reload(host, again))
    try:
        with signal_handlers({} if hangup is None else {hangup: again.set}):
            yield
    finally:
        task.cancel()


async def _reload(host: Host, again: asyncio.Event) -> None:
    while True:
        await again.wait()
        again.clear()
        try:
            changes = await host.reload()
        except ConfigError as error:
            print_notice(f"not reloaded, configuration and policy are unchanged: {one_line(str(error))}")
            continue
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (("added", changes.added), ("changed", changes.changed), ("removed", changes.removed))
            if names
        ]
        parts += ["policy changed"] if changes.policy else []
        print_notice(f"configuration reloaded: {'; '.join(parts) or 'nothing changed'}")
        print_problems(host)


# --- printing --------------------------------------------------------------------------------------------------------


def print_problems(host: Host) -> None:
    """Print the problems of the configuration."""
    for problem in host.configuration.problems:
        print_notice(str(problem))


def _print_console_url(url: str) -> None:
    """Print the address of the console; its token is printed here and nowhere else."""
    # Over stdio, stdout belongs to the protocol, and a notice would mask the token.
    click.echo(f"trunkline: the console is at {url}", err=True)


def print_gateway_start(url: str, token: str | None, options: Mapping[str, Any]) -> None:
    """Print the approval mode and address; called once the gateway is ready."""
    print_approval(options)
    if options.get("metrics") is not None:
        from trunkline.telemetry.listener import parse_metrics_address

        host, port = parse_metrics_address(options["metrics"])
        print_notice(f"metrics are served at http://{host}:{port}/metrics, health at /healthz and /readyz")
    if options.get("http") is not None:
        _tell_address(url, token, options)
    elif sys.stdin is not None and sys.stdin.isatty():
        print_notice("serving over stdio, waiting for a client on standard input; to serve over HTTP, add --http PORT")


def _tell_address(url: str, token: str | None, options: Mapping[str, Any]) -> None:
    """Print the address of the gateway; a generated token is printed here and nowhere else."""
    scheme, _, rest = url.partition("://")
    where, _, path = rest.partition("/")
    here, everywhere = reachable_url(f"{scheme}://{where}", f"/{path}")
    proof = "" if token is None else " --token TOKEN"
    print_notice(f"the gateway is served at {here}{everywhere}; try: trunkline list tools {here}{proof}")
    for name in options.get("profiles") or {}:
        print_notice(f"profile {name}: {here}/{name}")
    if token is not None and options.get("token") is None:
        header = f"Authorization: Bearer {token}"
        print_notice(f"token, generated for this run and shown only here: {token}")
        print_notice(f'for Claude Code: claude mcp add --transport http trunkline {here} --header "{header}"')
        entry = f'{{"url": "{here}", "headers": {{"Authorization": "Bearer {token}"}}}}'
        print_notice(f'for others: {{"mcpServers": {{"trunkline": {entry}}}}}')


@contextmanager
def state_changes_printed(
    host: Host, settings: GatewaySettings, *, only: Container[str] | None = None
) -> Iterator[None]:
    """Print state changes of servers: all of them on a terminal or with -v, else only those that need attention.

    With ``only``, changes of other servers are not printed, nor that there are none.
    """
    events = host.events()
    statuses = host.status()
    every = settings.verbose or (sys.stderr is not None and sys.stderr.isatty())
    formatter = StateLineFormatter(every=every, remote=[status.name for status in statuses if status.url is not None])
    for status in statuses:
        if only is None or status.name in only:
            _print_state(formatter, status.name, status.state, status.reason)
    empty = only is not None or _tell_nothing_served(host)
    task = asyncio.get_running_loop().create_task(_follow(host, events, formatter, empty=empty, only=only))
    try:
        with first_start_printed(host) if only is None else nullcontext():
            yield
    finally:
        task.cancel()


async def _follow(
    host: Host,
    events: EventSubscription,
    formatter: StateLineFormatter,
    *,
    empty: bool,
    only: Container[str] | None,
) -> None:
    async with events:
        async for event in events:
            if isinstance(event, ServerStateChanged):
                if only is not None and event.server not in only:
                    continue
                _print_state(formatter, event.server, event.state, event.reason)
                empty = empty or _tell_nothing_served(host)
            elif isinstance(event, EventsMissed):
                print_notice(f"{event.count} state changes were skipped, there were too many")


def _print_state(formatter: StateLineFormatter, server: str, state: str, reason: str | None) -> None:
    for line in formatter.lines(server, state, reason):
        print_notice(line)


def _tell_nothing_served(host: Host) -> bool:
    """If no server can be used, print that and return True."""
    sentence = nothing_served(host.status())
    if sentence is not None:
        print_notice(sentence)
    return sentence is not None


@contextmanager
def definition_changes_printed(host: Host) -> Iterator[None]:
    """Print changed and hidden definitions to stderr, now and as they occur; clients keep stderr as a log."""
    events = host.events()
    for line in change_lines(host.inspected()):
        print_notice(line)
    task = asyncio.get_running_loop().create_task(_tell_changes(events))
    try:
        yield
    finally:
        task.cancel()


async def _tell_changes(events: EventSubscription) -> None:
    async with events:
        async for event in events:
            if isinstance(event, DefinitionInspected):
                for line in change_lines([event]):
                    print_notice(line)
