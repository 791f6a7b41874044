"""Runs the gateway until it is told to stop, and reports on stderr where it listens and what state its servers are in.

Over stdio, stdout belongs to the protocol: nothing here writes to it. SIGHUP reloads the configuration and the
policies; SIGTERM and SIGINT stop the gateway, also while servers are starting.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, NamedTuple

from trunkline.cli.approval_modes import tell_approval
from trunkline.cli.changes import change_lines
from trunkline.cli.configs import answers_for
from trunkline.cli.options import Guard
from trunkline.cli.output import complain, one_line
from trunkline.cli.screen import Screen
from trunkline.cli.secrecy import book_here
from trunkline.cli.session import LogOnScreen
from trunkline.cli.signals import hearing
from trunkline.cli.state_lines import StateLines, nothing_served
from trunkline.errors import ConfigError
from trunkline.host.assembly import HostOptions
from trunkline.host.events import Follower, Inspected, Missed, ServerStateChanged
from trunkline.host.host import Host
from trunkline.server.addresses import shown_url
from trunkline.server.run import run_loop

__all__ = ["Plan", "run_gateway"]

# Far more than reading the catalogs on disk takes.
_RECALL_SECONDS = 2.0


class Plan(NamedTuple):
    """What to serve, and how."""

    files: Sequence[str]
    guard: Guard
    #: Seconds that the first list waits for servers; ``initialize`` never waits.
    wait: float
    #: Servers that start at the same time; None for the default.
    starts: int | None
    #: Options of ``Host.serve``.
    options: Mapping[str, Any]
    verbose: bool


def run_gateway(plan: Plan) -> None:
    """Serve until the client disconnects or a signal arrives.

    Raises:
        ConfigError: the gateway cannot be started with these settings.
    """
    inputs = answers_for(plan.files, None)
    log, shown = logging.getLogger("trunkline"), LogOnScreen(Screen(verbose=plan.verbose), int(plan.verbose))
    log.addHandler(shown)
    try:
        run_loop(_run(plan, inputs))
    finally:
        log.removeHandler(shown)


async def _run(plan: Plan, inputs: Any) -> None:
    stop = _Stop()
    try:
        async with AsyncExitStack() as stack:
            with stop.heard():
                host = await stack.enter_async_context(Host.open(*plan.files, **_host_options(plan, inputs)))
            _tell_problems(host)
            with _followed(host, plan), _changes_told(host), _reloaded(host):
                await _serve(host, plan)
    except asyncio.CancelledError:
        if not stop.came:
            raise


def _host_options(plan: Plan, inputs: Any) -> HostOptions:
    return {
        **plan.guard.options(),
        "inputs": inputs,
        # Clients give up on a slow initialize, so it waits only for catalogs on disk; lists wait for the servers.
        "wait": "kept",
        "wait_seconds": _RECALL_SECONDS,
        "list_seconds": plan.wait,
        "secret_book": book_here(),
        **({} if plan.starts is None else {"starts_at_once": plan.starts}),
    }


async def _serve(host: Host, plan: Plan) -> None:
    options: dict[str, Any] = dict(plan.options)
    options["started"] = lambda url, token: _tell_start(url, token, options)
    await host.serve(**options)


class _Stop:
    """Stops the program on a signal before it serves; afterwards the server handles signals itself."""

    def __init__(self) -> None:
        """Start with no signal received."""
        self.came = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Cancel the current task on SIGTERM or SIGINT while the context is active."""
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            self.came = True
            task.cancel()

        with hearing({signal.SIGTERM: stop, signal.SIGINT: stop}):
            yield


# --- reloading -------------------------------------------------------------------------------------------------------


