"""Serves a host: over stdio to the process that started it, or over HTTP to clients with a token.

Each profile is a separate gateway at its own path, over the same servers. A token is required unless the user turns
authentication off; one is generated if none is given.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.assembly import ANCESTORS, Assembly
from trunkline.host.authorization.approval import ApprovalMode, GatewayExposure, is_own_client
from trunkline.host.authorization.policy.loader import load_policy
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import NO_FILTERS, Filters
from trunkline.host.gateway.gateway import Gateway
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.net.addresses import is_loopback

if TYPE_CHECKING:
    from socket import socket

    from trunkline.auth.verifiers import ServerAuth
    from trunkline.connection import Exchange
    from trunkline.host.gateway.metrics import GatewayMetrics
    from trunkline.host.gateway.worker_links import WorkerLinks
    from trunkline.protocol.rate_limit import RateLimit
    from trunkline.server.task_options import SlowCalls
    from trunkline.transports.http.server.endpoint import Endpoint

__all__ = [
    "GatewayApp",
    "Profile",
    "ServeOptions",
    "application",
    "check_authentication",
    "gateway_exposure",
    "listen_address",
    "serve",
]


_HOLD_SECONDS = 1.0  # A client sends its first request as soon as it has started the process.
_ANSWER_SECONDS = 0.01  # The answer is encoded and written in well under a millisecond of processor time.


class Profile(Struct, frozen=True, kw_only=True):
    """A virtual server: some of the servers, with its own filters, limits and policy."""

    #: The servers; None for all.
    servers: tuple[str, ...] | None = None
    tools: Filters = NO_FILTERS
    #: A policy in place of the host's.
    policy: Policy | str | None = None
    per_minute: float | None = None
    concurrent: int | None = None
    search: str | None = None
    #: The approval mode, if it differs from the gateway's.
    approval: ApprovalMode | None = None
    #: How slow calls of its clients without tasks are served, if it differs from the gateway's setting.
    slow_calls: SlowCalls | None = None
    task_after: float | None = None


class ServeOptions(TypedDict, total=False):
    """The options of ``serve`` and ``application``."""

    #: ``HOST:PORT`` or a port; None for stdio.
    http: str | int | None
    path: str
    #: A bearer token; without it and without ``auth=`` one is generated and passed to ``started``.
    token: str | None
    #: A verifier such as ``JWTVerifier(...)``, or a function from headers to a ``Principal``.
    auth: ServerAuth | None
    #: Serve without authentication.
    no_auth: bool
    #: Who asks a person before a call: ``client`` if the client does, ``ask`` (the default), or ``deny``.
    approval: ApprovalMode
    profiles: Mapping[str, Profile]
    #: Over stdio: serve this profile.
    profile: str | None
    per_minute: float | None
    concurrent: int
    #: ``auto``, ``on`` or ``off``.
    search: str
    window_tokens: int
    share: float
    #: How slow calls of clients without tasks are served: ``hold`` (the default) or ``poll``.
    slow_calls: SlowCalls
    #: Seconds after which a client of the tasks extension gets a task instead of waiting.
    task_after: float
    #: The path of an SQLite file, which keeps tasks when the gateway is restarted.
    store: str | None
    name: str
    certfile: str | None
    keyfile: str | None
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    resource: str | None
    #: How many HTTP requests one caller may send: a ``RateLimit``, or text such as ``10/s``.
    rate_limit: RateLimit | str | None
    #: Called when serving begins, with the URL and the token, if one is required; over stdio with ``stdio`` and None.
    started: Callable[[str, str | None], None] | None
    stopping: asyncio.Event | None
    #: ``[HOST:]PORT`` at which metrics and health are served; over stdio too.
    metrics: str | int | None


async def serve(assembly: Assembly, options: ServeOptions, worker: WorkerLinks | None = None) -> None:
    """Serve a host until ``stopping`` is set or the transport closes; ``worker`` connects it to other workers.

    Raises:
        ConfigError: the options are invalid; the message says what to change.
    """
    _check_ancestors(assembly)
    address = options.get("http")
    if address is None:
        await _serve_stdio(assembly, options)
        return
    from trunkline.transports.http.server.serve import serve as serve_http

    host, port = listen_address(address)
    auth, token = check_authentication(options)
    app = _application(assembly, options, auth, worker)
    tell = options.get("started")
    try:
        if worker is not None:
            await worker.start(assembly.core, list(app.gateways))
        elif options.get("store") is not None:
            from trunkline.server.runtime import server_store

            await asyncio.gather(*(server_store(gateway).start() for gateway in app.gateways))
        measured = options.get("metrics") if worker is None else worker.process.reports
        async with _measured(assembly, measured, app.gateways) as metrics:
            if metrics is not None:
                metrics.endpoints.extend(app.endpoints)
            await serve_http(
                app,
                limits=assembly.core.limits,
                host=host,
                port=port,
                certfile=options.get("certfile"),
                keyfile=options.get("keyfile"),
                started=None if tell is None else lambda url: tell(f"{url.rstrip('/')}{app.path}", token),
                stopping=options.get("stopping"),
                traffic=metrics,
                worker=None if worker is None else worker.process,
            )
    finally:
        await app.aclose()
        if worker is not None:
            await worker.aclose()


def check_authentication(options: ServeOptions) -> tuple[Any, str | None]:
    """Return the verifier to use, and the token to show to the user; a token is generated if there is none.

    Raises:
        ConfigError: they are invalid, or others can reach the gateway without authentication.
    """
    host, _ = listen_address(options.get("http") or 0)
    auth, token = _auth(options)
    if auth is None and not is_loopback(host.strip("[]"), below=False):
        raise ConfigError(f"{host} can be reached by others, so it needs authentication: leave out --no-auth.")
    return auth, token


def application(assembly: Assembly, options: ServeOptions) -> GatewayApp:
    """Return the gateway as an ASGI application; ``auth=``, ``token=`` or ``no_auth=`` is required."""
    if not (options.get("auth") or options.get("token") or options.get("no_auth")):
        raise ConfigError("A gateway needs authentication: pass auth= or token=, or no_auth=True to go without.")
    return _application(assembly, options, _auth(options)[0])


class GatewayApp:
    """The gateways of a host as one ASGI application: the main one at a path, each profile below it."""

    def __init__(self, gateways: Sequence[Gateway], endpoints: Mapping[str, Endpoint], path: str) -> None:
        """Serve these gateways; ``endpoints`` are by path."""
        self.gateways = gateways
        self._endpoints = dict(sorted(endpoints.items(), key=lambda pair: -len(pair[0])))
        self.path = path

    @property
    def endpoints(self) -> Collection[Endpoint]:
        """The endpoints of the gateways."""
        return self._endpoints.values()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Dispatch a request to the gateway for its path."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        path: str = scope.get("path", "")
        endpoint = self._endpoints.get(path) or self._endpoint_below(path)
        await endpoint(scope, receive, send)

    def _endpoint_below(self, path: str) -> Endpoint:
        """Return the endpoint for a path below one of them, or behind a prefix that a proxy added."""
        for prefix, each in self._endpoints.items():
            if path.startswith(f"{prefix}/") or path.endswith(prefix):
                return each
        return self._endpoints[self.path]

    def end_streams(self) -> None:
        """End the streams that would not end by themselves; their clients open them again, at another worker."""
        for endpoint in self._endpoints.values():
            endpoint.end_streams()

    async def drain(self, seconds: float) -> None:
        """Wait for requests in flight to finish, for at most this many seconds."""
        await asyncio.gather(*(endpoint.drain(seconds) for endpoint in self._endpoints.values()))

    async def aclose(self) -> None:
        """Close the gateways; the host stays open."""
        await asyncio.gather(*(endpoint.aclose() for endpoint in self._endpoints.values()))
        await asyncio.gather(*(gateway.aclose() for gateway in self.gateways))

    async def _live(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _serve_stdio(assembly: Assembly, options: ServeOptions) -> None:
    name = options.get("profile")
    profiles = options.get("profiles") or {}
    if name is not None and name not in profiles:
        raise ConfigError(f"There is no profile {name!r}; the profiles are: {', '.join(profiles) or 'none'}.")
    gateway = _gateway(assembly, options, name, None if name is None else profiles[name])
    started = options.get("started")
    try:
        if started is not None:
            started("stdio", None)
        _release_starts(assembly, gateway)
        async with _measured(assembly, options.get("metrics"), [gateway]):
            await gateway.run_async("stdio")
    finally:
        await gateway.aclose()


def _release_starts(assembly: Assembly, gateway: Gateway) -> None:
    """Begin the held starts of servers once the client's first request is answered, or if none arrives.

    On a busy machine the processes of the servers would delay the answer by seconds, and some clients wait for five.
    """
    loop, release = asyncio.get_running_loop(), assembly.core.supervisor.release_starts
    loop.call_later(_HOLD_SECONDS, release)
    for method in ("initialize", "server/discover"):

        def answer(exchange: Exchange, params: Any, handler: Any = gateway.table.handlers[method]) -> Any:
            loop.call_later(_ANSWER_SECONDS, release)
            return handler(exchange, params)

        gateway.table.handlers[method] = answer


@asynccontextmanager
async def _measured(
    assembly: Assembly, address: str | int | socket | None, gateways: Sequence[Gateway]
) -> AsyncIterator[GatewayMetrics | None]:
    """Serve metrics and health while the context is active, if there is an address."""
    if address is None:
        yield None
        return
    from trunkline.host.gateway.metrics import gateway_metrics

    async with gateway_metrics(assembly.core, gateways, address) as metrics:
        yield metrics


def _application(assembly: Assembly, options: ServeOptions, auth: Any, worker: WorkerLinks | None = None) -> GatewayApp:
    from trunkline.server.http import make_endpoint

    path = options.get("path", "/mcp").rstrip("/")
    profiles: dict[str | None, Profile | None] = {None: None}
    profiles.update(options.get("profiles") or {})
    gateways: list[Gateway] = []
    endpoints: dict[str, Endpoint] = {}
    for name, profile in profiles.items():
        gateway = _gateway(assembly, options, name, profile, worker)
        gateways.append(gateway)
        where = path if name is None else f"{path}/{name}"
        http = {
            "auth": auth,
            "allowed_hosts": options.get("allowed_hosts", ()),
            "allowed_origins": options.get("allowed_origins", ()),
            "resource": options.get("resource") if name is None else None,
            "rate_limit": options.get("rate_limit"),
            "store": None if worker is None else worker.share(gateway),
        }
        # What a gateway knows of its sessions is in this process, unless it is one of several workers.
        endpoints[where] = make_endpoint(gateway, where, http, shares_sessions=worker is not None)
        if worker is not None:
            # From here on the broker may have this worker announce changed lists, before it has served a request.
            endpoints[where].start()
    return GatewayApp(gateways, endpoints, path)


def _gateway(
    assembly: Assembly,
    options: ServeOptions,
    name: str | None,
    profile: Profile | None,
    worker: WorkerLinks | None = None,
) -> Gateway:
    known = {key: options[key] for key in _SHARED if key in options}  # type: ignore[literal-required]
    # Lasting answers are offered only to the user's own client; over stdio that is known by the caller's origin.
    own_user = options.get("http") is not None and is_own_client(gateway_exposure(options))
    made = GatewayOptions(**known, profile=name, own_user=own_user)
    policy = assembly.policy
    if profile is not None:
        own = {
            "per_minute": profile.per_minute,
            "concurrent": profile.concurrent,
            "search": profile.search,
            "approval": profile.approval,
            "slow_calls": profile.slow_calls,
            "task_after": profile.task_after,
            "servers": None if profile.servers is None else frozenset(profile.servers),
        }
        made = replace(made, tools=profile.tools, **{key: value for key, value in own.items() if value is not None})
        if profile.policy is not None:
            policy = profile.policy if isinstance(profile.policy, Policy) else load_policy(profile.policy)
    return (Gateway if worker is None else worker.gateway_class)(
        assembly.core, policy, made, prompter=assembly.options.get("consent"), limits=assembly.options.get("limits")
    )


_SHARED = (
    *("approval", "per_minute", "concurrent", "search", "window_tokens", "share", "name"),
    *("slow_calls", "task_after", "store"),
)


def gateway_exposure(options: ServeOptions) -> GatewayExposure:
    """Return how a gateway with these options can be reached."""
    address = options.get("http")
    if address is None:
        return GatewayExposure()
    other_proof = options.get("auth") is not None or bool(options.get("no_auth"))
    return GatewayExposure(
        http=True,
        loopback=is_loopback(listen_address(address)[0].strip("[]"), below=False),
        static_token=not other_proof,
        allowed_hosts=bool(options.get("allowed_hosts")) or options.get("resource") is not None,
        allowed_origins=bool(options.get("allowed_origins")),
    )


def _auth(options: ServeOptions) -> tuple[Any, str | None]:
    """Return the verifier to use, and the token to show to the user."""
    given, token = options.get("auth"), options.get("token")
    if given is not None and token is not None:
        raise ConfigError("auth= and token= exclude each other: pass one of them.")
    if options.get("no_auth"):
        if given is not None or token is not None:
            raise ConfigError("no_auth=True turns authentication off: leave out auth= and token=, or no_auth=.")
        return None, None
    if given is not None:
        return given, None
    from trunkline.auth.static_tokens import StaticTokens

    token = token or secrets.token_urlsafe(32)
    return StaticTokens({token: "user"}), token


def listen_address(given: str | int) -> tuple[str, int]:
    """Parse the address of a gateway.

    Raises:
        ConfigError: it is not ``[HOST:]PORT``.
    """
    text = str(given)
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{text!r} is not an address to listen on: use [HOST:]PORT.")
    return host or "127.0.0.1", int(port)


def _check_ancestors(assembly: Assembly) -> None:
    """Check that this gateway was not started by itself.

    Raises:
        ConfigError: an entry of the configuration runs the same gateway.
    """
    if assembly.fingerprint in os.environ.get(ANCESTORS, "").split():
        raise ConfigError(
            "This gateway was started by itself: an entry of its configuration runs the gateway with the same "
            "configuration. Remove that entry."
        )
