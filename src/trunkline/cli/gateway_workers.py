"""Runs the gateway with several workers: a supervisor, the broker that owns the stdio servers, and the workers.

The broker runs each stdio server once. Every worker runs the
whole gateway: policy, approval, pins, audit and routing, over its own connections to servers at a URL and over those of
the broker to all others. SIGHUP reloads the configuration in the broker and replaces the workers one after another;
SIGTERM lets the workers finish their calls, then stops the servers. A broker that was killed is started again, and the
workers with it. Whatever is killed, nothing is left: the broker and the workers end with the supervisor, and the
servers with the broker.
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
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

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
from trunkline.cli.serving_options import is_path
from trunkline.cli.ui.output import one_line, print_notice
from trunkline.cli.ui.terminal import signal_handlers
from trunkline.errors import ConfigError, TrunklineError
from trunkline.host.assembly import HostOptions, policy_of, read_configuration
from trunkline.host.authorization.policy.loader import load_policy, local_path_context
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import Configuration
from trunkline.host.gateway.app import Profile, check_authentication, listen_address
from trunkline.host.gateway.worker_links import WorkerLinks
from trunkline.host.host import Host
from trunkline.host.upstreams.broker.broker import Broker, OwnedProcesses
from trunkline.host.upstreams.broker.worker import BrokerConnection, BrokeredProcesses
from trunkline.host.upstreams.supervision.sharing import ProcessSharing
from trunkline.protocol.limits import Limits
from trunkline.server.run import run_loop
from trunkline.server.worker_metrics import SupervisorMetrics
from trunkline.store.runtime_folder import RuntimeFolder
from trunkline.transports.http.server.companion import READY, Companion
from trunkline.transports.http.server.serve import BACKLOG
from trunkline.transports.http.server.sockets import bind, check_certificate, url_of
from trunkline.transports.http.server.supervisor import Supervisor
from trunkline.transports.http.server.worker_process import WorkerProcess

__all__ = ["run_gateway_workers"]

log = logging.getLogger("trunkline")

_STATE_KEY = "TRUNKLINE_STATE_KEY"


def run_gateway_workers(settings: GatewaySettings, count: int, store: str | None) -> None:
    """Serve over HTTP with several workers until a signal arrives.

    Raises:
        ConfigError: the gateway cannot be started with these settings.
        SystemExit: a worker or the broker could not start.
    """
    if not hasattr(os, "fork"):
        raise ConfigError("--workers needs a system that can fork (Linux, macOS); here, leave it out")
    if store is None:
        # A call may go on at another worker, which must open what the first one has sealed.
        os.environ.setdefault(_STATE_KEY, secrets.token_hex(32))
    elif not is_path(store) and not os.environ.get(_STATE_KEY, "").strip():
        raise ConfigError(
            "a store of several machines needs a key that all of them share: set TRUNKLINE_STATE_KEY. "
            'Make one with: python -c "import secrets; print(secrets.token_hex(32))"'
        )
    resolved = resolve_inputs(settings.configuration)
    shared = _shared_options(settings.options)
    with ExitStack() as stack:
        listeners = asyncio.run(_prepare(shared))
        address = settings.options.get("metrics")
        metrics = None if address is None else SupervisorMetrics(address)
        folder = RuntimeFolder()
        stack.callback(folder.remove)
        run = _Run(settings, resolved, shared, folder, store)
        # What was imported until now is shared by all processes; the collector would copy it by looking at it.
        gc.collect()
        gc.freeze()
        url = url_of(listeners[0], host=listen_address(shared["http"])[0], tls=shared.get("certfile") is not None)
        supervisor = Supervisor(
            count,
            run.work,
            listeners,
            drain_seconds=Limits().drain_seconds,
            heartbeat_seconds=Limits().heartbeat_seconds,
            started=lambda: run.started(url, count),
            companion=Companion(
                "the broker, which runs the stdio servers,", run.broker, "broker", replaces_workers=True
            ),
            before_replacing=run.reload,
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
        folder: RuntimeFolder,
        store: str | None,
    ) -> None:
        self._settings = settings
        self._resolved = resolved
        self._options = options
        self._folder = folder
        self.path: Path = folder.path / "broker"
        self._store = store
        #: The rules of the gateway and of its profiles, as every process that starts from now on has them.
        self._policy, self._profiles = self._read_policies(resolved.configuration)

    def started(self, url: str, count: int) -> None:
        """Print where the gateway is served; called once all workers serve."""
        options = {**self._options, "metrics": self._settings.options.get("metrics")}
        token = options.get("token")
        if self._settings.options.get("token") is None:
            options.pop("token", None)
        print_gateway_start(f"{url.rstrip('/')}{options.get('path', '/mcp')}", token, options)
        print_notice(f"{count} workers serve; stdio servers run once, for all of them")
        if self._store is None:
            print_notice(
                "the workers share sessions through a file of this machine; for several machines, give "
                "--store redis://..."
            )

    def reload(self) -> bool:
        """Read the files again, for all processes that start from now on; False if they have an error.

        Each process is forked with what was read here: one that replaces a crashed worker has a configuration that
        works, whatever has been written to the files meanwhile.
        """
        try:
            configuration = self._read_configuration()
            policy, profiles = self._read_policies(configuration)
        except ConfigError as error:
            print_notice(f"not reloaded, configuration and policy are unchanged: {one_line(str(error))}")
            return False
        self._resolved = self._resolved._replace(configuration=configuration)
        self._policy, self._profiles = policy, profiles
        return True

    def _read_configuration(self) -> Configuration:
        configuration = read_configuration(self._settings.files, {"inputs": self._resolved.answers})
        for problem in configuration.problems:
            if problem.severity == "error":
                raise ConfigError(str(problem))
        return configuration

    def _read_policies(self, configuration: Configuration) -> tuple[Policy, dict[str, Profile]]:
        policy = policy_of(self._settings.policy_options.options(), configuration)
        profiles: dict[str, Profile] = dict(self._settings.options.get("profiles") or {})
        for name, profile in profiles.items():
            if isinstance(profile.policy, str):
                rules = load_policy(profile.policy, path_context=local_path_context(configuration.entries.values()))
                profiles[name] = replace(profile, policy=rules)
        return policy, profiles

    def host_options(self) -> HostOptions:
        """Return the options of the host of a process."""
        return {**host_options(self._settings, self._resolved), "policy": self._policy}

    # --- the broker --------------------------------------------------------------------------------------------------

    def broker(self, lifeline: socket.socket) -> int:
        """Run the broker; called in its process."""
        return _exit_code(lambda: self._own_servers(lifeline))

    async def _own_servers(self, lifeline: socket.socket) -> None:
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
        # A broker that was killed has left its socket.
        self.path.unlink(missing_ok=True)
        with signal_handlers({signal.SIGTERM: stop.set, signal.SIGINT: stop.set}):
            async with _host(self._settings, options, processes) as host:
                print_problems(host)
                broker = Broker(host._open.core, processes)
                with state_changes_printed(host, self._settings, only=None), reload_on_sighup(host):
                    serving = asyncio.ensure_future(broker.serve(self.path, lambda: lifeline.send(READY)))
                    gone = asyncio.ensure_future(_until_closed(lifeline))
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

    def work(self, worker: WorkerProcess) -> int:
        """Accept connections on the sockets of the supervisor, and serve them; runs in a worker."""
        return _exit_code(lambda: self._serve(worker))

    async def _serve(self, worker: WorkerProcess) -> None:
        broker, stopping = BrokerConnection(self.path), asyncio.Event()
        await broker.connect()
        watching = asyncio.ensure_future(_set_when_lost(broker, stopping))
        try:
            async with _host(self._settings, self.host_options(), BrokeredProcesses(broker)) as host:
                with ExitStack() as stack:
                    if worker.slot == 0:
                        # The broker reports the states of its servers; one worker reports the others.
                        remote = {each.name for each in host.status() if each.url is not None}
                        stack.enter_context(state_changes_printed(host, self._settings, only=remote))
                        stack.enter_context(definition_changes_printed(host))
                    await host._serve(
                        {
                            **self._options,  # type: ignore[typeddict-item]
                            "profiles": self._profiles,
                            "started": lambda url, token: worker.ready(),
                            "stopping": stopping,
                        },
                        WorkerLinks(worker, broker, self._store, self._folder),
                    )
        finally:
            watching.cancel()
            await broker.aclose()


def _host(settings: GatewaySettings, options: HostOptions, sharing: ProcessSharing) -> Host:
    """Return the host of one of the processes."""
    host = Host.open(*settings.files, **options)
    host._sharing = sharing
    return host


async def _until_closed(lifeline: socket.socket) -> None:
    """Wait until the other end of a socket is closed."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while await loop.sock_recv(lifeline, 16):
            pass


async def _set_when_lost(broker: BrokerConnection, stopping: asyncio.Event) -> None:
    await broker.lost.wait()
    stopping.set()


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
