"""Runs an ASGI application on uvicorn.

Binds sockets and checks certificates first, applies limits, and drains at the end; each configuration error is one
sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from socket import socket
from typing import TYPE_CHECKING, Any

from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.sockets import bind, check_certificate, close_all, url_of

if TYPE_CHECKING:
    from trunkline.transports.http.server.connection_tracker import ConnectionTracker
    from trunkline.transports.http.server.counting_protocol import ByteCounter
    from trunkline.transports.http.server.uvicorn_server import DrainableApp
    from trunkline.transports.http.server.worker_process import WorkerProcess

__all__ = ["serve"]

#: How many connections may wait to be accepted.
BACKLOG = 2048

#: Settings of uvicorn that are parameters of ``serve``, or that must not be changed.
_RESERVED = frozenset(
    """app factory fd host http http2 interface lifespan limit_concurrency log_config log_level port reload ssl_certfile
    ssl_keyfile ssl_keyfile_password timeout_keep_alive uds workers ws""".split()  # noqa: SIM905  a line each would hide it
)


async def serve(
    app: DrainableApp,
    *,
    limits: Limits,
    host: str = "127.0.0.1",
    port: int = 8000,
    certfile: str | None = None,
    keyfile: str | None = None,
    keyfile_password: str | None = None,
    log_level: str | None = "warning",
    sockets: list[socket] | None = None,
    uvicorn_config: Mapping[str, Any] | None = None,
    started: Callable[[str], None] | None = None,
    stopping: asyncio.Event | None = None,
    signals: bool = True,
    traffic: ByteCounter | None = None,
    worker: WorkerProcess | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT (in the main thread) or ``stopping``, then drain and return.

    ``started`` is called with the URL once connections are accepted. ``sockets`` are used instead of host and port, and
    are closed at the end. ``uvicorn_config`` has further settings of ``uvicorn.Config``. ``signals`` is False for a
    second server in a process, which leaves them to the first. ``traffic`` counts the bytes of all connections. With
    ``worker`` nothing is bound: this process is one of several workers, which accept on the sockets of a supervisor.

    Raises:
        ConfigError: the options are invalid; the message names the fix.
    """
    config_class, server_class, protocol_class, tracker = _load(limits)
    if traffic is not None:
        from trunkline.transports.http.server.counting_protocol import counting_protocol

        protocol_class = counting_protocol(protocol_class, traffic)
    settings = _settings(uvicorn_config, log_level)
    if certfile is not None:
        check_certificate(certfile, keyfile, keyfile_password)
        settings |= {"ssl_certfile": certfile, "ssl_keyfile": keyfile, "ssl_keyfile_password": keyfile_password}
    elif keyfile is not None:
        raise ConfigError(f"The key file {keyfile} needs a certificate; give it as certfile.")
    access_log = bool((uvicorn_config or {}).get("access_log"))

    def connect(**given: Any) -> Any:
        return protocol_class(tracker=tracker, access_log=access_log, **given)

    config = _configure(config_class, app, {**settings, "http": connect})
    listening = sockets or []
    if worker is None and not listening:
        listening = await bind(host, port, backlog=BACKLOG, unacknowledged_seconds=limits.idle_seconds)
    try:
        server = server_class(config, app, tracker=tracker, limits=limits, stopping=stopping or asyncio.Event())
        server.handles_signals = signals
        server.worker = worker
        if started is not None:
            shown = None if sockets else host
            url = url_of(listening[0], host=shown, tls=certfile is not None) if listening else ""
            server.on_started = lambda: started(url)
        await server.serve(sockets=listening)
    finally:
        close_all(listening)


def _load(limits: Limits) -> tuple[Any, Any, Any, ConnectionTracker]:
    """Import the modules that need the ``http`` extra."""
    try:
        from uvicorn import Config

        from trunkline.transports.http.server.connection_tracker import ConnectionTracker
        from trunkline.transports.http.server.uvicorn_protocol import UvicornProtocol
        from trunkline.transports.http.server.uvicorn_server import DrainingServer
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in ("uvicorn", "httptools"):
            raise
        raise ConfigError(f"Serving HTTP needs {exc.name}; run: pip install 'trunkline[http]'") from exc
    return Config, DrainingServer, UvicornProtocol, ConnectionTracker(limits)


def _settings(given: Mapping[str, Any] | None, log_level: str | None) -> dict[str, Any]:
    """Merge our settings of uvicorn with the program's."""
    fixed = sorted(_RESERVED & set(given or ()))
    if fixed:
        raise ConfigError(f"uvicorn_config may not set {', '.join(fixed)}: the server decides that itself.")
    return {
        "backlog": BACKLOG,
        "log_level": log_level,
        "proxy_headers": False,
        "server_header": False,
        **(given or {}),
        # A false value would remove the handlers of uvicorn's access log for the whole program; ours writes none.
        "access_log": True,
        "interface": "asgi3",
        "lifespan": "off",
        "log_config": None,
        "workers": 1,
        "ws": "none",
    }


def _configure(config_class: Any, app: DrainableApp, settings: dict[str, Any]) -> Any:
    """Create uvicorn's configuration, with our lifespan in place of the one that only logs."""
    from trunkline.transports.http.server.uvicorn_server import UvicornLifespan

    try:
        config = config_class(app, **settings)
        config.load()
    except (TypeError, KeyError, ValueError, OSError) as exc:
        raise ConfigError(f"uvicorn does not take these settings: {exc}") from exc
    config.lifespan_class = UvicornLifespan
    return config
