"""Gets the user to a page and back: by a browser on this machine, or by showing the URL and reading where it led.

A URL is given to the browser as it is, through no shell, and only if it is one of the web with plain characters.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Mapping
from typing import Any

from trunkline.auth.addresses import openable
from trunkline.auth.loopback import Receiver, redirect_params
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import Visit
from trunkline.errors import AuthError

__all__ = ["has_browser", "visit"]

_LONGEST_LINE = 16 * 1024


async def visit(step: Visit, options: OAuth, receiver: Receiver | None) -> Mapping[str, str]:
    """Send the user to a page and give what the redirect back says.

    Raises:
        AuthError: nobody could be sent there, or nothing came back in time.
    """
    if not openable(step.url.partition("?")[0]):
        raise AuthError(f"The page {step.url.partition('?')[0][:200]!r} is not one that a browser may be sent to.")
    if receiver is not None:
        receiver.expect(step.state)
    opening = asyncio.ensure_future(_open(step.url, options))
    coming = None if receiver is None else asyncio.ensure_future(receiver.wait())
    try:
        async with asyncio.timeout(options.login_seconds):
            return await _first(opening, coming)
    except TimeoutError:
        raise AuthError(
            f"Nobody finished the login within {options.login_seconds:g} s. Try again, or give "
            "OAuth(login_seconds=...)."
        ) from None
    finally:
        for task in (opening, coming):
            if task is not None:
                task.cancel()


async def _first(opening: asyncio.Future[Any], coming: asyncio.Future[Mapping[str, str]] | None) -> Mapping[str, str]:
    """Wait for the redirect itself, or for somebody to say where it led."""
    await asyncio.wait([opening] if coming is None else [opening, coming], return_when=asyncio.FIRST_COMPLETED)
    if coming is not None and coming.done():
        return coming.result()
    said = opening.result()
    if isinstance(said, str):
        return redirect_params(said)
    if coming is None:
        raise AuthError("open_browser= has to give back the URL that the login ended with: redirect_uri= is not here.")
    return await coming


async def _open(url: str, options: OAuth) -> Any:
    opener = options.open_browser
    if opener is None or opener is True:
        return await _open_here(url)
    assert callable(opener)
    if inspect.iscoroutinefunction(opener):
        return await opener(url)
    said = await asyncio.to_thread(opener, url)
    return await said if inspect.isawaitable(said) else said


async def _open_here(url: str) -> str | None:
    if has_browser():
        import webbrowser

        if await asyncio.to_thread(webbrowser.open, url):
            return None
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr):
        raise AuthError(
            "A login is needed, but there is no browser here and nobody to ask: log in where there is one, or give "
            "OAuth(open_browser=...) with a function that shows the URL to somebody."
        )
    sys.stderr.write(f"Open this page in a browser and log in:\n\n  {url}\n\n")
    sys.stderr.write("If the browser then cannot show a page, paste its address here: ")
    sys.stderr.flush()
    return await _line()


def has_browser() -> bool:
    """Tell whether a browser with a window of its own can be had: one in the terminal would take it over."""
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


async def _line() -> str | None:
    """Read a line of the terminal without a thread that nobody could stop."""
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
