"""A server over HTTP: its endpoint, the options of its public interface, and running it.

This module connects the endpoint, which knows no server, with a server. It is imported on the first use of HTTP.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from trunkline.errors import ConfigError
from trunkline.net.addresses import is_loopback
from trunkline.server.http_acceptor import ServerAcceptor, make_worker
from trunkline.server.options import own_options
from trunkline.server.runtime import ServerRuntime, has_shared_store, server_store
from trunkline.server.scopes import scopes_in_use
from trunkline.server.validation_errors import did_you_mean
from trunkline.transports.http.server.endpoint import Endpoint, EndpointOptions
from trunkline.transports.http.server.origin_policy import OriginPolicy

if TYPE_CHECKING:
    from trunkline.auth.verifiers import ServerAuth
    from trunkline.protocol.rate_limit import RateLimit
    from trunkline.server.server import Server
    from trunkline.store.interface import Store
    from trunkline.transports.http.server.rate_limits import RequestLimiter

__all__ = [
    "AsgiOptions",
    "HttpOptions",
    "check_options",
    "make_endpoint",
    "run_http",
    "run_options",
]

log = logging.getLogger("trunkline")


class AsgiOptions(TypedDict, total=False):
    """The options of a server's ASGI application."""

    #: Also serve the oldest HTTP transport, at ``<path>/sse`` and ``<path>/messages`` or at the two paths below.
    sse: bool
    sse_path: str | None
    message_path: str | None
    #: Public host names (``name`` or ``name:port``) that a proxy forwards to the server.
    allowed_hosts: Sequence[str]
    #: Origins of web pages that may call the server, in addition to its own.
    allowed_origins: Sequence[str]
    #: Origins whose pages may read the responses in a browser (CORS).
    cors_origins: Sequence[str]
    #: Keep no sessions: each request of a handshake client is independent.
    stateless_http: bool
    #: Respond with a single JSON body, never with a stream.
    json_response: bool
    #: After how many milliseconds a client that lost a stream should reconnect.
    retry_ms: int
    #: A verifier such as ``JWTVerifier(...)``, or a function that takes headers and returns a ``Principal`` or None.
    auth: ServerAuth | None
    #: The public URL of the endpoint, if it is behind a proxy; clients request tokens for it.
    resource: str | None
    #: The store of the server for this run: the path of an SQLite file, or the URL of a Redis or Valkey server.
    store: str | os.PathLike[str] | Store | None
    #: How many requests one caller may send: ``RateLimit(per_second=10, burst=20)``, or text such as ``10/s``.
    rate_limit: RateLimit | str | None


class HttpOptions(AsgiOptions, total=False):
    """The options of ``Server.run("http")``."""

    host: str
    port: int
    path: str
    #: How many worker processes serve.
    workers: int
    #: The files of a certificate and its key, to serve HTTPS.
    certfile: str | None
    keyfile: str | None
    keyfile_password: str | None
    #: Allow binding an address that other machines can reach although there is no authentication.
    allow_unauthenticated: bool
    log_level: str | None
    #: Called with the server's URL once it listens.
    started: Callable[[str], None] | None
    #: ``[HOST:]PORT`` at which metrics and health are served; over stdio too.
    metrics: str | int | None


def make_endpoint(
    server: Server, path: str, options: Mapping[str, object], *, shares_sessions: bool = True
) -> Endpoint:
    """Create the ASGI application of a server.

    Sessions are in its store if other processes may use that, and so serve the next request; with ``shares_sessions``
    False they are in this process in any case.
    """
    given = _known({**server.settings.http, **options}, AsgiOptions.__annotations__, ("host", "port", "path"))
    endpoint = EndpointOptions(
        path=_path("path", path),
        sse=given.get("sse", True),
        sse_path=_path("sse_path", given.get("sse_path")),
        message_path=_path("message_path", given.get("message_path")),
        sessions=not given.get("stateless_http", False),
        json_only=given.get("json_response", False),
        retry_ms=given.get("retry_ms", 1000),
    )
    origin_policy = OriginPolicy(
        hosts=given.get("allowed_hosts", ()),
        origins=given.get("allowed_origins", ()),
        cors=given.get("cors_origins", ()),
    )
    auth, authenticator = given.get("auth") or server.settings.auth, None
    if auth is not None:
        from trunkline.auth.resource_server import ResourceServer

        authenticator = ResourceServer(
            auth,
            path=path,
            name=server.settings.info.title or server.name,
            resource=given.get("resource"),
            hierarchy=server.settings.hierarchy,
            scopes=lambda: scopes_in_use(server.registry),
        )
    elif server.registry.needs_scopes:
        log.warning("server %r requires scopes, but no caller has any without authentication; pass auth=", server.name)
    common: dict[str, Any] = {
        "origin_policy": origin_policy,
        "limits": server.limits,
        "authenticator": authenticator,
    }
    if given.get("store") is not None:
        server_store(server, given["store"])
    worker = make_worker(server, shares_sessions=shares_sessions)
    acceptor = ServerAcceptor(server, worker, auth)
    limiter = _limiter(given, None if worker.is_alone else worker.store)
    application = Endpoint(acceptor, endpoint, worker=worker, limiter=limiter, **common)
    if not worker.is_alone:
        acceptor.on_start = application.start
    return application


