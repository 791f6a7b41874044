"""The listener for metrics and health: ``/metrics``, ``/healthz`` and ``/readyz`` at an address of its own.

A few lines of HTTP/1.1 on asyncio, so that a stdio server needs no HTTP server for it. It reads the head of a request
and nothing else, bounded in size and time, answers GET and HEAD, and closes the connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from trunkline.errors import ConfigError
from trunkline.net.addresses import is_loopback, parse_listen_address
from trunkline.telemetry.metrics import CONTENT_TYPE, MetricsRegistry

__all__ = [
    "HEAD_BYTES",
    "OPEN_CONNECTIONS",
    "REQUEST_SECONDS",
    "MetricsListener",
    "MetricsPages",
    "add_readiness",
    "is_loopback_host",
    "parse_metrics_address",
]

HEAD_BYTES = 8192  # As much as common HTTP servers accept for a whole head.
REQUEST_SECONDS = 5.0  # A scraper sends its request at once; slower connections are closed.
OPEN_CONNECTIONS = 32  # A scraper and a few probes; more would use up descriptors that the server needs.
_TEXT = "text/plain; charset=utf-8"
_LINE = re.compile(rb"(GET|HEAD) (/[^\s?]*)(?:\?\S*)? HTTP/1\.[01]\r\n")
_HOST = re.compile(rb"\r\n[Hh][Oo][Ss][Tt]:[ \t]*([^\r\n]*?)[ \t]*\r\n")
_REASONS: Mapping[int, str] = MappingProxyType(
    {200: "OK", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
)


def parse_metrics_address(text: str | int) -> tuple[str, int]:
    """Parse ``[HOST:]PORT``; without a host it is the loopback address.

    Raises:
        ConfigError: it is not an address to listen on.
    """
    address = parse_listen_address(str(text))
    if address is None or address.port is None:
        raise ConfigError(f"metrics={str(text)!r} is not an address to listen on: use [HOST:]PORT, such as 9464")
    return address.host or "127.0.0.1", address.port


def is_loopback_host(host: str) -> bool:
    """Return whether only this machine reaches a listener on a host."""
    return is_loopback(host.strip("[]"), below=False)


def add_readiness(registry: MetricsRegistry, not_ready: Callable[[], str | None]) -> None:
    """Register whether the process is ready as a metric."""
    ready = registry.gauge("trunkline_ready", "Whether the process accepts requests: what /readyz says.", merge="max")
    registry.collect(lambda: ready.set(float(not_ready() is None)))


class MetricsPages:
    """The responses to requests for metrics and health, without any I/O."""

    def __init__(self, text: Callable[[], str], not_ready: Callable[[], str | None], *, loopback: bool) -> None:
        """Set what is served; ``loopback`` says that only this machine reaches the listener."""
        self._text = text
        self._not_ready = not_ready
        self._loopback = loopback

    def response(self, head: bytes) -> bytes:
        """Return the response to a request, given its head."""
        found = _LINE.match(head)
        if found is None:
            status, kind, body = 405, _TEXT, "only GET and HEAD are served here\n"
        elif not self._host_allowed(head):
            status, kind, body = 403, _TEXT, "this Host is not served here\n"
        else:
            status, kind, body = self._page(found[2].decode("ascii", "replace"))
        content = body.encode()
        lines = (
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(content)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        )
        whole = "\r\n".join(lines).encode() + b"\r\n\r\n"
        return whole if found is not None and found[1] == b"HEAD" else whole + content

    def _host_allowed(self, head: bytes) -> bool:
        """Return whether the Host is one of this machine; a web page could reach a loopback listener by another name.

        A listener that other machines reach has names that are not known here.
        """
        if not self._loopback:
            return True
        found = _HOST.search(head)
        if found is None:
            return True
        name = re.sub(r":\d+$", "", found[1].decode("ascii", "replace")).strip("[]").lower()
        return name == "localhost" or is_loopback(name, below=False)

    def _page(self, path: str) -> tuple[int, str, str]:
        if path == "/metrics":
            return 200, CONTENT_TYPE, self._text()
        if path == "/healthz":
            return 200, _TEXT, "ok\n"
        if path == "/readyz":
            reason = self._not_ready()
            return (200, _TEXT, "ready\n") if reason is None else (503, _TEXT, f"not ready: {reason}\n")
        return 404, _TEXT, "served here: /metrics, /healthz and /readyz\n"


class MetricsListener:
    """Serves the metrics of a registry, and whether the process is ready."""

    def __init__(self, registry: MetricsRegistry, not_ready: Callable[[], str | None]) -> None:
        """Serve a registry; ``not_ready`` returns why the process is not ready, or None if it is."""
        self._registry = registry
        self._not_ready = not_ready
        self._server: asyncio.Server | None = None
        self._open = 0
        self._pages = MetricsPages(registry.text, not_ready, loopback=True)
        #: The URL of the listener; empty until ``start``.
        self.url = ""
        add_readiness(registry, not_ready)

    async def start(self, host: str, port: int) -> None:
        """Listen on an address.

        Raises:
            ConfigError: the address cannot be used.
        """
        self._pages = MetricsPages(self._registry.text, self._not_ready, loopback=is_loopback_host(host))
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port} for metrics: {error.strerror or error}") from error
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._server.sockets[0].getsockname()[1]}"

    async def aclose(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= OPEN_CONNECTIONS:
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._pages.response(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The connection sent no request, or was closed before the response.
            pass
        finally:
            self._open -= 1
            writer.close()
