"""Logging out: revokes the tokens of a login at the authorization server that issued them, and deletes it locally.

Deleting never depends on the authorization server: if it is unreachable, refuses or is too slow, that is reported, and
the login is deleted all the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from msgspec import Struct

from trunkline.auth.addresses import canonical
from trunkline.auth.client import guarded_fetch
from trunkline.auth.drive import Fetching, drive
from trunkline.auth.keeping import Place, forget, places
from trunkline.auth.oauth import OAuth
from trunkline.auth.revoking import revoke
from trunkline.auth.steps import Sources
from trunkline.auth.store import Store, find_store
from trunkline.auth.tokens import Login
from trunkline.errors import AuthError, ConfigError

__all__ = ["LoggedOut", "log_out"]

#: How long a logout waits for one authorization server.
_SECONDS = 10.0


class LoggedOut(Struct, frozen=True):
    """A login that was deleted, and whether its tokens were revoked."""

    url: str
    issuer: str | None = None
    #: Whether the authorization server revoked the tokens.
    revoked: bool = False
    #: Why revocation failed, if it was attempted.
    problem: str | None = None


async def log_out(
    url: str | None = None,
    *,
    options: OAuth | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    local: bool = False,
    ca_file: str | None = None,
    seconds: float = _SECONDS,
    fetch: Fetching | None = None,
) -> list[LoggedOut]:
    """Log out of one server, or of all: revoke the tokens and delete them; ``local`` only deletes.

    ``options`` supply the secret of a configured client, and the store if ``store`` is not given; ``fetch`` replaces
    the network in tests.

    Raises:
        AuthError: the login cannot be deleted from the store.
    """
    options = options or OAuth()
    # Finding the system keyring may take a while.
    kept = await asyncio.to_thread(find_store, options.store if store is None else store)
    wanted = None if url is None else canonical(url)
    found = [place for place in await places(kept) if wanted in (None, place.url)]
    work = [_leave(kept, place, options, local=local, ca_file=ca_file, seconds=seconds, fetch=fetch) for place in found]
    gone = await asyncio.gather(*work, return_exceptions=True)
    # Records that cannot be decoded are useless, and are deleted as well.
    if url is not None:
        await forget(kept, url)
    else:
        for key in await kept.keys():
            await kept.delete(key)
    return _joined(gone)


async def _leave(
    store: Store,
    place: Place,
    options: OAuth,
    *,
    local: bool,
    ca_file: str | None,
    seconds: float,
    fetch: Fetching | None,
) -> LoggedOut | None:
    # Another process must not refresh the login meanwhile: its new tokens would outlive the logout.
    async with store.lock(place.name):
        login = await place.load(store)
        problem = None
        try:
            if login is not None and not local:
                send = fetch or guarded_fetch(place.url, options, ca_file=ca_file)
                problem = await _revoked(login, options, seconds=seconds, fetch=send)
        finally:
            await place.forget(store)
    if login is None:
        return None
    return LoggedOut(place.url, login.tokens.issuer, not local and problem is None, problem)


async def _revoked(login: Login, options: OAuth, *, seconds: float, fetch: Fetching) -> str | None:
    """Revoke the tokens of a login; return the reason if that failed."""
    try:
        async with asyncio.timeout(seconds):
            await drive(revoke(login, options, sources=Sources()), fetch=fetch, options=options)
    except TimeoutError:
        return f"The authorization server {login.server.issuer} did not answer within {seconds:g} s."
    except (AuthError, ConfigError) as error:
        return str(error)
    return None


def _joined(gone: Sequence[LoggedOut | BaseException | None]) -> list[LoggedOut]:
    """Return the deleted logins; raise the first exception; leave out records without a login."""
    for each in gone:
        if isinstance(each, BaseException):
            raise each
    return [each for each in gone if isinstance(each, LoggedOut)]
