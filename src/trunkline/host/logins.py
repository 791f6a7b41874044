"""Logs in to servers at URLs, with a user who visits the login page.

A new login stays in memory until the server has accepted it, and only then replaces the old one in the user's store.
The caller decides how the user gets to the page (a browser, a terminal, a link in another page).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from trunkline.auth.credential_store import CredentialStore, MemoryStore
from trunkline.auth.oauth import OAuth
from trunkline.auth.token_store import StoredLogin, delete_logins, stored_logins
from trunkline.host.config.model import ServerEntry
from trunkline.host.config.spelling import snake
from trunkline.host.shared_logins import find_logins

if TYPE_CHECKING:
    from trunkline.auth.driver import FetchFunction

__all__ = ["LoginPage", "LoginTarget", "log_in", "login_target", "user_logins"]

#: Sends the user to a page; returns the final address, or None if the redirect arrives by itself.
LoginPage: TypeAlias = Callable[[str], Awaitable[str | None]]


class LoginTarget(Struct, frozen=True, kw_only=True):
    """The server to log in to, and the login options of its entry."""

    url: str
    scopes: tuple[str, ...] = ()
    client_id: str | None = None
    ca_file: str | None = None


def login_target(entry: ServerEntry) -> LoginTarget | None:
    """Return the login target of an entry; None if the server has no URL."""
    if entry.url is None:
        return None
    auth = {snake(str(name)): value for name, value in entry.auth.items()} if isinstance(entry.auth, Mapping) else {}
    scopes = auth.get("scopes") or ()
    return LoginTarget(
        url=entry.url,
        scopes=tuple(scopes.split() if isinstance(scopes, str) else scopes),
        client_id=auth.get("client_id"),
    )


async def user_logins() -> CredentialStore:
    """Return the user's credential store; finding the system keyring may take a while."""
    return await asyncio.to_thread(find_logins)


async def log_in(target: LoginTarget, *, visit: LoginPage, store: CredentialStore) -> StoredLogin | None:
    """Log in to a server and store the login; return None if the server has no login.

    Raises:
        TrunklineError: it failed; the previous login is still stored.
    """
    from trunkline.client.client import Client

    fresh = MemoryStore()
    options = OAuth(client_id=target.client_id, scopes=target.scopes or None, store=fresh, open_browser=visit)
    async with Client(target.url, auth=options, ca_file=target.ca_file):
        pass
    if not await fresh.keys():
        await _log_in_unasked(target, options)
    found = await stored_logins(fresh)
    if not found:
        return None
    await delete_logins(store, target.url)
    for key in await fresh.keys():
        await store.put(key, await fresh.get(key) or "")
    return found[0]


async def _log_in_unasked(target: LoginTarget, options: OAuth) -> None:
    """Log in to a server that requires no login but publishes an authorization server: it may offer more to users."""
    from trunkline.auth.client import OAuthAuthorizer, guarded_fetch

    if await _publishes_metadata(target.url, guarded_fetch(target.url, options, ca_file=target.ca_file)):
        authorizer = OAuthAuthorizer(target.url, options, ca_file=target.ca_file)
        await authorizer.refused(401, [], shown=None, nonce=None)


async def _publishes_metadata(url: str, fetch: FetchFunction) -> bool:
    from trunkline.auth.discovery import resource_metadata_urls
    from trunkline.auth.steps import Fetch

    for place in resource_metadata_urls(url):
        answer = await fetch(Fetch("GET", place, {"Accept": "application/json"}))
        if answer.status == 200 and "json" in answer.headers.get("content-type", ""):
            return True
    return False
