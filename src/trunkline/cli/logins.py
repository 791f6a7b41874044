"""Stored logins for servers at URLs: finds, creates, ends and lists them.

A new login stays in memory until the server has accepted it, and only then replaces the old one. A token is never
shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from trunkline.auth.client import LoggedOut, log_out
from trunkline.auth.credential_store import CredentialStore
from trunkline.auth.oauth import OAuth, may_carry_secrets
from trunkline.auth.token_store import StoredLogin, find_login, stored_logins
from trunkline.cli.ui.elicitation import display_host
from trunkline.cli.ui.output import one_line, print_notice
from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, is_interactive
from trunkline.errors import AuthError
from trunkline.host.logins import LoginTarget, log_in, user_logins

__all__ = ["GatewayUser", "LoginOptions", "end_logins", "get_login", "list_logins", "login_document", "stored_login"]

_PASTE = "If the browser ends at a page that cannot be shown, paste the address of that page here: "


class GatewayUser(NamedTuple):
    """A user of a gateway, as identified by its authentication."""

    subject: str
    issuer: str | None = None


class LoginOptions(NamedTuple):
    """The options for a new login."""

    url: str
    scopes: Sequence[str]
    client_id: str | None
    browser: bool
    ca_file: str | None
    #: The gateway user the login is for; None: one's own.
    owner: GatewayUser | None = None


# --- lookup -----------------------------------------------------------------------------------------------------------


async def stored_login(url: str) -> OAuth | None:
    """Return the stored login for a URL, to be used and renewed without interaction; None if there is none."""
    if not may_carry_secrets(url):
        return None
    try:
        return await find_login(await _store(), url)
    except AuthError as error:
        # The server may not need a login at all.
        print_notice(str(error))
        return None


async def list_logins(owner: GatewayUser | None = None) -> list[StoredLogin]:
    """Return the stored logins.

    Raises:
        AuthError: the store cannot be read.
    """
    return await stored_logins(await _store(owner))


async def end_logins(
    url: str | None, owner: GatewayUser | None = None, *, local: bool = False, ca_file: str | None = None
) -> list[LoggedOut]:
    """Revoke and delete the logins for a server, or all of them; ``local`` only deletes.

    Raises:
        AuthError: the store cannot be changed.
    """
    return await log_out(url, store=await _store(owner), local=local, ca_file=ca_file)


async def _store(owner: GatewayUser | None = None) -> CredentialStore:
    if owner is not None:
        from trunkline.auth.credential_store import FileStore
        from trunkline.host.state_files import private_folder, state_folder
        from trunkline.host.upstreams.routing.credentials import user_store_path

        path = user_store_path(state_folder(), issuer=owner.issuer, subject=owner.subject)
        private_folder(path.parent)
        return FileStore(path)
    return await user_logins()


# --- logging in -------------------------------------------------------------------------------------------------------


async def get_login(wanted: LoginOptions) -> StoredLogin | None:
    """Log in to a server and store the login; return None if the server has no login.

    Raises:
        TrunklineError: it failed; the previous login is still stored.
    """
    target = LoginTarget(
        url=wanted.url, scopes=tuple(wanted.scopes), client_id=wanted.client_id, ca_file=wanted.ca_file
    )
    return await log_in(target, visit=_LoginPage(browser=wanted.browser).open, store=await _store(wanted.owner))


class _LoginPage:
    """Sends the user to the login page: with their browser, or by printing the URL."""

    def __init__(self, *, browser: bool) -> None:
        self._browser = browser
        self._screen = Screen(verbose=False)

    async def open(self, url: str) -> str | None:
        """Open a page; return the address pasted by the user, or None if the redirect reaches us by itself."""
        from trunkline.auth.browser import has_browser

        if self._browser and has_browser():
            import webbrowser

            self._screen.line(f"Log in at {display_host(url)} in your browser. If it does not open, go to:\n  {url}")
            if await asyncio.to_thread(webbrowser.open, url):
                return None
        self._screen.line(f"Open this page in a browser and log in:\n  {one_line(url)}")
        if not is_interactive():
            return None
        try:
            return await Terminal(self._screen).ask(_PASTE) or None
        except EndOfInput:
            return None


# --- output -----------------------------------------------------------------------------------------------------------


def login_document(kept: StoredLogin) -> dict[str, Any]:
    """Return a login as JSON, without its tokens."""
    return {
        "url": kept.url,
        "resource": kept.resource,
        "issuer": kept.issuer,
        "clientId": kept.client_id,
        "scopes": (kept.scope or "").split(),
        "expiresAt": kept.expires_at,
        "renewable": kept.renewable,
    }
