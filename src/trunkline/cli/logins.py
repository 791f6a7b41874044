"""Stored logins for servers at URLs: finds, creates, ends and lists them.

A new login stays in memory until the server has accepted it, and only then replaces the old one. A token is never
shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trunkline.auth.client import LoggedOut, log_out
from trunkline.auth.credential_store import CredentialStore, MemoryStore, find_store
from trunkline.auth.oauth import OAuth, may_carry_secrets
from trunkline.auth.token_store import StoredLogin, delete_logins, find_login, stored_logins
from trunkline.cli.ui.elicitation import display_host
from trunkline.cli.ui.output import one_line, print_notice
from trunkline.cli.ui.terminal import EndOfInput, Screen, Terminal, is_interactive
from trunkline.errors import AuthError

if TYPE_CHECKING:
    from trunkline.auth.driver import FetchFunction

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
        from trunkline.host.upstreams.routing.router import user_store_path

        path = user_store_path(state_folder(), issuer=owner.issuer, subject=owner.subject)
        private_folder(path.parent)
        return FileStore(path)
    # Finding the system's keyring may take a while.
    return await asyncio.to_thread(find_store, None)


# --- logging in -------------------------------------------------------------------------------------------------------


async def get_login(wanted: LoginOptions) -> StoredLogin | None:
    """Log in to a server and store the login; return None if the server has no login.

    Raises:
        TrunklineError: it failed; the previous login is still stored.
    """
    from trunkline.client.client import Client

    fresh = MemoryStore()
    pages = _LoginPage(browser=wanted.browser)
    options = OAuth(
        client_id=wanted.client_id, scopes=tuple(wanted.scopes) or None, store=fresh, open_browser=pages.open
    )
    async with Client(wanted.url, auth=options, ca_file=wanted.ca_file):
        pass
    if not await fresh.keys():
        await _log_in_unasked(wanted, options)
    found = await stored_logins(fresh)
    if not found:
        return None
    store = await _store(wanted.owner)
    await delete_logins(store, wanted.url)
    for key in await fresh.keys():
        await store.put(key, await fresh.get(key) or "")
    return found[0]


async def _log_in_unasked(wanted: LoginOptions, options: OAuth) -> None:
    """Log in to a server that requires no login, if it publishes where: it may offer more to logged-in users."""
    from trunkline.auth.client import OAuthAuthorizer, guarded_fetch

    if await _publishes_metadata(wanted.url, guarded_fetch(wanted.url, options, ca_file=wanted.ca_file)):
        authorizer = OAuthAuthorizer(wanted.url, options, ca_file=wanted.ca_file)
        await authorizer.refused(401, [], shown=None, nonce=None)


async def _publishes_metadata(url: str, fetch: FetchFunction) -> bool:
    from trunkline.auth.discovery import resource_metadata_urls
    from trunkline.auth.steps import Fetch

    for place in resource_metadata_urls(url):
        answer = await fetch(Fetch("GET", place, {"Accept": "application/json"}))
        if answer.status == 200 and "json" in answer.headers.get("content-type", ""):
            return True
    return False


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