@contextmanager
def _reloaded(host: Host) -> Iterator[None]:
    """Reload configuration and policies on SIGHUP, one reload at a time."""
    hangup = getattr(signal, "SIGHUP", None)
    again = asyncio.Event()
    task = asyncio.get_running_loop().create_task(_reload(host, again))
    try:
        with hearing({} if hangup is None else {hangup: again.set}):
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
            complain(f"not reloaded, configuration and policy are unchanged: {one_line(str(error))}")
            continue
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (("added", changes.added), ("changed", changes.changed), ("removed", changes.removed))
            if names
        ]
        parts += ["policy changed"] if changes.policy else []
        complain(f"configuration reloaded: {'; '.join(parts) or 'nothing changed'}")
        _tell_problems(host)


# --- printing --------------------------------------------------------------------------------------------------------


def _tell_problems(host: Host) -> None:
    for problem in host.configuration.problems:
        complain(str(problem))


def _tell_start(url: str, token: str | None, options: Mapping[str, Any]) -> None:
    """Print the approval mode and address; called once the gateway is ready."""
    tell_approval(options)
    if options.get("http") is not None:
        _tell_address(url, token, options)
    elif sys.stdin is not None and sys.stdin.isatty():
        complain("serving over stdio, waiting for a client on standard input; to serve over HTTP, add --http PORT")


def _tell_address(url: str, token: str | None, options: Mapping[str, Any]) -> None:
    """Print the address of the gateway; a generated token is printed here and nowhere else."""
    scheme, _, rest = url.partition("://")
    where, _, path = rest.partition("/")
    here, everywhere = shown_url(f"{scheme}://{where}", f"/{path}")
    proof = "" if token is None else " --token TOKEN"
    complain(f"the gateway is served at {here}{everywhere}; try: trunkline list tools {here}{proof}")
    for name in options.get("profiles") or {}:
        complain(f"profile {name}: {here}/{name}")
    if token is not None and options.get("token") is None:
        header = f"Authorization: Bearer {token}"
        complain(f"token, generated for this run and shown only here: {token}")
        complain(f'for Claude Code: claude mcp add --transport http trunkline {here} --header "{header}"')
        entry = f'{{"url": "{here}", "headers": {{"Authorization": "Bearer {token}"}}}}'
        complain(f'for others: {{"mcpServers": {{"trunkline": {entry}}}}}')


@contextmanager
def _followed(host: Host, plan: Plan) -> Iterator[None]:
    """Print state changes of servers: all of them on a terminal or with -v, else only those that need attention."""
    events = host.events()
    statuses = host.status()
    every = plan.verbose or (sys.stderr is not None and sys.stderr.isatty())
    told = StateLines(every=every, remote=[status.name for status in statuses if status.url is not None])
    for status in statuses:
        _tell_state(told, status.name, status.state, status.reason)
    task = asyncio.get_running_loop().create_task(_follow(host, events, told, empty=_tell_nothing_served(host)))
    try:
        yield
    finally:
        task.cancel()


async def _follow(host: Host, events: Follower, told: StateLines, *, empty: bool) -> None:
    async with events:
        async for event in events:
            if isinstance(event, ServerStateChanged):
                _tell_state(told, event.server, event.state, event.reason)
                empty = empty or _tell_nothing_served(host)
            elif isinstance(event, Missed):
                complain(f"{event.count} state changes were skipped, there were too many")


def _tell_state(told: StateLines, server: str, state: str, reason: str | None) -> None:
    for line in told.lines(server, state, reason):
        complain(line)


def _tell_nothing_served(host: Host) -> bool:
    """If no server can be used, print that and return True."""
    sentence = nothing_served(host.status())
    if sentence is not None:
        complain(sentence)
    return sentence is not None


@contextmanager
def _changes_told(host: Host) -> Iterator[None]:
    """Print changed and hidden definitions to stderr, now and as they occur; clients keep stderr as a log."""
    events = host.events()
    for line in change_lines(host.inspected()):
        complain(line)
    task = asyncio.get_running_loop().create_task(_tell_changes(events))
    try:
        yield
    finally:
        task.cancel()


async def _tell_changes(events: Follower) -> None:
    async with events:
        async for event in events:
            if isinstance(event, Inspected):
                for line in change_lines([event]):
                    complain(line)