def _limiter(given: Mapping[str, Any], store: Store | None) -> RequestLimiter | None:
    """Return what limits the requests of each caller.

    Raises:
        ConfigError: the limit is not valid.
    """
    if given.get("rate_limit") is None:
        return None
    from trunkline.protocol.rate_limit import parse_rate_limit
    from trunkline.transports.http.server.rate_limits import RequestLimiter

    return RequestLimiter(parse_rate_limit(given["rate_limit"]), store=store)


async def run_http(runtime: ServerRuntime, transport: str, options: Mapping[str, object]) -> None:
    """Serve over HTTP until the process is signalled to stop; running requests finish first.

    Raises:
        ConfigError: an option is not valid; the message says what to change.
    """
    from trunkline.transports.http.server.serve import serve

    server = runtime.definition
    given = run_options(server, options)
    check_options(server, given)
    if given.pop("workers", 1) != 1:
        raise ConfigError(
            "workers= needs server.run() or `trunkline run`, which start processes; inside a running event loop there "
            "is one worker"
        )
    path = given.pop("path", "/mcp")
    host, port = given.pop("host", "127.0.0.1"), given.pop("port", 8000)
    given.pop("allow_unauthenticated", None)
    if transport == "sse":
        given = {"sse_path": "/sse", "message_path": "/messages", **given}
    run = {name: given.pop(name) for name in _RUN_OPTIONS if name in given}
    runtime.use_store(given.get("store"))
    if has_shared_store(server):
        await runtime.state.start()
    endpoint = make_endpoint(server, path, given)
    if runtime.metrics is not None:
        runtime.metrics.endpoints.append(endpoint)
        run["traffic"] = runtime.metrics
    await serve(endpoint, host=host, port=port, limits=server.limits, **run)


_RUN_OPTIONS = ("certfile", "keyfile", "keyfile_password", "log_level", "started", "worker")


def run_options(server: Server, options: Mapping[str, object]) -> dict[str, Any]:
    """Return the options of ``run`` under our own names, with those that were given to the server.

    Raises:
        TypeError: one is unknown.
    """
    # One of several workers adds what it has of its supervisor.
    return _known({**server.settings.http, **options}, {**HttpOptions.__annotations__, "worker": object}, ())


def check_options(server: Server, given: Mapping[str, Any]) -> None:
    """Check that a server may be bound to an address, and that its rate limit is one.

    Raises:
        ConfigError: other machines can reach it, and there is no authentication; or the rate limit is not valid.
    """
    _limiter(given, None)
    host = given.get("host", "127.0.0.1")
    if given.get("allow_unauthenticated") or given.get("auth") or server.settings.auth:
        return
    if not is_loopback(host.strip("[]"), below=False):
        raise ConfigError(
            f"host={host!r} can be reached by other machines, and there is no authentication: pass auth=, bind "
            "127.0.0.1, or pass allow_unauthenticated=True (--allow-unauthenticated)"
        )


def _known(options: Mapping[str, object], known: Mapping[str, object], ignored: Sequence[str]) -> dict[str, Any]:
    given = own_options("http", options, known)
    for name in given:
        if name not in known and name not in ignored:
            raise TypeError(f"HTTP has no option {name!r}{did_you_mean(name, known)}")
    return {name: value for name, value in given.items() if name not in ignored and value is not None}


def _path(name: str, path: str | None) -> Any:
    if path is not None and not path.startswith("/"):
        raise ConfigError(f'{name}={path!r} is not valid: a path must start with "/"')
    return path
