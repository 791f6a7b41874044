"""Runs the gateway with several workers: a supervisor, the broker that owns the stdio servers, and the workers.

The supervisor accepts connections and passes them on. The broker runs each stdio server once. Every worker runs the
whole gateway: policy, approval, pins, audit and routing, over its own connections to servers at a URL and over those of
the broker to all others. SIGHUP reloads the configuration in the broker and replaces the workers one after another;
SIGTERM lets the workers finish their calls, then stops the servers. Whatever is killed, nothing is left: the broker and
the workers end with the supervisor, and the servers with the broker.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from trunkline.backplane.memory import MemoryStore
from trunkline.cli.gateway_runner import (
    GatewaySettings,
    definition_changes_printed,
    host_options,
    logs_shown,
    print_gateway_start,
    print_problems,
    reload_on_sighup,
    state_changes_printed,
)
from trunkline.cli.host_session import ResolvedInputs, resolve_inputs
from trunkline.cli.ui.output import one_line, print_notice
from trunkline.cli.ui.terminal import signal_handlers
from trunkline.errors import ConfigError, TrunklineError
from trunkline.host.assembly import HostOptions
from trunkline.host.gateway.app import check_authentication, listen_address
from trunkline.host.gateway.worker_links import WorkerLinks
from trunkline.host.host import Host
from trunkline.host.upstreams.broker.broker import Broker, OwnedProcesses
from trunkline.host.upstreams.broker.worker import BrokerConnection, BrokeredProcesses
from trunkline.host.upstreams.supervision.sharing import ProcessSharing
from trunkline.protocol.limits import Limits
from trunkline.server.run import run_loop
from trunkline.server.worker_metrics import SupervisorMetrics
from trunkline.transports.http.server.serve import BACKLOG
from trunkline.transports.http.server.sockets import bind, check_certificate, url_of
from trunkline.transports.http.server.supervisor import READY, Supervisor

__all__ = ["run_gateway_workers"]

log = logging.getLogger("trunkline")

_STATE_KEY = "TRUNKLINE_STATE_KEY"
#: Reading the configuration and binding a socket; servers start afterwards.
_BROKER_SECONDS = 60.0
#: Stopping all servers is bounded by the host itself; see ``host/upstreams/supervision/supervisor.py``.
_STOP_SECONDS = 30.0


def run_gateway_workers(settings: GatewaySettings, count: int, backplane: str | None) -> None:
    """Serve over HTTP with several workers until a signal arrives.

    Raises:
        ConfigError: the gateway cannot be started with these settings.
        SystemExit: a worker or the broker could not start.
    """
    if not hasattr(os, "fork"):
        raise ConfigError("--workers needs a system that can fork (Linux, macOS); here, leave it out")
    if backplane is not None and not os.environ.get(_STATE_KEY, "").strip():
        raise ConfigError(
            "--backplane needs a key that all machines share: set TRUNKLINE_STATE_KEY. "
            'Make one with: python -c "import secrets; print(secrets.token_hex(32))"'
        )
    # A call may go on at another worker, which must open what the first one has sealed.
    os.environ.setdefault(_STATE_KEY, secrets.token_hex(32))
    resolved = resolve_inputs(settings.configuration)
    shared = _shared_options(settings.options)
    with ExitStack() as stack:
        listeners = asyncio.run(_prepare(shared))
        address = settings.options.get("metrics")
        metrics = None if address is None else SupervisorMetrics(address)
        folder = Path(tempfile.mkdtemp(prefix="trunkline-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        run = _Run(settings, resolved, shared, folder / "broker", backplane)
        # What was imported until now is shared by all processes; the collector would copy it by looking at it.
        gc.collect()
        gc.freeze()
        broker = _BrokerProcess(run, [*listeners, *([] if metrics is None else [metrics])])
        stack.callback(broker.stop)
        url = url_of(listeners[0], host=listen_address(shared["http"])[0], tls=shared.get("certfile") is not None)
        supervisor = Supervisor(
            count,
            lambda connections, place, reports: run.work(connections, place, reports, broker),
            listeners,
            drain_seconds=Limits().drain_seconds,
            started=lambda: run.started(url, count),
            companion=broker.pid,
            before_replacing=lambda: run.reload(broker),
            reports=metrics,
        )
        with logs_shown(settings):
            code = supervisor.run()
    if code:
        raise SystemExit(code)


def _shared_options(given: Any) -> dict[str, Any]:
    """Return the options of all workers; a token is generated for all of them.

    Raises:
        ConfigError: they are invalid.
    """
    options = {name: value for name, value in given.items() if value is not None and name != "metrics"}
    if not (options.get("auth") or options.get("no_auth") or options.get("token")):
        options["token"] = secrets.token_urlsafe(32)
    check_authentication(options)  # type: ignore[arg-type]
    return options


async def _prepare(options: dict[str, Any]) -> list[socket.socket]:
    """Check what can be checked before any process starts, and bind the sockets."""
    if options.get("certfile") is not None:
        check_certificate(options["certfile"], options.get("keyfile"), None)
    host, port = listen_address(options["http"])
    return await bind(host, port, backlog=BACKLOG, unacknowledged_seconds=Limits().idle_seconds)


class _Run:
    """One run of the gateway: what its processes are forked with."""

    def __init__(
        self,
        settings: GatewaySettings,
        resolved: ResolvedInputs,
        options: dict[str, Any],
        path: Path,
        backplane: str | None,
    ) -> None:
        self._settings = settings
        self._resolved = resolved
        self._options = options
        self.path = path
        self._backplane = backplane
        #: Whether the files are read again by the processes that start from now on.
        self._reloaded = False

    def started(self, url: str, count: int) -> None:
        """Print where the gateway is served; called once all workers serve."""
        options = {**self._options, "metrics": self._settings.options.get("metrics")}
        token = options.get("token")
        if self._settings.options.get("token") is None:
            options.pop("token", None)
        print_gateway_start(f"{url.rstrip('/')}{options.get('path', '/mcp')}", token, options)
        print_notice(f"{count} workers serve; stdio servers run once, for all of them")
        if self._backplane is None:
            print_notice(
                "the workers share sessions through the supervisor of this machine; for several machines, give "
                "--backplane redis://..."
            )

    def reload(self, broker: _BrokerProcess) -> None:
        """Let the broker and all workers that start from now on read the files again."""
        self._reloaded = True
        broker.signal(signal.SIGHUP)

    def host_options(self) -> HostOptions:
        """Return the options of the host of a process."""
        options = host_options(self._settings, self._resolved)
        if self._reloaded:
            options.pop("configuration", None)
        return options

    # --- the broker --------------------------------------------------------------------------------------------------

    async def own_servers(self, lifeline: socket.socket) -> None:
        """Run the stdio servers until the supervisor stops this process, or is gone."""
        processes, stop = OwnedProcesses(), asyncio.Event()
        options: HostOptions = {
            **self.host_options(),
            # Definitions are reviewed by the workers, which serve them.
            "pins": False,
            "scanning": "off",
            "wait": "none",
        }
        lifeline.setblocking(False)
        with signal_handlers({signal.SIGTERM: stop.set, signal.SIGINT: stop.set}):
            async with _host(self._settings, options, processes) as host:
                print_problems(host)
                broker = Broker(host._open.core, processes, MemoryStore(now=time.time, random=os.urandom))
                with state_changes_printed(host, self._settings, only=None), reload_on_sighup(host):
                    serving = asyncio.ensure_future(broker.serve(self.path, lambda: lifeline.send(READY)))
                    gone = asyncio.ensure_future(_closed(lifeline))
                    stopped = asyncio.ensure_future(stop.wait())
                    tasks = {serving, gone, stopped}
                    try:
                        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for task in tasks:
                            task.cancel()
                        await asyncio.wait(tasks)
                if gone.done() and not gone.cancelled():
                    shutil.rmtree(self.path.parent, ignore_errors=True)
                if not serving.cancelled():
                    serving.result()

    # --- a worker ----------------------------------------------------------------------------------------------------

    def work(
        self, connections: socket.socket, place: int, reports: socket.socket | None, broker: _BrokerProcess
    ) -> int:
        """Serve the connections that the supervisor passes on; runs in a worker."""
        broker.forget()
        return _exit_code(lambda: self._serve(connections, place, reports))

    async def _serve(self, connections: socket.socket, place: int, reports: socket.socket | None) -> None:
        broker, stopping = BrokerConnection(self.path), asyncio.Event()
        await broker.connect()
        watching = asyncio.ensure_future(_set_when_lost(broker, stopping))
        try:
            async with _host(self._settings, self.host_options(), BrokeredProcesses(broker)) as host:
                with ExitStack() as stack:
                    if place == 0:
                        # The broker reports the states of its servers; one worker reports the others.
                        remote = {each.name for each in host.status() if each.url is not None}
                        stack.enter_context(state_changes_printed(host, self._settings, only=remote))
                        stack.enter_context(definition_changes_printed(host))
                    await host._serve(
                        {
                            **self._options,  # type: ignore[typeddict-item]
                            "started": lambda url, token: connections.sendall(READY),
                            "stopping": stopping,
                        },
                        WorkerLinks(connections, broker, self._backplane, reports=reports),
                    )
        finally:
            watching.cancel()
            await broker.aclose()


def _host(settings: GatewaySettings, options: HostOptions, sharing: ProcessSharing) -> Host:
    """Return the host of one of the processes."""
    host = Host.open(*settings.files, **options)
    host._sharing = sharing
    return host


async def _set_when_lost(broker: BrokerConnection, stopping: asyncio.Event) -> None:
    await broker.lost.wait()
    stopping.set()


async def _closed(lifeline: socket.socket) -> None:
    """Wait until the other end of a socket is closed."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while await loop.sock_recv(lifeline, 16):
            pass


