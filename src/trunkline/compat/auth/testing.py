"""FastMCP's helpers for tests of protected servers: a login without a browser, a server in a process of its own."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trunkline.compat.auth.http_client import httpx2
from trunkline.compat.wire import OAuth, find_available_port

__all__ = ["HeadlessOAuth", "run_server_in_process"]

_START_SECONDS = 30.0  # On a busy machine imports alone take several.


class HeadlessOAuth(OAuth):
    """A login at a server that asks no user: the redirect is followed by the program itself."""

    def own(self) -> Any:
        """Return what our client takes."""
        from msgspec import structs

        return structs.replace(super().own(), open_browser=self.redirect_handler, store="memory")

    async def redirect_handler(self, authorization_url: str) -> str:
        """Open a URL; return the one that it redirects to.

        Raises:
            RuntimeError: it does not redirect.
        """
        async with httpx2.AsyncClient() as client:
            response = await client.get(authorization_url, follow_redirects=False)
        location = response.headers.get("location")
        if location is None:
            raise RuntimeError(f"{authorization_url} answered {response.status_code} without a redirect")
        return str(location)


@contextmanager
def run_server_in_process(
    server_fn: Callable[..., None],
    *args: Any,
    provide_host_and_port: bool = True,
    host: str = "127.0.0.1",
    port: int | None = None,
    **kwargs: Any,
) -> Iterator[str]:
    """Run a function that serves in a process of its own; the block is given its URL.

    Raises:
        RuntimeError: it does not listen in time.
    """
    number = port or find_available_port()
    given = {**kwargs, **({"host": host, "port": number} if provide_host_and_port else {})}
    # Forked, so that the child has what this process has installed.
    process = multiprocessing.get_context("fork").Process(target=server_fn, args=args, kwargs=given, daemon=True)
    process.start()
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(host, number):
            if not process.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("The server did not start")
            time.sleep(0.05)
        yield f"http://{host}:{number}"
    finally:
        process.terminate()
        process.join(timeout=5)
        if process.is_alive():
            process.kill()


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=0.2):
            return True
    except OSError:
        return False
