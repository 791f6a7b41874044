"""Running a foreign server: stdio by our transport, HTTP by uvicorn around its Starlette application."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from trunkline.compat.versions import STATE
from trunkline.errors import ConfigError
from trunkline.server.run import run_async as own_run_async
from trunkline.server.run import run_loop

__all__ = ["run", "run_async"]

_HTTP = ("http", "streamable-http", "sse")
_PATHS = ("path", "streamable_http_path")


def run(server: Any, transport: str, options: Mapping[str, Any]) -> None:
    """Run a server until its input ends or it is told to stop."""
    run_loop(run_async(server, transport, options))


async def run_async(server: Any, transport: str, options: Mapping[str, Any]) -> None:
    """Run a server in the running loop."""
    STATE.started = True
    given = {name: value for name, value in options.items() if value is not None}
    level = given.pop("log_level", None)
    if level is not None:
        logging.getLogger("trunkline").setLevel(str(level).upper())
    given.pop("show_banner", None)
    if transport == "stdio":
        server.auth = None
        given.pop("stateless", None)
        await own_run_async(server, "stdio")
    elif transport in _HTTP:
        await _run_http(server, transport, given)
    else:
        raise ValueError(f"Unknown transport: {transport}")


async def _run_http(server: Any, transport: str, options: dict[str, Any]) -> None:
    try:
        import uvicorn
    except ImportError as error:
        raise ConfigError("HTTP needs uvicorn and starlette: pip install 'trunkline[http]' starlette") from error
    settings = server.settings
    host = options.pop("host", None) or settings.host
    port = options.pop("port", None) or settings.port
    path = next((options.pop(name) for name in _PATHS if name in options), None)
    config = dict(options.pop("uvicorn_config", None) or {})
    from trunkline.compat.http_apps import TransportSecuritySettings, make_app

    if host not in ("127.0.0.1", "localhost", "::1") and not options.get("transport_security"):
        # Both frameworks accept any Host header unless they serve the local machine only.
        options.setdefault("transport_security", settings.transport_security or TransportSecuritySettings(False))
    app = make_app(server, transport, path, options)
    config = {"timeout_graceful_shutdown": 2, "lifespan": "on", "log_level": "info", **config}
    await uvicorn.Server(uvicorn.Config(app, host=host, port=port, **config)).serve()
