"""``Server.run("http", workers=N)``: a supervisor, and the server in each of its workers.

The workers share sessions of handshake clients, handles, tasks, large states and limits: through the store of the
server, or without one through an SQLite file in a folder that ends with the supervisor.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from trunkline.errors import ConfigError
from trunkline.server.http import check_options, run_options
from trunkline.server.runtime import has_shared_store, server_store
from trunkline.store.runtime_folder import RuntimeFolder
from trunkline.transports.http.server.serve import BACKLOG
from trunkline.transports.http.server.sockets import bind, check_certificate, url_of
from trunkline.transports.http.server.supervisor import Supervisor

if TYPE_CHECKING:
    from trunkline.server.server import Server
    from trunkline.server.worker_metrics import SupervisorMetrics
    from trunkline.transports.http.server.worker_process import WorkerProcess

__all__ = ["run_workers", "worker_count"]

log = logging.getLogger("trunkline")

#: More workers than any machine has processors for.
MAX_WORKERS = 512


def worker_count(given: object) -> int:
    """Return how many workers are wanted.

    Raises:
        ConfigError: it is not a number of workers.
    """
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MAX_WORKERS:
        raise ConfigError(f"workers={given!r} is not valid: give a number from 1 to {MAX_WORKERS}")
    return given


def run_workers(server: Server, transport: str, options: Mapping[str, Any]) -> None:
    """Serve over HTTP with several workers, until the process is signalled to stop.

    Raises:
        ConfigError: an option is not valid, or this system cannot fork.
        SystemExit: a worker could not start; its exit code.
    """
    if not hasattr(os, "fork"):
        raise ConfigError(
            "workers= needs a system that can fork (Linux, macOS); here, run several processes behind a proxy"
        )
    given = run_options(server, options)
    check_options(server, given)
    count, started = worker_count(given.get("workers", 1)), given.pop("started", None)
    given["workers"] = 1
    metrics = _metrics_listener(given.pop("metrics", None))
    listeners = asyncio.run(_prepare(server, given))
    tls = given.get("certfile") is not None
    url = url_of(listeners[0], host=given.get("host", "127.0.0.1"), tls=tls)
    folder = None if has_shared_store(server) else RuntimeFolder()

    def work(worker: WorkerProcess) -> int:
        own = given if worker.reports is None else {**given, "metrics": worker.reports}
        if folder is not None:
            own = {**own, "store": folder.store(server.name)}
        return _work(server, transport, own, worker)

    def all_started() -> None:
        if started is not None:
            started(url)

    # What was imported until now is shared by all workers; the collector would copy it by looking at it.
    gc.collect()
    gc.freeze()
    with ExitStack() as stack:
        if folder is not None:
            stack.callback(folder.remove)
            log.info("the workers share sessions, handles and tasks on this machine; they end with the supervisor")
        supervisor = Supervisor(
            count,
            work,
            listeners,
            drain_seconds=server.limits.drain_seconds,
            heartbeat_seconds=server.limits.heartbeat_seconds,
            started=all_started,
            reports=metrics,
        )
        code = supervisor.run()
    if code:
        raise SystemExit(code)


def _metrics_listener(address: str | int | None) -> SupervisorMetrics | None:
    """Listen for requests for the metrics of all workers."""
    if address is None:
        return None
    from trunkline.server.worker_metrics import SupervisorMetrics

    metrics = SupervisorMetrics(address)
    log.info("metrics are served at %s/metrics", metrics.url)
    return metrics


async def _prepare(server: Server, given: Mapping[str, Any]) -> list[socket.socket]:
    """Check what can be checked before any worker starts, and bind the sockets."""
    if given.get("certfile") is not None:
        check_certificate(given["certfile"], given.get("keyfile"), given.get("keyfile_password"))
    state = server_store(server, given.get("store"))
    if state.is_object:
        raise ConfigError("with workers=, store= must be a path or a URL: each worker opens its own connections")
    if state.is_shared:
        try:
            await state.start()
        finally:
            # Each worker opens its own.
            await state.aclose()
    return await bind(
        given.get("host", "127.0.0.1"),
        given.get("port", 8000),
        backlog=BACKLOG,
        unacknowledged_seconds=server.limits.idle_seconds,
    )


def _work(server: Server, transport: str, given: Mapping[str, Any], worker: WorkerProcess) -> int:
    """Accept connections on the sockets of the supervisor, and serve them; runs in a worker."""
    from trunkline.server.run import run_async, run_loop

    try:
        run_loop(run_async(server, transport, **given, worker=worker, started=lambda _: worker.ready()))
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0
