"""The console as an ASGI application: the page, its files, the API and its event streams.

The token allows code execution, since the console can add commands. So every API request needs it in the
``Authorization`` header, which no other site can set: there is no cookie, and a token in the URL is not accepted. Only
``POST /api/login`` has a one-time code of a login file in its place, and exchanges it for the token.
``Host`` must be a loopback name, against DNS rebinding, and ``Origin`` must be exactly this address: other local ports
belong to other programs, and one of them serves the pages of MCP Apps. The content security policy of the page allows
only our own scripts, the frames of MCP Apps, and requests to this origin.

Every API response is encoded in one place, which masks the secrets known to the host.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec

from trunkline.console.console import Console
from trunkline.console.login_files import LoginFiles
from trunkline.console.routing import ApiError, ApiRequest, Download, EventStream, Route, RouteTable, to_api_error
from trunkline.host.state_files import state_folder
from trunkline.transports.http.server.asgi import JSON, Headers, Receive, Scope, Send
from trunkline.transports.http.server.origin_policy import OriginPolicy, is_json

__all__ = ["STATIC", "ConsoleApp", "page_policy"]

log = logging.getLogger("trunkline.http")

#: The folder of the page and its files.
STATIC = Path(__file__).parent / "static"

_MOST_BODY = 8 * 1024 * 1024  # Bytes of a body: a file attached to a form is part of the arguments of a call.
_KEEP_ALIVE_SECONDS = 15.0  # Seconds of silence on an event stream before a keep-alive comment.
_CHUNK = 256 * 1024  # Bytes of a response sent at once, so that a slow reader is detected.
_END = object()  # Marks the end of an event stream.
_LONGEST_WINDOW = 64  # Characters of the id of a window, which the page generates.
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_TYPES = MappingProxyType(
    {
        ".css": b"text/css; charset=utf-8",
        ".html": b"text/html; charset=utf-8",
        ".ico": b"image/x-icon",
        ".js": b"text/javascript; charset=utf-8",
        ".json": b"application/json",
        ".png": b"image/png",
        ".svg": b"image/svg+xml",
        ".txt": b"text/plain; charset=utf-8",
        ".webmanifest": b"application/manifest+json",
        ".woff2": b"font/woff2",
    }
)
_SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


def page_policy(apps_origin: str | None = None) -> str:
    """Return the content security policy of the page; only the origin of MCP Apps may be framed."""
    framed = "'none'" if apps_origin is None else apps_origin
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src data: blob:; "
        f"connect-src 'self'; frame-src {framed}; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


class ConsoleApp:
    """The ASGI application of a console."""

    def __init__(self, console: Console, token: str, *, static: Path = STATIC) -> None:
        """Create the application; ``static`` is the folder with ``index.html``."""
        self._console = console
        # Digests have a fixed length, so the comparison does not reveal the length of the token.
        self._token = _digest(token.encode())
        self._static = static
        #: The address that login files redirect to; set when the console listens.
        self.origin = ""
        self.login_files = LoginFiles(token)
        self._routes = RouteTable([*console.routes(), Route("POST", "/login-file", self._create_login_file)])
        self._origins = OriginPolicy()
        self._closing = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()

    async def drain(self, seconds: float) -> None:
        """End the event streams; other responses are short and complete by themselves."""
        self._closing.set()
        self.login_files.close()

    # --- what an exchange needs --------------------------------------------------------------------------------------

    def headers(self) -> Headers:
        """Return the headers of every response."""
        policy = page_policy(self._console.apps_origin).encode()
        return [(b"content-security-policy", policy), *_SECURITY_HEADERS]

    def check_origin(self, scope: Scope, sent: Mapping[bytes, list[bytes]]) -> None:
        """Check that a request is for this address, and comes from its own page or from a program.

        Raises:
            ApiError: it is not.
        """
        hosts, origins = sent.get(b"host", []), sent.get(b"origin", [])
        denied = self._origins.check(hosts, origins, server=scope.get("server"))
        if denied is not None and denied.status != 403:
            raise ApiError(denied.status, "invalid_request", denied.message)
        # The shared origin policy accepts pages of any local port; the console accepts only its own page.
        own = denied is None and all(each.lower() == b"http://" + hosts[0].lower() for each in origins)
        if not own:
            raise ApiError(403, "foreign_origin", "The console can only be used at the address that it printed.")

    def check_site(self, sent: Mapping[bytes, list[bytes]]) -> None:
        """Check that no other site caused an API request.

        Raises:
            ApiError: one did.
        """
        if sent.get(b"sec-fetch-site", [b"none"])[0] not in (b"same-origin", b"none"):
            raise ApiError(403, "foreign_origin", "Only the page of the console may use its API.")

    def check_token(self, sent: Mapping[bytes, list[bytes]]) -> None:
        """Check the token of an API request.

        Raises:
            ApiError: the token is missing or wrong.
        """
        if not hmac.compare_digest(_digest(_bearer(sent)), self._token):
            raise ApiError(
                401,
                "unauthorized",
                "The token is missing or wrong.",
                fix="Open the address that the console printed at its start.",
            )

    def find(self, path: str) -> tuple[bytes, bytes]:
        """Return the content and type of a file under ``/static``; any other path returns the page.

        Raises:
            ApiError: there is no such file.
        """
        name = path.removeprefix("/static/") if path.startswith("/static/") else "index.html"
        parts = name.split("/")
        kind = _TYPES.get(Path(parts[-1]).suffix)
        if kind is not None and all(_SEGMENT.fullmatch(part) for part in parts):
            try:
                return self._static.joinpath(*parts).read_bytes(), kind
            except OSError:
                log.debug("the console has no file %s", name)
        raise ApiError(404, "not_found", f"The console has no file {name[:200]}.")

    async def handle(self, method: str, path: str, request: ApiRequest) -> Any:
        """Dispatch an API request to its handler."""
        handler, params = self._routes.find(method, path)
        return await handler(msgspec.structs.replace(request, params=params))

    def log_in(self, sent: Mapping[bytes, list[bytes]]) -> bytes:
        """Return the response with the token for a one-time code; it is not masked.

        Raises:
            ApiError: the code was used, is too old, or is unknown.
        """
        token = self.login_files.exchange(_bearer(sent).decode("ascii", "replace"))
        if token is None:
            raise ApiError(
                401,
                "unauthorized",
                "The code was used already, or is older than a minute.",
                fix="Run the command again, or open the address that it printed.",
            )
        return msgspec.json.encode({"token": token})

    async def _create_login_file(self, request: ApiRequest) -> dict[str, str]:
        return {"file": str(await self.login_files.create(state_folder() / "consoles", self.origin))}

    def encode(self, value: Any) -> bytes:
        """Encode a value as JSON, with the secrets known to the host masked."""
        return mask(self._console, msgspec.json.encode(value))

    def mask_file(self, file: Download) -> bytes:
        """Return the content of a file with the known secrets masked, unless it is binary."""
        try:
            text = file.content.decode()
        except UnicodeDecodeError:
            return file.content
        if file.media_type == "application/json":
            return mask(self._console, file.content)
        return self._console.core.secrets.hide(text).encode()

    @property
    def closing(self) -> asyncio.Event:
        """Set when the console stops."""
        return self._closing


def mask(console: Console, body: bytes) -> bytes:
    """Mask the known secrets in encoded JSON; return the same bytes if there are none."""
    secrets = console.core.secrets
    if not secrets.holds(body.decode()):
        return body
    # Replaced in the decoded values, not in the text: a secret that contains a quote must not end a string.
    return msgspec.json.encode(secrets.hide_in(msgspec.json.decode(body)))


class _Exchange:
    """One HTTP request and its response."""

    def __init__(self, app: ConsoleApp, scope: Scope, receive: Receive, send: Send) -> None:
        self._app = app
        self._scope = scope
        self._receive = receive
        self._send = send
        self._sent: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self._sent.setdefault(name, []).append(value)
        self._method: str = scope["method"]
        # The encoded path: an id in it may contain slashes.
        self._path: str = (scope.get("raw_path") or quote(scope["path"]).encode()).decode("ascii", "replace")

    async def run(self) -> None:
        try:
            self._app.check_origin(self._scope, self._sent)
            if self._path == "/api" or self._path.startswith("/api/"):
                await self._run_api()
            else:
                await self._send_file()
        except ApiError as error:
            await self._send_error(error)

    async def _send_file(self) -> None:
        if self._method not in ("GET", "HEAD"):
            raise ApiError(405, "method_not_allowed", f"{self._method} is not allowed here.", allow=("GET", "HEAD"))
        content, kind = self._app.find(self._path)
        await self._respond(200, content, [(b"content-type", kind)])

    async def _run_api(self) -> None:
        self._app.check_site(self._sent)
        if (self._method, self._path) == ("POST", "/api/login"):
            # No body is read without the token: other users of the machine could hold all connections by it.
            await self._respond(200, self._app.log_in(self._sent), [JSON])
            return
        self._app.check_token(self._sent)
        try:
            request = await self._read()
            result = await self._app.handle(self._method, self._path.removeprefix("/api"), request)
        except ApiError:
            raise
        except Exception as error:
            raise to_api_error(error) from error
        if isinstance(result, EventStream):
            await self._stream(result.events)
        elif isinstance(result, Download):
            name = quote(result.name, safe="")
            headers = [
                (b"content-type", result.media_type.encode("ascii", "replace")),
                (b"content-disposition", f"attachment; filename*=UTF-8''{name}".encode()),
            ]
            await self._respond(200, self._app.mask_file(result), headers)
        else:
            await self._respond(200, self._app.encode({} if result is None else result), [JSON])

    async def _read(self) -> ApiRequest:
        """Read the body and the query of a request.

        Raises:
            ApiError: the body is too large, or is not JSON.
        """
        body = await self._body()
        query = dict(parse_qsl(self._scope.get("query_string", b"").decode("ascii", "replace"), keep_blank_values=True))
        window = self._sent.get(b"x-console-window", [b""])[0].decode("ascii", "replace")[:_LONGEST_WINDOW]
        if not body:
            return ApiRequest(query=query, window=window)
        if not is_json(self._sent.get(b"content-type", [b""])[0]):
            raise ApiError(415, "not_json", "A body must be JSON: set the Content-Type to application/json.")
        try:
            return ApiRequest(query=query, window=window, body=msgspec.json.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(400, "invalid_json", f"The body is not JSON: {error}") from error

    async def _body(self) -> bytes:
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ApiError(400, "disconnected", "The connection was closed before the whole body was received.")
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > _MOST_BODY:
                raise ApiError(413, "too_large", f"The body is larger than {_MOST_BODY} bytes.", close=True)
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)

    async def _send_error(self, error: ApiError) -> None:
        shown = {"code": error.code, "message": error.message}
        if error.fix is not None:
            shown["fix"] = error.fix
        headers: Headers = [JSON]
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if error.allow:
            headers.append((b"allow", ", ".join(error.allow).encode()))
        if error.close:
            # The rest of the body is not read.
            headers.append((b"connection", b"close"))
        await self._respond(error.status, self._app.encode({"error": shown}), headers)

    async def _respond(self, status: int, body: bytes, headers: Headers) -> None:
        length = (b"content-length", str(len(body)).encode())
        every = [*headers, length, *self._app.headers()]
        await self._send({"type": "http.response.start", "status": status, "headers": every})
        if self._method == "HEAD":
            body = b""
        for at in range(0, max(len(body), 1), _CHUNK):
            more = at + _CHUNK < len(body)
            await self._send({"type": "http.response.body", "body": body[at : at + _CHUNK], "more_body": more})

    async def _stream(self, events: AsyncIterator[Any]) -> None:
        """Send events until the page disconnects or the console stops."""
        headers = [(b"content-type", b"text/event-stream"), *self._app.headers()]
        loop = asyncio.get_running_loop()
        gone = loop.create_task(self._disconnected())
        closing = loop.create_task(self._app.closing.wait())
        upcoming: asyncio.Task[Any] = loop.create_task(_next(events))
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            while True:
                done, _ = await asyncio.wait(
                    (gone, closing, upcoming), timeout=_KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if gone in done or closing in done:
                    break
                if upcoming not in done:
                    await self._send_part(b":\n\n")
                    continue
                if (event := upcoming.result()) is _END:
                    break
                await self._send_part(b"data: " + self._app.encode(event) + b"\n\n")
                upcoming = loop.create_task(_next(events))
        finally:
            await _end(gone, closing, upcoming)
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_part(self, part: bytes) -> None:
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _next(events: AsyncIterator[Any]) -> Any:
    return await anext(events, _END)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _bearer(sent: Mapping[bytes, list[bytes]]) -> bytes:
    """Return the bearer token of a request; empty if it has none, or several."""
    values = sent.get(b"authorization", [])
    scheme, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
