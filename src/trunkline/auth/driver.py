"""Driver of the flows: fetches, receives the redirect, sends the user to pages. The only file of a login with I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

from trunkline.auth.browser import RedirectReceiver, visit_page
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import Fetch, Flow, ListenForRedirect, StepResult, VisitPage
from trunkline.errors import AuthError, FetchError
from trunkline.net import FetchResponse
from trunkline.net.addresses import is_loopback

__all__ = ["FetchFunction", "drive"]

T = TypeVar("T")
#: Sends a request and returns the response, or raises FetchError.
FetchFunction: TypeAlias = Callable[[Fetch], Awaitable[FetchResponse]]


async def drive(flow: Flow[T], *, fetch: FetchFunction, options: OAuth) -> T:
    """Run a flow to its end, performing each step it yields, and return its result.

    Raises:
        AuthError: the flow failed, or the user could not log in.
    """
    driver = _Driver(fetch, options)
    worked = False
    try:
        step = next(flow)
        while True:
            step = flow.send(await driver.perform(step))
    except StopIteration as end:
        worked = True
        result: T = end.value
        return result
    finally:
        flow.close()
        await driver.aclose(worked=worked)


class _Driver:
    def __init__(self, fetch: FetchFunction, options: OAuth) -> None:
        self._fetch = fetch
        self._options = options
        self._receiver: RedirectReceiver | None = None

    async def perform(self, step: Fetch | ListenForRedirect | VisitPage) -> StepResult:
        if isinstance(step, Fetch):
            try:
                return await self._fetch(step)
            except FetchError as error:
                return error
        if isinstance(step, ListenForRedirect):
            return await self._receive(step.preferred)
        return await visit_page(step, self._options, self._receiver)

    async def aclose(self, *, worked: bool) -> None:
        if self._receiver is not None:
            await self._receiver.aclose(worked=worked)

    async def _receive(self, preferred: str | None) -> str:
        """Start listening for the redirect; return the redirect URI."""
        options = self._options
        if options.open_browser is False:
            raise AuthError(
                "A login is needed, but this program cannot open a browser: run `trunkline auth login` first."
            )
        own = options.redirect_uri
        if own is not None and not (is_loopback(urlsplit(own).hostname) and urlsplit(own).port):
            # The redirect goes to another party, which has to pass it to us.
            return own
        try:
            self._receiver = await self._listen(own, preferred)
        except OSError as error:
            where = own or f"port {options.redirect_port}"
            raise AuthError(
                f"Cannot listen for the redirect at {where}: {error.strerror or error}. Choose another redirect_port=."
            ) from error
        return self._receiver.redirect_uri

    async def _listen(self, own: str | None, preferred: str | None) -> RedirectReceiver:
        options, name = self._options, self._options.client_name
        if own is not None:
            return await RedirectReceiver.open(uri=own, name=name)
        if options.redirect_port:
            return await RedirectReceiver.open(port=options.redirect_port, name=name)
        if preferred is not None:
            try:
                return await RedirectReceiver.open(uri=preferred, name=name)
            except OSError:
                pass
        return await RedirectReceiver.open(name=name)
