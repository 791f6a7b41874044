"""The user's way through the login page and back.

Opens the browser (or prints the URL), and receives the redirect on a loopback port. A URL is passed to the browser as
it is, through no shell, and only if it is a plain web URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import inspect
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from trunkline.auth.oauth import OAuth, is_openable
from trunkline.auth.steps import VisitPage
from trunkline.errors import AuthError

__all__ = ["RedirectReceiver", "has_browser", "redirect_params", "visit_page"]

_PATH = "/callback"
_HEAD_BYTES = 16 * 1024  # As much as common HTTP servers accept.
_HEAD_SECONDS = 10.0  # A browser sends the head at once.
_MOST_PARAMS = 50  # A redirect has about five parameters.
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


class RedirectReceiver:
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
    async def open(cls, *, port: int = 0, uri: str | None = None, name: str = "the program") -> RedirectReceiver:
        """Listen at a loopback port (0: any free one), or at a loopback URI.

        Raises:
            OSError: the port is in use.
        """
        parts = urlsplit(uri or f"http://127.0.0.1:{port}{_PATH}")
        host = parts.hostname or "127.0.0.1"
        made: list[RedirectReceiver] = []

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


_LONGEST_LINE = 16 * 1024  # A pasted redirect URL with all its parameters fits.


async def visit_page(step: VisitPage, options: OAuth, receiver: RedirectReceiver | None) -> Mapping[str, str]:
    """Send the user to a page; return the parameters of the redirect.

    Raises:
        AuthError: the page cannot be opened, or the login was not finished in time.
    """
    if not is_openable(step.url.partition("?")[0]):
        raise AuthError(f"The login page {step.url.partition('?')[0][:200]!r} is not safe to open in a browser.")
    if receiver is not None:
        receiver.expect(step.state)
    opening = asyncio.ensure_future(_open(step.url, options))
    coming = None if receiver is None else asyncio.ensure_future(receiver.wait())
    try:
        async with asyncio.timeout(options.login_seconds):
            return await _first_redirect(opening, coming)
    except TimeoutError:
        raise AuthError(
            f"The login was not finished within {options.login_seconds:g} s. Try again, or set "
            "OAuth(login_seconds=...)."
        ) from None
    finally:
        for task in (opening, coming):
            if task is not None:
                task.cancel()


async def _first_redirect(
    opening: asyncio.Future[Any], coming: asyncio.Future[Mapping[str, str]] | None
) -> Mapping[str, str]:
    """Wait for the redirect itself, or for the user to enter where it led."""
    await asyncio.wait([opening] if coming is None else [opening, coming], return_when=asyncio.FIRST_COMPLETED)
    if coming is not None and coming.done():
        return coming.result()
    result = opening.result()
    if isinstance(result, str):
        return redirect_params(result)
    if coming is None:
        raise AuthError(
            "open_browser= must return the URL that the login ended with, since redirect_uri= is not on this machine."
        )
    return await coming


async def _open(url: str, options: OAuth) -> Any:
    opener = options.open_browser
    if opener is None or opener is True:
        return await _open_here(url)
    assert callable(opener)
    if inspect.iscoroutinefunction(opener):
        return await opener(url)
    result = await asyncio.to_thread(opener, url)
    return await result if inspect.isawaitable(result) else result


async def _open_here(url: str) -> str | None:
    if has_browser():
        import webbrowser

        if await asyncio.to_thread(webbrowser.open, url):
            return None
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr):
        raise AuthError(
            "A login is needed, but there is neither a browser nor a terminal here: log in on a machine with one, or "
            "set OAuth(open_browser=...) to a function that shows the URL to the user."
        )
    sys.stderr.write(f"Open this page in a browser and log in:\n\n  {url}\n\n")
    sys.stderr.write("If the browser then cannot open a page, paste its address here: ")
    sys.stderr.flush()
    return await _read_terminal_line()


def has_browser() -> bool:
    """Return True if there is a graphical browser: one in the terminal would take the terminal over."""
    if sys.platform not in ("darwin", "win32") and not any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    ):
        return False
    import webbrowser

    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


async def _read_terminal_line() -> str | None:
    """Read a line from the terminal, without a thread, which could not be stopped."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[str] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def readable() -> None:
        if not ready.done():
            ready.set_result(os.read(descriptor, _LONGEST_LINE).decode(errors="replace").strip())

    loop.add_reader(descriptor, readable)
    try:
        return await ready or None
    finally:
        loop.remove_reader(descriptor)
