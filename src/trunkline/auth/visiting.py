"""The user's visit to the login page: in a browser on this machine, or by printing the URL and reading the result.

A URL is passed to the browser as it is, through no shell, and only if it is a plain web URL.
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
    """Send the user to a page; return the parameters of the redirect.

    Raises:
        AuthError: the page cannot be opened, or the login was not finished in time.
    """
    if not openable(step.url.partition("?")[0]):
        raise AuthError(f"The login page {step.url.partition('?')[0][:200]!r} is not safe to open in a browser.")
    if receiver is not None:
        receiver.expect(step.state)
    opening = asyncio.ensure_future(_open(step.url, options))
    coming = None if receiver is None else asyncio.ensure_future(receiver.wait())
    try:
        async with asyncio.timeout(options.login_seconds):
            return await _first(opening, coming)
    except TimeoutError:
        raise AuthError(
            f"The login was not finished within {options.login_seconds:g} s. Try again, or set "
            "OAuth(login_seconds=...)."
        ) from None
    finally:
        for task in (opening, coming):
            if task is not None:
                task.cancel()


async def _first(opening: asyncio.Future[Any], coming: asyncio.Future[Mapping[str, str]] | None) -> Mapping[str, str]:
    """Wait for the redirect itself, or for the user to enter where it led."""
    await asyncio.wait([opening] if coming is None else [opening, coming], return_when=asyncio.FIRST_COMPLETED)
    if coming is not None and coming.done():
        return coming.result()
    said = opening.result()
    if isinstance(said, str):
        return redirect_params(said)
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
    said = await asyncio.to_thread(opener, url)
    return await said if inspect.isawaitable(said) else said


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
    return await _line()


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


async def _line() -> str | None:
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
