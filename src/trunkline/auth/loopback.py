"""Receiver of the redirect that ends a login: a minimal HTTP server on the loopback interface, for one request.

It answers the one request that carries the login's state, and only when the outcome of the login is known, so that the
page can show it. Every other request gets 404 and changes nothing. The page has no scripts and loads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import parse_qsl, urlsplit

__all__ = ["Receiver", "redirect_params"]

_PATH = "/callback"
_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 10.0
_MOST_PARAMS = 50
_PAGES: Mapping[bool, tuple[str, str]] = MappingProxyType(
    {
        True: ("You are logged in", "You can close this window and go back to {name}."),
        False: ("The login failed", "Go back to {name} to see why. You can close this window."),
    }
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:32rem;margin:20vh auto;padding:0 1.5rem;color:#1a1a1a;
background:#fafafa}}h1{{font-size:1.5rem}}@media(prefers-color-scheme:dark){{body{{color:#eee;background:#1a1a1a}}}}</style>
</head><body><h1>{title}</h1><p>{text}</p></body></html>
"""
_HEADERS = (
    "Content-Type: text/html; charset=utf-8\r\n"
    "Cache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Connection: close\r\n"
)


def redirect_params(url: str) -> dict[str, str]:
    """Parse the parameters of a redirect, from the whole URL or the query alone; repeated ones are left out."""
    query = urlsplit(url.strip()).query if "?" in url else url.strip()
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_PARAMS)
    except ValueError:
        return {}
    names = [name for name, _ in pairs]
    return {name: value for name, value in pairs if names.count(name) == 1}


class Receiver:
    """Receives a browser redirect on this machine."""

    def __init__(self, server: asyncio.Server, redirect_uri: str, name: str) -> None:
        """Use a listening server; ``open`` creates one."""
        self._server = server
        self._name = name
        self._path = urlsplit(redirect_uri).path or "/"
        self._state: str | None = None
        self._arrived: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        self._visitor: asyncio.StreamWriter | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        #: The redirect URI to register and request.
        self.redirect_uri = redirect_uri

    @classmethod
    async def open(cls, *, port: int = 0, uri: str | None = None, name: str = "the program") -> Receiver:
        """Listen at a loopback port (0: any free one), or at a loopback URI.

        Raises:
            OSError: the port is in use.
        """
        parts = urlsplit(uri or f"http://127.0.0.1:{port}{_PATH}")
        host = parts.hostname or "127.0.0.1"
        made: list[Receiver] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await made[0]._serve(reader, writer)

        server = await asyncio.start_server(serve, host, parts.port or 0, limit=_HEAD_BYTES)
        found = server.sockets[0].getsockname()[1]
        made.append(cls(server, uri if uri and parts.port else f"http://127.0.0.1:{found}{_PATH}", name))
        return made[0]

    def expect(self, state: str) -> None:
        """Accept only the redirect that carries this state."""
        self._state = state

    async def wait(self) -> Mapping[str, str]:
        """Wait for the expected redirect; return its parameters."""
        return await asyncio.shield(self._arrived)

    async def aclose(self, *, worked: bool = False) -> None:
        """Show the outcome of the login in the browser, and stop listening."""
        self._server.close()
        if self._visitor is not None:
            await self._answer(self._visitor, 200, worked=worked)
        for writer in list(self._writers):
            writer.close()

    # --- one request -------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            params = self._params(head)
            if params is None:
                await self._answer(writer, 404, worked=False)
            elif not self._arrived.done():
                self._visitor = writer
                self._arrived.set_result(params)
            else:
                await self._answer(writer, 404, worked=False)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.close()
        finally:
            if writer is not self._visitor:
                self._writers.discard(writer)

    def _params(self, head: bytes) -> dict[str, str] | None:
        """Return the parameters of a request if it is the expected redirect; else None."""
        line = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(line) != 3 or line[0] != "GET" or line[1].partition("?")[0] != self._path:
            return None
        params = redirect_params(line[1]) if "?" in line[1] else {}
        mine = self._state is not None and hmac.compare_digest(params.get("state", "").encode(), self._state.encode())
        return params if mine else None

    async def _answer(self, writer: asyncio.StreamWriter, status: int, *, worked: bool) -> None:
        title, text = _PAGES[worked] if status == 200 else ("Not found", "There is no page at this address.")
        body = _PAGE.format(title=title, text=html.escape(text.format(name=self._name))).encode()
        reason = "OK" if status == 200 else "Not Found"
        head = f"HTTP/1.1 {status} {reason}\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n"
        with contextlib.suppress(OSError, TimeoutError):
            writer.write(head.encode() + body)
            async with asyncio.timeout(1.0):
                await writer.drain()
        writer.close()
