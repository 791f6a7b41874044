"""A server over HTTP: its endpoint, the options of its public face, and running it.

The endpoint knows no server; what stands here is between the two. It is loaded when a server is first asked for HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from trunkline.connection import Connection, TaskFactory, task_factory
from trunkline.errors import ConfigError
from trunkline.net.addresses import is_loopback
from trunkline.protocol.caller import Session
from trunkline.protocol.request_validation import ValidatedRequest
from trunkline.server.dispatch import ServerConnection
from trunkline.server.options import own_options
from trunkline.server.scopes import scopes_in_use
from trunkline.server.validation_errors import did_you_mean
from trunkline.timers import Timers
from trunkline.transports.http.server.endpoint import Endpoint, EndpointOptions
from trunkline.transports.http.server.origin_policy import OriginPolicy
from trunkline.transports.link import Link

if TYPE_CHECKING:
    from trunkline.auth.verifiers import ServerAuth
    from trunkline.server.server import Server

__all__ = ["AsgiOptions", "HttpOptions", "ServerAcceptor", "make_endpoint", "run_http"]

log = logging.getLogger("trunkline")


class AsgiOptions(TypedDict, total=False):
    """How a server is served over HTTP, whoever runs the application."""

    #: Serve the oldest HTTP transport too, at ``<path>/sse`` and ``<path>/messages`` or where the two paths say.
    sse: bool
    sse_path: str | None
    message_path: str | None
    #: Public host names (``name``, ``name:port``) under which a proxy reaches the server.
    allowed_hosts: Sequence[str]
    #: Origins of web pages that may call it, beside those it serves itself.
    allowed_origins: Sequence[str]
    #: Origins whose pages may read the answers in a browser.
    cors_origins: Sequence[str]
    #: Keep no sessions: each request of a handshake client stands alone.
    stateless_http: bool
    #: Answer with one JSON body, never with a stream.
    json_response: bool
    #: After how many milliseconds a client that lost a stream is asked to come back.
    retry_ms: int
    #: Who may call: a verifier such as ``JWTVerifier(...)``, or a function from headers to a ``Principal``.
    auth: ServerAuth | None
    #: The URL of the endpoint as clients know it, if a proxy stands before it; tokens are asked for under it.
    resource: str | None


class HttpOptions(AsgiOptions, total=False):
    """How ``Server.run("http")`` serves."""

    host: str
    port: int
    path: str
    workers: int
    #: The files of a certificate and its key: serve HTTPS.
    certfile: str | None
    keyfile: str | None
    keyfile_password: str | None
    #: Bind an address that others can reach although nobody is asked who they are.
    allow_unauthenticated: bool
    log_level: str | None
    #: Is told the address once the server listens.
    started: Callable[[str], None] | None


class ServerAcceptor:
    """Serves the links of one endpoint from one server."""

    __slots__ = ("_create_task", "_held", "_server", "_timers")

    def __init__(self, server: Server) -> None:
        """Hold nothing until something is to be served."""
        self._server = server
        self._held = False
        self._timers: Timers | None = None
        self._create_task: TaskFactory | None = None

    def accept(self, link: Link) -> Connection:
        """Serve a link for as long as it lasts."""
        self._hold()
        return self._server.accept(link, create_task=self._create_task)

    def accept_one(
        self, link: Link, session: Session | None, prefix: str, create_task: TaskFactory | None
    ) -> Connection:
        """Serve a link that brings one message; it holds nothing of its own."""
        if not self._held:
            self._hold()
        server = self._server
        connection = Connection(
            link,
            _SingleRequestConnection(server, session),
            limits=server.limits,
            timers=self._timers,  # type: ignore[arg-type]
            prefix=prefix,
            create_task=create_task or self._create_task,
        )
        connection.owner = server
        connection.holder = self
        link.attach(connection)
        return connection

    def end_subscriptions(self) -> None:
        """End every listener with a result."""
        self._server.hub.end("the server is shutting down")

    async def release(self) -> None:
        """Leave the lifespans."""
        self._held = False
        await self._server.release(self)

    def _hold(self) -> None:
        if not self._held:
            self._held = True
            self._timers = self._server.timers()
            self._create_task = task_factory(asyncio.get_running_loop())
            self._server.acquire_lifespans(self)


class _SingleRequestConnection(ServerConnection):
    """Serves one message: nobody is there to be told of a change later."""

    __slots__ = ()

    def _open(self, admitted: ValidatedRequest) -> None:
        self.session = admitted.caller.session


def make_endpoint(server: Server, path: str, options: Mapping[str, object]) -> Endpoint:
    """Make the ASGI application of a server."""
    given = _known({**server.http_options, **options}, AsgiOptions.__annotations__, ("host", "port", "path"))
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
    auth, authenticator = given.get("auth") or server.auth, None
    if auth is not None:
        from trunkline.auth.resource_server import ResourceServer

        authenticator = ResourceServer(
            auth,
            path=path,
            name=server.info.title or server.name,
            resource=given.get("resource"),
            hierarchy=server.hierarchy,
            scopes=lambda: scopes_in_use(server.registry),
        )
    elif server.registry.guarded:
        log.warning("some of what server %r offers needs scopes, but nobody has any without auth=", server.name)
    return Endpoint(
        ServerAcceptor(server), endpoint, origin_policy=origin_policy, limits=server.limits, authenticator=authenticator
    )


async def run_http(server: Server, transport: str, options: Mapping[str, object]) -> None:
    """Serve over HTTP until told to stop; requests in flight finish first.

    Raises:
        ConfigError: it cannot be served so; one sentence says what to change.
    """
    from trunkline.transports.http.server.serve import serve

    given = _known({**server.http_options, **options}, HttpOptions.__annotations__, ())
    path = given.pop("path", "/mcp")
    host, port = given.pop("host", "127.0.0.1"), given.pop("port", 8000)
    if given.pop("workers", 1) != 1:
        raise ConfigError("workers= needs what several processes can share, which is not there yet; leave it at 1")
    meant = given.pop("allow_unauthenticated", False)
    if not (meant or given.get("auth") or server.auth or is_loopback(host.strip("[]"), below=False)):
        raise ConfigError(
            f"host={host!r} can be reached by others, and nobody is asked who they are: give auth=, bind 127.0.0.1, "
            "or say allow_unauthenticated=True (--allow-unauthenticated)"
        )
    if transport == "sse":
        given = {"sse_path": "/sse", "message_path": "/messages", **given}
    run = {name: given.pop(name) for name in _RUN_OPTIONS if name in given}
    endpoint = make_endpoint(server, path, given)
    await serve(endpoint, host=host, port=port, limits=server.limits, **run)


_RUN_OPTIONS = ("certfile", "keyfile", "keyfile_password", "log_level", "started")


def _known(options: Mapping[str, object], known: Mapping[str, object], ignored: Sequence[str]) -> dict[str, Any]:
    given = own_options("http", options, known)
    for name in given:
        if name not in known and name not in ignored:
            raise TypeError(f"HTTP has no option {name!r}{did_you_mean(name, known)}")
    return {name: value for name, value in given.items() if name not in ignored and value is not None}


def _path(name: str, path: str | None) -> Any:
    if path is not None and not path.startswith("/"):
        raise ConfigError(f'{name}={path!r}: a path starts with "/"')
    return path
