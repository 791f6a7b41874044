"""Signing in to servers from the console.

The console's page gets the address of the login page and opens it in a new tab; the redirect arrives at a loopback port
of this process, as with ``trunkline auth login``. The outcome is published as an event: the user may take minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trunkline.auth.oauth import may_carry_secrets
from trunkline.console.api.servers import ServersPart, server_of
from trunkline.console.console import ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.errors import TrunklineError
from trunkline.host.logins import LoginTarget, log_in, login_target, user_logins

if TYPE_CHECKING:
    from trunkline.console.console import Console

__all__ = ["SignInPart"]

_PAGE_SECONDS = 30.0  # Discovery and registration: a few requests to the server and its authorization server.


class SignInPart(ConsolePart):
    """Logs in to servers at URLs, and out of them."""

    def __init__(self, console: Console) -> None:
        """Create the part."""
        super().__init__(console)
        #: The login in progress of each server; a new one replaces it.
        self._logins: dict[str, asyncio.Task[None]] = {}

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("POST", "/servers/{name}/login", self._login),
            Route("DELETE", "/servers/{name}/login", self._logout),
        )

    async def aclose(self) -> None:
        """Cancel the logins in progress."""
        for task in self._logins.values():
            task.cancel()
        await asyncio.gather(*self._logins.values(), return_exceptions=True)

    async def _target(self, name: str) -> LoginTarget:
        upstream = server_of(self.console, name)
        allowed, reason = await self.console.assembly.trust.check(upstream.entry)
        if not allowed:
            raise ApiError(409, "unapproved", f"{name} is not approved: {reason}.", fix="Trust it first.")
        # A secret in its URL is resolved only when the server starts.
        target = login_target(upstream.launch)
        if target is None:
            raise ApiError(409, "no_login", f"{name} is not reached by a URL, so it has no login.")
        if not may_carry_secrets(target.url):
            raise ApiError(409, "no_login", "A login needs an https URL without a user name, or a URL of this machine.")
        return target

    async def _login(self, request: ApiRequest) -> Any:
        name = request.params["name"]
        target = await self._target(name)
        before = self._logins.pop(name, None)
        if before is not None:
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)
        page: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.get_running_loop().create_task(self._run(name, target, page))
        self._logins[name] = task
        task.add_done_callback(lambda done: self._forget(name, done))
        await asyncio.wait((task, page), timeout=_PAGE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if page.done():
            return {"url": page.result()}
        if not task.done():
            task.cancel()
            message = f"{name} did not return its login page within {_PAGE_SECONDS:g} s."
            raise ApiError(504, "timeout", message, fix="Try again.")
        try:
            await task
        except TrunklineError as error:
            raise ApiError(502, "login_failed", self.console.core.secrets.hide(str(error))) from error
        return {"url": None}

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        if self._logins.get(name) is task:
            del self._logins[name]
        if not task.cancelled():
            # A failure was published as an event.
            task.exception()

    async def _run(self, name: str, target: LoginTarget, page: asyncio.Future[str]) -> None:
        """Log in; the address of the login page goes to ``page`` as soon as it is known."""

        async def visit(url: str) -> None:
            if not page.done():
                page.set_result(url)

        try:
            login = await log_in(target, visit=visit, store=await user_logins())
        except TrunklineError as error:
            if page.done():
                self._notify(f"The login to {name} failed: {error}", "error")
            raise
        if login is None:
            self._notify(f"{name} needs no login", "info")
        else:
            self._notify(f"Logged in to {name}", "info")
        await self._restart(name)

    async def _logout(self, request: ApiRequest) -> Any:
        from trunkline.auth.client import log_out

        name = request.params["name"]
        target = await self._target(name)
        try:
            ended = await log_out(target.url, store=await user_logins())
        except TrunklineError as error:
            raise ApiError(502, "logout_failed", self.console.core.secrets.hide(str(error))) from error
        for each in ended:
            if each.problem is not None:
                self._notify(f"Deleted the login to {name}, but could not revoke it: {each.problem}", "warning")
        await self._restart(name)
        return {"ended": len(ended)}

    async def _restart(self, name: str) -> None:
        if name in self.console.core.supervisor.upstreams:
            self.console.part(ServersPart).run(self.console.host.restart(name))

    def _notify(self, text: str, level: str) -> None:
        self.console.events.publish("notice", text=self.console.core.secrets.hide(text), level=level)