class _BrokerProcess:
    """The broker as the supervisor sees it: a child process that ends with it."""

    def __init__(self, run: _Run, listeners: Sequence[socket.socket | SupervisorMetrics]) -> None:
        """Start it, and wait until it serves; it closes the listeners that it inherits.

        Raises:
            SystemExit: it could not start; its exit code.
        """
        self._lifeline, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become_broker(run, theirs, listeners)
        theirs.close()
        self._lifeline.settimeout(_BROKER_SECONDS)
        try:
            ready = self._lifeline.recv(1)
        except OSError:
            ready = b""
        if not ready:
            self.signal(signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            raise SystemExit(max(1, os.waitstatus_to_exitcode(status)))

    def _become_broker(
        self, run: _Run, theirs: socket.socket, listeners: Sequence[socket.socket | SupervisorMetrics]
    ) -> None:
        """Run the broker in this new process, and never return."""
        code = 1
        try:
            # An interrupt at the terminal is for the supervisor, which stops the workers first.
            os.setpgid(0, 0)
            self._lifeline.close()
            for listener in listeners:
                listener.close()
            code = _exit_code(lambda: run.own_servers(theirs))
        except BaseException:  # noqa: BLE001  the process ends here, whatever it was
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def forget(self) -> None:
        """Close what a worker inherits: the broker must see the end of the supervisor alone."""
        self._lifeline.close()

    def signal(self, number: int) -> None:
        """Send the broker a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def stop(self) -> None:
        """Let the broker stop the servers, and wait for that."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            with suppress(ChildProcessError):
                if not os.waitpid(self.pid, os.WNOHANG)[0]:
                    time.sleep(0.02)
                    continue
            return
        self.signal(signal.SIGKILL)


def _exit_code(work: Callable[[], Awaitable[None]]) -> int:
    """Run a process; return its exit code."""
    from trunkline.cli.exit_codes import Exit

    async def run() -> None:
        await work()

    try:
        run_loop(run())
    except ConfigError as error:
        print_notice(one_line(str(error)))
        return int(Exit.CONFIG)
    except TrunklineError as error:
        print_notice(one_line(str(error)))
        return int(Exit.FAILED)
    return 0
